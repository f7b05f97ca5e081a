"""Large values, each stored once by its SHA-256 and shared by a project's runs: `.loom/blobs/sha256/2c/2cf24d…` (D38).

Nobody else writes there, and nothing in it is ever changed. A blob that no run refers to goes by `loomctl clean` alone.
"""

from __future__ import annotations

import os

from loomctl.kit import digests, files
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError, quoted
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.kit.quick_json import as_object, as_objects
from loomctl.runs.model.visit_list import Visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER = "blobs"
LARGEST = 1 << 30
REF_PREFIX, FILE_REF = "blob://sha256/", "file://"
COPIES_MARK = "copies-only"
"""Stands in a `.loom` folder that holds copies alone, so that nobody takes it for a project's store (D3)."""
_LOCK = ".lock"
_DIGITS = frozenset("0123456789abcdef")
_SAID = b"Copies for a step that works in this folder, made by Loom. They can be removed at any time.\n"
_OF_A_STORE = ("runs", "config.yaml", "workflows")
_MOST_NAMES = 1000


def ref_of(data: bytes) -> str:
    """Give the reference that bytes have, stored or not."""
    return ref_to(digests.of_bytes(data))


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
        sha256 = sha256_of(ref)
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
            if files.holds(path, data):
                os.utime(path)
                return ref
            is_new = not os.path.isdir(folder)
            files.make_folder(folder)
            files.write_atomically(path, data, locked=True, beside=files.name_beside(path))
            if is_new:
                files.sync_folder(os.path.dirname(folder))
        return ref

    def put_parts(self, parts: Iterable[bytes], *, patience: float = PATIENCE) -> str:
        """Store bytes that are given in parts, and never held together; else as `put`."""
        beside = files.name_beside(os.path.join(self.folder, "parts"))
        self._refuse_links(beside)
        files.make_folder(self.folder)
        try:
            sha256 = _written(beside, parts)
            path = self.path(ref_to(sha256))
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
        return ref_to(sha256)

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
                why="the machine that made it has it in .loom/blobs, and an archive of the run brings it along",
                hint="loomctl doctor",
                exit_code=EXIT_NO_RUN,
            ) from None
        except OSError as error:
            why, hint = error.strerror or str(error), f"ls -l {quoted(path)}"
            raise LoomError(
                "UNREADABLE_BLOB", f"the blob {ref} cannot be read", where=path, why=why, hint=hint
            ) from None
        if digests.of_bytes(data) != sha256_of(ref):
            raise LoomError(
                "DAMAGED_BLOB",
                f"the blob {ref} is damaged: its content does not match its hash",
                where=path,
                why="Loom left the file as it is; replace it with an intact copy",
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


def is_ref(value: object) -> bool:
    """Tell whether a value is a reference to a blob, and nothing else besides."""
    return isinstance(value, str) and value.startswith(REF_PREFIX) and is_sha256(value[len(REF_PREFIX) :])


def is_sha256(text: str) -> bool:
    """Tell whether a text is the name that a SHA-256 has here."""
    return len(text) == 64 and _DIGITS.issuperset(text)


def ref_to(sha256: str) -> str:
    """Give the reference to the content of a SHA-256, as 64 lower-case hexadecimal digits."""
    return REF_PREFIX + sha256


def sha256_of(ref: str) -> str:
    """Give the SHA-256 that a reference names. Raises BAD_REF."""
    if not is_ref(ref):
        raise LoomError(
            "BAD_REF",
            f"{ref!r:.120} is not a reference to a blob",
            why=f"a reference is {REF_PREFIX} and 64 lower-case hexadecimal digits",
            hint="loomctl debug blob get --help",
            exit_code=EXIT_USAGE,
        )
    return ref[len(REF_PREFIX) :]


def refs_of(context: object) -> list[str]:
    """List the references that a context holds as the values of its keys, each once; what is no object holds none.

    Within a larger value one is text, whoever wrote it: Loom puts none there.
    """
    return sorted({one for one in as_object(context).values() if is_ref(one)})


def refs_of_state(state: object) -> list[str]:
    """List those that a state holds where Loom writes them: in its context, and in what open branches changed (D43)."""
    held = as_object(state)
    steps = held.get("steps")
    open_now = steps.newest if isinstance(steps, Visits) else steps  # among them
    fans = [_changed(visit.get("branches")) for visit in as_objects(open_now)]
    return sorted({*refs_of(held.get("context")), *(ref for found in fans for ref in found)})


def _changed(records: object) -> list[str]:
    """List those among what branches set, as a visit or a `status.json` holds them."""
    return [ref for record in as_objects(records) for ref in refs_of(record.get("set"))]


def refs_of_status(status: object) -> list[str]:
    """List those that a stage's `status.json` holds where Loom writes them: what its step set, replaced and printed."""
    held = as_object(status)
    contexts = (held.get("context_updates"), as_object(held.get("context_before")).get("set"))
    alone = (held.get("output"), as_object(held.get("command")).get("output"))
    found = {*(ref for one in contexts for ref in refs_of(one)), *_changed(held.get("branches"))}
    return sorted({*found, *(str(one) for one in alone if is_ref(one))})


def named_in(data: bytes) -> set[str]:
    """Give the references that may stand in bytes, however a writer escaped them."""
    import re  # no hook looks for them

    # Without the slashes, whose escape differs; a hash beside "sha256": keeps a blob, too, which does no harm.
    return {ref_to(match.decode()) for match in re.findall(rb"(?s)sha256.{1,12}?([0-9a-f]{64})", data)}


# ---- Copies for a step that does not see the store (D42).


def are_copies(folder: str) -> bool:
    """Tell whether a `.loom` folder holds copies alone; the mark hides no store that a project has."""
    return os.path.lexists(os.path.join(folder, COPIES_MARK)) and not os.path.isdir(os.path.join(folder, "runs"))


def copy_room(workdir: str) -> str:
    """Give the `.loom` folder of a step's own directory, made if it is not there. Raises OSError.

    Raises BAD_WORKDIR where there is no such directory, and UNSAFE_LINK where a link stands for the folder.
    """
    if not os.path.isdir(workdir):
        raise LoomError(
            "BAD_WORKDIR", "the step's workdir is not a directory", where=workdir, hint=f"mkdir -p {quoted(workdir)}"
        )
    folder = os.path.join(workdir, ".loom")
    files.refuse_links(workdir, folder)
    files.make_folder(folder, mode=0o755)
    if not any(os.path.lexists(os.path.join(folder, name)) for name in (*_OF_A_STORE, COPIES_MARK)):
        files.write_atomically(os.path.join(folder, ".gitignore"), b"*\n", mode=0o644, durable=False)
        files.write_atomically(os.path.join(folder, COPIES_MARK), _SAID, mode=0o644, durable=False)
    return folder


def keep_copy(top: str, folder: str, name: str, data: bytes) -> str:
    """Write a file in a folder below `top`, unless it holds these bytes, and give its path.

    It is its owner's alone, and whole whenever it is there. Raises OSError and UNSAFE_LINK.
    """
    path = os.path.join(top, folder, name)
    files.refuse_links(os.path.dirname(top), path)
    if not files.holds(path, data):
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, data, durable=False, locked=True, beside=files.name_beside(path))
    return path


def keep_copy_beside(top: str, folder: str, name: str, data: bytes) -> str:
    """Write a file as `keep_copy` does, under `{name}-2` where the name has other content."""
    stem, ending = os.path.splitext(name)
    for number in range(1, _MOST_NAMES):
        free = name if number == 1 else f"{stem}-{number}{ending}"
        path = os.path.join(top, folder, free)
        if not os.path.lexists(path) or files.holds(path, data):
            return keep_copy(top, folder, free, data)
    raise OSError(f"there are too many files named {name} in {os.path.join(top, folder)}")


def path_in(ref: str) -> str:
    """Give the path that a `file://` reference names. Raises BAD_REF for another machine's, or for none."""
    from urllib.parse import unquote_to_bytes  # no hook reads one

    host, slash, rest = ref[len(FILE_REF) :].partition("/")
    path = os.fsdecode(unquote_to_bytes((slash + rest).encode("utf-8", "backslashreplace")))
    if host not in ("", "localhost") or not path or "\0" in path:
        raise LoomError(
            "BAD_REF",
            f"{ref!r:.120} does not name a file of this machine",
            why="such a reference is file:// and an absolute path",
            hint="loomctl show",
        )
    return path
