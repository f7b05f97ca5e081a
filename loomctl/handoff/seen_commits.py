"""What this machine was told of runs that a remote has: `.loom/local/seen-commits.json`, so that it is asked for once.

`{remote: {commit: its text}}`, of those alone that the remote had when it was last listed. A text is believed only if
its hash is the commit's name, so nothing here can grow old or be put in by somebody else.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from loomctl.kit import files
from loomctl.kit.errors import LoomError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FILE = "seen-commits.json"
_LARGEST = 16 << 20  # bytes of what is kept of one remote
_MOST_REMOTES = 20


def read(local: str, remote: str, commits: Collection[str], algorithm: str) -> dict[str, bytes]:
    """Give those of the commits that are known. algorithm: by which objects are named. Raises nothing."""
    held = _all(local).get(remote)
    if not isinstance(held, dict):
        return {}
    found: dict[str, bytes] = {}
    for commit in commits:
        text = held.get(commit)
        try:
            data = text.encode("latin-1") if isinstance(text, str) else b""
        except UnicodeEncodeError:
            continue
        if _name(data, algorithm) == commit:
            found[commit] = data
    return found


def write(local: str, remote: str, seen: Mapping[str, bytes]) -> None:
    """Keep what commits of a remote say, and nothing else of that remote. Raises OSError and UNSAFE_LINK."""
    path = _path(local)
    kept: dict[str, str] = {}
    left = _LARGEST
    for commit, data in seen.items():
        left -= len(data)
        if left >= 0:
            kept[commit] = data.decode("latin-1")
    others = [(key, held) for key, held in _all(local).items() if key != remote]
    files.write_atomically(path, files.to_json(dict([*others, (remote, kept)][-_MOST_REMOTES:])), durable=False)


def _name(data: bytes, algorithm: str) -> str:
    return hashlib.new(algorithm, b"commit %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _path(local: str) -> str:
    path = os.path.join(local, FILE)
    files.refuse_links(os.path.dirname(local), path)
    return path


def _all(local: str) -> dict[str, Any]:
    try:
        value = files.read_json(_path(local))
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}
