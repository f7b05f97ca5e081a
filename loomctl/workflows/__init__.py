"""Definitions: found, read, inherited, checked, frozen into a plan."""
