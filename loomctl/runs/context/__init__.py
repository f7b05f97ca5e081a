"""The values that a run's steps share, and what became of them."""
