"""What can go: what was left behind on this machine, and outputs that the settings keep no longer (D56).

Nothing of a run's record goes unless the settings say so, nothing of a live session, and nothing by itself.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from loomctl.changes import working_tree
from loomctl.install.environment import MAKING
from loomctl.kit import clock, files, machine
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.runs.machine import launcher_files
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import blobs, leftovers
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace

DAY = 24 * 60 * 60
# What a killed writer or deletion left is certainly not being written any more after this long.
LEFTOVER_AFTER = DAY
OUTPUTS, LEFTOVER, SESSION, LOCK, HOOK = "outputs", "leftover", "session", "lock", "hook"
ENVIRONMENT, BYTECODE, BEGINNING, BASELINE, UNSENT = "environment", "bytecode", "beginning", "baseline", "unsent"


class Item(NamedTuple):
    """Something that can go.

    kind: one of the words above; why: for people; changed: its last change, seconds since the epoch; run_id: whose
    record it is, else empty.
    """

    kind: str
    path: str
    bytes: int
    why: str
    changed: float
    run_id: str = ""


class Removal(NamedTuple):
    """What was done. failed: what could not be removed, each with the reason; a lock that is held just stays."""

    removed: Sequence[Item]
    failed: Sequence[tuple[Item, str]]


class Look(NamedTuple):
    """What can go, and how much of runs that are over is kept because no setting limits it. Bytes."""

    items: Sequence[Item]
    outputs_kept: int


def look(space: Workspace, *, now: float) -> Look:
    """List what can go; reads alone. now: seconds since the epoch."""
    files.refuse_links(os.path.dirname(space.store.folder), space.store.local)
    files.refuse_links(os.path.dirname(space.store.folder), space.store.runs_folder)
    standing = {run_id: _status(space, run_id) for run_id in space.store.run_ids()}
    old, silent = now - LEFTOVER_AFTER, now - space.settings.local_days * DAY
    half_made = leftovers.half_made(space.store.runs_folder, standing)
    why = "a half-written run: it has no state, and no work was done in it"
    beginnings = list(_before(old, BEGINNING, half_made, why))
    items = [
        *beginnings,
        *_leftovers(space, old, [item.path for item in beginnings]),
        *_sessions(space, standing, silent),
        *_of_runs(space, standing, old, silent),
        *_notes(space, silent),
        *_environments(space, now, old),
    ]
    kept = 0
    for run_id, status in standing.items():
        if status in TERMINAL:
            going, left = _outputs(space, run_id, now)
            items += going
            kept += left
    return Look(items, kept)


def _before(time: float, kind: str, every: Iterable[leftovers.Found], why: str) -> Iterator[Item]:
    """Give what was not changed since a time."""
    for found in every:
        if found.changed < time:
            yield Item(kind, found.path, found.bytes, why, found.changed)


def _status(space: Workspace, run_id: str) -> str | None:
    """Give a run's status; None for one that cannot be read, which counts as under way."""
    try:
        status: str = space.store.read_state(run_id)["status"]
    except LoomError:
        return None
    return status


def _outputs(space: Workspace, run_id: str, now: float) -> tuple[list[Item], int]:
    """Give the outputs of a run that is over which the settings keep no longer, and the size of the others."""
    every = list(leftovers.below(os.path.join(space.store.run_dir(run_id), "outputs")))
    days = space.settings.outputs_days
    if days is None:
        return [], sum(found.bytes for found in every)
    why = f"older than {days} days; its run is over"
    going = [item._replace(run_id=run_id) for item in _before(now - days * DAY, OUTPUTS, every, why)]
    return going, sum(found.bytes for found in every) - sum(item.bytes for item in going)


def _leftovers(space: Workspace, old: float, going: Sequence[str]) -> Iterator[Item]:
    """Give what killed writers, deletions and unpackings left in the store and in the user's own folder.

    going: folders that go with all that is in them.
    """
    store = space.store
    own = [store.runs_folder, store.local, *(os.path.join(store.folder, name) for name in ("archive", blobs.FOLDER))]
    for folder in filter(None, (*own, machine.state_home())):
        every = (one for one in leftovers.leftovers(folder) if os.path.dirname(one.path) not in going)
        yield from _before(old, LEFTOVER, every, "left by a process that was killed")
    yield from _before(old, LEFTOVER, leftovers.parts(store.local), "left by a session start that was cut off")
    for beginning, why in (
        (leftovers.REMOVED, "left by the removal of a run"),
        (leftovers.ARRIVING, "left by an archive or a fork that was cut off"),
    ):
        for found in leftovers.folders(store.local, beginning):
            if not leftovers.owner_lives(found.path) or found.changed < old:
                yield Item(LEFTOVER, found.path, found.bytes, why, found.changed)


def _sessions(space: Workspace, standing: dict[str, str | None], silent: float) -> Iterator[Item]:
    """Give the files of sessions that are dead and silent, whose run is gone or over, or that cannot be read."""
    live = {entry["session_id"] for entry in space.local.bindings() if space.local.is_alive(entry)}
    for found in leftovers.session_files(space.store.local):
        if found.session_id in live or found.session_id == space.caller.session_id or found.changed >= silent:
            continue
        if found.run_id is None or found.run_id not in standing:
            why = "its run is gone" if found.run_id else "it names no run"
        elif standing[found.run_id] in TERMINAL:
            why = "its run is over"
        else:
            continue
        why = f"its session has been silent for {space.settings.local_days} days; {why}"
        yield Item(SESSION, found.path, found.bytes, why, found.changed)


def _of_runs(space: Workspace, standing: dict[str, str | None], old: float, silent: float) -> Iterator[Item]:
    """Give locks of runs that are gone, and what was noted as stages began (D39) of those and of runs long over."""

    def is_gone(run_id: str) -> bool:
        return run_id not in standing and not os.path.lexists(os.path.join(space.store.runs_folder, run_id))

    for lock in leftovers.below(os.path.join(space.store.local, "locks")):
        run_id, dot, ending = os.path.basename(lock.path).rpartition(".")
        if dot and ending == "lock" and is_gone(run_id):
            yield from _before(old, LOCK, [lock], "its run is gone")
    noted = [*leftovers.folders(os.path.join(space.store.local, working_tree.BASELINES), "")]
    noted += leftovers.below(os.path.join(space.store.local, leftovers.CODE))
    for found in noted:
        run_id = os.path.basename(found.path).removesuffix(".index")
        if is_gone(run_id):
            yield from _before(old, BASELINE, [found], "its run is gone")
        elif standing.get(run_id) in TERMINAL:
            why = f"its run is over, and nobody has used it for {space.settings.local_days} days"
            yield from _before(silent, BASELINE, [found], why)


def _notes(space: Workspace, silent: float) -> Iterator[Item]:
    """Give results that were refused and not given again, notes of hooks, and what was no event of a tool."""
    local, days = space.store.local, space.settings.local_days
    why = f"a result refused over {days} days ago, because another session drove its run"
    yield from _before(silent, UNSENT, (found for found, _ in leftovers.unsent(local)), why)
    hooks = leftovers.below(os.path.join(local, "hooks"))
    own = (found for found in hooks if not leftovers.is_leftover(os.path.basename(found.path)))
    yield from _before(silent, HOOK, own, f"not written to for {days} days")
    bad = (
        one
        for one in leftovers.below(os.path.join(local, launcher_files.SPOOL))
        if one.path.endswith(launcher_files.BAD)
    )
    yield from _before(silent, HOOK, bad, f"not a tool event; put aside {days} days ago")


def _environments(space: Workspace, now: float, old: float) -> Iterator[Item]:
    """Give environments of other versions that nobody used, half-made ones, and compiled modules without sources."""
    days = space.settings.environments_days
    own = lock_id(space.project.plugin_root)
    for base in bases():
        why = f"from another version of Loom, not used for {days} days"
        for item in _before(now - days * DAY, ENVIRONMENT, others(base, own), why):
            if not is_running(item.path):
                yield item
        half = (found for found in leftovers.folders(base, MAKING) if not leftovers.owner_lives(found.path))
        yield from _before(float("inf"), ENVIRONMENT, half, "left by a set-up that was killed")
        orphans = leftovers.orphaned_bytecode(os.path.join(base, "pycache"), older_than=old)
        yield from _before(float("inf"), BYTECODE, orphans, "its sources are gone")


def clean(space: Workspace, found: Look) -> Removal:
    """Remove what was found, as far as it is still what it was; outputs are told in their run's events first.

    What cannot be removed is given with its reason; the rest goes all the same.
    """
    removed: list[Item] = []
    failed: list[tuple[Item, str]] = []
    for item in (*_told(space, found.items, failed), *(item for item in found.items if item.kind != OUTPUTS)):
        try:
            if _discard(space, item):
                removed.append(item)
        except (OSError, LoomError) as error:
            failed.append((item, error.what if isinstance(error, LoomError) else error.strerror or str(error)))
    return Removal(removed, failed)


def _discard(space: Workspace, item: Item) -> bool:
    """Remove one; what was written since it was looked at stays, for somebody uses it again."""
    if item.kind in (OUTPUTS, SESSION, HOOK, BASELINE, UNSENT) and leftovers.changed(item.path) != item.changed:
        return False
    if item.kind == BEGINNING:
        with space.store.lock(os.path.basename(item.path)) as lock:
            if not leftovers.is_half_made(item.path):
                return False
            lock.remove()
            return leftovers.discard(item.path)
    if item.kind == LOCK:
        return leftovers.discard_lock(item.path)
    if item.kind == ENVIRONMENT:
        return discard(item.path, os.path.dirname(item.path))
    return leftovers.discard(item.path)


def _told(space: Workspace, items: Sequence[Item], failed: list[tuple[Item, str]]) -> list[Item]:
    """Say in each run's events which of its outputs go, before they do; give those of which that was said."""
    told: list[Item] = []
    for run_id in dict.fromkeys(item.run_id for item in items if item.kind == OUTPUTS):
        going = [item for item in items if item.run_id == run_id]
        days = space.settings.outputs_days
        properties = {"files": len(going), "bytes": sum(item.bytes for item in going), "older_than_days": days}
        happened = Event("outputs.removed", {**properties, "by": "retention", "at": clock.now()})

        def note(state: State, happened: Event = happened) -> list[Event]:
            if state["status"] not in TERMINAL:
                raise LoomError("RUN_IS_ACTIVE", "the run is active again", hint="loomctl clean", exit_code=EXIT_HELD)
            return [happened]

        try:
            space.store.tell(run_id, note)
        except (LoomError, OSError) as error:
            failed += [(item, str(error).partition("\n")[0]) for item in going]
        else:
            told += going
    return told


_BEGINNING = "env-"


def bases() -> list[str]:
    """Give the folders that the launcher keeps environments and compiled modules in: the plugin's data, the cache."""
    data = os.environ.get(machine.PLUGIN_DATA, "")
    own = [data if os.path.isabs(data) else "", machine.cache_home()]
    return [base for base in dict.fromkeys(own) if base and os.path.isdir(base) and not os.path.islink(base)]


def lock_id(plugin_root: str) -> str:
    """Give the id of the bundle's own requirements.lock; empty where it cannot be read."""
    try:
        with os.fdopen(files.open_regular(os.path.join(plugin_root, "requirements.lock")), encoding="utf-8") as lines:
            return lines.readline().rpartition(" ")[2].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def others(base: str, own: str) -> Iterator[leftovers.Found]:
    """Give the environments of other locks than one's own, as changed when they were last used.

    own: a lock's id; empty: none is known to be another's.

    Python reads an environment's pyvenv.cfg at every start; where the file system keeps no such times, the time of its
    making counts. The one that runs this is never given.
    """
    if not own:
        return
    for found in leftovers.folders(base, _BEGINNING):
        if not os.path.basename(found.path).startswith(f"{_BEGINNING}{own}-") and not _runs_this(found.path):
            yield found._replace(changed=max(found.changed, _last_read(found.path)))


def _runs_this(folder: str) -> bool:
    real = os.path.realpath(folder)
    return any(os.path.realpath(prefix) == real for prefix in (sys.prefix, sys.exec_prefix))


def _last_read(folder: str) -> float:
    try:
        status = os.stat(os.path.join(folder, "pyvenv.cfg"), follow_symlinks=False)
    except OSError:
        return 0.0
    return max(status.st_atime, status.st_mtime)


def is_running(folder: str) -> bool:
    """Tell whether a process on this machine was started from an environment."""
    import psutil

    mark = os.path.join(folder, "bin") + os.sep
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and words[0].startswith(mark):
            return True
    return False


def discard(path: str, base: str) -> bool:
    """Remove an environment while no set-up is under way; gives whether it went. Raises OSError.

    It goes out of sight in one rename, under a name that the next set-up sweeps, so that a kill leaves no half of one
    that could be taken for whole.
    """
    try:
        descriptor = os.open(os.path.join(base, "setup.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: the rename is what counts
            pass
        doomed = path
        if os.path.basename(path).startswith(_BEGINNING):
            doomed = os.path.join(base, f"{MAKING}{os.getpid()}")
            os.rename(path, doomed)
        return leftovers.discard(doomed)
    finally:
        os.close(descriptor)
