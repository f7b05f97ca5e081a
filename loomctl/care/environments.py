"""Loom's own environments in the user's cache: which there are, since when unused, and their removal.

`loomctl.install.environment` makes them, on the standard library alone; this is for `loomctl tidy`.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from loomctl.install.environment import MAKING
from loomctl.kit import files, folders
from loomctl.runs.store import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def half_made(base: str) -> Iterator[leftovers.Found]:
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
