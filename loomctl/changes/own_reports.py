"""Which files of a project are reports that Loom wrote: they are no work of a step's, no asset and no evidence.

`.loom/local/reports.json` holds `{path: [size, mtime, ctime, inode]}` of each file that `loomctl report` wrote where
nothing stood, or such a report. What a page says of itself proves nothing; a file whose content, time or place was
changed since is its user's, as is one that was written over.
"""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

FILE = "reports.json"
_LOCK = "reports.lock"
_MOST = 20_000
_LARGEST = 8 << 20


def standing(local: str) -> frozenset[str]:
    """Give the real paths of Loom's own reports as they stand. local: the store's folder of this machine."""
    base = _base(local)
    return frozenset(
        whole for path, known in _read(local).items() if identity(whole := os.path.join(base, path)) == known
    )


def below(folder: str) -> set[str]:
    """Give the real paths of all files below a folder; none where there is no folder, or none is named."""
    if not folder:
        return set()
    return {os.path.join(at, name) for at, _, names in os.walk(os.path.realpath(folder)) for name in names}


def note(local: str, written: Iterable[str], foreign: Collection[str]) -> None:
    """Note files that a report was written to. Raises OSError and LoomError.

    written: real paths; foreign: those at which something stood before that was no report of Loom's.
    """
    path, base = os.path.join(local, FILE), _base(local)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(local)
    with Lock(os.path.join(local, _LOCK), patience=1.0, what="the list of reports"):
        kept = {one: known for one, known in _read(local).items() if identity(os.path.join(base, one)) == known}
        for whole in written:
            known = identity(whole)
            if whole not in foreign and known:
                kept.pop(os.path.relpath(whole, base), None)
                kept[os.path.relpath(whole, base)] = known
        latest = list(kept.items())[-_MOST:]
        files.write_atomically(path, files.to_json({"schema_version": 1, "files": dict(latest)}), durable=False)


def _base(local: str) -> str:
    """Give the folder from which paths count, so that a project may be moved: the one that the store stands in."""
    return os.path.dirname(os.path.dirname(os.path.realpath(local)))


def _read(local: str) -> dict[str, list[int]]:
    path = os.path.join(local, FILE)
    try:
        files.refuse_links(os.path.dirname(local), path)
        found = files.read_json(path, limit=_LARGEST)
    except (OSError, LoomError):
        return {}
    listed = found.get("files") if isinstance(found, dict) else None
    if not isinstance(listed, dict):
        return {}
    return {path: known for path, known in listed.items() if isinstance(known, list) and "\0" not in path}


def identity(path: str) -> list[int]:
    """Give size, times (ns) and inode of a file: whatever is done to it changes some; empty for none."""
    try:
        status = os.lstat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
