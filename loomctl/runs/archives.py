"""A run packed into one `.tar.gz`, and unpacked again: nothing in an archive is believed before it was looked at (D10).

Only plain files and folders are packed or unpacked: no links, no devices, nothing that leads out of the one folder.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import files
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.kit.ids import checked_id, mark
from loomctl.kit.text.fences import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

MOST_FILES = 200_000
LARGEST = 8 << 30
_PIECE = 1 << 20
# What tarfile asks for at once is a header; one of this size is no run's.
_LONGEST_READ = 4 * _PIECE

SUFFIX = ".tar.gz"


class Unpacked(NamedTuple):
    """run_id: the archive's one folder; files: how many it holds."""

    run_id: str
    files: int


def pack(folder: str, name: str, path: str) -> int:
    """Write everything below a folder into an archive, under `name`; gives how many files it holds.

    The archive is its owner's alone (D56), durable, and read back: each file in it is what stands on disk. Raises
    NOT_A_FILE for what no archive brings back, and ARCHIVE_BAD; nothing is left of a failed one.
    """
    found = sorted(_below(folder))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            with tarfile.open(fileobj=target, mode="w:gz") as packed:
                packed.add(folder, name, recursive=False, filter=_nobodys)
                for relative in found:
                    packed.add(os.path.join(folder, relative), f"{name}/{relative}", recursive=False, filter=_nobodys)
            target.flush()
            os.fsync(target.fileno())
        count = _compare(path, folder, name)
    except BaseException:
        files.remove(path)
        raise
    return count


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _below(folder: str, inside: str = "") -> Iterator[str]:
    """Give every file and folder below a folder, relative to it. Raises NOT_A_FILE."""
    with os.scandir(os.path.join(folder, inside)) as entries:
        for entry in entries:
            relative = os.path.join(inside, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield relative
                yield from _below(folder, relative)
            elif entry.is_file(follow_symlinks=False):
                yield relative
            else:
                what = "the run's folder holds something that an archive cannot restore"
                why = "Loom puts only plain files there; remove it, and Loom can archive the rest"
                raise LoomError("NOT_A_FILE", what, where=entry.path, why=why, hint=f"ls -l {quoted(entry.path)}")


def _compare(path: str, folder: str, name: str) -> int:
    """Read an archive back against the folder it was made of; gives how many files it holds. Raises ARCHIVE_BAD."""
    left = {f"{name}/{relative}": os.path.join(folder, relative) for relative in _below(folder)}
    left[name] = folder
    count = 0
    try:
        with _opened(path) as packed:
            for member in packed:
                beside = left.pop(member.name, None)
                if beside is None:
                    raise _bad_copy(path, f"{member.name} is not in the run's folder")
                if member.isreg():
                    count += 1
                    stored = packed.extractfile(member)
                    with os.fdopen(files.open_regular(beside), "rb") as original:
                        if stored is None or _digest(stored) != _digest(original):
                            raise _bad_copy(path, f"{member.name} differs from the file on disk")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _bad_copy(path, str(error)) from None
    if left:
        raise _bad_copy(path, f"it lacks {len(left)} files, for example {min(left)}")
    return count


def _digest(stream: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while piece := stream.read(_PIECE):
        digest.update(piece)
    return digest.digest()


def _bad_copy(path: str, why: str) -> LoomError:
    return LoomError(
        "ARCHIVE_BAD",
        "the archive differs from the run, so the run stays",
        where=path,
        why=f"{one_line(why, 300)}; try again when nothing writes to the run",
        hint="loomctl sessions",
    )


def unpack(path: str, into: str) -> Unpacked:
    """Unpack an archive of one run below an empty folder of one's own, durably.

    Raises BAD_ARCHIVE for anything that is no plain file or folder below one folder with a run's name, and for more
    than a run holds. What a failed one left in `into` is the caller's to remove.
    """
    run_id, count, total = "", 0, 0
    folders: list[str] = []
    try:
        with _opened(path) as packed:
            for number, member in enumerate(packed):
                parts = _parts(path, member)
                run_id = run_id or checked_id(parts[0])
                total += member.size
                if parts[0] != run_id:
                    raise _bad(path, f"it holds two folders, {parts[0]} and {run_id}")
                if number >= MOST_FILES or total > LARGEST:
                    raise _bad(path, f"it holds more than {MOST_FILES:,} files or {LARGEST:,} bytes")
                target = os.path.join(into, *parts)
                os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
                if member.isdir():
                    os.makedirs(target, mode=0o755, exist_ok=True)
                    folders.append(target)
                else:
                    _write(packed, member, target)
                    count += 1
                packed.members = []  # type: ignore[attr-defined]  # tarfile would remember each
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _bad(path, f"it holds {error.filename} twice") from None
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, ValueError, LookupError, RecursionError) as error:
        raise _bad(path, str(error)) from None  # all that a forged header makes tarfile raise
    if not run_id:
        raise _bad(path, "it is empty")
    for folder in folders:
        files.sync_folder(folder)
    return Unpacked(run_id, count)


def _parts(path: str, member: tarfile.TarInfo) -> list[str]:
    """Check a member and give its path in parts. Raises BAD_ARCHIVE."""
    parts = member.name.rstrip("/").split("/")
    if member.size < 0 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise _bad(path, f"{member.name} leads out of the archive")
    if not (member.isdir() or (member.isreg() and not member.issparse())):
        raise _bad(path, f"{member.name} is not a plain file")
    if len(parts) == 1 and not member.isdir():
        raise _bad(path, f"{member.name} is not in a run's folder")
    return parts


def _write(packed: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    source = packed.extractfile(member)
    assert source is not None  # it is a plain file
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        while piece := source.read(_PIECE):
            out.write(piece)
        out.flush()
        os.fchmod(out.fileno(), (stat.S_IMODE(member.mode) & 0o755) | 0o600)
        os.fsync(out.fileno())
    try:
        os.utime(target, (member.mtime, member.mtime))
    except (OverflowError, ValueError, OSError):  # a time that no file can have
        pass


class _Bounded:
    """A stream that gives no more at once than a run's archive needs, so that a lying header costs no memory."""

    def __init__(self, stream: gzip.GzipFile, path: str) -> None:
        self._stream, self._path = stream, path

    def read(self, size: int = -1) -> bytes:
        """Read, within bounds. Raises BAD_ARCHIVE."""
        if not 0 <= size <= _LONGEST_READ:
            raise _bad(self._path, "a header in it is longer than any run's")
        return self._stream.read(size)

    def seek(self, offset: int) -> int:
        """Go to a place behind this one, or back to one. Raises BAD_ARCHIVE."""
        if offset > 2 * LARGEST:
            raise _bad(self._path, f"it holds more than {LARGEST:,} bytes")
        return self._stream.seek(offset)

    def tell(self) -> int:
        """Give the place."""
        return self._stream.tell()


@contextmanager
def _opened(path: str) -> Iterator[tarfile.TarFile]:
    """Open an archive, to read its members one after the other; what is left behind the last one is read, too."""
    with os.fdopen(files.open_regular(path), "rb") as source, gzip.GzipFile(fileobj=source) as stream:
        bounded: Any = _Bounded(stream, path)
        with tarfile.open(fileobj=bounded, mode="r:") as packed:
            yield packed
        behind = 0
        while piece := stream.read(_PIECE):  # to the end, where the checksum stands
            behind += len(piece)
            if behind > LARGEST:
                raise _bad(path, "too much data follows its end")


def _bad(path: str, why: str) -> LoomError:
    what = "this is not an archive of a run; nothing was unpacked"
    return LoomError("BAD_ARCHIVE", what, where=path, why=one_line(why, 300), hint=f"tar -tzf {quoted(path)}")


def named_archive(store_folder: str, named: str) -> str:
    """Give the archive that is meant: a file, or a handle or the beginning of an id below `.loom/archive`.

    Of a handle its letters count, for its words stand within the archive (D69). Raises NO_SUCH_ARCHIVE.
    """
    if os.path.isfile(named):
        return os.path.abspath(named)
    folder = os.path.join(store_folder, "archive")
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        names = []
    letters = named.rpartition("-")[2]
    found = (
        [name for name in names if name == named + SUFFIX]
        or [name for name in names if name.startswith(named)]
        or [name for name in names if mark(name.removesuffix(SUFFIX)) == letters]
    )
    if named and len(found) == 1:
        return os.path.join(folder, found[0])
    what = f"there is no archive {named[:120]!r} in {folder}"
    if named and found:
        what = f"{named[:120]!r} may mean {len(found)} archives in {folder}"
    known = ", ".join(name.removesuffix(SUFFIX) for name in names[:20])
    why = f"the archives are {known}" if known else "there are no archives"
    raise LoomError("NO_SUCH_ARCHIVE", what, why=why, hint=f"ls -l {quoted(store_folder)}", exit_code=EXIT_NO_RUN)
