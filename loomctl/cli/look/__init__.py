"""Commands that show a run and change nothing of it."""
