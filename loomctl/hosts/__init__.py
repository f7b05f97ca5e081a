"""One module for each assistant: its events in, the engine between, its answers out."""
