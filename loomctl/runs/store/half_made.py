"""Runs that were begun and never written to the end: a kill or a full disk came before their state."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.kit import files, ids
from loomctl.kit.errors import LoomError
from loomctl.runs.store import events, leftovers

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from loomctl.runs.store.leftovers import Found

PLAN, CREATED = "plan.json", "run.created"
_SMALL = 1 << 20  # bytes; the log of a run that was only begun has one entry


def half_made(runs_folder: str, standing: Container[str]) -> Iterator[Found]:
    """Give the folders of runs that hold nothing but what is written before the first state.

    standing: the ids of all runs there are, FABER's among them, whose folder here may hold no state.
    """
    for found in leftovers.folders(runs_folder, ""):
        name = os.path.basename(found.path)
        if name not in standing and ids.is_fit(name) and is_half_made(found.path):
            latest = max((inside.changed for inside in leftovers.below(found.path)), default=found.changed)
            yield found._replace(changed=max(latest, found.changed))


def is_half_made(folder: str) -> bool:
    """Tell whether a folder holds nothing but what `create` writes before the state; false for what cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.is_file(follow_symlinks=False) and _is_of_a_beginning(entry) for entry in entries)
    except OSError:
        return False


def _is_of_a_beginning(entry: os.DirEntry[str]) -> bool:
    if leftovers.is_leftover(entry.name):
        return True
    try:
        if entry.name == PLAN:
            plan = files.read_json(entry.path)
            return isinstance(plan, dict) and "faber" not in plan  # a plan that was frozen for one of FABER's runs
        if entry.name == events.FILE:
            lines = files.read_bytes(entry.path, limit=_SMALL).splitlines()
            return len(lines) <= 1 and all(_names_the_beginning(line) for line in lines)
    except (OSError, LoomError):
        return False
    return False


def _names_the_beginning(line: bytes) -> bool:
    """Tell the entry of a run's creation, or what a kill left of it."""
    return f'"event":"{CREATED}"'.encode() in line or not line.endswith(b"}")
