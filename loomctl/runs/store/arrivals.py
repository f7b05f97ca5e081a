"""A run that is built in a folder beside, and comes among the others by one rename: whole, or not at all (D53)."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loomctl.kit import clock, files
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs.store import events, leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.runs.model.state import State
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Store

_PIECE = 1 << 20
_SYNCED_ALONE = 64  # files and folders that are synced one by one; of more the whole disk is


@contextmanager
def room(store: Store, word: str) -> Iterator[str]:
    """Give an empty folder of this process's own beside the runs; what is left in it at the end is removed.

    word: what it is for, a part of its name. One that a kill leaves is known by it and tidied. Raises UNSAFE_LINK.
    """
    staging = os.path.join(store.local, f"{leftovers.ARRIVING}{word}{os.getpid()}")
    files.refuse_links(store.folder, staging)
    shutil.rmtree(staging, ignore_errors=True)
    os.mkdir(staging, 0o700)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def copy(source: str, target: str, names: Sequence[str]) -> int:
    """Copy plain files from one folder into another, durably; gives how many were there.

    names: relative paths. A link is neither copied nor followed; what is gone meanwhile is passed over.
    """
    count = 0
    for name in names:
        place = os.path.join(target, name)
        try:
            files.refuse_links(source, os.path.join(source, name))
            descriptor = files.open_regular(os.path.join(source, name))
        except (OSError, LoomError):
            continue
        os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
        with os.fdopen(descriptor, "rb") as original:
            mode = os.fstat(original.fileno()).st_mode & 0o755 | 0o600
            made = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
            with os.fdopen(made, "wb") as out:
                shutil.copyfileobj(original, out, _PIECE)
                out.flush()
                os.fsync(out.fileno())
        count += 1
    return count


def begin(folder: str, state: State, happened: Sequence[Event]) -> State:
    """Write the log and the first state of a run that is built in a folder; gives the state as it was written."""
    for name in (events.FILE, "state.json"):  # of a name that was taken meanwhile
        files.remove(os.path.join(folder, name))
    head = events.append(folder, state["run_id"], happened, durable=True, state=events.of_state(state))
    state = {**state, "revision": 1, "updated_at": clock.now(), "ledger_head": {"seq": head.seq, "sha256": head.sha256}}
    files.write_atomically(os.path.join(folder, "state.json"), files.to_json(state), mode=0o644)
    for below, _, _ in os.walk(folder):
        files.sync_folder(below)
    return state


def sync(folder: str) -> None:
    """Have the disk hold what was written before anything names it (D53); a second name is of what it holds."""
    fresh: list[str] = []
    for below, _, names in os.walk(folder):
        paths = (os.path.join(below, name) for name in names)
        fresh += [below, *(path for path in paths if os.lstat(path).st_nlink == 1)]
    if len(fresh) > _SYNCED_ALONE:
        os.sync()
        return
    for path in fresh:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def into_place(store: Store, folder: str, run_id: str) -> str:
    """Put a run that was built among the others, by one rename under its lock; gives its folder. Raises RUN_EXISTS."""
    target = store.run_dir(run_id)
    files.make_folder(os.path.dirname(target), mode=0o755)
    with store.lock(run_id):
        if os.path.lexists(target) or store.has(run_id):
            raise LoomError(
                "RUN_EXISTS",
                f"the run {run_id} is here already; nothing of it was changed",
                where=target,
                hint=f"loomctl show {run_id}",
                exit_code=EXIT_USAGE,
            )
        os.rename(folder, target)
    files.sync_folder(os.path.dirname(target))
    return target
