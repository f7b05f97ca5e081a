"""Loom: long work with a coding assistant that survives compaction, `/clear`, a crash and a new laptop."""

__version__ = "0.1.0"
