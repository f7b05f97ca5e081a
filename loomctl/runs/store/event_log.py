"""A run's `events.jsonl` read from a place in it: its last entries, those since one, and those that are still to come.

A line that is no entry (torn off by a kill, damaged, written by somebody else) is given as what it is, and ends nothing
(D53). What is read does not grow with what lies before the place.
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import digests, files
from loomctl.runs.store import events
from loomctl.runs.store.events import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LONGEST_LINE = 16 << 20  # bytes; no entry is as long
_BLOCK = 1 << 18
_BEGINS = b'{"seq":'  # every entry that Loom writes


class Line(NamedTuple):
    """A line of the log.

    at: where it begins, in bytes; data: without its newline, of one longer than LONGEST_LINE the beginning; entry: None
    where it is none; ended: whether a newline closes it; bytes: its whole length without that.
    """

    at: int
    data: bytes
    entry: dict[str, Any] | None
    ended: bool
    bytes: int


def entry_of(data: bytes) -> dict[str, Any] | None:
    """Give the entry that a line holds, or None."""
    try:
        entry = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return entry if events.is_entry(entry) else None


def all_of(path: str) -> Iterator[Line]:
    """Give every line of a log by its path; none of one that is not there. Raises OSError."""
    if os.path.lexists(path):
        yield from _every(files.open_regular(path))


def every(run_dir: str) -> Iterator[Line]:
    """Give every line of a run's log, oldest first. Raises OSError (one that is not there, too) and UNSAFE_LINK."""
    descriptor = _opened(run_dir)
    if descriptor is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.path.join(run_dir, FILE))
    yield from _every(descriptor)


def _every(descriptor: int) -> Iterator[Line]:
    try:
        yield from _lines(descriptor, 0)
    finally:
        os.close(descriptor)


def entries(run_dir: str, *, after: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Give the entries behind a number, and how many lines are none; a log that is no file holds nothing."""
    found: list[dict[str, Any]] = []
    damaged = 0
    try:
        for line in every(run_dir):
            damaged += line.entry is None
            if line.entry is not None and line.entry["seq"] > after:
                found.append(line.entry)
    except OSError:
        pass
    return found, damaged


def since(run_dir: str, is_older: Callable[[dict[str, Any]], bool]) -> Iterator[Line]:
    """Give the lines behind the last entry that is older, oldest first; all where none is.

    The place is looked for from the end, by one entry of each block. An entry that is older and stands behind one that
    is not (a clock was set back) is left out. Raises OSError and UNSAFE_LINK; a log that is not there is empty.
    """
    descriptor = _opened(run_dir)
    if descriptor is None:
        return
    with os.fdopen(descriptor, "rb", buffering=0) as source:
        waiting: list[Line] = []  # what is no entry belongs to the entry behind it
        for line in _lines(source.fileno(), _block_before(source.fileno(), is_older)):
            if line.entry is not None and is_older(line.entry):
                waiting = []
                continue
            waiting.append(line)
            if line.entry is not None:
                yield from waiting
                waiting = []
        yield from waiting


def holds(run_dir: str, head: events.Head) -> bool:
    """Tell whether a log has this entry, byte for byte; the beginning of every log is in it. Raises OSError."""
    if head.seq == 0:
        return True
    found = (line for line in since(run_dir, lambda entry: entry["seq"] < head.seq) if line.entry is not None)
    return any(
        line.entry["seq"] == head.seq and digests.of_bytes(line.data) == head.sha256 for line in found if line.entry
    )


def _block_before(descriptor: int, is_older: Callable[[dict[str, Any]], bool]) -> int:
    """Give where a line begins before which nothing is to be given."""
    at = os.fstat(descriptor).st_size
    while at > 0:
        at = max(0, at - _BLOCK)
        first = next((line for line in _lines(descriptor, _line_at(descriptor, at)) if line.entry is not None), None)
        if first is not None and first.entry is not None and is_older(first.entry):
            return first.at
    return 0


def _line_at(descriptor: int, at: int) -> int:
    """Give where the first line begins that does so at a place or behind it; the end where none does."""
    if at == 0:
        return 0
    at -= 1
    while piece := os.pread(descriptor, _BLOCK, at):
        end = piece.find(b"\n")
        if end >= 0:
            return at + end + 1
        at += len(piece)
    return at


def tail(
    run_dir: str, count: int, wanted: Callable[[dict[str, Any]], bool] | None = None, mentions: Sequence[bytes] = ()
) -> list[Line]:
    """Give the last entries that are wanted, oldest first, and the lines between them that are none.

    mentions: every line that is wanted holds one of these, so that others need not be parsed. Raises OSError and
    UNSAFE_LINK.
    """

    def is_other(data: bytes) -> bool:
        return data.startswith(_BEGINS) and data.endswith(b"}}") and not any(one in data for one in mentions)

    newest: list[Line] = []
    descriptor = _opened(run_dir)
    if descriptor is None or count < 1:
        return []
    with os.fdopen(descriptor, "rb", buffering=0) as source:
        for line in _backwards(source.fileno(), is_other if mentions else None):
            if line.entry is not None and wanted is not None and not wanted(line.entry):
                continue
            newest.append(line)
            count -= line.entry is not None
            if count == 0:
                break
    return newest[::-1]


def _backwards(descriptor: int, is_other: Callable[[bytes], bool] | None = None) -> Iterator[Line]:
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = _begin_of(descriptor, max(0, end - _BLOCK), end)
        lines = list(_lines(descriptor, start, end, is_other))
        yield from reversed(lines)
        end = start


def _begin_of(descriptor: int, at: int, end: int) -> int:
    """Give where a line begins, at `at` or behind it and before `end`, or before `at` where one fills all of that."""
    while at > 0:
        start = _line_at(descriptor, at)
        if start < end:
            return start
        at = max(0, at - _BLOCK)
    return 0


def _lines(
    descriptor: int, at: int, end: int | None = None, is_other: Callable[[bytes], bool] | None = None
) -> Iterator[Line]:
    """Give the lines from a place, where one begins, to another or to the end; empty ones are nothing.

    is_other: tells of a line that it is passed over.
    """
    rest, begin, length = b"", at, 0  # the line that is being read: its beginning, its place, its length so far
    while end is None or at < end:
        piece = os.pread(descriptor, _BLOCK if end is None else min(_BLOCK, end - at), at)
        if not piece:
            break
        at += len(piece)
        *whole, last = piece.split(b"\n")
        for part in whole:
            rest, length = _joined(rest, part), length + len(part)
            if length and (is_other is None or not is_other(rest)):
                yield _line(begin, rest, length, ended=True)
            begin += length + 1
            rest, length = b"", 0
        rest, length = _joined(rest, last), length + len(last)
    if length:
        yield _line(begin, rest, length, ended=False)


def _joined(rest: bytes, part: bytes) -> bytes:
    if not part or len(rest) >= LONGEST_LINE:
        return rest
    return rest + part if len(rest) + len(part) <= LONGEST_LINE else (rest + part)[:LONGEST_LINE]


def _line(at: int, data: bytes, length: int, *, ended: bool) -> Line:
    whole = ended and length == len(data)
    return Line(at, data, entry_of(data) if whole else None, ended, length)


def _opened(run_dir: str) -> int | None:
    path = os.path.join(run_dir, FILE)
    files.refuse_links(os.path.dirname(os.path.dirname(run_dir)), path)
    try:
        return files.open_regular(path)
    except FileNotFoundError:
        return None


class Follower:
    """Gives what comes to a log, as long as somebody asks; the file may come later, be cut, or be replaced by another.

    Where another stands in its place, or it became shorter, it goes on behind the entry that it gave last; where that
    is not in it, with the entries of higher numbers, and with all that is written from then on. replaced: how often
    that was; at: how far it has read, in bytes.
    """

    def __init__(self, run_dir: str) -> None:
        """Begin at the log's end, behind its last whole line. Raises OSError and UNSAFE_LINK."""
        self._run_dir = run_dir
        self._identity: tuple[int, int] | None = None
        self._last: tuple[int, bytes] | None = None
        self.at = 0
        self.replaced = 0
        descriptor = _opened(run_dir)
        if descriptor is None:
            return
        try:
            status = os.fstat(descriptor)
            self._identity = (status.st_dev, status.st_ino)
            newest = next(_backwards(descriptor), None)
            self.at = status.st_size if newest is None or newest.ended else newest.at
            self._remember(next((line for line in _backwards(descriptor) if line.entry is not None), None))
        finally:
            os.close(descriptor)

    def _remember(self, line: Line | None) -> None:
        if line is not None and line.entry is not None:
            self._last = (line.entry["seq"], line.data)

    def news(self) -> list[Line]:
        """Give the lines that came; one that is not ended yet waits. Raises OSError and UNSAFE_LINK."""
        descriptor = _opened(self._run_dir)
        if descriptor is None:
            return []
        try:
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            if self._identity is None:
                self._identity = identity
            if identity != self._identity or status.st_size < self.at:
                self._identity = identity
                self.replaced += 1
                return self._behind_the_last(descriptor)
            return self._taken(line for line in _lines(descriptor, self.at))
        finally:
            os.close(descriptor)

    def _taken(self, lines: Iterator[Line]) -> list[Line]:
        found = []
        for line in lines:
            if not line.ended:
                break
            found.append(line)
            self.at = line.at + line.bytes + 1
            self._remember(line)
        return found

    def _behind_the_last(self, descriptor: int) -> list[Line]:
        """Go through a log that took the place of the one before."""
        self.at = 0
        last = self._last
        lines = self._taken(_lines(descriptor, 0))
        if last is None:
            return lines
        for number, line in enumerate(lines):
            if line.entry is not None and (line.entry["seq"], line.data) == last:
                return lines[number + 1 :]
        return [line for line in lines if line.entry is not None and line.entry["seq"] > last[0]]
