"""Runs in FABER's folders, read and written where they stand."""
