"""What is left lying about on this machine, and its removal: nothing outside of Loom's folders, no link followed.

Every function takes the folder that it looks into. Times are seconds since the epoch, ages seconds.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import files, ids, processes
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object
from loomctl.runs.machine import drivers, tells
from loomctl.runs.store import events

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

UNSENT = "unsent"
"""The folder in `local` for results that were refused, for another drove their run."""
CODE = "work"  # `.loom/local/work`: what git noted of the files that were saved as the code of a run (D77)
REMOVED, ARRIVING = "removed-", "arriving-"
"""What the names of folders in `local` begin with: runs that are being deleted, archives being unpacked and forks."""
_BESIDE = (".json.tmp", ".md.tmp")
_UNSENT_NAME = re.compile(r"(.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-\d+\.md")
_HEX = frozenset("0123456789abcdef")


class Found(NamedTuple):
    """Something that lies in a folder. changed: its last change; bytes: with everything below it."""

    path: str
    changed: float
    bytes: int


class SessionFile(NamedTuple):
    """A file of `local/` that bears the id of a session. run_id: None where the file does not say it."""

    path: str
    session_id: str
    run_id: str | None
    changed: float
    bytes: int


def is_leftover(name: str) -> bool:
    """Tell a file that a killed writer left by its name: `x.json.4711.0a1b2c3d.tmp`, `x.json.tmp`, `.x.4711.part`."""
    if name.startswith(".") and name.endswith(".part"):
        return True
    parts = name.split(".")
    by_name = len(parts) > 3 and parts[-1] == "tmp" and parts[-3].isdigit() and len(parts[-2]) == 8
    return name.endswith(_BESIDE) or (by_name and _HEX.issuperset(parts[-2]))


def leftovers(folder: str) -> Iterator[Found]:
    """Give what killed writers left in a folder and below it."""
    for found in below(folder):
        if is_leftover(os.path.basename(found.path)):
            yield found


def parts(local: str) -> Iterator[Found]:
    """Give what session starts left for their entries, pipes too."""
    for entry in _entries(os.path.join(local, "parts")):
        if not entry.is_dir(follow_symlinks=False):
            yield _of(entry)


def below(folder: str) -> Iterator[Found]:
    """Give every plain file below a folder; a link is neither given nor followed, nor is the folder if it is one."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from below(entry.path)
        elif entry.is_file(follow_symlinks=False):
            yield _of(entry)


def folders(folder: str, beginning: str) -> Iterator[Found]:
    """Give the folders in a folder whose names begin so."""
    for entry in _entries(folder):
        if entry.name.startswith(beginning) and entry.is_dir(follow_symlinks=False):
            size = sum(found.bytes for found in below(entry.path))
            yield Found(entry.path, _of(entry).changed, size)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    if os.path.islink(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _of(entry: os.DirEntry[str]) -> Found:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it went meanwhile
        return Found(entry.path, float("inf"), 0)
    return Found(entry.path, status.st_mtime, status.st_size)


def changed(path: str) -> float | None:
    """Give a file's last change; None where it is gone."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def session_files(local: str) -> Iterator[SessionFile]:
    """Give the files that name a session: bindings, what it was given and is owed, receipts, its status line."""
    for name in ("sessions", "primed", "owed", "opened", "receipts"):
        for found in below(os.path.join(local, name)):
            session_id, dot, ending = os.path.basename(found.path).rpartition(".")
            if dot and ending in ("json", "given", "watch", "unsure"):
                told = found.path if name != "primed" else os.path.join(local, name, f"{session_id}.json")
                run_id = _content(told).get("run_id")
                known = run_id if isinstance(run_id, str) else None
                yield SessionFile(found.path, session_id, known, found.changed, found.bytes)
    for found in below(os.path.join(local, "statusline")):
        name = os.path.basename(found.path)
        if not is_leftover(name):
            yield SessionFile(found.path, name, _run_of_line(found.path), found.changed, found.bytes)


def _run_of_line(path: str) -> str | None:
    """Give the run whose line was prepared in a file; None where it names none."""
    try:
        lines = files.read_bytes(path, limit=1 << 14).decode("utf-8", "replace").split("\n")
    except (OSError, LoomError):
        return None
    words = lines[2].split(" ") if len(lines) > 2 else []
    return words[1] if words[:1] == ["saved"] and len(words) > 1 else None


def _content(path: str) -> dict[str, Any]:
    try:
        return as_object(files.read_json(path, limit=1 << 22))
    except (OSError, LoomError):
        return {}


def forget_sessions(local: str, run_id: str) -> None:
    """Remove the bindings to a run, its driver, what sessions were given of it, the marks of those that may live."""
    drivers.forget(local, run_id)
    tells.forget(local, run_id)
    tells.forget(local, run_id)
    for found in list(session_files(local)):  # some tell their run by another
        if found.run_id == run_id:
            files.remove(found.path)
            if not os.path.islink(os.path.join(local, "live")):
                files.remove(os.path.join(local, "live", found.session_id))


def unsent(local: str) -> Iterator[tuple[Found, str]]:
    """Give the results that were kept because another drove their run (`{run_id}-{stamp}-{pid}.md`), with its id."""
    for found in below(os.path.join(local, UNSENT)):
        named = _UNSENT_NAME.fullmatch(os.path.basename(found.path))
        if named is not None:
            yield found, named[1]


def forget_unsent(local: str, run_id: str) -> None:
    """Remove the results that were kept for a run."""
    for found, of in list(unsent(local)):
        if of == run_id:
            files.remove(found.path)


def owner_lives(path: str) -> bool:
    """Tell whether the process whose number ends a folder's name still runs; a number that is used again counts."""
    number = os.path.basename(path).rpartition("-")[2]
    return number.isdigit() and bool(processes.started(int(number)))


def discard(path: str) -> bool:
    """Remove a file, or a folder with everything below it; links are removed, not followed. Gives whether it went.

    Raises OSError where it cannot be removed.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return True


def discard_lock(path: str) -> bool:
    """Remove a lock's file unless somebody holds it. Gives whether it went."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def orphaned_bytecode(prefix: str, *, older_than: float) -> Iterator[Found]:
    """Give the folders of compiled modules below a `pycache_prefix` whose sources are gone, the outermost of each.

    older_than: a time; what changed later stays, for its source may be moving just now.
    """
    yield from _orphaned(prefix, os.sep, older_than)


def _orphaned(folder: str, source: str, older_than: float) -> Iterator[Found]:
    for entry in _entries(folder):
        if not entry.is_dir(follow_symlinks=False):
            continue
        beside = os.path.join(source, entry.name)
        if os.path.isdir(beside):
            yield from _orphaned(entry.path, beside, older_than)
            continue
        inside = list(below(entry.path))
        changed = max((found.changed for found in inside), default=_of(entry).changed)
        if changed < older_than:
            yield Found(entry.path, changed, sum(found.bytes for found in inside))


def half_made(runs_folder: str, standing: Container[str]) -> Iterator[Found]:
    """Give the folders of runs that were begun and never got a state: a kill or a full disk came before it.

    standing: the ids of all runs there are, FABER's among them, whose folder here may hold no state.
    """
    for found in folders(runs_folder, ""):
        name = os.path.basename(found.path)
        if name not in standing and ids.is_fit(name) and is_half_made(found.path):
            latest = max((inside.changed for inside in below(found.path)), default=found.changed)
            yield found._replace(changed=max(latest, found.changed))


def is_half_made(folder: str) -> bool:
    """Tell whether a folder holds nothing but what `create` writes before the state; false for what cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.is_file(follow_symlinks=False) and _is_of_a_beginning(entry) for entry in entries)
    except (OSError, LoomError):
        return False


def _is_of_a_beginning(entry: os.DirEntry[str]) -> bool:
    if entry.name == "plan.json":
        plan = files.read_json(entry.path)
        return isinstance(plan, dict) and "faber" not in plan  # a plan that was frozen for one of FABER's runs
    if entry.name == events.FILE:  # one entry, or what a kill left of it
        lines = files.read_bytes(entry.path, limit=1 << 20).splitlines()
        return len(lines) <= 1 and all(b'"event":"run.created"' in line or not line.endswith(b"}") for line in lines)
    return is_leftover(entry.name)
