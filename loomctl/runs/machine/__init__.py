"""What this machine alone knows of runs and sessions."""
