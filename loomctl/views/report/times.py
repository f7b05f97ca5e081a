"""Times as a report shows them: on a line that leaves out long stretches without anything, and as elements."""

from __future__ import annotations

import calendar
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from loomctl.views.report.markup import Markup, el

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?Z\Z")
_GAP_WIDTH = 4.0  # percent of the line that a stretch without anything has
_MOST_GAPS = 8
_LEAST_GAP = 3600  # seconds
_SHARE = 0.12  # of the time shown, above which a stretch without anything is left out


def seconds(stamp: object) -> int | None:
    """Give a time of the form `YYYY-MM-DDTHH:MM:SSZ` in seconds since the epoch; None for what is none."""
    found = _STAMP.match(stamp) if isinstance(stamp, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))


def at(stamp: object, missing: str = "") -> Markup:
    """Give a time as an element that says it in UTC; a script adds the reader's own. missing: where there is none."""
    known = seconds(stamp)
    if known is None:
        return el("span", str(stamp)[:40] if stamp else missing)
    told = f"{str(stamp)[:10]} {str(stamp)[11:19]}"
    return el("time", told, el("span", " UTC", class_="zone"), datetime=f"{str(stamp)[:19]}Z")


def lasted(count: int | None) -> str:
    """Say how long something took, in its two largest units; empty where that is not known."""
    if count is None:
        return ""
    for size, unit, small, less in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if count >= size:
            rest = count % size // small
            return f"{count // size} {unit}" + (f" {rest} {less}" if rest else "")
    return f"{count} s"


class Gap(NamedTuple):
    """A stretch that is left out. x: its middle on the line, in percent."""

    begin: int
    end: int
    x: float


class Scale:
    """Turns times into places on a line of 0 to 100 percent; the order of times stays.

    moments: all times at which anything was. Stretches between two of them that take much of the whole are drawn at
    one small width each.
    """

    def __init__(self, moments: Iterable[int]) -> None:
        points = sorted(set(moments)) or [0]
        self.begin, self.end = points[0], points[-1]
        gaps = _gaps(points)
        left_out = sum(end - begin for begin, end in gaps)
        shown = self.end - self.begin - left_out
        room = 100.0 - _GAP_WIDTH * len(gaps)
        self._pieces: list[tuple[int, int, float, float]] = []
        x, time = 0.0, self.begin
        self.gaps: list[Gap] = []
        for begin, end in [*gaps, (self.end, self.end)]:
            width = room * (begin - time) / shown if shown else room
            self._pieces.append((time, begin, x, x + width))
            x, time = x + width, end
            if end > begin:
                self._pieces.append((begin, end, x, x + _GAP_WIDTH))
                self.gaps.append(Gap(begin, end, x + _GAP_WIDTH / 2))
                x += _GAP_WIDTH

    def x(self, time: int) -> float:
        """Give a time's place in percent; one before the first or behind the last is at that end."""
        time = min(max(time, self.begin), self.end)
        for begin, end, low, high in self._pieces:
            if time <= end:
                part = (time - begin) / (end - begin) if end > begin else 0.0
                return min(100.0, max(0.0, round(low + (high - low) * part, 3)))
        return 100.0


def _gaps(points: Sequence[int]) -> list[tuple[int, int]]:
    """Choose the stretches to leave out, in the order of time: the largest first, while each takes much of the rest."""
    steps = sorted(((end - begin, begin) for begin, end in pairwise(points)), reverse=True)
    shown = points[-1] - points[0]
    chosen = []
    for size, begin in steps[:_MOST_GAPS]:
        if size < _LEAST_GAP or size < _SHARE * shown or size == shown:  # something is left to show
            break
        chosen.append((begin, begin + size))
        shown -= size
    return sorted(chosen)
