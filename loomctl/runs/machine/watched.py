"""Which of the user's files a session was given: one small file that the launcher compares their times with (D80).

`local/primed/{session_id}.watch` holds a line for each: `+` and the absolute path, or `-` for one that is known to be
gone. Its own time is older than the reading of them, so that what is newer may have changed since. Who looks takes the
file away first: of several hooks of one moment one tells of an edit. `{session_id}.unsure` beside it says that a
compaction may have taken what the session was given; then each prompt starts Python.
"""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

WATCH, UNSURE = ".watch", ".unsure"
_FOLDER = "primed"
# Seconds by which a file must be older than its reading to count as read: some shells compare whole seconds.
SLACK = 2.0


def lines(artifacts: Mapping[str, Any]) -> Iterable[str]:
    """Give a line for each file of what a session was given (`primed.artifacts`), none for a name with a line end."""
    for entry in artifacts.values():
        path = entry.get("file") if isinstance(entry, dict) else None
        if isinstance(path, str) and path.startswith("/") and "\n" not in path:
            yield ("-" if entry.get("problem") and not os.path.exists(path) else "+") + path


def note(local: str, session_id: str, told: Iterable[str], *, age: float) -> None:
    """Write the file anew. age: seconds since its files were read, at most. Raises OSError and UNSAFE_LINK."""
    path = _path(local, session_id, WATCH)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, b"".join(os.fsencode(line) + b"\n" for line in sorted(set(told))), durable=False)
    at = os.stat(path).st_mtime - age - SLACK  # by the clock of the file system, as theirs are
    os.utime(path, (at, at))


def take(local: str, session_id: str) -> int | None:
    """Take the file away in order to look; gives its time in ns, None where it is not there, or another took it."""
    path = _path(local, session_id, WATCH)
    if files.leads_away(os.path.dirname(local), path):
        return None
    try:
        at = os.lstat(path).st_mtime_ns
        os.unlink(path)
    except OSError:
        return None
    return at


def is_newer(path: str, since: int) -> bool:
    """Tell whether a file may have changed since a time, or is gone."""
    try:
        return os.stat(path).st_mtime_ns >= since
    except OSError:
        return True


def doubt(local: str, session_id: str) -> None:
    """Note that a session may have lost what it was given, if any was. Raises OSError and UNSAFE_LINK."""
    path = _path(local, session_id, UNSURE)
    if not os.path.isdir(os.path.dirname(path)):
        return
    files.refuse_links(os.path.dirname(local), path)
    os.close(files.open_own(path, os.O_WRONLY))


def confirm(local: str, session_id: str) -> None:
    """Note that a session has what it was given, or that nothing more is tried. Raises OSError."""
    path = _path(local, session_id, UNSURE)
    if os.path.lexists(path) and not files.leads_away(os.path.dirname(local), path):
        files.remove(path)


def _path(local: str, session_id: str, ending: str) -> str:
    return os.path.join(local, _FOLDER, checked_id(session_id, what="session id") + ending)
