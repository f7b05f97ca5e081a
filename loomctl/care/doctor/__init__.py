"""What is well in an installation and what is not, with the command that mends it."""
