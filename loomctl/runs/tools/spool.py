"""The spool: events of tools, each in a file that the launcher wrote and that `runs.tools.recording` digests (D59)."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.lock import Lock
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

FOLDER = "spool"
BAD = ".bad"
UNFINISHED = ".unfinished"
"""What the name of a file ends with that somebody began to digest, and was killed: hooks pass it over (D59)."""
_ENDING = ".json"
_STORED, _TAIL = b'"bytes": ', 400  # what the hook that stores an output notes at the end of its event


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


def weight(spooled: Spooled) -> int:
    """Give what a file costs to digest, in its bytes: a third of what it stands for is added, where a hook stored that.

    The third is what masking and looking cost beside parsing at their worst. What cannot be read weighs its bytes.
    """
    if not spooled.plain:  # a pipe would never end
        return spooled.bytes
    try:
        with open(spooled.path, "rb") as source:
            source.seek(max(0, spooled.bytes - _TAIL))
            noted = source.read(_TAIL).rpartition(_STORED)[2]
    except OSError:
        return spooled.bytes
    size = noted.partition(b",")[0].strip(b" }\n")
    return spooled.bytes + (int(size) // 3 if size.isdigit() and len(size) < 16 else 0)


def put_aside(spooled: Spooled) -> None:
    """Take a file that is no event out of the way, so that somebody can look at it: `x.json.bad`."""
    os.rename(spooled.path, os.path.join(os.path.dirname(spooled.path), spooled.name + BAD))


def aside(name: str) -> str:
    """Name a file that was begun and never ended; one that was set aside before is bad, for it ended a command too."""
    return name.removesuffix(UNFINISHED) + (BAD if name.endswith(UNFINISHED) else UNFINISHED)


class Digesting:
    """`with Digesting(local, patience) as digesting:` one process at a time digests, and notes which file it began.

    Whoever comes after a kill, or after a failure that nobody foresaw, finds the note. It costs a write for each file,
    and stands beside the lock. A failure of the disk, or an end at a person's wish, leaves none. Raises HELD, OSError.
    """

    def __init__(self, local: str, patience: float) -> None:
        self._folder = os.path.join(local, FOLDER)
        self._note = os.path.join(local, "locks", "spool.begun")
        lock = os.path.join(local, "locks", "spool.digest")
        files.refuse_links(os.path.dirname(local), lock)
        self._lock = Lock(lock, patience=patience)

    def __enter__(self) -> Digesting:
        self._lock.__enter__()
        try:
            self._descriptor = files.open_own(self._note, os.O_RDWR)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, Exception) or issubclass(kind, (OSError, LoomError)):
                self.note("")
        finally:
            os.close(self._descriptor)
            self._lock.__exit__(kind, error, trace)

    def left(self) -> str:
        """Give the name of the file that was begun and never ended; empty where there is none."""
        name = os.pread(self._descriptor, 300, 0).decode("utf-8", "replace")
        fits = name.removesuffix(UNFINISHED).endswith(_ENDING) and os.path.basename(name) == name
        return name if fits and os.path.lexists(os.path.join(self._folder, name)) else ""

    def set_aside(self, name: str) -> None:
        """Rename what was begun and never ended, so that no hook begins it again."""
        os.rename(os.path.join(self._folder, name), os.path.join(self._folder, aside(name)))
        self.note("")

    def note(self, name: str) -> None:
        """Note which file is begun now; empty for none."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, name.encode(), 0)


def sessions_of(name: str) -> list[str]:
    """Give the session ids that a file of this name can be of: `{session}-{pid}.json` or `{session}-{pid}-{n}.json`."""
    stem, found = name.removesuffix(_ENDING), []
    for _ in range(2):
        stem, dash, number = stem.rpartition("-")
        if not dash or not (number.isascii() and number.isdigit()):
            break
        found.append(stem)
    return found
