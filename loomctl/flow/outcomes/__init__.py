"""What a response of a step means."""
