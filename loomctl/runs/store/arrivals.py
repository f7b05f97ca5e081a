"""A run that is built in a folder beside, and comes among the others by one rename: whole, or not at all (D53)."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from loomctl.kit import clock, digests, files
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.quick_json import following
from loomctl.runs.machine import run_notes
from loomctl.runs.model.visit_list import stored
from loomctl.runs.store import event_log, events, layouts, leftovers, recovery, visit_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.runs.model.state import State
    from loomctl.runs.store.event_log import Line
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Store

SWAPPED = ".replaced-"  # a folder that is being replaced, with the number of the process that does
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
    for name in (events.FILE, "state.json", visit_files.FIRST):  # of a name that was taken meanwhile
        files.remove(os.path.join(folder, name))
    home = layouts.at(folder, state["run_id"])
    held = visit_files.let_leave(home, {**state, "steps": list(state["steps"])}, visit_files.MOST, durable=True)
    head = events.append(folder, state["run_id"], happened, durable=True, state=events.of_state(held))
    told = {"revision": 1, "updated_at": clock.now(), "ledger_head": {"seq": head.seq, "sha256": head.sha256}}
    state, held = {**state, **told}, {**held, **told}
    files.write_atomically(home.state, files.to_json(stored(held)), mode=0o644)
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
                f"the run {store.handle(run_id)} is here already; nothing of it was changed",
                where=target,
                hint=f"loomctl show {store.handle(run_id)}",
                exit_code=EXIT_USAGE,
            )
        os.rename(folder, target)
    files.sync_folder(os.path.dirname(target))
    return target


@contextmanager
def swapped_folder(path: str, mark: str) -> Iterator[str]:
    """Give an empty folder of its owner's alone, which takes the place of `path` when the block has ended well.

    mark: what the folder's name has behind the path's until then, before the process's number. Raises OSError; then,
    and when the block fails, what stood at the path still does.
    """
    beside = f"{path}{mark}{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)  # of a process that had this number
    os.mkdir(beside, 0o700)
    try:
        yield beside
        if os.path.lexists(path) and os.listdir(path):
            swap(beside, path, f"{path}{SWAPPED}{os.getpid()}")
        else:
            os.rename(beside, path)
        files.sync_folder(os.path.dirname(path))
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def clear_up(path: str, *marks: str) -> None:
    """Remove what processes that were killed left beside a path under these marks."""
    within, name = os.path.split(path)
    for mark in marks:
        for left in leftovers.folders(within, name + mark):
            if not leftovers.owner_lives(left.path):
                shutil.rmtree(left.path, ignore_errors=True)


def swap(came: str, target: str, kept: str) -> None:
    """Let a folder take another's place, which stands in the first one's then. Raises OSError.

    At one moment, where the file system can; elsewhere a kill between two renames leaves the old one as `kept`, from
    where `mend` brings it back.
    """
    if _exchanged(came, target):
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
    return os.path.join(local, run_notes.HANDOFF, f"{run_id}.aside")


def mend(store: Store, run_id: str) -> None:
    """Bring back a run that a kill between two renames left aside; the caller holds its handoff. Raises OSError."""
    kept = aside(store.local, run_id)
    if not os.path.isdir(kept) or os.path.islink(kept):
        return
    target = store.run_dir(run_id)
    with store.lock(run_id):
        shutil.rmtree(kept) if os.path.lexists(target) else os.rename(kept, target)


def rename(folder: str, new: str, happened: Sequence[Event], changes: dict[str, Any]) -> State:
    """Give a copy of a run, in a folder of one's own, another id; gives its state.

    happened: what its log ends with; changes: to its state. Every entry stays, with the id and a chain of its own.
    Raises OSError, and what reading its state raises.
    """
    path = os.path.join(folder, "state.json")
    state: State = files.read_json(path)
    for below, _, names in os.walk(os.path.join(folder, "stages")):
        for name in names:
            if name.endswith(".json"):
                _rename_in(os.path.join(below, name), new)
    for name in recovery.kept_states(layouts.at(folder, new)):
        _rename_in(os.path.join(folder, name), new)
    known = _chain_anew(os.path.join(folder, events.FILE), new)
    bare = {key: value for key, value in state.items() if key != "lease"}  # nobody drives it
    told = {"run_id": new, "revision": following(state.get("revision", 0)), "updated_at": clock.now()}
    state = {**bare, **changes, **told}
    head = events.append(folder, new, happened, durable=False, known=known, state=events.of_state(state))
    state["ledger_head"] = {"seq": head.seq, "sha256": head.sha256}
    files.write_atomically(path, files.to_json(state), mode=0o644, durable=False)
    return state


def _rename_in(path: str, new: str) -> None:
    try:
        value = files.read_json(path)
    except (OSError, LoomError):
        return
    if isinstance(value, dict) and isinstance(value.get("run_id"), str):
        files.write_atomically(path, files.to_json({**value, "run_id": new}), mode=0o644, durable=False)


def _chain_anew(path: str, new: str) -> events.Head | None:
    """Write a log again with another run's id in each entry; gives the new head, None of a log without entries.

    What is no entry stays byte for byte, empty lines and a whole entry that a kill left without its newline, too: the
    note behind it tells exactly its bytes.
    """
    parts: list[bytes] = []
    head, end = events.Head(0, ""), 0
    lines = list(event_log.all_of(path))
    for line, behind in itertools.zip_longest(lines, lines[1:]):
        data = line.data
        if line.entry is not None and not (behind is not None and _is_told_torn(line, behind.entry)):
            entry = {**line.entry, "run_id": new, "prev": head.sha256}
            data = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
            head = events.Head(line.entry["seq"], digests.of_bytes(data))
        parts += [b"\n" * (line.at - end), data, b"\n" if line.ended else b""]
        end = line.at + line.bytes + 1
    files.write_atomically(path, b"".join(parts), durable=False)
    return head if head.seq else None


def _is_told_torn(line: Line, note: Mapping[str, Any] | None) -> bool:
    told = note.get("properties") if note is not None and note["event"] == events.TORN else None
    if not isinstance(told, dict) or told.get("bytes") != line.bytes:
        return False
    return bool(told.get("sha256") == digests.of_bytes(line.data))


_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_HERE = -100  # AT_FDCWD
# How a system or a file system says that it cannot.
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


def _exchanged(one: str, other: str) -> bool:
    """Let two folders of one file system change names at once; false where that cannot be done. Raises OSError.

    Who looks meets one or the other (D53).
    """
    import ctypes  # only an arrival that replaces a run needs it

    try:
        library = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(one), os.fsencode(other)
        if sys.platform == "darwin":
            result = library.renamex_np(*names, ctypes.c_uint(_EXCHANGE))
        else:
            result = library.renameat2(_HERE, names[0], _HERE, names[1], ctypes.c_uint(_EXCHANGE))
    except (OSError, AttributeError):  # a C library without it
        return False
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), other)
