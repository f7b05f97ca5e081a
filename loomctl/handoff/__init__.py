"""A run handed on through git: push and pull."""
