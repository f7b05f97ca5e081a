"""When each hook last fired in a project: one small file each, which the launcher writes and the doctor reads."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

# Every event that a host calls Loom for, as hooks.json and the launcher name it.
EVENTS = (
    "session-start", "user-prompt-submit", "pre-tool-use", "post-tool-use", "post-tool-use-failure", "pre-compact",
    "post-compact", "stop", "session-end",
)  # fmt: skip
WORK = ".work"
_FOLDER = "hooks"
_TOLD = "skew-told"


class Beat(NamedTuple):
    """at: seconds since 1970; session_id, version of the bundle and launcher's path: empty where they are not known."""

    at: float
    session_id: str
    version: str
    launcher: str


def make_room(local: str) -> None:
    """Make the folder that the launcher notes firings in; without it nothing is noted, which troubles nobody."""
    files.make_room(local, _FOLDER)


def has_room(local: str) -> bool:
    """Tell whether firings are noted here: the folder is there, and no link stands where the launcher refuses one."""
    folder = os.path.join(local, _FOLDER)
    links = (os.path.dirname(local), local, folder)
    return os.path.isdir(folder) and not any(os.path.islink(place) for place in links)


def read(local: str) -> dict[str, Beat]:
    """Give the last firing of each event that ever fired here. local: the store's `local` folder."""
    found = {}
    for event in EVENTS if has_room(local) else ():
        path = os.path.join(local, _FOLDER, event)
        try:
            if os.path.islink(path):
                continue
            line = files.read_bytes(path, limit=1 << 14).decode("utf-8", "replace").partition("\n")[0]
            at = os.stat(path).st_mtime
        except (OSError, LoomError):
            continue
        version, _, rest = line.partition(" ")
        session_id, _, launcher = rest.partition(" ")
        found[event] = Beat(at, "" if session_id == "-" else session_id, version, launcher)
    return found


def begun(local: str) -> dict[str, float]:
    """Give since when hooks work that have not ended their work, by event; seconds since 1970.

    The launcher notes `begun` in a second file before it starts Python, and `ended` over it afterwards: what a host has
    killed, for it took too long, stays begun.
    """
    found = {}
    for event in EVENTS if has_room(local) else ():
        path = os.path.join(local, _FOLDER, event + WORK)
        try:
            if not os.path.islink(path) and files.read_bytes(path, limit=1 << 10).startswith(b"begun"):
                found[event] = os.stat(path).st_mtime
        except (OSError, LoomError):
            continue
    return found


def version_in(local: str, session_id: str) -> str:
    """Give the version of the bundle whose hook fired last in a session; empty if none did, or another's came after."""
    own = [beat for beat in read(local).values() if beat.session_id == session_id]
    return max(own, key=lambda beat: beat.at).version if own else ""


def is_first_telling(local: str, what: str) -> bool:
    """Tell whether this has not been said yet, and note that it is now; where nothing can be noted it is said again."""
    path = os.path.join(local, _FOLDER, _TOLD)
    try:
        if files.read_bytes(path, limit=1 << 14) == what.encode():
            return False
    except (OSError, LoomError):
        pass
    try:
        if has_room(local):
            files.write_atomically(path, what.encode(), durable=False)
    except OSError:
        pass
    return True
