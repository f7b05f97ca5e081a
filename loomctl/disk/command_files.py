"""The files of a command in its stage: what it printed, how it was run, and who watches it (D30)."""

from __future__ import annotations

LOG, RECORD, LOCK = "command.log", "command.json", "command.lock"

MOST_HEAD = 63 * 1024 * 1024
"""Bytes of output that are stored as they come; of what follows the last MOST_END are."""
MOST_END = 1024 * 1024
