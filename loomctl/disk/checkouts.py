"""Which checkout this is, by an id that stays with its folder: `.loom/local/checkout.json`, never carried.

It holds `{id, inode}`, the inode of `.loom/local`: a folder that was moved is the same checkout, one that was copied,
restored or cloned is another.
"""

from __future__ import annotations

import os

from loomctl.disk import files
from loomctl.disk.lock import Lock
from loomctl.model.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "checkout.json"
_LOCK = "checkout.lock"


def here(local: str, root: str) -> str:
    """Give the id of the checkout at `root`. local: the store's folder of this machine.

    A linked worktree has the id of the store that it shares, and its way from there. Raises OSError, LoomError.
    """
    whole = os.path.realpath(local)
    way = os.path.relpath(os.path.realpath(root), os.path.dirname(os.path.dirname(whole)))
    own = _read(whole) or _made(whole)
    return own if way == "." else f"{own}:{way.replace(os.sep, '/')}"


def _read(local: str) -> str:
    path = os.path.join(local, FILE)
    try:
        files.refuse_links(os.path.dirname(local), path)
        found: Any = files.read_json(path, limit=1 << 12)
        inode = os.stat(local).st_ino
    except (OSError, LoomError):
        return ""
    known = found.get("id") if isinstance(found, dict) and found.get("inode") == inode else None
    return known if isinstance(known, str) else ""


def _made(local: str) -> str:
    """Write a new id; where another process was first, theirs counts."""
    path = os.path.join(local, FILE)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(local)
    with Lock(os.path.join(local, _LOCK), patience=1.0, what="the checkout's id") as lock:
        own = _read(local)
        if not own:
            own = os.urandom(16).hex()
            data = files.to_json({"schema_version": 1, "id": own, "inode": os.stat(local).st_ino})
            files.write_atomically(path, data, durable=False)
        lock.remove()
    return own
