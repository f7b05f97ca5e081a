"""A run's `events.jsonl` read from a place in it: its last entries, those since one, and those that are still to come.

A line that is no entry (torn off by a kill, damaged, written by somebody else) is given as what it is, and ends nothing
(D53). What is read does not grow with what lies before the place.

`walked` holds all lines against each other and against the state's checkpoint, in one pass (D54). Every entry names the
hash of the line before it, and the state that of the last line it knows, so a line before that checkpoint is either the
line that was written, or a fault. Damage that the log itself tells of stays a fault; a line that a kill tore off is
none where the entry behind it tells exactly its bytes (D53).
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import digests, files
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import one_line
from loomctl.runs.store import events
from loomctl.runs.store.events import DAMAGED, FILE, MISMATCH, TORN, Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

LONGEST_LINE = 16 << 20  # bytes; no entry is as long
_BLOCK = 1 << 18
_BEGINS = b'{"seq":'  # every entry that Loom writes
MOST_FAULTS = 20
NO_ENTRY, BROKEN_CHAIN, CHANGED_ENTRY = "NO_ENTRY", "BROKEN_CHAIN", "CHANGED_ENTRY"
LOG_CUT_OFF, TOLD_DAMAGE = "LOG_CUT_OFF", "TOLD_DAMAGE"


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


# ---- The chain.


class Fault(NamedTuple):
    """A place that does not fit. line: from 1; at: where it begins, in bytes; seq: the entry's number, if one is."""

    code: str
    line: int
    at: int
    seq: int | None
    what: str
    why: str


class Place(NamedTuple):
    """A line of the file. line: from 1; at: in bytes."""

    line: int
    at: int


def walked(lines: Iterable[Line], head: Head | None) -> Walked:
    """Go through the lines of a log, whatever they hold, in memory that does not grow with them.

    head: what the run's state remembers of the log; None where it remembers nothing.
    """
    walk = Walked(head)
    for line in lines:
        walk.take(line)
    walk.end()
    return walk


class _Gap:
    """What stands between two entries and is none; told by its length and hash, as an append tells it."""

    def __init__(self, place: Place) -> None:
        self.place, self.bytes = place, 0
        self._hash, self._newline, self._ends_empty, self._opaque = digests.begun(), b"", False, False

    def add_empty(self, count: int) -> None:
        self._hash.update(self._newline)
        for left in range(count - 1, 0, -_BLOCK):
            self._hash.update(b"\n" * min(left, _BLOCK))
        self.bytes += count
        self._newline, self._ends_empty = b"\n", True

    def add(self, line: Line) -> None:
        self._hash.update(self._newline + line.data)
        self._opaque = self._opaque or line.bytes > len(line.data)  # what was not read whole matches nothing
        self._newline, self._ends_empty = b"\n", False
        self.bytes += line.bytes + line.ended

    def is_told(self, told: Mapping[str, Any]) -> bool:
        """Tell whether a note tells exactly this: what was torn ended with a newline, or got one by the note."""
        if self._opaque:
            return False
        if told.get("bytes") == self.bytes - 1:
            return not self._ends_empty and told.get("sha256") == self._hash.hexdigest()
        whole = self._hash.copy()
        whole.update(b"\n")
        return told.get("bytes") == self.bytes and told.get("sha256") == whole.hexdigest()


class _Entry(NamedTuple):
    place: Place
    head: Head
    bytes: int


class Walked:
    """What a pass over a log found.

    entries: how many there are; last: the number of the last one; met: whether the checkpoint's entry is there, as it
    was. unproven: how many entries stand behind it, the first of them at `beyond`; torn: bytes behind the last entry
    that are none, from `torn_at`; told_torn: lines that a kill tore off, as the entry behind each says. faults: the
    first MOST_FAULTS of `total`, in the order of the file.
    """

    def __init__(self, head: Head | None) -> None:
        self.entries = self.last = self.unproven = self.torn = self.told_torn = self.total = 0
        self.beyond: Place | None = None
        self.torn_at: Place | None = None
        self.faults: list[Fault] = []
        self._head = head
        self._start = _Entry(Place(0, 0), Head(0, ""), 0)
        self._newest, self._before = self._start, self._start  # the newest entry, and the one that it followed
        self._next = Place(1, 0)
        self._gap: _Gap | None = None
        self._doubt: tuple[_Entry, _Entry] | None = None  # of two neighbours one was changed; the next line tells which
        self.met = head is None or head == self._start.head

    def take(self, line: Line) -> None:
        """Take the next line that is not empty."""
        empty = line.at - self._next.at
        if empty > 0:
            self._in_gap(self._next).add_empty(empty)
            self._next = Place(self._next.line + empty, line.at)
        place = self._next
        self._next = Place(place.line + 1, line.at + line.bytes + 1)
        if line.entry is None:
            self._in_gap(place).add(line)
        else:
            self._take_entry(line, line.entry, place)

    def _in_gap(self, place: Place) -> _Gap:
        if self._gap is None:
            self._gap = _Gap(place)
        return self._gap

    def _take_entry(self, line: Line, entry: Mapping[str, Any], place: Place) -> None:
        now = _Entry(place, Head(entry["seq"], digests.of_bytes(line.data)), line.bytes)
        is_note = entry["event"] == TORN
        told = as_object(entry.get("properties")) if is_note else {}
        gap, self._gap = self._gap, None
        closes = gap is None and is_note and self._closes_whole(entry, told)
        if self._doubt is not None and closes:
            self._doubt = None  # what is no entry need not follow
        elif self._doubt is not None:
            self._decide(later_is_whole=entry["prev"] == self._newest.head.sha256)
        follows = closes or self._follows(entry, self._newest)
        seq = now.head.seq
        if gap is not None and not gap.is_told(told):
            why = "somebody changed or inserted a line here; the next entry would note a line that a kill tore off"
            self._fault(NO_ENTRY, gap.place, None, f"{gap.bytes:,} bytes here are not an entry", why)
        elif not follows:
            self.told_torn += gap is not None
            self._misfit(now)
        elif gap is not None:
            self.told_torn += 1
        elif is_note and not closes:
            what = f"entry {seq} notes a torn line, but there is none before it"
            self._fault(BROKEN_CHAIN, place, seq, what, "somebody removed the torn line")
        if entry["event"] in (MISMATCH, DAMAGED):
            self._told_damage(as_object(entry.get("properties")), now, is_of_origin=entry["event"] == DAMAGED)
        self._count(now)

    @staticmethod
    def _follows(entry: Mapping[str, Any], last: _Entry) -> bool:
        return bool(entry["seq"] == last.head.seq + 1 and entry["prev"] == last.head.sha256)

    def _closes_whole(self, entry: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
        """Tell whether a note closes the line before, which a kill left whole but for its newline: it is no entry."""
        torn = self._newest
        if told.get("sha256") != torn.head.sha256 or told.get("bytes") != torn.bytes or torn is self._start:
            return False
        if not self._follows(entry, self._before):
            return False
        self.told_torn += 1
        self.entries -= 1
        if self.beyond is not None:
            self.unproven -= 1
            self.beyond = None if self.unproven == 0 else self.beyond
        return True

    def _misfit(self, now: _Entry) -> None:
        wanted = self._newest.head.seq + 1
        if now.head.seq != wanted:
            what = f"entry {now.head.seq} stands where entry {wanted} belongs"
            why = "lines before it are missing, reordered or repeated, or its number was changed"
            self._fault(BROKEN_CHAIN, now.place, now.head.seq, what, why)
        elif self._newest is self._start or self._newest.head == self._head:
            self._changed(now)
        else:
            self._doubt = (self._newest, now)
            if self._head is not None and self._head.seq == now.head.seq:
                self._decide(later_is_whole=self._head == now.head)

    def _decide(self, *, later_is_whole: bool) -> None:
        """Name the one of two neighbours that was changed: the later one is whole where what follows knows it so."""
        assert self._doubt is not None  # the callers looked
        earlier, later = self._doubt
        self._doubt = None
        self._changed(earlier if later_is_whole else later)

    def _changed(self, entry: _Entry) -> None:
        what, why = (
            f"entry {entry.head.seq} was changed after it was written",
            "its hash differs from the one that its neighbour holds",
        )
        self._fault(CHANGED_ENTRY, entry.place, entry.head.seq, what, why)

    def _told_damage(self, told: Mapping[str, Any], now: _Entry, *, is_of_origin: bool) -> None:
        seq = now.head.seq
        if is_of_origin:
            what = f"entry {seq} says that the original of this log was damaged"
            where = f"line {told.get('line')}: " if type(told.get("line")) is int else ""
            why = one_line(f"{where}{told.get('what', '')}", 200)
        else:
            what = f"entry {seq} says that the log before it was damaged: its end did not match the state"
            known, found = (as_object(told.get(key)).get("seq") for key in ("expected", "found"))
            whole = type(known) is int and type(found) is int
            why = f"the state named entry {known} as the last, but the log ended with entry {found}" if whole else ""
        self._fault(TOLD_DAMAGE, now.place, seq, what, why)

    def _count(self, now: _Entry) -> None:
        self.entries += 1
        self._before, self._newest = self._newest, now
        if self._head is None or now.head.seq > self._head.seq:
            self.unproven += 1
            self.beyond = self.beyond or now.place
        elif now.head == self._head:
            self.met, self.unproven, self.beyond = True, 0, None
        elif now.head.seq == self._head.seq:
            what = f"entry {now.head.seq} differs from the line that the state names"
            self._fault(CHANGED_ENTRY, now.place, now.head.seq, what, "it was changed after the state was written")

    def _fault(self, code: str, place: Place, seq: int | None, what: str, why: str) -> None:
        if self.faults and self.faults[-1].at == place.at and self.faults[-1].code == code:
            return
        self.total += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(Fault(code, place.line, place.at, seq, what, why))

    def end(self) -> None:
        """Say what was found, at the end of the log."""
        if self._doubt is not None:
            self._decide(later_is_whole=True)
        self.last = self._newest.head.seq
        if self._gap is not None:
            self.torn, self.torn_at = self._gap.bytes, self._gap.place
        if not self.met and self._head is not None and (self.last < self._head.seq or not self.total):
            what = f"the log ends with entry {self.last}, but the state names entry {self._head.seq} as the last"
            why = "its end was cut off or damaged"
            self._fault(LOG_CUT_OFF, self.torn_at or self._next, None, what, why)
        self.faults.sort(key=lambda fault: fault.at)
