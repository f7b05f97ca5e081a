"""A run's key: the name by which whoever may ask twice finds the open run instead of beginning another."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.processes import Lock
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import run_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.store.store import Store

KEY = "key"  # of a state
LONGEST = 200  # characters


def checked(key: str) -> str:
    """Give a key that can be told apart from others by eye. Raises BAD_KEY."""
    why = ""
    if not 1 <= len(key) <= LONGEST:
        why = f"it has {len(key):,} characters; 1 to {LONGEST} are allowed"
    elif not key.isprintable():
        why = "it contains a character that cannot be printed, such as a line break"
    elif key != key.strip():
        why = "it begins or ends with a space"
    if not why:
        return key
    what, hint = "a run cannot have this key", "loomctl run --help"
    raise LoomError("BAD_KEY", what, where=f"--key {key[:60]!a}", why=why, hint=hint, exit_code=EXIT_USAGE)


def open_run(store: Store, key: str) -> str | None:
    """Find the run of a key that is not over; of several the one that was worked on last. None: there is none.

    A failed one counts, for `resume` tries its step again; a copy that a pull saved does not.
    """
    found = [one for one in run_index.summaries(store) if one.get(KEY) == key and _is_open(one)]
    newest = max(found, key=lambda one: (one["updated_at"] or "", one["run_id"]), default=None)
    return None if newest is None else str(newest["run_id"])


def _is_open(summary: dict[str, Any]) -> bool:
    return summary["status"] is not None and summary["status"] not in TERMINAL and not summary["saved_from"]


def lock(store: Store) -> Lock:
    """Give the lock under which a run of a key is looked for and begun."""
    path = os.path.join(store.local, "keys.lock")
    files.refuse_links(store.folder, path)
    return Lock(path, what="the lock of the project's keys")
