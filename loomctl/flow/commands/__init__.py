"""Command steps: trusted, started, ended."""
