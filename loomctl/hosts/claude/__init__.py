"""Claude Code's dialect: its events in, its answers out."""
