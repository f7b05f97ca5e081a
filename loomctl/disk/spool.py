"""The spool: events of tools, each in a file that the launcher wrote and that `engine.recording` digests (D59)."""

from __future__ import annotations

import os

from loomctl.disk import files
from loomctl.model.records import NamedTuple

FOLDER = "spool"
BAD = ".bad"
_ENDING = ".json"


class Spooled(NamedTuple):
    """A file of the spool. at: when it was written, ns since 1970; plain: whether it is a file and no link."""

    name: str
    path: str
    at: int
    bytes: int
    plain: bool


def make_room(local: str) -> None:
    """Make the folder that the launcher writes events into; without it none is kept, which troubles nobody."""
    files.make_room(local, FOLDER)


def waiting(local: str) -> list[Spooled]:
    """Give what waits to be digested, in the order it was written; nothing where a link leads to it."""
    folder = os.path.join(local, FOLDER)
    if files.leads_away(os.path.dirname(local), folder):
        return []
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(_ENDING) or entry.name.startswith("."):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # another process digested it
                    continue
                plain = status.st_mode & 0o170000 == 0o100000
                found.append(Spooled(entry.name, entry.path, status.st_mtime_ns, status.st_size, plain))
    except OSError:
        return []
    return sorted(found, key=lambda one: (one.at, one.name))


def put_aside(spooled: Spooled) -> None:
    """Take a file that is no event out of the way, so that somebody can look at it: `x.json.bad`."""
    os.rename(spooled.path, spooled.path + BAD)


def sessions_of(name: str) -> list[str]:
    """Give the session ids that a file of this name can be of: `{session}-{pid}.json` or `{session}-{pid}-{n}.json`."""
    stem, found = name.removesuffix(_ENDING), []
    for _ in range(2):
        stem, dash, number = stem.rpartition("-")
        if not dash or not (number.isascii() and number.isdigit()):
            break
        found.append(stem)
    return found
