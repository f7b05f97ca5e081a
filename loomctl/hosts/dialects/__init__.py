"""What hosts other than the protocol's own say differently: events in, answers out, conversations read; a file each."""
