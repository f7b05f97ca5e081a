"""What a run's files hold, as plain data; pure."""
