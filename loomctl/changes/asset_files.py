"""The files that tests and their runners leave behind: screenshots, reports, traces; found, compared, copied (D40)."""

from __future__ import annotations

import errno
import os
import time

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

FOLDER = "assets"
LARGEST = 10 << 20  # bytes of a file
TOGETHER = 50 << 20  # bytes of a collection
MOST = 1000  # files of a collection
MOST_ENTRIES = 200_000
PATIENCE = 1.0  # seconds, for a walk

_DIRECTORIES = ("playwright-report", "test-results", "cypress/videos", "cypress/screenshots")
_PATTERNS = (("junit", ".xml"), ("", ".trace.zip"))
# Of other programs, or too large to look through; then what Loom and FABER keep.
_PRUNED = (
    *("node_modules", ".cache/ms-playwright", ".yarn/cache", ".git", ".venv", "venv", ".tox", "__pycache__"),
    *("target", ".next", ".loom", ".fractary"),
)


class Look(NamedTuple):
    """What a walk found. found: `(size, mtime in ns)` by path below the root; why_not_all: empty for a whole walk."""

    found: Mapping[str, tuple[int, int]]
    why_not_all: str = ""


class Asset(NamedTuple):
    """A file that was captured. path: below the project; stored: below the run's folder; sha256: of what is stored."""

    path: str
    bytes: int
    sha256: str
    stored: str


class PassedOver(NamedTuple):
    """A file that was not captured. bytes: None where that is unknown; reason: in words."""

    path: str
    bytes: int | None
    reason: str


class Collected(NamedTuple):
    """What was captured, by path, and what was not: each file, the first `MOST`, and all of it in words."""

    assets: Sequence[Asset]
    warnings: Sequence[str]
    passed_over: Sequence[PassedOver] = ()

    def named(self, before: str) -> Collected:
        """Give the same with `before` in front of every path."""
        assets = [one._replace(path=before + one.path) for one in self.assets]
        return Collected(assets, self.warnings, [one._replace(path=before + one.path) for one in self.passed_over])

    def and_of(self, other: Collected) -> Collected:
        """Give what both hold."""
        passed_over = [*self.passed_over, *other.passed_over]
        return Collected([*self.assets, *other.assets], [*self.warnings, *other.warnings], passed_over)


def look(root: str, apart: Collection[str] = (), *, patience: float = PATIENCE, most: int = MOST_ENTRIES) -> Look:
    """Walk a project for such files, the nearest first; a link is found and not followed.

    apart: real paths of files that are none; patience: seconds; most: entries.
    """
    base = os.path.realpath(root)
    deadline = time.monotonic() + patience
    found: dict[str, tuple[int, int]] = {}
    folders: list[tuple[str, bool]] = [("", False)]
    seen = 0
    for folder, inside in folders:  # it grows while it is walked
        if time.monotonic() > deadline:
            return Look(found, f"the search took over {patience:g} seconds")
        for entry in _entries(os.path.join(root, folder)):
            seen += 1
            if seen > most:
                return Look(found, f"there are over {most:,} files and folders")
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_one_of(path, _PRUNED):
                        folders.append((path, inside or _is_one_of(path, _DIRECTORIES)))
                elif (
                    (inside or _is_asset(entry.name))
                    and (entry.is_file(follow_symlinks=False) or entry.is_symlink())
                    and os.path.join(base, path) not in apart
                ):
                    status = entry.stat(follow_symlinks=False)
                    found[path] = (status.st_size, status.st_mtime_ns)
            except OSError:  # it went meanwhile
                continue
    return Look(found)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_one_of(path: str, names: Iterable[str]) -> bool:
    return any(path == name or path.endswith(f"/{name}") for name in names)


def _is_asset(name: str) -> bool:
    return any(name.startswith(head) and name.endswith(tail) for head, tail in _PATTERNS)


def fresh(before: Look, after: Look, *, at: int) -> list[str]:
    """Name what is new or changed since the first walk, the smallest first.

    at: the file system's time of that walk, in ns; where it was no whole one, it decides about what it did not meet.
    """
    new = [
        path
        for path, known in after.found.items()
        if before.found.get(path) != known and (path in before.found or not before.why_not_all or known[1] >= at)
    ]
    return sorted(new, key=lambda path: (after.found[path][0], path))


def collect(root: str, paths: Sequence[str], run_dir: str, folder: str) -> Collected:
    """Copy files of a project below `{run_dir}/assets/{folder}`, each whole or not at all.

    paths: in the order in which they are taken, below `root`. Raises nothing: what could not be had is said.
    """
    assets: list[Asset] = []
    over: list[PassedOver] = []
    left, warnings = TOGETHER, []
    full = f"the limit of {MOST:,} files or {TOGETHER >> 20} MiB is reached"
    for number, path in enumerate(paths):
        try:
            stored = f"{FOLDER}/{folder}/{path}"
            asset = _copied(root, path, run_dir, stored, most=left if len(assets) < MOST else 0)
        except _Full:
            over += [_passed(root, one, full) for one in paths[number:]]
            warnings.append(f"{full}, so the {len(paths) - number:,} largest files were not captured")
            break
        except _TooLarge:
            over.append(_passed(root, path, _LARGE))
        except (OSError, LoomError) as error:
            said = error.what if isinstance(error, LoomError) else error.strerror or str(error)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                over += [_passed(root, one, f"{_UNWRITTEN}: {said}") for one in paths[number:]]
                warnings.append(f"Loom could not write assets: {said}; {len(paths) - number:,} are not captured")
                break
            over.append(_passed(root, path, said))
        else:
            left -= asset.bytes
            assets.append(asset)
    return Collected(sorted(assets), [*warnings, *_in_words([one for one in over if one.reason != full])], over[:MOST])


_LARGE = f"it is over {LARGEST >> 20} MiB"
_LINK = "it is a link"
_UNWRITTEN = "it could not be written"


def _copied(root: str, path: str, run_dir: str, stored: str, *, most: int) -> Asset:
    if most <= 0:
        raise _Full
    data = _content(os.path.join(root, path))
    if len(data) > most:
        raise _Full
    target = os.path.join(run_dir, stored)
    files.refuse_links(run_dir, target)
    files.make_folder(os.path.dirname(target))
    files.write_atomically(target, data, durable=False)
    return Asset(path, len(data), digests.of_bytes(data), stored)


def _passed(root: str, path: str, reason: str) -> PassedOver:
    try:
        status = os.lstat(os.path.join(root, path))
    except (OSError, ValueError):
        return PassedOver(path, None, reason)
    if status.st_mode & 0o170000 == 0o120000:
        return PassedOver(path, None, _LINK)
    return PassedOver(path, status.st_size, reason)


def _in_words(over: Sequence[PassedOver]) -> list[str]:
    """Tell of single files that were passed over; of links nobody expects a copy."""
    large = [one.path for one in over if one.reason == _LARGE]
    apart = (_LARGE, _LINK, _UNWRITTEN)
    odd = [f"{one.path} ({one.reason})" for one in over if not one.reason.startswith(apart)]
    warnings = [f"not captured, over {LARGEST >> 20} MiB: {named(large)}"] if large else []
    return [*warnings, f"not captured: {named(odd)}"] if odd else warnings


def named(paths: Sequence[str], most: int = 5) -> str:
    """Give the first of several, and how many more there are."""
    more = f" and {len(paths) - most:,} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


class _TooLarge(Exception):  # noqa: N818 - said, not raised on
    pass


class _Full(Exception):  # noqa: N818 - as above
    pass


def _content(path: str) -> bytes:
    """Read a file as it is at one moment. Raises OSError, for a link and one that does not stand still, too."""
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        raise OSError(errno.ELOOP, "a link leads to it")
    for _ in range(3):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor)
            if before.st_mode & 0o170000 != 0o100000:
                raise OSError(errno.EINVAL, "not a regular file")
            if before.st_size > LARGEST:
                raise _TooLarge
            data = _read(descriptor, LARGEST + 1)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if same and len(data) == after.st_size:
            return data
    if len(data) > LARGEST:
        raise _TooLarge
    raise OSError(errno.EAGAIN, "it changed while it was copied")


def _read(descriptor: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)
