"""Reading with limits and writing that survives a kill: beside, fsync, rename (D53)."""

from __future__ import annotations

import errno
import os

from loomctl.kit import digests, quick_json
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

LARGEST_JSON = 64 * 1024 * 1024
DEEPEST = 400  # of JSON: what every Python writes back, however deep its own calls are
_LONGEST_NUMBER = 400  # digits


def open_regular(path: str) -> int:
    """Open a regular file to be read; gives its descriptor. Raises OSError, for a pipe at once: it is never waited for.

    What a project brings is opened so, whatever it was when somebody looked at it before.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if os.fstat(descriptor).st_mode & 0o170000 == 0o100000:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_bytes(path: str, *, limit: int = LARGEST_JSON) -> bytes:
    """Read a regular file whole. Raises OSError, and LoomError TOO_LARGE above `limit` bytes.

    A pipe in a file's place cannot hold a hook.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            what = f"the file is too large: {size:,} bytes (limit {limit:,})"
            raise LoomError("TOO_LARGE", what, where=path, hint=f"ls -l {quoted(path)}")
        data = read_up_to(descriptor, limit + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        what = f"the file grew past the limit of {limit:,} bytes while Loom read it"
        raise LoomError("TOO_LARGE", what, where=path, hint=f"ls -l {quoted(path)}")
    return data


def read_up_to(descriptor: int, limit: int) -> bytes:
    """Read from where a descriptor stands to the file's end, at most `limit` bytes. Raises OSError."""
    parts: list[bytes] = []
    while limit > 0:
        part = os.read(descriptor, min(limit, 1 << 20))
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def text_of(data: bytes, errors: str = "strict") -> str:
    """Give UTF-8 as text, without the mark that some editors put before it. Raises UnicodeDecodeError."""
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors)  # "utf-8-sig" is one more module for a hook


def parse_json(data: bytes, *, where: str) -> Any:
    """Parse JSON strictly (UTF-8, no NaN, no endless number or depth).

    Raises LoomError: BAD_JSON with its place, GIT_CONFLICT.
    """
    try:
        value = _parsed(text_of(data))
    except UnicodeDecodeError as error:
        hint = f"file {quoted(where)}"
        raise LoomError("BAD_JSON", "the file is not UTF-8 text", where=where, why=str(error), hint=hint) from None
    except RecursionError:
        hint = f"loomctl check {quoted(where)}"
        raise LoomError("BAD_JSON", "the JSON is nested too deeply", where=where, hint=hint) from None
    except ValueError as error:
        at = getattr(error, "lineno", None)  # a JSONDecodeError's
        if at and b"<<<<<<< " in data and b"\n>>>>>>> " in data:
            raise in_conflict(where, where) from None
        hint = f"python3 -m json.tool {quoted(where)} /dev/null" if at else f"loomctl check {quoted(where)}"
        place, why = (f"{where}:{at}:{error.colno}", error.msg) if at else (where, str(error))  # type: ignore[attr-defined]
        raise LoomError("BAD_JSON", "the file is not JSON", where=place, why=why, hint=hint) from None
    if data.count(b"[") + data.count(b"{") > DEEPEST and _is_deep(value):
        hint, why = f"loomctl check {quoted(where)}", f"Loom reads at most {DEEPEST} levels"
        raise LoomError("BAD_JSON", "the JSON is nested too deeply", where=where, why=why, hint=hint)
    return value


def in_conflict(where: str, path: str) -> LoomError:
    """Give the error of a file in which git left two sides; path: what is to be taken from one of them."""
    return LoomError(
        "GIT_CONFLICT",
        "the file holds git's conflict markers: a merge left both sides in it",
        where=where,
        why="this file cannot be merged line by line; keep one side: --theirs is the merged branch, --ours is yours",
        hint=f"git checkout --theirs -- {quoted(path)}",
    )


def _is_deep(value: Any) -> bool:
    """Tell whether a value is nested deeper than DEEPEST, level by level: each is looked at once."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent if type(parent) is list else ())
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _countable(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"the number {digits[:20]}… is too long")
    return int(digits)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):  # it would be written back as a word that no reader takes
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def read_json(path: str, *, limit: int = LARGEST_JSON) -> Any:
    """Read and parse a JSON file. Raises OSError, or LoomError (BAD_JSON, GIT_CONFLICT, TOO_LARGE)."""
    return parse_json(read_bytes(path, limit=limit), where=path)


_parsed = quick_json.loader(parse_constant=_no_constant, parse_float=_finite, parse_int=_countable)
_encoded = quick_json.dumper(ensure_ascii=False, allow_nan=False)
_encoded_tight = quick_json.dumper(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# How deep a value is spread over lines; what lies deeper stands in one line, and so does each entry of a long list,
# such as a run's visits: they are written at every step.
_SPREAD = 3
_LONG = 20
_SPREADABLE = frozenset((dict, list))


def to_json(value: Any) -> bytes:
    """Render a value as Loom's files hold it: a line for each thing in it, UTF-8, a newline at the end.

    The standard library's own indentation costs a hook more than all else that it writes, so it is done here.
    """
    return (_spread(value, "\n", _SPREAD) + "\n").encode("utf-8", "backslashreplace")


def to_parts(value: Mapping[str, Any]) -> dict[str, str]:
    """Render what an object holds key by key, as `to_json` does."""
    return {str(key): _spread(entry, "\n ", _SPREAD - 1) for key, entry in value.items()}


def of_parts(parts: Mapping[str, str]) -> bytes:
    """Give the file that `to_json` gives of the object whose parts these are, which is not empty."""
    held = ",\n ".join(f"{_encoded(key)}: {part}" for key, part in parts.items())
    return f"{{\n {held}\n}}\n".encode("utf-8", "backslashreplace")


def _spread(value: Any, line: str, depth: int) -> str:
    inner = line + " "
    top = depth == _SPREAD
    if depth and isinstance(value, dict) and value and (top or _holds_more(value.values())):
        parts = [f"{_encoded(str(key))}: {_spread(entry, inner, depth - 1)}" for key, entry in value.items()]
        return "{" + inner + f",{inner}".join(parts) + line + "}"
    if depth and isinstance(value, list) and _holds_more(value):
        parts = [_encoded(one) if len(value) > _LONG else _spread(one, inner, depth - 1) for one in value]
        return "[" + inner + f",{inner}".join(parts) + line + "]"
    return _encoded(value)


def _holds_more(values: Iterable[object]) -> bool:
    """Tell whether an object or a list is among the values."""
    return not _SPREADABLE.isdisjoint(map(type, values))


def to_json_line(value: Any) -> bytes:
    """Render a value in one line, for what only machines read."""
    return (_encoded_tight(value) + "\n").encode("utf-8", "backslashreplace")


def sha256_of_json(value: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Give the SHA-256 of what a JSON object says; how its file is laid out does not count. without: keys left out."""
    return digests.of_bytes(to_json_line({key: held for key, held in value.items() if key not in without}))


def write_atomically(
    path: str, data: bytes, *, mode: int = 0o600, durable: bool = True, locked: bool = False, beside: str = ""
) -> None:
    """Replace a file so that a reader or a kill meets the old or the new one, never a part (D53).

    durable: fsync file and folder, for what a power cut must not take. locked: the caller holds the lock of all who
    write this file, so one name beside it serves, and what a kill left there goes with the next write. beside: that
    name, where the file is another program's; then it gets exactly `mode`, whatever the umask. Raises OSError that
    names `path`.
    """
    folder, exact = os.path.dirname(path), bool(beside)
    try:
        descriptor, beside = _open_alone(beside or f"{path}.tmp", mode) if locked else open_beside(path, mode)
        try:  # closed last: what is beside belongs to this process until then
            try:
                write_all(descriptor, data)
                if exact:
                    os.fchmod(descriptor, mode)
                if durable:
                    os.fsync(descriptor)
                os.replace(beside, path)
            except BaseException:
                remove(beside)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise naming(error, path) from None
    if durable:
        sync_folder(folder)


def _open_alone(beside: str, mode: int) -> tuple[int, str]:
    remove(beside)
    return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), beside


def open_beside(path: str, mode: int) -> tuple[int, str]:
    """Open an empty file beside `path` that is to replace it; gives its descriptor and its name.

    What a kill left of that name is taken over, so that kills do not pile files up. It is this process's own while the
    descriptor is open; where another process writes just now, or something odd stands in its place, a name that nobody
    else has is used.
    """
    beside = f"{path}.tmp"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError:
        descriptor = -1
    if descriptor >= 0:
        if _is_own(descriptor, beside):
            return descriptor, beside
        os.close(descriptor)
    beside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), beside


def _is_own(descriptor: int, beside: str) -> bool:
    """Tell whether an open file could be locked, still has its name and no other; then it is made empty."""
    import fcntl  # what a hook does after a tool needs none of it

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine, there = os.fstat(descriptor), os.lstat(beside)
        same = (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        if not same or mine.st_nlink != 1 or mine.st_mode & 0o170000 != 0o100000:
            return False
        if mine.st_size:
            os.ftruncate(descriptor, 0)
    except OSError:
        return False
    return True


def naming(error: OSError, path: str) -> OSError:
    """Give the error again, naming the file that could not be written."""
    return OSError(error.errno, error.strerror or str(error), path)


def open_own(path: str, flags: int) -> int:
    """Open a file that Loom writes in place (a log, a lock), made with mode 0600 if it is not there.

    A symbolic link in its place is refused with UNSAFE_LINK: a repository could have brought it along, and what it
    points to would be changed. So is a pipe, which would hold whoever opens it, or swallow what is written: OSError.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise LoomError(
            "UNSAFE_LINK",
            "a symbolic link stands where Loom writes a file of its own",
            where=path,
            why="writing through it would change another file; remove the link, and Loom makes its own file",
            hint=f"ls -l {quoted(path)}",
        ) from None
    if os.fstat(descriptor).st_mode & 0o170000 == 0o100000:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def append(path: str, data: bytes, *, durable: bool) -> None:
    """Append to a file of Loom's own in one write; a line that a kill tore off before is closed first (D53)."""
    descriptor = open_own(path, os.O_RDWR | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        write_all(descriptor, b"\n" + data if torn else data)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a short write goes on where it stopped, and a full pipe that does not block is awaited."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            import select

            waiting = select.poll()
            waiting.register(descriptor, select.POLLOUT)
            waiting.poll()


def sync_folder(folder: str) -> None:
    """Make a rename durable, where the file system can."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems cannot sync a folder
        pass
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file that may not be there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def refuse_links(base: str, path: str) -> None:
    """Refuse a place below `base` that a symbolic link leads to: what came with a project must not steer Loom's files.

    Raises UNSAFE_LINK. What is not there yet is fine.
    """
    at = base
    for part in os.path.relpath(path, base).split(os.sep):
        at = os.path.join(at, part)
        if os.path.islink(at):
            raise LoomError(
                "UNSAFE_LINK",
                "a symbolic link stands where Loom keeps its own files",
                where=at,
                why="it could lead anywhere, so Loom neither reads nor writes through it",
                hint=f"ls -l {quoted(at)}",
            )


def make_room(local: str, name: str) -> None:
    """Make a folder of `.loom/local` that the launcher writes into; where it cannot be, it is not there."""
    if leads_away(os.path.dirname(local), local):
        return
    try:
        os.mkdir(os.path.join(local, name), 0o700)
    except OSError:
        pass


def leads_away(base: str, path: str) -> bool:
    """Tell whether a symbolic link below `base` leads to a place, so that nothing there is Loom's."""
    try:
        refuse_links(base, path)
    except LoomError:
        return True
    return False


def make_folder(path: str, *, mode: int = 0o700) -> None:
    """Make a folder and its parents; whatever the umask, nobody but the user may write into what was made."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent:
        make_folder(parent, mode=0o755)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def is_inside(path: str, root: str) -> bool:
    """Tell whether a path lies in a folder, symbolic links resolved (D10)."""
    real, top = os.path.realpath(path), os.path.realpath(root)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def head(path: str, limit: int) -> tuple[str, bool]:
    """Give the first lines within `limit` bytes, and whether they are all. Raises OSError."""
    data, size = _read(path, 0, limit)
    if size <= len(data):
        return data.decode("utf-8", "replace"), True
    return data[: data.rfind(b"\n") + 1].decode("utf-8", "replace"), False


def tail(path: str, limit: int) -> tuple[str, bool]:
    """Give the last lines within `limit` bytes, and whether they are all. Raises OSError."""
    data, whole = end(path, limit)
    if whole:
        return data.decode("utf-8", "replace"), True
    return data[data.find(b"\n") + 1 :].decode("utf-8", "replace") if b"\n" in data else "", False


def end(path: str, limit: int) -> tuple[bytes, bool]:
    """Give the last `limit` bytes as they are, and whether they are all. Raises OSError."""
    data, size = _read(path, -limit, limit)
    return data, size <= len(data)


def _read(path: str, at: int, limit: int) -> tuple[bytes, int]:
    """Read `limit` bytes at a place, from the end where it is below 0; gives them and the file's size."""
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        os.lseek(descriptor, at if at >= 0 else max(0, size + at), os.SEEK_SET)
        return read_up_to(descriptor, limit), size
    finally:
        os.close(descriptor)


_DEVICES = ("/dev/", "/proc/")
NO_FILE = "it is not a file but a device, a pipe or the like"


def is_replaceable(path: str) -> bool:
    """Tell whether a file, a link to one, a link to nothing, or nothing stands at a path.

    A link in the system's folders of devices leads now here, now there (`/dev/stdout`), and is no file.
    """
    if os.path.islink(path) and _is_of_devices(os.path.realpath(os.path.dirname(os.path.abspath(path)))):
        return False
    return os.path.isfile(path) or not os.path.exists(path)


def _is_of_devices(folder: str) -> bool:
    """Tell whether a folder is the system's own; a file system that is mounted below, `/dev/shm`, holds files."""
    above = next((top for top in _DEVICES if f"{folder}/".startswith(top)), "")
    try:
        return bool(above) and os.stat(folder).st_dev == os.stat(above).st_dev
    except OSError:
        return False


def check_target(path: str, hint: str = "") -> None:
    """Refuse to replace what is no file. hint: a command that does without; else one that shows it. Raises FILE_EXISTS.

    A folder is refused by who writes there.
    """
    if is_replaceable(path) or os.path.isdir(path):
        return
    raise LoomError(
        "FILE_EXISTS",
        "refusing to overwrite what stands at that path; nothing was written",
        where=path,
        why=NO_FILE,
        hint=hint or f"ls -ld {quoted(path)}",
        exit_code=EXIT_USAGE,
    )


def name_beside(path: str) -> str:
    """Give a name that nobody else writes under, for a file on its way to this one; a killed one is known by it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.part")


def holds(path: str, content: bytes) -> bool:
    """Tell whether a file, not a link to one, has exactly these bytes."""
    try:
        status = os.lstat(path)
        if status.st_mode & 0o170000 != 0o100000 or status.st_size != len(content):
            return False
        with open(path, "rb", buffering=0) as source:
            return source.read(len(content) + 1) == content
    except OSError:
        return False
