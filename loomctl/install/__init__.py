"""Loom's own environment: made once for each lock."""
