"""Large values, each stored once by its SHA-256 and shared by a project's runs: `.loom/blobs/sha256/2c/2cf24d…` (D38).

Nobody else writes there, and nothing in it is ever changed. A blob that no run refers to goes by `loomctl clean` alone.
"""

from __future__ import annotations

import os

from loomctl.kit import digests, files
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.kit.lock import PATIENCE, Lock
from loomctl.runs.model import blob_refs
from loomctl.runs.tools import output_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER = "blobs"
LARGEST = 1 << 30
_LOCK = ".lock"


def ref_of(data: bytes) -> str:
    """Give the reference that bytes have, stored or not."""
    return blob_refs.ref_to(digests.of_bytes(data))


def _written(path: str, parts: Iterable[bytes]) -> str:
    """Write a new file, durably; gives its SHA-256. Raises OSError that names it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            sha256 = digests.of_parts(_put_into(descriptor, parts))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise files.naming(error, path) from None
    return sha256


def _put_into(descriptor: int, parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        files.write_all(descriptor, part)
        yield part


def _is_whole(path: str, sha256: str) -> bool:
    """Tell whether a blob's file, not a link to one, has the bytes that it is named after."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return digests.of_parts(iter(lambda: os.read(descriptor, 1 << 20), b"")) == sha256
        finally:
            os.close(descriptor)
    except OSError:
        return False


class Blobs:
    """The blobs of a store, the project's `.loom` folder.

    A blob is written beside, synced and renamed, so that a kill or a power cut leaves a whole one or none, and it is
    there before anybody can name it (D47, D53). What is put again counts as new: `discard` takes nothing young, and
    both hold one lock, so that a blob which somebody is about to name does not go.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self.folder = os.path.join(store, FOLDER)

    def path(self, ref: str) -> str:
        """Give the file of a blob, there or not. Raises BAD_REF."""
        sha256 = blob_refs.sha256_of(ref)
        return os.path.join(self.folder, "sha256", sha256[:2], sha256)

    def put(self, data: bytes, *, patience: float = PATIENCE) -> str:
        """Store bytes, unless they are, and give their reference. A damaged file of theirs is mended.

        Raises OSError (a full disk; the error names the file), HELD after `patience` seconds, and UNSAFE_LINK; then
        nothing is named.
        """
        ref = ref_of(data)
        path = self.path(ref)
        self._refuse_links(path)
        folder = os.path.dirname(path)
        with self._lock(patience):
            if output_files.holds(path, data):
                os.utime(path)
                return ref
            is_new = not os.path.isdir(folder)
            files.make_folder(folder)
            files.write_atomically(path, data, locked=True, beside=output_files.name_beside(path))
            if is_new:
                files.sync_folder(os.path.dirname(folder))
        return ref

    def put_parts(self, parts: Iterable[bytes], *, patience: float = PATIENCE) -> str:
        """Store bytes that are given in parts, and never held together; else as `put`."""
        beside = output_files.name_beside(os.path.join(self.folder, "parts"))
        self._refuse_links(beside)
        files.make_folder(self.folder)
        try:
            sha256 = _written(beside, parts)
            path = self.path(blob_refs.ref_to(sha256))
            self._refuse_links(path)
            with self._lock(patience):
                if _is_whole(path, sha256):
                    os.utime(path)
                else:
                    files.make_folder(os.path.dirname(path))
                    os.replace(beside, path)
                    files.sync_folder(os.path.dirname(path))
                    files.sync_folder(os.path.dirname(os.path.dirname(path)))
        finally:
            files.remove(beside)
        return blob_refs.ref_to(sha256)

    def get(self, ref: str) -> bytes:
        """Give the bytes behind a reference, which are what its hash says.

        Raises BAD_REF, NO_SUCH_BLOB, DAMAGED_BLOB (the file stays), UNREADABLE_BLOB and UNSAFE_LINK.
        """
        path = self.path(ref)
        self._refuse_links(path)
        try:
            data = files.read_bytes(path, limit=LARGEST)
        except (FileNotFoundError, NotADirectoryError):
            raise LoomError(
                "NO_SUCH_BLOB",
                f"there is no blob {ref}",
                where=path,
                why="where its run was worked on it stands in .loom/blobs, and an archive of the run brings it along",
                hint="loomctl doctor",
                exit_code=EXIT_NO_RUN,
            ) from None
        except OSError as error:
            why, hint = error.strerror or str(error), f"ls -l {quoted(path)}"
            raise LoomError(
                "UNREADABLE_BLOB", f"the blob {ref} cannot be read", where=path, why=why, hint=hint
            ) from None
        if digests.of_bytes(data) != blob_refs.sha256_of(ref):
            raise LoomError(
                "DAMAGED_BLOB",
                f"the blob {ref} is damaged: its bytes are not those that it is named after",
                where=path,
                why="the file was left as it is; a whole copy in its place mends it",
                hint=f"ls -l {quoted(path)}",
            )
        return data

    def discard(self, ref: str, *, before: float) -> bool:
        """Remove a blob that was last put before a time, in seconds since 1970; gives whether it went. Raises OSError.

        Raises HELD and UNSAFE_LINK besides.
        """
        path = self.path(ref)
        self._refuse_links(path)
        with self._lock(PATIENCE):
            try:
                if os.lstat(path).st_mtime >= before:
                    return False
                os.unlink(path)
            except FileNotFoundError:
                return False
        return True

    def _refuse_links(self, path: str) -> None:
        files.refuse_links(os.path.dirname(self._store), path)

    def _lock(self, patience: float) -> Lock:
        path = os.path.join(self.folder, _LOCK)
        self._refuse_links(path)
        return Lock(path, patience=patience, what="the lock of the blobs")
