"""The lines of a run's log held against each other and against its state's checkpoint, in one pass (D54).

Every entry names the hash of the line before it, and the state that of the last line it knows. So a line before that
checkpoint is either the line that was written, or a fault. Damage that the log itself tells of stays a fault; a line
that a kill tore off is none where the entry behind it tells exactly its bytes (D53).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit import digests
from loomctl.kit.text.fences import one_line
from loomctl.runs.store.events import DAMAGED, MISMATCH, TORN, Head

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from loomctl.runs.store.event_log import Line

MOST_FAULTS = 20
NO_ENTRY, BROKEN_CHAIN, CHANGED_ENTRY = "NO_ENTRY", "BROKEN_CHAIN", "CHANGED_ENTRY"
LOG_CUT_OFF, TOLD_DAMAGE = "LOG_CUT_OFF", "TOLD_DAMAGE"
_CHUNK = b"\n" * (1 << 16)


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


class Walked(NamedTuple):
    """What a pass over a log found.

    entries: how many there are; last: the number of the last one; met: whether the checkpoint's entry is there, as it
    was. unproven: how many entries stand behind it, the first of them at `beyond`; torn: bytes behind the last entry
    that are none, from `torn_at`; told_torn: lines that a kill tore off, as the entry behind each says. faults: the
    first MOST_FAULTS of `total`, in the order of the file.
    """

    entries: int
    last: int
    met: bool
    unproven: int
    beyond: Place | None
    torn: int
    torn_at: Place | None
    told_torn: int
    faults: Sequence[Fault]
    total: int


def walked(lines: Iterable[Line], head: Head | None) -> Walked:
    """Go through the lines of a log, whatever they hold, in memory that does not grow with them.

    head: what the run's state remembers of the log; None where it remembers nothing.
    """
    walk = _Walk(head)
    for line in lines:
        walk.take(line)
    return walk.end()


class _Gap:
    """What stands between two entries and is none; told by its length and hash, as an append tells it."""

    def __init__(self, place: Place) -> None:
        self.place, self.bytes = place, 0
        self._hash, self._parts, self._ends_empty, self._opaque = digests.begun(), 0, False, False

    def empties(self, count: int) -> None:
        """Add empty lines."""
        self.bytes += count
        left = count - (0 if self._parts else 1)
        while left > 0:
            self._hash.update(_CHUNK[:left])
            left -= len(_CHUNK)
        self._parts, self._ends_empty = self._parts + count, True

    def line(self, line: Line) -> None:
        """Add a line that is no entry; one that was not read whole matches nothing that is told."""
        if self._parts:
            self._hash.update(b"\n")
        self._hash.update(line.data)
        self._opaque = self._opaque or line.bytes > len(line.data)
        self._parts, self._ends_empty = self._parts + 1, False
        self.bytes += line.bytes + (1 if line.ended else 0)

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


class _Walk:
    """One pass.

    last, before: the newest entry and the one that it followed; doubt: two neighbours of which one was changed, and the
    next line tells which.
    """

    def __init__(self, head: Head | None) -> None:
        self._head = head
        self._start = _Entry(Place(0, 0), Head(0, ""), 0)
        self._last, self._before = self._start, self._start
        self._next = Place(1, 0)
        self._gap: _Gap | None = None
        self._doubt: tuple[_Entry, _Entry] | None = None
        self._faults: list[Fault] = []
        self._total = self._entries = self._unproven = self._told_torn = 0
        self._beyond: Place | None = None
        self._met = head is None or head == self._start.head

    def take(self, line: Line) -> None:
        """Take the next line that is not empty."""
        empty = line.at - self._next.at
        if empty > 0:
            self._in_gap(self._next).empties(empty)
            self._next = Place(self._next.line + empty, line.at)
        place = self._next
        self._next = Place(place.line + 1, line.at + line.bytes + 1)
        if line.entry is None:
            self._in_gap(place).line(line)
        else:
            self._entry(line, line.entry, place)

    def _in_gap(self, place: Place) -> _Gap:
        if self._gap is None:
            self._gap = _Gap(place)
        return self._gap

    def _entry(self, line: Line, entry: Mapping[str, Any], place: Place) -> None:
        now = _Entry(place, Head(entry["seq"], digests.of_bytes(line.data)), line.bytes)
        told = entry.get("properties") if entry["event"] == TORN else None
        told = told if isinstance(told, dict) else {}
        gap, self._gap = self._gap, None
        closes = gap is None and entry["event"] == TORN and self._closes_whole(entry, told)
        if self._doubt is not None and closes:
            self._doubt = None  # what is no entry need not follow
        elif self._doubt is not None:
            self._decide(later_is_whole=entry["prev"] == self._last.head.sha256)
        if gap is not None:
            self._after_gap(gap, entry, told, now)
        elif entry["event"] == TORN and not closes:
            self._after_no_gap(entry, now)
        elif not closes and not self._follows(entry, self._last):
            self._misfit(now)
        if entry["event"] in (MISMATCH, DAMAGED):
            self._told_damage(entry, now)
        self._count(now)

    def _after_gap(self, gap: _Gap, entry: Mapping[str, Any], told: Mapping[str, Any], now: _Entry) -> None:
        if not gap.is_told(told):
            why = "a line was changed or put in here; what a kill tears off is told by the entry behind it"
            self._fault(NO_ENTRY, gap.place, None, f"{gap.bytes:,} bytes here are no entry", why)
            return
        self._told_torn += 1
        if not self._follows(entry, self._last):
            self._misfit(now)

    def _after_no_gap(self, entry: Mapping[str, Any], now: _Entry) -> None:
        if self._follows(entry, self._last):
            what = f"entry {now.head.seq} tells of a torn line, and none stands before it"
            self._fault(BROKEN_CHAIN, now.place, now.head.seq, what, "what was torn was taken out")
        else:
            self._misfit(now)

    @staticmethod
    def _follows(entry: Mapping[str, Any], last: _Entry) -> bool:
        return bool(entry["seq"] == last.head.seq + 1 and entry["prev"] == last.head.sha256)

    def _closes_whole(self, entry: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
        """Tell whether a note closes the line before, which a kill left whole but for its newline: it is no entry."""
        torn = self._last
        if told.get("sha256") != torn.head.sha256 or told.get("bytes") != torn.bytes or torn is self._start:
            return False
        if not self._follows(entry, self._before):
            return False
        self._told_torn += 1
        self._entries -= 1
        if self._beyond is not None:
            self._unproven -= 1
            self._beyond = None if self._unproven == 0 else self._beyond
        return True

    def _misfit(self, now: _Entry) -> None:
        wanted = self._last.head.seq + 1
        if now.head.seq != wanted:
            what = f"entry {now.head.seq} stands where entry {wanted} belongs"
            why = "lines are missing before it, or stand in another order, or twice; or its number was changed"
            self._fault(BROKEN_CHAIN, now.place, now.head.seq, what, why)
        elif self._last is self._start or self._last.head == self._head:
            self._changed(now)
        else:
            self._doubt = (self._last, now)
            if self._head is not None and self._head.seq == now.head.seq:
                self._decide(later_is_whole=self._head == now.head)

    def _decide(self, *, later_is_whole: bool) -> None:
        """Name the one of two neighbours that was changed: the later one is whole where what follows knows it so."""
        assert self._doubt is not None  # the callers looked
        earlier, later = self._doubt
        self._doubt = None
        self._changed(earlier if later_is_whole else later)

    def _changed(self, entry: _Entry) -> None:
        what = f"entry {entry.head.seq} is not the line that was written"
        self._fault(
            CHANGED_ENTRY, entry.place, entry.head.seq, what, "its hash is another than its neighbour has of it"
        )

    def _told_damage(self, entry: Mapping[str, Any], now: _Entry) -> None:
        told = entry.get("properties")
        parts = told if isinstance(told, dict) else {}
        if entry["event"] == DAMAGED:
            what = f"entry {now.head.seq} tells that the log of which this one is a copy was not the one written"
            where = f"line {parts.get('line')}: " if type(parts.get("line")) is int else ""
            self._fault(TOLD_DAMAGE, now.place, now.head.seq, what, one_line(f"{where}{parts.get('what', '')}", 200))
            return
        what = f"entry {now.head.seq} tells that the log was damaged before it: it did not end as the state remembered"
        known, found = (_seq_in(parts.get(key)) for key in ("expected", "found"))
        why = f"the state remembered entry {known}, the log ended with entry {found}" if known and found else ""
        self._fault(TOLD_DAMAGE, now.place, now.head.seq, what, why)

    def _count(self, now: _Entry) -> None:
        self._entries += 1
        self._before, self._last = self._last, now
        if self._head is None or now.head.seq > self._head.seq:
            self._unproven += 1
            self._beyond = self._beyond or now.place
        elif now.head == self._head:
            self._met, self._unproven, self._beyond = True, 0, None
        elif now.head.seq == self._head.seq:
            what = f"entry {now.head.seq} is not the line that the state remembers"
            self._fault(CHANGED_ENTRY, now.place, now.head.seq, what, "it was changed after the state was written")

    def _fault(self, code: str, place: Place, seq: int | None, what: str, why: str) -> None:
        if self._faults and self._faults[-1].at == place.at and self._faults[-1].code == code:
            return
        self._total += 1
        if len(self._faults) < MOST_FAULTS:
            self._faults.append(Fault(code, place.line, place.at, seq, what, why))

    def end(self) -> Walked:
        """Say what was found, at the end of the log."""
        if self._doubt is not None:
            self._decide(later_is_whole=True)
        gap, last = self._gap, self._last.head.seq
        if not self._met and self._head is not None and (last < self._head.seq or not self._total):
            place = gap.place if gap else self._next
            what = f"the log ends with entry {last}, the state remembers entry {self._head.seq}"
            why = "its end was cut off, or changed so that it is no entry"
            self._fault(LOG_CUT_OFF, place, None, what, why)
        return Walked(
            entries=self._entries,
            last=last,
            met=self._met,
            unproven=self._unproven,
            beyond=self._beyond,
            torn=gap.bytes if gap else 0,
            torn_at=gap.place if gap else None,
            told_torn=self._told_torn,
            faults=tuple(sorted(self._faults, key=lambda fault: fault.at)),
            total=self._total,
        )


def _seq_in(value: object) -> str:
    seq = value.get("seq") if isinstance(value, dict) else None
    return str(seq) if type(seq) is int else ""
