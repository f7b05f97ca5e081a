"""The files of a command in its stage: what it printed, how it was run, and who watches it (D30)."""

from __future__ import annotations

LOG, RECORD, LOCK = "command.log", "command.json", "command.lock"

KEY = "LOOM_COMMAND_KEY"
"""In a command's environment: a word that nobody else has, of which the record holds the hash (`key_sha256`)."""

MOST_HEAD = 63 * 1024 * 1024
"""Bytes of output that are stored as they come; of what follows the last MOST_END are."""
MOST_END = 1024 * 1024
