"""The spool: events of tools, each in a file that the launcher wrote and that `engine.recording` digests (D59)."""

from __future__ import annotations

import os

from loomctl.disk import files
from loomctl.model.records import NamedTuple

FOLDER = "spool"
BAD = ".bad"
UNFINISHED = ".unfinished"
"""What the name of a file ends with that somebody began to digest, and was killed: hooks pass it over (D59)."""
_ENDING = ".json"
_BEGUN = os.path.join("locks", "spool.begun")


class Spooled(NamedTuple):
    """A file of the spool.

    name: as the launcher gave it; at: when it was written, ns since 1970; plain: whether it is a file and no link.
    """

    name: str
    path: str
    at: int
    bytes: int
    plain: bool


def make_room(local: str) -> None:
    """Make the folder that the launcher writes events into; without it none is kept, which troubles nobody."""
    files.make_room(local, FOLDER)


def waiting(local: str, ending: str = _ENDING) -> list[Spooled]:
    """Give what waits to be digested, in the order it was written; nothing where a link leads to it.

    ending: `UNFINISHED` for what was set aside.
    """
    folder = os.path.join(local, FOLDER)
    if files.leads_away(os.path.dirname(local), folder):
        return []
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(ending) or entry.name.startswith("."):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # another process digested it
                    continue
                plain = status.st_mode & 0o170000 == 0o100000
                found.append(
                    Spooled(entry.name.removesuffix(UNFINISHED), entry.path, status.st_mtime_ns, status.st_size, plain)
                )
    except OSError:
        return []
    return sorted(found, key=lambda one: (one.at, one.name))


def put_aside(spooled: Spooled) -> None:
    """Take a file that is no event out of the way, so that somebody can look at it: `x.json.bad`."""
    os.rename(spooled.path, spooled.path + BAD)


class Begun:
    """The note of which file is being digested, for whoever comes after a kill; the caller holds the spool's lock.

    It costs a write for each file, and stands beside that lock.
    """

    def __init__(self, local: str) -> None:
        self._folder = os.path.join(local, FOLDER)
        self._descriptor = files.open_own(os.path.join(local, _BEGUN), os.O_RDWR)

    def set_aside(self) -> str:
        """Rename the file that was begun and never ended, so that no hook begins it again; gives its name, or ""."""
        name = os.pread(self._descriptor, 300, 0).decode("utf-8", "replace")
        path = os.path.join(self._folder, name)
        if not name.endswith(_ENDING) or os.path.basename(name) != name or not os.path.lexists(path):
            return ""
        os.rename(path, path + UNFINISHED)
        self.note("")
        return name

    def note(self, name: str) -> None:
        """Note which file is begun now; empty for none."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, name.encode(), 0)

    def close(self) -> None:
        """Let go of the note."""
        os.close(self._descriptor)


def sessions_of(name: str) -> list[str]:
    """Give the session ids that a file of this name can be of: `{session}-{pid}.json` or `{session}-{pid}-{n}.json`."""
    stem, found = name.removesuffix(_ENDING), []
    for _ in range(2):
        stem, dash, number = stem.rpartition("-")
        if not dash or not (number.isascii() and number.isdigit()):
            break
        found.append(stem)
    return found
