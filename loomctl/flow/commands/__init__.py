"""Command steps, and commands that are evidence: trusted, run, told, stopped."""
