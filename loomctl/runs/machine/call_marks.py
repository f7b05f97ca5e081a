"""When an assistant's process last called a tool, rested, and had its user asked: small files that hooks leave (D68).

`local/hosts/{pid}.called` and `{pid}.rested` are the launcher's, and only their times count: a tool is about to be
called; a turn ended or a prompt came. `{pid}.asked` holds the words of the call that the host was told to ask its user
about, and one decision uses it up. They are named after the process, not after the session, for a session's id is only
a word in the environment.
"""

from __future__ import annotations

import os
import stat

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.process import processes
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = "hosts"
CALLED, RESTED, ASKED = "called", "rested", "asked"


class Marks(NamedTuple):
    """Times in seconds since 1970, 0 where there is none. words: of the call that the user was asked about."""

    called: float = 0
    rested: float = 0
    asked: float = 0
    words: frozenset[str] = frozenset()

    @property
    def last(self) -> float:
        """The time of the newest of them."""
        return max(self.called, self.rested, self.asked)


def make_room(local: str) -> None:
    """Make the folder that the launcher writes into, and remove the marks of processes that have ended."""
    files.make_room(local, FOLDER)
    for pid in pids(local):
        if not processes.started(pid):
            for kind in (CALLED, RESTED, ASKED):
                files.remove(_path(local, pid, kind))


def pids(local: str) -> frozenset[int]:
    """Give the processes that have marks. local: the store's `local` folder."""
    folder = os.path.join(local, FOLDER)
    if files.leads_away(os.path.dirname(local), folder):
        return frozenset()
    try:
        names = {name.partition(".")[0] for name in os.listdir(folder)}
    except OSError:
        return frozenset()
    return frozenset(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 10)


def read(local: str, pid: int) -> Marks:
    """Read the marks of a process."""
    called, rested, asked = (_time(_path(local, pid, kind)) for kind in (CALLED, RESTED, ASKED))
    if called and not _may_be_renewed(_path(local, pid, CALLED)):
        called = float("inf")  # nobody knows when the last call was
    try:
        words = files.read_bytes(_path(local, pid, ASKED), limit=1 << 16).decode("utf-8", "replace").split()
    except (OSError, LoomError):
        words = []
    return Marks(called, rested, asked, frozenset(words))


def note_asked(local: str, pid: int, words: Iterable[str]) -> None:
    """Note that the host is told to ask its user about the next call. Raises OSError and UNSAFE_LINK.

    words: of that call, as its text shows them, without white space in them.
    """
    path = _path(local, pid, ASKED)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, "\n".join(words).encode("utf-8", "replace"), durable=False)


def use_up(local: str, pid: int) -> bool:
    """Take the note of the call that the user was asked about; tells whether this process got it, and no other."""
    try:
        os.unlink(_path(local, pid, ASKED))
    except OSError:
        return False
    return True


def _may_be_renewed(path: str) -> bool:
    """Tell whether the launcher could write a mark anew."""
    return stat.S_ISREG(os.lstat(path).st_mode) and os.access(path, os.W_OK)


def _time(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0


def _path(local: str, pid: int, kind: str) -> str:
    return os.path.join(local, FOLDER, f"{pid}.{kind}")
