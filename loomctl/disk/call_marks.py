"""When an assistant's process last called a tool, rested, and had its user asked: small files that hooks leave (D68).

`local/hosts/{pid}.called` and `{pid}.rested` are the launcher's, and only their times count: a tool is about to be
called; a turn ended or a prompt came. `{pid}.asked` names the verbs that the host was told to ask its user about.
They are named after the process, not after the session, for a session's id is only a word in the environment.
"""

from __future__ import annotations

import os

from loomctl.disk import files, processes
from loomctl.model.errors import LoomError
from loomctl.model.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "hosts"
CALLED, RESTED, ASKED = "called", "rested", "asked"


class Marks(NamedTuple):
    """Times in seconds since 1970, 0 where there is none. verbs: what the user was asked about, at `asked`."""

    called: float = 0
    rested: float = 0
    asked: float = 0
    verbs: tuple[str, ...] = ()

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
    try:
        verbs = files.read_bytes(_path(local, pid, ASKED), limit=1 << 12).decode("utf-8", "replace").splitlines()
    except (OSError, LoomError):
        verbs = []
    return Marks(called, rested, asked, tuple(verbs))


def note_asked(local: str, pid: int, verbs: Sequence[str]) -> None:
    """Note that the host is told to ask its user about verbs in the next call. Raises OSError and UNSAFE_LINK."""
    path = _path(local, pid, ASKED)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, "".join(f"{verb}\n" for verb in verbs).encode(), durable=False)


def _time(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0


def _path(local: str, pid: int, kind: str) -> str:
    return os.path.join(local, FOLDER, f"{pid}.{kind}")
