"""A run's log as a chain: all lines held against each other and the state's checkpoint, in one pass (D54).

Every entry names the hash of the line before it, and the state that of the last line it knows, so a line before that
checkpoint is either the line that was written, or a fault. Damage that the log itself tells of stays a fault; a line
that a kill tore off is none where the entry behind it tells exactly its bytes (D53).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import digests
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import one_line
from loomctl.runs.store.events import DAMAGED, MISMATCH, TORN, Head

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loomctl.runs.store.event_log import Line

_PART = 1 << 18  # bytes of empty lines that are hashed at once
MOST_FAULTS = 20
NO_ENTRY, BROKEN_CHAIN, CHANGED_ENTRY = "NO_ENTRY", "BROKEN_CHAIN", "CHANGED_ENTRY"
LOG_CUT_OFF, TOLD_DAMAGE = "LOG_CUT_OFF", "TOLD_DAMAGE"


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
        for left in range(count - 1, 0, -_PART):
            self._hash.update(b"\n" * min(left, _PART))
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
