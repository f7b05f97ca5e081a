"""The use cases: load, decide, save; the one core that the command line, the hooks and the library share."""
