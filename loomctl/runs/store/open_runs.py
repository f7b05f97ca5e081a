"""The note of a store's open runs, `local/open-runs.json`: dropped when one that was over is under way again."""

from __future__ import annotations

import os

from loomctl.kit import files

OPEN = "open-runs.json"


def forget(store: str, local: str) -> None:
    """Drop the note. store: its folder; local: the folder in it that means something on this machine alone."""
    path = os.path.join(local, OPEN)
    if not files.leads_away(store, path):
        files.remove(path)
