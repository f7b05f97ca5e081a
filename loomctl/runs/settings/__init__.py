"""Settings of the user and the project."""
