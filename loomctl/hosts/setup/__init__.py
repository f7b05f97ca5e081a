"""What an assistant's own install cannot do for Loom: its user's files and a link on PATH, made, looked at, undone."""
