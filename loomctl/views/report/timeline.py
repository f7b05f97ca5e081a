"""The timeline of a report: phases, steps with their stages, sessions by machine, what happened in between."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.views.report.markup import Markup, el, join
from loomctl.views.report.parts import TAKEN_OVER, mark, section, survived, tone, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loomctl.views.report.parts import Section

_ROWS = 80  # steps that are drawn
_TALL = 22  # pixels of a row


def timeline(report: Mapping[str, Any]) -> Section | None:
    """Draw it; None for a run in which nothing has happened."""
    scale = _scale(report)
    if scale is None:
        return None
    hatch = el(
        "pattern",
        el("path", d="M-1 1L1 -1M0 6L6 0M5 7L7 5", class_="stripe"),
        id="hatch",
        width="6",
        height="6",
        patternUnits="userSpaceOnUse",
    )
    defs = el("svg", el("defs", hatch), class_="defs", width="0", height="0", aria_hidden="true", focusable="false")
    rows = [_axis(scale), *_phases(report, scale), *_steps(report, scale), *_sessions(report, scale)]
    marks = _moments(report, scale)
    legend = el("p", *_legend(report, scale), class_="legend")
    drawn = el("div", *rows, *marks, class_="timeline", role="group", aria_label="Timeline")
    return section("timeline", "Timeline", defs, drawn, legend, note=_note(scale))


def _scale(report: Mapping[str, Any]) -> Scale | None:
    stamps = [one.get(key) for one in _timed(report) for key in ("started_at", "completed_at", "ended_at", "at")]
    known = [time for time in map(seconds, stamps) if time is not None]
    known += [time for time in report["moments"] if isinstance(time, int)]
    return Scale(known) if known else None


def _timed(report: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from report["stages"]
    yield from report["sessions"]
    yield from report["phases"]
    yield from report["turns"]
    for session in report["sessions"]:
        yield from session["compactions"]


def _note(scale: Scale) -> str:
    spent = lasted(scale.end - scale.begin)
    if not scale.gaps:
        return f"From first to last sign: {spent}." if spent else ""
    idle = lasted(sum(gap.end - gap.begin for gap in scale.gaps))
    return f"From first to last sign: {spent}. Hatched: {idle} in which nothing happened, drawn short."


def _row(label: object, drawn: Iterable[Markup], scale: Scale, kind: str = "", *, tall: int = _TALL) -> Markup:
    gaps = [
        el("rect", x=f"{gap.x - 1.6:g}%", y="0", width="3.2%", height=tall, class_="gap")
        for gap in scale.gaps
        if kind != "axis"
    ]
    picture = el("svg", *gaps, *drawn, width="100%", height=tall, class_="lane", focusable="false")
    return el("div", el("div", label, class_="label"), picture, class_=f"row {kind}".strip())


def _axis(scale: Scale) -> Markup:
    """Name the first and the last moment, and the length of what is left out."""
    drawn = []
    ends = [("0%", "start", scale.begin), ("100%", "end", scale.end)]
    for x, anchor, time in ends[: 2 if scale.end > scale.begin else 1]:
        drawn.append(el("text", *_clock(time), x=x, y="12", text_anchor=anchor, class_="tick"))
    for gap in scale.gaps:
        if 22 < gap.x < 78:
            said = lasted(gap.end - gap.begin)
            drawn.append(el("text", said, x=f"{gap.x:g}%", y="12", text_anchor="middle", class_="tick minor"))
    return _row(el("span", "UTC", class_="dim zone-name"), drawn, scale, "axis", tall=16)


def _clock(time: int) -> list[Markup]:
    moment = datetime.fromtimestamp(time, timezone.utc)
    return [el("tspan", f"{moment:%Y-%m-%d %H:%M}", data_at=f"{moment:%Y-%m-%dT%H:%M:%SZ}")]


def _piece(
    scale: Scale, begin: object, end: object, status: str, told: str, *, high: tuple[int, int] = (4, 14)
) -> Markup | None:
    """Draw one bar; what has not ended reaches to the last moment, and is open there."""
    start = seconds(begin)
    if start is None:
        return None
    stop = seconds(end)
    left, right = scale.x(start), scale.x(scale.end if stop is None else max(start, stop))
    width = max(right - left, 0.7)
    left = min(left, 100 - width)
    y, tall = high
    parts = [el("rect", x=f"{left:g}%", y=y, width=f"{width:g}%", height=tall, rx="3", class_=f"piece {tone(status)}")]
    if tone(status) == "bad":
        parts.append(el("rect", x=f"{left:g}%", y=y, width=f"{width:g}%", height=tall, rx="3", class_="hatched"))
    if stop is None:
        parts.append(el("line", x1=f"{right:g}%", x2=f"{right:g}%", y1=y - 2, y2=y + tall + 2, class_="open-end"))
    return el("g", el("title", told), *parts, role="img", aria_label=told)


def _phases(report: Mapping[str, Any], scale: Scale) -> Iterable[Markup]:
    timed = [one for one in report["phases"] if seconds(one["started_at"]) is not None]
    if timed:
        yield el("h3", "Phases")
    for one in timed:
        status = str(one["status"])
        spent = _spent(one["started_at"], one["completed_at"])
        told = f"{one['id']}: {words(status)}{f', {spent}' if spent else ''}"
        drawn = _piece(scale, one["started_at"], one["completed_at"], status, told, high=(6, 10))
        yield _row(el("span", one["id"]), [drawn] if drawn else [], scale, "phase")


def _spent(begin: object, end: object) -> str:
    start, stop = seconds(begin), seconds(end)
    return lasted(max(0, stop - start)) if start is not None and stop is not None else ""


def _steps(report: Mapping[str, Any], scale: Scale) -> Iterable[Markup]:
    """Draw a row for each step, its visits in it, those of a branch below their parallel step."""
    by_step: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["stages"]:
        by_step.setdefault(str(one["step_id"]), []).append(one)
    if by_step:
        yield el("h3", "Steps")
    for key, visits in list(by_step.items())[:_ROWS]:
        drawn = []
        for one in visits:
            spent = lasted(one["seconds"])
            told = f"{one['stage']}: {words(str(one['status']))}{f', {spent}' if spent else ''}"
            drawn.append(_piece(scale, one["started_at"], one["completed_at"], str(one["status"]), told))
        branch = visits[-1].get("branch")
        name = key.removeprefix(f"{branch['of']}.") if branch else key
        again = el("span", f" \u00d7{len(visits)}", class_="dim") if len(visits) > 1 else None
        label = join([el("a", name, href=f"#{visits[-1]['anchor']}", title=key), again])
        kind = "step inner" if branch else "step"
        yield _row(label, [one for one in drawn if one], scale, kind)
    if len(by_step) > _ROWS:
        yield el("p", f"And {len(by_step) - _ROWS:,} more steps, which are listed below.", class_="dim")


def _sessions(report: Mapping[str, Any], scale: Scale) -> Iterable[Markup]:
    """Draw each machine with its sessions, a diamond for each compaction."""
    machines: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["sessions"]:
        machines.setdefault(str(one["hostname"] or "unknown machine"), []).append(one)
    if machines:
        yield el("h3", "Sessions, by machine")
    for machine, held in machines.items():
        for one in held[-_ROWS:]:
            end = one["ended_at"] or None
            reason = str(one["end_reason"] or ("open" if not end else "ended"))
            status = "paused" if reason == "lost" else "session"
            told = f"session {one['session_id']} on {machine}: {reason}"
            drawn = [_piece(scale, one["started_at"], end, status, told, high=(7, 8))]
            drawn += [_diamond(scale, compaction) for compaction in one["compactions"]]
            label = join([el("b", machine), el("span", f" {str(one['session_id'])[:8]}", class_="dim")])
            yield _row(label, [piece for piece in drawn if piece], scale, "session")


def _diamond(scale: Scale, compaction: Mapping[str, Any]) -> Markup | None:
    time = seconds(compaction["at"])
    if time is None:
        return None
    said, kind = survived(compaction["receipt"])
    told = f"compaction ({compaction['trigger']})" + (f": {said}" if said else "")
    drawn = el("path", d="M0 -7L6 0L0 7L-6 0Z", class_=f"diamond {kind}")
    x = min(max(scale.x(time), 1.2), 98.8)
    return el("svg", el("title", told), drawn, x=f"{x:g}%", y="11", overflow="visible", role="img", aria_label=told)


def _moments(report: Mapping[str, Any], scale: Scale) -> Iterable[Markup]:
    """Draw what was taken back, and where the run was forked; then when a session took it from another."""
    for heading, picture, taken_over in (("Taken back, forked", "↶", False), ("Taken over", "⇄", True)):
        drawn = []
        for one in report["turns"]:
            time = seconds(one["at"])
            if time is None or (one["kind"] == TAKEN_OVER) != taken_over:
                continue
            told = f"{one['kind']}: {one['said']}"
            arrow = el("text", picture, y="6", text_anchor="middle", class_="turn")
            x = f"{min(max(scale.x(time), 1.2), 98.8):g}%"
            drawn.append(
                el("svg", el("title", told), arrow, x=x, y="11", overflow="visible", role="img", aria_label=told)
            )
        if drawn:
            yield el("h3", heading)
            yield _row(el("span", f"{len(drawn)} times" if len(drawn) > 1 else "once"), drawn, scale, "turns")


def _legend(report: Mapping[str, Any], scale: Scale) -> Sequence[Markup]:
    there = {str(one["status"]) for one in report["stages"]}
    order = ("succeeded", "partially_succeeded", "failed", "skipped", "in_progress", "closing")
    told = [mark(status) for status in order if status in there]
    if any(one["compactions"] for one in report["sessions"]):
        picture = el("svg", el("path", d="M7 1L12 7L7 13L2 7Z", class_="diamond"), width="14", height="14")
        told.append(el("span", picture, " compaction", class_="key"))
    if scale.gaps:
        square = el("rect", x="1", y="1", width="12", height="12", class_="gap")
        told.append(el("span", el("svg", square, width="14", height="14"), " nothing happened", class_="key"))
    return told


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
