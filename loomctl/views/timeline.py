"""The timeline of a report, ready to be drawn: where phases, visits, sessions and turns lie on one scale of time."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TAKEN_OVER = "lease.taken_over"
"""The event among a report's turns of which no work was taken back."""
_ROWS = 80  # steps that are drawn
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?Z\Z")
_GAP_WIDTH = 4.0  # percent of the line that a stretch without anything has
_MOST_GAPS = 8
_LEAST_GAP = 3600  # seconds
_SHARE = 0.12  # of the time shown, above which a stretch without anything is left out
# A status is told by a sign, a word and a colour; tone: which of the page's colours.
_SIGNS = {
    "succeeded": ("✓", "good"),
    "found": ("✓", "good"),
    "missing": ("✕", "bad"),
    "completed": ("✓", "good"),
    "partially_succeeded": ("◐", "warn"),
    "failed": ("✕", "bad"),
    "skipped": ("»", "calm"),
    "cancelled": ("⊘", "calm"),
    "pending": ("○", "calm"),
    "in_progress": ("▸", "busy"),
    "closing": ("▸", "busy"),
    "paused": ("‖", "warn"),
    "awaiting_feedback": ("?", "warn"),
}


def tone(status: str) -> str:
    """Give the tone of a status: good, warn, bad, busy or calm."""
    return _SIGNS.get(status, ("•", "calm"))[1]


def sign(status: str) -> str:
    """Give the sign that stands before a status."""
    return _SIGNS.get(status, ("•", "calm"))[0]


def words(status: str) -> str:
    """Give a status as it is read."""
    return status.replace("_", " ")


def draw(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give what the template draws; None for a run in which nothing has happened."""
    scale = _scale(report)
    if scale is None:
        return None
    steps = _steps(report, scale)
    ends = [("0%", "start", scale.begin), ("100%", "end", scale.end)]
    statuses = ("succeeded", "partially_succeeded", "failed", "skipped", "in_progress", "closing")
    there = {one["status"] for one in report["stages"]}
    return {
        "note": _note(scale),
        "gaps": scale.gaps,
        "ends": [_end(*one) for one in ends[: 2 if scale.end > scale.begin else 1]],
        "phases": _phases(report, scale),
        "steps": steps[:_ROWS],
        "steps_more": len(steps[_ROWS:]),
        "sessions": _sessions(report, scale),
        "turns": [
            ("Taken back, forked", "↶", _turns(report, scale, is_taken_over=False)),
            ("Taken over", "⇄", _turns(report, scale, is_taken_over=True)),
        ],
        "statuses": [status for status in statuses if status in there],
        "is_compacted": any(one["compactions"] for one in report["sessions"]),
    }


def _scale(report: Mapping[str, Any]) -> Scale | None:
    timed = [one for key in ("stages", "sessions", "phases", "turns") for one in report[key]]
    timed += [one for session in report["sessions"] for one in session["compactions"]]
    stamps = [one.get(key) for one in timed for key in ("started_at", "completed_at", "ended_at", "at")]
    known = [time for time in map(seconds, stamps) if time is not None]
    known += [time for time in report["moments"] if isinstance(time, int)]
    return Scale(known) if known else None


def _note(scale: Scale) -> str:
    spent = lasted(scale.end - scale.begin)
    if not scale.gaps:
        return f"From first to last sign: {spent}." if spent else ""
    idle = lasted(sum(gap.end - gap.begin for gap in scale.gaps))
    return f"From first to last sign: {spent}. Hatched: {idle} in which nothing happened, drawn short."


def _end(x: str, anchor: str, time: int) -> dict[str, str]:
    moment = datetime.fromtimestamp(time, timezone.utc)
    return {"x": x, "anchor": anchor, "said": f"{moment:%Y-%m-%d %H:%M}", "stamp": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}


def _piece(
    scale: Scale, begin: object, end: object, status: str, said: str, *, y: int = 4, tall: int = 14
) -> dict[str, Any] | None:
    """Give one bar; what has not ended reaches to the last moment, and is open there."""
    start, stop = seconds(begin), seconds(end)
    if start is None:
        return None
    left, right = scale.x(start), scale.x(scale.end if stop is None else max(start, stop))
    width = max(right - left, 0.7)
    place = {"x": min(left, 100 - width), "width": width, "y": y, "tall": tall}
    return {**place, "tone": tone(status), "open_at": right if stop is None else None, "said": said}


def _phases(report: Mapping[str, Any], scale: Scale) -> list[dict[str, Any]]:
    told = []
    for one in report["phases"]:
        start, stop = seconds(one["started_at"]), seconds(one["completed_at"])
        if start is None:
            continue
        spent = lasted(max(0, stop - start)) if stop is not None else ""
        said = f"{one['id']}: {words(one['status'])}{f', {spent}' if spent else ''}"
        piece = _piece(scale, one["started_at"], one["completed_at"], one["status"], said, y=6, tall=10)
        told.append({"name": one["id"], "piece": piece})
    return told


def _steps(report: Mapping[str, Any], scale: Scale) -> list[dict[str, Any]]:
    by_step: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["stages"]:
        by_step.setdefault(one["step_id"], []).append(one)
    told: list[dict[str, Any]] = []
    for key, visits in by_step.items():
        last, pieces = visits[-1], []
        for one in visits if len(told) < _ROWS else ():
            spent = lasted(one["seconds"])
            said = f"{one['stage']}: {words(one['status'])}{f', {spent}' if spent else ''}"
            pieces.append(_piece(scale, one["started_at"], one["completed_at"], one["status"], said))
        branch = last["branch"]
        name = key.removeprefix(f"{branch['of']}.") if branch else key
        told.append({"key": key, "name": name, "anchor": last["anchor"], "inner": bool(branch), "pieces": pieces})
    return told


def _sessions(report: Mapping[str, Any], scale: Scale) -> list[dict[str, Any]]:
    machines: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["sessions"]:
        machines.setdefault(one["hostname"] or "unknown machine", []).append(one)
    told = []
    for machine, held in machines.items():
        for one in held[-_ROWS:]:
            reason = one["end_reason"] or ("ended" if one["ended_at"] else "open")
            said = f"session {one['session_id']} on {machine}: {reason}"
            status = "paused" if reason == "lost" else "session"
            piece = _piece(scale, one["started_at"], one["ended_at"], status, said, y=7, tall=8)
            signs = [sign for compaction in one["compactions"] for sign in _compaction(scale, compaction)]
            told.append({"machine": machine, "id": one["session_id"][:8], "piece": piece, "compactions": signs})
    return told


def _compaction(scale: Scale, one: Mapping[str, Any]) -> list[dict[str, Any]]:
    became, tone_of_it = survived(one["receipt"])
    said = f"compaction ({one['trigger']})" + (f": {became}" if became else "")
    return [{**sign, "tone": tone_of_it} for sign in _sign(scale, one["at"], said)]


def _sign(scale: Scale, stamp: object, said: str) -> list[dict[str, Any]]:
    """Give a sign at a time, within the drawing's edges; none at what is no time."""
    time = seconds(stamp)
    return [] if time is None else [{"x": min(max(scale.x(time), 1.2), 98.8), "said": said}]


def _turns(report: Mapping[str, Any], scale: Scale, *, is_taken_over: bool) -> list[dict[str, Any]]:
    held = (one for one in report["turns"] if (one["kind"] == TAKEN_OVER) == is_taken_over)
    return [sign for one in held for sign in _sign(scale, one["at"], f"{one['kind']}: {one['said']}")]


def seconds(stamp: object) -> int | None:
    """Give a time of the form `YYYY-MM-DDTHH:MM:SSZ` in seconds since the epoch; None for what is none."""
    found = _STAMP.match(stamp) if isinstance(stamp, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))


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


def survived(receipt: Mapping[str, Any] | None) -> tuple[str, str]:
    """Say what survived a compaction, and in which tone; empty where nobody looked."""
    if receipt is None:
        return "", "calm"
    if not receipt["proven"]:
        return "unproven: no summary came", "warn"
    kept, lost, restored = (len(receipt[key]) for key in ("kept", "lost", "restored"))
    absent = f", {len(receipt['absent'])} absent" if receipt["absent"] else ""
    if not lost:
        return f"all {kept} kept{absent}" if kept or not absent else absent.removeprefix(
            ", "
        ), "good" if kept else "calm"
    pending = len(receipt["pending"])
    coming = f", {pending} still to be put back" if pending else ""
    missing = f", {lost - restored - pending} still missing" if lost > restored + pending else ""
    tone = "bad" if missing else "warn" if pending else "good"
    return f"{kept} kept, {lost} lost, {restored} put back{coming}{missing}{absent}", tone
