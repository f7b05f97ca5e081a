"""A run taken back, and a run forked."""
