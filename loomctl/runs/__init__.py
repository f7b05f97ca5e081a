"""A run: found, driven by one session at a time, its stages and values."""
