"""The log of a run's tool steps, `tool_steps.jsonl`: appended to, read whole or from its end, summed up (D51-D59)."""

from __future__ import annotations

import json
import os

from loomctl.kit import files
from loomctl.kit.records import NamedTuple
from loomctl.reduction.tool_steps import ToolStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE = "tool_steps.jsonl"
LONGEST_LINE = 64 * 1024 * 1024
_BLOCK = 1 << 16
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
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return ToolStep.from_dict(raw) if isinstance(raw, dict) and isinstance(raw.get("id"), str) else None


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

    A line that is no step, or that is torn, counts nothing. Raises OSError and UNSAFE_LINK; no log is an empty one.
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
        step = json.loads(line) if line else None
    except (ValueError, RecursionError):
        return 0, 0
    if not isinstance(step, dict):
        return 0, 0
    before, after = (
        value if type(value := step.get(name)) is int and value > 0 else 0 for name in ("tokens_before", "tokens_after")
    )
    return before, after
