"""What is known of every run without reading every state: an index of summaries, and which runs are open.

Both are this machine's own, in `.loom/local`, made anew from the states whenever they do not fit them; a state that
changed within the last seconds is read, for its file's time may not tell it from the one before.
"""

from __future__ import annotations

import os
import time

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import sessions
from loomctl.runs.model.standing import saved_from
from loomctl.runs.model.state import ACTIVE, TERMINAL
from loomctl.runs.store.store import OPEN

INDEX = "runs.json"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.store.layouts import Home
    from loomctl.runs.store.store import Store

VERSION = 4
# What a hook reads of states while it looks for a run, in bytes: it has seconds, and a state can come from anywhere.
LARGEST_LOOKED_AT, MOST_LOOKED_AT = 2 << 20, 32 << 20
# A file that was written this recently may be written again without its time telling so.
RACY_NS = 2_000_000_000
_KEYS = ("workflow_id", "work_id", "goal", "key", "status", "current_phase", "current_step", "updated_at")


class Standing(NamedTuple):
    """Run ids. active: in an active status (D1); unreadable: nobody can say."""

    active: list[str]
    unreadable: list[str]


class _Room:
    """How many bytes of states may still be read; None: any number."""

    def __init__(self, left: int | None = None) -> None:
        self._left = left

    def takes(self, stamp: list[int] | None) -> bool:
        if self._left is None or stamp is None:
            return True
        if stamp[1] > min(self._left, LARGEST_LOOKED_AT):
            return False
        self._left -= stamp[1]
        return True


_NOT_LOOKED_AT = {"status": None, "error": "TOO_LARGE: a hook does not read it"}


def summaries(store: Store, *, keep: bool = True) -> list[dict[str, Any]]:
    """Give every run in a few words, by id.

    `{run_id, workflow_id, work_id, goal, key, status, current_phase, current_step, updated_at, sessions, saved_from}`,
    or `{run_id, status: None, error}` for one whose state cannot be read. saved_from: as `standing.saved_from` gives
    it. keep: whether the index is written where it has changed.
    """
    return _summaries(store, _Room(), keep=keep)


def last(store: Store) -> dict[str, Any] | None:
    """Give the summary of the run that was worked on last, whatever its standing; None where none can be read."""
    found = [one for one in summaries(store) if one["status"] is not None]
    return max(found, key=lambda one: (one["updated_at"] or "", one["run_id"]), default=None)


def _summaries(store: Store, room: _Room, *, keep: bool = True) -> list[dict[str, Any]]:
    known = as_object(_read(store, INDEX).get("runs"))
    racy = time.time_ns() - RACY_NS
    kept: dict[str, Any] = {}
    found: list[dict[str, Any]] = []
    for home in store.homes():
        stamp = _stamp(home.state)
        entry = known.get(home.run_id)
        if stamp is not None and isinstance(entry, list) and entry[:1] == [stamp] and _is_summary(entry[-1]):
            summary = entry[-1]
        else:
            summary = _summary(store, home) if room.takes(stamp) else _NOT_LOOKED_AT
        found.append({"run_id": home.run_id, **summary})
        if stamp is not None and stamp[0] < racy and "error" not in summary:
            kept[home.run_id] = [stamp, summary]
    if keep and kept != known:
        _write(store, INDEX, {"version": VERSION, "runs": kept})
    return found


def standing(store: Store) -> Standing:
    """Give the runs that are active, and those that cannot be read; and note which are open, for `standing_quick`."""
    return _standing(store, _Room())


def _standing(store: Store, room: _Room) -> Standing:
    racy = time.time_ns() - RACY_NS
    made = [_stamp(folder) for folder in store.run_folders()]
    every = _summaries(store, room)
    if made[0] is not None and all(stamp is None or stamp[0] < racy for stamp in made):
        is_open = [one["run_id"] for one in every if one["status"] not in TERMINAL]
        _write(store, OPEN, {"version": VERSION, "made": made, "runs": is_open})
    return Standing(
        [one["run_id"] for one in every if one["status"] in ACTIVE],
        [one["run_id"] for one in every if one["status"] is None],
    )


def standing_quick(store: Store) -> Standing:
    """As `standing`, at a cost that does not grow with the runs that are over: what a hook can afford.

    Only runs that were open before are read, while no run came or went; one that another program took from completed
    to active meanwhile, or began beside another of its plan, is seen after the next command. A state that is too large
    to be looked into, alone or together with the others, cannot be read.
    """
    room = _Room(MOST_LOOKED_AT)
    noted = _read(store, OPEN)
    made, is_open = [_stamp(folder) for folder in store.run_folders()], noted.get("runs")
    if made[0] is None or noted.get("made") != made or not isinstance(is_open, list):
        return _standing(store, room)
    active: list[str] = []
    unreadable: list[str] = []
    for name in sorted({name for name in is_open if isinstance(name, str)}):
        try:
            home = store.home(name)
            status = store.read_home(home)["status"] if room.takes(_stamp(home.state)) else None
        except LoomError as error:
            if error.code not in ("BAD_ID", "NO_SUCH_RUN"):
                unreadable.append(name)
        else:
            active.extend([name] if status in ACTIVE else [])
            unreadable.extend([name] if status is None else [])
    return Standing(active, unreadable)


def _summary(store: Store, home: Home) -> dict[str, Any]:
    try:
        state = store.glance(home)
    except LoomError as error:
        return {"status": None, "error": f"{error.code}: {error.what}"}
    return {
        **{key: held if isinstance(held := state.get(key), str) else None for key in _KEYS},
        "sessions": sessions.summary(state),
        "saved_from": saved_from(state),
    }


def _is_summary(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    copied = value.get("saved_from", "")
    if copied is not None and not (isinstance(copied, dict) and all(isinstance(one, str) for one in copied.values())):
        return False
    return all(isinstance(value.get(key), (str, type(None))) for key in (*_KEYS, "sessions"))


def _stamp(path: str) -> list[int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size, status.st_ino]


def _read(store: Store, name: str) -> dict[str, Any]:
    path = os.path.join(store.local, name)
    try:
        files.refuse_links(store.folder, path)
        value = files.read_json(path)
    except (OSError, LoomError):
        return {}
    fits = isinstance(value, dict) and value.get("version") == VERSION and value.get("store") == _place(store)
    return value if fits else {}


def _place(store: Store) -> str:
    return os.path.realpath(store.folder)


def _write(store: Store, name: str, value: dict[str, Any]) -> None:
    """Write a note that everything can do without; where it cannot be, it is not there."""
    path = os.path.join(store.local, name)
    if store.unwritten:
        return
    try:
        if os.path.isdir(store.local):
            files.refuse_links(store.folder, path)
            files.write_atomically(path, files.to_json_line({**value, "store": _place(store)}), durable=False)
    except (OSError, LoomError):
        return
