"""Which step follows an ended one."""
