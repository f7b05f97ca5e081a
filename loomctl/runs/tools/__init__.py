"""The log of a run's tool steps."""
