"""A run's folder that gives its place to another one: at one moment, or by two renames that are mended (D53)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from loomctl.kit import exchange, files
from loomctl.runs.machine import handoff_notes

if TYPE_CHECKING:
    from loomctl.runs.store.store import Store


def swap(came: str, target: str, kept: str) -> None:
    """Let a folder take another's place, which stands in the first one's then. Raises OSError.

    At one moment, where the file system can; elsewhere a kill between two renames leaves the old one as `kept`, from
    where `mend` brings it back.
    """
    if exchange.swap(came, target):
        return
    files.make_folder(os.path.dirname(kept))
    os.rename(target, kept)
    try:
        os.rename(came, target)
    except OSError:
        os.rename(kept, target)
        raise
    os.rename(kept, came)


def aside(local: str, run_id: str) -> str:
    """Name where a run stands between two renames."""
    return os.path.join(local, handoff_notes.FOLDER, f"{run_id}.aside")


def mend(store: Store, run_id: str) -> None:
    """Bring back a run that a kill between two renames left aside; the caller holds its handoff. Raises OSError."""
    kept = aside(store.local, run_id)
    if not os.path.isdir(kept) or os.path.islink(kept):
        return
    target = store.run_dir(run_id)
    with store.lock(run_id):
        shutil.rmtree(kept) if os.path.lexists(target) else os.rename(kept, target)
