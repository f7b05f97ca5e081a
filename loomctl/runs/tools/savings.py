"""What the reduction of a run's tool steps saved so far: two sums, which go on where they ended (D51)."""

from __future__ import annotations

import json
import os

from loomctl.kit import files
from loomctl.kit.records import NamedTuple
from loomctl.runs.tools import tool_log

_BLOCK = 1 << 20


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


def of(run_dir: str, known: Tally, *, most: int) -> Tally:
    """Go on with the sums of a run's log. most: bytes that are read; a log that is shorter than before begins anew.

    A line that is no step, or that is torn, counts nothing. Raises OSError and UNSAFE_LINK; no log is an empty one.
    """
    path = os.path.join(run_dir, tool_log.FILE)
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
            piece = os.pread(descriptor, min(_BLOCK, end - place), place)
            if not piece:
                break
            place += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                at += len(line) + 1
                one, other = _tokens(line)
                before, after = before + one, after + other
            if len(rest) > tool_log.LONGEST_LINE:
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
