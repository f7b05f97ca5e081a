"""The log of a run's tool steps, `tool_steps.jsonl`: appended to, read whole or from its end, summed up (D51-D59)."""

from __future__ import annotations

import errno
import os

from loomctl.kit import digests, files, ids, quick_json
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import ToolStep

FILE = "tool_steps.jsonl"
LONGEST_LINE = 64 * 1024 * 1024
_BLOCK = 1 << 16
_NEWEST = 200  # steps that are looked at for a preamble
_PIECE = 1 << 20


def append(run_dir: str, steps: Sequence[ToolStep], *, durable: bool = True) -> None:
    """Append steps in one write; the caller holds the lock of who digests. Raises OSError that names the file."""
    path = os.path.join(run_dir, FILE)
    files.refuse_links(os.path.dirname(os.path.dirname(run_dir)), path)
    try:
        files.append(path, b"".join(files.to_json_line(step.to_dict()) for step in steps), durable=durable)
    except OSError as error:
        raise files.naming(error, path) from None


def read(run_dir: str) -> Iterator[ToolStep]:
    """Give every step, oldest first, one at a time; what a kill tore off or somebody damaged is left out."""
    for line in _lines(run_dir):
        step = _step(line)
        if step is not None:
            yield step


def tail(run_dir: str, count: int) -> list[ToolStep]:
    """Give the last steps, oldest first, at a cost that does not grow with the log."""
    newest: list[ToolStep] = []
    for step in backwards(run_dir) if count > 0 else ():
        newest.append(step)
        if len(newest) >= count:
            break
    return newest[::-1]


def of_the_main_line(run_dir: str, unlogged: Sequence[ToolStep] = ()) -> list[ToolStep]:
    """Give the newest steps but those of subagents (D48). unlogged: those that stand behind the log's (`Store`)."""
    try:
        logged = tail(run_dir, _NEWEST)
    except (OSError, LoomError):
        logged = []
    every = [*logged, *unlogged][-_NEWEST:]
    return [step._replace(rest={}) for step in every if not step.more.get("agent_id")]


def backwards(run_dir: str) -> Iterator[ToolStep]:
    """Give the steps, newest first, each when it is asked for: what nobody asks for is not read."""
    rest = b""
    descriptor = _opened(run_dir)
    if descriptor is None:
        return
    try:
        at = os.fstat(descriptor).st_size
        while at > 0:
            size = min(_BLOCK, at)
            at -= size
            lines = (os.pread(descriptor, size, at) + rest).split(b"\n")
            rest = lines.pop(0) if at > 0 else b""
            if len(rest) > LONGEST_LINE:
                return
            for line in reversed(lines):
                step = _step(line)
                if step is not None:
                    yield step
    finally:
        os.close(descriptor)


def _lines(run_dir: str) -> Iterator[bytes]:
    descriptor = _opened(run_dir)
    if descriptor is None:
        return
    with os.fdopen(descriptor, "rb") as source:
        while line := source.readline(LONGEST_LINE):
            yield line


def _opened(run_dir: str) -> int | None:
    path = os.path.join(run_dir, FILE)
    files.refuse_links(os.path.dirname(os.path.dirname(run_dir)), path)
    try:
        return files.open_regular(path)
    except OSError:
        return None


def _step(line: bytes) -> ToolStep | None:
    if not line:  # behind the last line end; for the error alone the standard library's json would be imported
        return None
    try:
        raw = quick_json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
        return None
    from loomctl.reduction.tool_steps import ToolStep  # every hook has the log, and few read it

    return ToolStep.from_dict(raw)


# ---- What their reduction saved: two sums, which go on where they ended (D51).


class Tally(NamedTuple):
    """The sums of the log's first `at` bytes. before, after: tokens (estimates); whole: nothing is behind them."""

    at: int = 0
    before: int = 0
    after: int = 0
    whole: bool = True

    @property
    def percent(self) -> float | None:
        """What was saved, in percent of what there was; None where that is not known."""
        return round(100 * (self.before - self.after) / self.before, 1) if self.before > 0 and self.whole else None


def tally(run_dir: str, known: Tally, *, most: int) -> Tally:
    """Go on with the sums of a run's log. most: bytes that are read; a log that is shorter than before begins anew.

    A line that is no step, or that is torn, counts nothing, and so does a call of `loomctl`. Raises OSError
    and UNSAFE_LINK; no log is an empty one.
    """
    path = os.path.join(run_dir, FILE)
    files.refuse_links(os.path.dirname(os.path.dirname(run_dir)), path)
    try:
        descriptor = files.open_regular(path)
    except FileNotFoundError:
        return Tally()
    try:
        size = os.fstat(descriptor).st_size
        at, before, after = known[:3] if 0 <= known.at <= size else (0, 0, 0)
        end, rest = min(size, at + most), b""
        place = at
        while place < end:
            piece = os.pread(descriptor, min(_PIECE, end - place), place)
            if not piece:
                break
            place += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                at += len(line) + 1
                one, other = _tokens(line)
                before, after = before + one, after + other
            if len(rest) > LONGEST_LINE:
                break
    finally:
        os.close(descriptor)
    return Tally(at, before, after, size - at <= len(rest))


def _tokens(line: bytes) -> tuple[int, int]:
    try:
        step = quick_json.loads(line.decode("utf-8", "surrogatepass")) if line else None
    except (ValueError, RecursionError):
        return 0, 0
    if not isinstance(step, dict) or (b"loomctl" in line and _is_looms(step)):
        return 0, 0
    before, after = (
        value if type(value := step.get(name)) is int and value > 0 else 0 for name in ("tokens_before", "tokens_after")
    )
    return before, after


def _is_looms(raw: dict[str, Any]) -> bool:
    """Tell a call of Loom's own, of which nothing is saved: its output stands in the run already."""
    from loomctl.reduction.history import has_looms
    from loomctl.reduction.tool_steps import ToolStep

    try:
        return has_looms(ToolStep.from_dict(raw))
    except (ValueError, TypeError, AttributeError):
        return False


# ---- Large outputs, in files of their own (D47).


FOLDER = "outputs"
LARGEST = 1 << 30
_MOST_NAMES = 10_000
# How a file system without hard links says so.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def keep(workspace: str, name: str, ext: str, content: bytes) -> str:
    """Write the bytes below `workspace` and give their reference: `outputs/{name}.{ext}`, or `outputs/{name}-2.{ext}`.

    The file is whole before it has its name, and none is written over: other content under the name gets the next one,
    the same content the file that it has. Raises OSError where it cannot be stored, and where a link stands for the
    folder; then nothing is named.
    """
    folder = os.path.join(workspace, FOLDER)
    if os.path.islink(workspace) or os.path.islink(folder):
        raise OSError(f"{folder} is a symbolic link")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    beside = files.name_beside(os.path.join(folder, name))
    try:
        write_new(beside, content)
        for number in range(1, _MOST_NAMES):
            ref = f"{FOLDER}/{name}{'' if number == 1 else f'-{number}'}.{ext}"
            path = os.path.join(workspace, ref)
            try:
                os.link(beside, path)
            except FileExistsError:
                if files.holds(path, content):
                    return ref
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if _written_alone(path, content):
                    return ref
            else:
                return ref
    finally:
        try:
            os.unlink(beside)
        except OSError:
            pass
    raise OSError(f"no name is left for {name}.{ext} in {folder}")


def foreseen(workspace: str, name: str, ext: str, content: bytes) -> str:
    """Give the reference that `keep` would give now; nothing is written. Raises OSError where there is none."""
    for number in range(1, _MOST_NAMES):
        ref = f"{FOLDER}/{name}{'' if number == 1 else f'-{number}'}.{ext}"
        path = os.path.join(workspace, ref)
        if not os.path.lexists(path) or files.holds(path, content):
            return ref
    raise OSError(f"no name is left for {name}.{ext}")


def _written_alone(path: str, content: bytes) -> bool:
    try:
        write_new(path, content)
    except FileExistsError:
        return files.holds(path, content)
    return True


def write_new(path: str, content: bytes) -> None:
    """Write a file that is not there yet, for its owner alone; of one that could not be written whole nothing stays."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        files.write_all(descriptor, content)
    except OSError as error:
        os.unlink(path)
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def name_of(step_id: str, ext: str) -> tuple[str, str]:
    """Give a file's name and its ending, fit for every disk whatever the step's id and the ending are."""
    name = step_id if ids.is_fit(step_id) else f"step-{digests.of_text(step_id)[:16]}"
    return name, ext if ext.isalnum() and ext.isascii() and len(ext) < 9 else "txt"


class DataOffloader:
    """Keeps texts below `workspace`, each in a file of its own: written whole before it is named, never written over.

    A reference is the file's path below the workspace, `outputs/toolu_01.log`. Two texts under one name get two files;
    the same text again gets the file that it has.
    """

    def __init__(self, workspace: str | os.PathLike[str]) -> None:
        self.workspace = os.fspath(workspace)

    def offload(self, data: str | bytes, step_id: str, ext: str = "json") -> str:
        """Write the data and give its reference. Raises OSError where it cannot be stored; then nothing is named.

        A text is stored in UTF-8; lone surrogates, which UTF-8 does not have, in the bytes they would take.
        """
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        files.make_folder(self.workspace)
        return keep(self.workspace, *name_of(step_id, ext), content)

    def read(self, ref: str) -> bytes:
        """Give the bytes behind a reference. Raises LoomError: REF_GONE, UNSAFE_LINK, BAD_REF (it leads out)."""
        parts = ref.split("/")
        if parts[:1] != [FOLDER] or len(parts) != 2 or not parts[1] or parts[1].startswith("."):
            raise LoomError(
                "BAD_REF", f"{ref!r} is not an output of this run", where=self.workspace, hint="loomctl steps"
            )
        path = os.path.join(self.workspace, ref)
        files.refuse_links(self.workspace, path)
        try:
            return files.read_bytes(path, limit=LARGEST)
        except OSError as error:
            hint = f"ls -l {quoted(os.path.dirname(path))}"
            raise LoomError("REF_GONE", "the output is missing", where=path, why=str(error), hint=hint) from None
