"""The parts of one long text, left for the hook entries of the same event that only print them (D62).

The first entry's launcher names the files: `local/parts/{session_id}-{pid}.2`, `.3`, … hold what the entry of that
number prints, nothing where there is nothing for it. Whoever prints a part takes it away. `.by` stands while the first
entry works: it says whom the others wait for, at `.bell`, a pipe. `.next` holds what the hook behind a tool call adds
to its result.
"""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "parts"
MOST = 4
"""Entries that the bundle has for one session start."""
_WORKER, _BELL, _BEHIND = ".by", ".bell", ".next"


def leave_behind_a_call(local: str, session_id: str | None, pid: int | None, output: str) -> None:
    """Leave what the hook prints that follows the tool call which is running now; without room, nothing."""
    if session_id is None or not has_room(local):
        return
    path = os.path.join(local, FOLDER, f"{checked_id(session_id, what='session id')}-{pid or 0}{_BEHIND}")
    try:
        files.write_atomically(path, output.encode("utf-8", "backslashreplace"), durable=False)
    except OSError:
        return


def make_room(local: str) -> None:
    """Make the folder that parts are left in; without it the first entry gives what fits into its own output."""
    files.make_room(local, FOLDER)


def has_room(local: str) -> bool:
    """Tell whether parts can be left here: what the launcher asks of the folder, too."""
    folder = os.path.join(local, FOLDER)
    links = (os.path.dirname(local), local, folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK) and not any(os.path.islink(one) for one in links)


def hold_bell(base: str) -> int:
    """Make the pipe at which the others wait; it is held open by this process alone. Gives -1 where there is none.

    base: as for `leave`.
    """
    new = f"{base}{_BELL}.new"
    try:
        os.mkfifo(new, 0o600)
        bell = os.open(new, os.O_RDWR)
        os.rename(new, base + _BELL)  # held before anybody sees it
    except OSError:  # then they look again and again
        return -1
    return bell


def leave(base: str, outputs: Sequence[str], count: int, bell: int = -1) -> None:
    """Leave what the entries from the second to the last print, nothing for those behind; ring, a line for each.

    base: the path that the launcher named; outputs: in order; count: how many entries there are; bell: as `hold_bell`
    gives it. Raises OSError.
    """
    for number in range(2, count + 1):
        output = outputs[number - 2] if number - 2 < len(outputs) else ""
        files.write_atomically(f"{base}.{number}", output.encode("utf-8", "backslashreplace"), durable=False)
    files.remove(base + _WORKER)
    files.remove(base + _BELL)
    if bell >= 0:
        os.write(bell, b"\n" * (count - 1))
