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
from loomctl.kit import clock, files, folders
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.runs.machine import launcher_files
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import blobs, leftovers
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State

DAY = 24 * 60 * 60
# What a killed writer or deletion left is certainly not being written any more after this long.
LEFTOVER_AFTER = DAY
OUTPUTS, LEFTOVER, SESSION, LOCK, HOOK, ENVIRONMENT, BYTECODE, BEGINNING, BASELINE, UNSENT = (
    "outputs",
    "leftover",
    "session",
    "lock",
    "hook",
    "environment",
    "bytecode",
    "beginning",
    "baseline",
    "unsent",
)


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
    beginnings = list(_beginnings(space, standing, now))
    items = [
        *beginnings,
        *_leftovers(space, now, [item.path for item in beginnings]),
        *_sessions(space, standing, now),
        *_locks(space, standing, now),
        *_baselines(space, standing, now),
        *_unsent(space, now),
        *_hooks(space, now),
        *_environments(space, now),
    ]
    kept = 0
    for run_id, status in standing.items():
        if status in TERMINAL:
            old, left = _outputs(space, run_id, now)
            items += old
            kept += left
    return Look(items, kept)


def _status(space: Workspace, run_id: str) -> str | None:
    """Give a run's status; None for one that cannot be read, which counts as under way."""
    try:
        status: str = space.store.read_state(run_id)["status"]
    except LoomError:
        return None
    return status


def _outputs(space: Workspace, run_id: str, now: float) -> tuple[list[Item], int]:
    """Give the outputs of a run that is over which the settings keep no longer, and the size of the others."""
    folder = os.path.join(space.store.run_dir(run_id), "outputs")
    days = space.settings.outputs_days
    old: list[Item] = []
    left = 0
    for found in leftovers.below(folder):
        if days is not None and found.changed < now - days * DAY:
            old.append(
                Item(
                    OUTPUTS,
                    found.path,
                    found.bytes,
                    f"older than {days} days, and its run is over",
                    found.changed,
                    run_id,
                )
            )
        else:
            left += found.bytes
    return old, left


def _beginnings(space: Workspace, standing: dict[str, str | None], now: float) -> Iterator[Item]:
    for found in leftovers.half_made(space.store.runs_folder, standing):
        if found.changed < now - LEFTOVER_AFTER:
            why = "a run that was not written to the end: it has no state, and nothing was done in it"
            yield Item(BEGINNING, found.path, found.bytes, why, found.changed)


def _leftovers(space: Workspace, now: float, going: Sequence[str]) -> Iterator[Item]:
    """Give what killed writers, deletions and unpackings left in the store and in the user's own folder.

    going: folders that go with all that is in them.
    """
    store = space.store
    own = (
        store.runs_folder,
        store.local,
        os.path.join(store.folder, "archive"),
        os.path.join(store.folder, blobs.FOLDER),
    )
    for folder in (*own, folders.state_home()):
        for found in leftovers.leftovers(folder) if folder else ():
            if found.changed < now - LEFTOVER_AFTER and os.path.dirname(found.path) not in going:
                yield Item(LEFTOVER, found.path, found.bytes, "a writer that was killed left it", found.changed)
    for found in leftovers.parts(store.local):
        if found.changed < now - LEFTOVER_AFTER:
            yield Item(LEFTOVER, found.path, found.bytes, "a session start that was cut off left it", found.changed)
    for beginning, why in (
        (leftovers.REMOVED, "what is left of a run that was removed"),
        (leftovers.ARRIVING, "what is left of an archive or a fork that was not written to its end"),
    ):
        for found in leftovers.folders(store.local, beginning):
            if not leftovers.owner_lives(found.path) or found.changed < now - LEFTOVER_AFTER:
                yield Item(LEFTOVER, found.path, found.bytes, why, found.changed)


def _sessions(space: Workspace, standing: dict[str, str | None], now: float) -> Iterator[Item]:
    """Give the files of sessions that are dead and silent, whose run is gone or over, or that cannot be read."""
    days = space.settings.local_days
    live = {entry["session_id"] for entry in space.local.bindings() if space.local.is_alive(entry)}
    for found in leftovers.session_files(space.store.local):
        if found.session_id in live or found.session_id == space.caller.session_id:
            continue
        if found.changed >= now - days * DAY:
            continue
        if found.run_id is None or found.run_id not in standing:
            why = "its run is gone" if found.run_id else "it names no run"
        elif standing[found.run_id] in TERMINAL:
            why = "its run is over"
        else:
            continue
        yield Item(SESSION, found.path, found.bytes, f"its session was silent for {days} days; {why}", found.changed)


def _locks(space: Workspace, standing: dict[str, str | None], now: float) -> Iterator[Item]:
    for found in leftovers.below(os.path.join(space.store.local, "locks")):
        run_id, dot, ending = os.path.basename(found.path).rpartition(".")
        gone = run_id not in standing and not os.path.lexists(os.path.join(space.store.runs_folder, run_id))
        if dot and ending == "lock" and gone and found.changed < now - LEFTOVER_AFTER:
            yield Item(LOCK, found.path, found.bytes, "its run is gone", found.changed)


def _baselines(space: Workspace, standing: dict[str, str | None], now: float) -> Iterator[Item]:
    """Give what was noted when stages began (D39), of runs that are gone, or over for long."""
    days = space.settings.local_days
    for found in leftovers.folders(os.path.join(space.store.local, working_tree.BASELINES), ""):
        run_id = os.path.basename(found.path)
        if run_id not in standing and not os.path.lexists(os.path.join(space.store.runs_folder, run_id)):
            if found.changed < now - LEFTOVER_AFTER:
                yield Item(BASELINE, found.path, found.bytes, "its run is gone", found.changed)
        elif standing.get(run_id) in TERMINAL and found.changed < now - days * DAY:
            why = f"its run is over, and it was not used for {days} days"
            yield Item(BASELINE, found.path, found.bytes, why, found.changed)


def _unsent(space: Workspace, now: float) -> Iterator[Item]:
    days = space.settings.local_days
    for found, _ in leftovers.unsent(space.store.local):
        if found.changed < now - days * DAY:
            why = f"a result that was refused over {days} days ago, for another session drove its run"
            yield Item(UNSENT, found.path, found.bytes, why, found.changed)


def _hooks(space: Workspace, now: float) -> Iterator[Item]:
    days = space.settings.local_days
    for found in leftovers.below(os.path.join(space.store.local, "hooks")):
        if found.changed < now - days * DAY and not leftovers.is_leftover(os.path.basename(found.path)):
            yield Item(HOOK, found.path, found.bytes, f"not written for {days} days", found.changed)
    for found in leftovers.below(os.path.join(space.store.local, launcher_files.SPOOL)):
        if found.path.endswith(launcher_files.BAD) and found.changed < now - days * DAY:
            yield Item(HOOK, found.path, found.bytes, f"no event of a tool, put aside {days} days ago", found.changed)


def _environments(space: Workspace, now: float) -> Iterator[Item]:
    days = space.settings.environments_days
    own = lock_id(space.project.plugin_root)
    for base in bases():
        for environment in others(base, own):
            if environment.used < now - days * DAY and not is_running(environment.path):
                why = f"of another version of Loom, not used for {days} days"
                yield Item(ENVIRONMENT, environment.path, environment.bytes, why, environment.used)
        for half in unfinished(base):
            yield Item(ENVIRONMENT, half.path, half.bytes, "a set-up that was killed left it", half.changed)
        prefix = os.path.join(base, "pycache")
        for orphan in leftovers.orphaned_bytecode(prefix, older_than=now - LEFTOVER_AFTER):
            yield Item(BYTECODE, orphan.path, orphan.bytes, "its sources are gone", orphan.changed)


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
                raise LoomError(
                    "RUN_IS_ACTIVE", "the run is under way again", hint="loomctl clean", exit_code=EXIT_HELD
                )
            return [happened]

        try:
            space.store.tell(run_id, note)
        except (LoomError, OSError) as error:
            failed += [(item, str(error).partition("\n")[0]) for item in going]
        else:
            told += going
    return told


_BEGINNING = "env-"


class Environment(NamedTuple):
    """path: its folder; base: the cache that holds it; used: when it was last used, as far as its files tell."""

    path: str
    base: str
    used: float
    bytes: int


def bases() -> list[str]:
    """Give the folders that the launcher keeps environments and compiled modules in: the plugin's data, the cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = folders.home()
    if os.path.isabs(cache):
        cache = os.path.join(cache, "loom")
    elif home:
        mac = os.path.isdir("/System/Library")
        cache = os.path.join(home, "Library", "Caches", "loom") if mac else os.path.join(home, ".cache", "loom")
    else:
        cache = ""
    data = os.environ.get("CLAUDE_PLUGIN_DATA", "")
    own = [data if os.path.isabs(data) else "", cache]
    return [base for base in dict.fromkeys(own) if base and os.path.isdir(base) and not os.path.islink(base)]


def lock_id(plugin_root: str) -> str:
    """Give the id of the bundle's own requirements.lock; empty where it cannot be read."""
    try:
        with os.fdopen(files.open_regular(os.path.join(plugin_root, "requirements.lock")), encoding="utf-8") as lines:
            return lines.readline().rpartition(" ")[2].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def others(base: str, own: str) -> Iterator[Environment]:
    """Give the environments of other locks than one's own. own: a lock's id; empty: none is known to be another's.

    Python reads an environment's pyvenv.cfg at every start; where the file system keeps no such times, the time of its
    making counts. The one that runs this is never given.
    """
    if not own:
        return
    for found in leftovers.folders(base, _BEGINNING):
        if not os.path.basename(found.path).startswith(f"{_BEGINNING}{own}-") and not _runs_this(found.path):
            yield Environment(found.path, base, max(found.changed, _last_read(found.path)), found.bytes)


def unfinished(base: str) -> Iterator[leftovers.Found]:
    """Give what killed set-ups left."""
    for found in leftovers.folders(base, MAKING):
        if not leftovers.owner_lives(found.path):
            yield found


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
