"""Processes: which live, which began which, and running one to its end."""
