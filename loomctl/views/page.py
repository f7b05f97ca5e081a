"""A report as one page that needs nothing else: the templates of the folder `assets` over the document of a run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from datetime import datetime, timezone
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import clock, files
from loomctl.kit.text.fences import counted, one_line, visible
from loomctl.runs.model import standing, visits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jinja2 import Environment

MADE_BY = "loomctl report"
"""What the page's `generator` begins with: a file that says so may be replaced by another report."""
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
_LONGEST = 1500  # characters of an event's properties
_TITLE = 140  # UTF-16 units of a run's goal in the page's title
# A link that a page holds leads to a place below it or beside it, never to another site or a program.
_RELATIVE = re.compile(r"(?:#|\./|(?:\.\./)+)[A-Za-z0-9._~%/@+-]*\Z")
_TAKEN_OVER = "lease.taken_over"
_ROWS = 80  # steps that are drawn
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


def page(report: Mapping[str, Any]) -> str:
    """Give the whole page of what `document.gather` and `document.linked` made.

    Whatever the report says, nothing of it becomes markup, style or script: the policy in the page's head allows the
    one style and the one script alone, by their hashes, and no connection at all.
    """
    style, script = asset("report.css"), asset("report.js")
    shown = _visible(report)
    run = shown["run"]
    made: str = (
        environment()
        .get_template("page.html")
        .render(
            report=shown,
            title=one_line(run["goal"] or run["work_id"] or run["run_id"], _TITLE),
            copy_of=_visible(standing.saved_from_line(run["saved_from"], run)) if run["saved_from"] else "",
            tiles=_tiles(shown),
            drawn=draw(shown),
            phases=_phases(shown),
            areas=_areas(shown["savings"]["over_time"]),
            rows=_visible(_rows(report)),
            policy=policy(style, script),
            made_by=MADE_BY,
            style=style,
            script=script,
        )
    )
    return made + "\n"


def policy(style: str, script: str) -> str:
    """Give a page's content security policy. script: empty for a page without any."""
    scripts = f"script-src 'sha256-{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; {scripts}"
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def asset(name: str) -> str:
    """Read a file of the folder `assets`."""
    return files.read_bytes(os.path.join(_FOLDER, name)).decode()


def _visible(value: Any) -> Any:
    """Make what hides or reorders text visible in every string: before the page is made, for filters work on it."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _visible(child) for key, child in value.items()}
    return [_visible(child) for child in value] if isinstance(value, list) else value


def is_relative(link: object) -> bool:
    """Tell whether a link leads to a place in this page, or to a file below or beside it."""
    return bool(_RELATIVE.match(str(link)))


def flat(template: str) -> str:
    """Give a template in which a line break with its indent comes to nothing."""
    return "".join(line.strip() for line in template.splitlines())


@cache
def environment() -> Environment:
    """Give what fills templates: those of the folder `assets`, and other pages' that use their parts."""
    import jinja2

    def source(name: str) -> str:
        return flat(asset(name))

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    made.tests["relative"] = is_relative
    made.filters |= {
        "g": "{:g}".format,
        "in_and_out": lambda tokens: tokens["in"] + tokens["out"],
        "pieces": re.compile(r"(?<=:)(?=.)|(?<=->)(?=.)").split,
        "sign": sign,
        "thousands": "{:,}".format,
        "tone": tone,
        "words": words,
    }
    made.globals |= {
        "counted": counted,
        "duration": duration,
        "percent": percent,
        "seconds": seconds,
        "fate": fate,
        "nth": visits.nth,
        "what_was_given": _what_was_given,
    }
    return made


def percent(part: float, whole: float) -> float:
    """Give a part of a whole in percent, between 0 and 100."""
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 2) if whole > 0 else 0.0


def _tiles(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    run, saved, sessions = report["run"], report["savings"]["all"], report["sessions"]
    machines = {one["hostname"] for one in sessions if one["hostname"]}
    compactions = sum(len(session["compactions"]) for session in sessions)
    begun, ended = seconds(run["created_at"]), seconds(run["completed_at"] or run["updated_at"])
    before = saved["tokens_before"]

    def of(count: int, noun: str) -> tuple[str, str]:
        number, _, what = counted(count, noun).partition(" ")
        return number, what

    number, what = of(len(sessions), "session")
    return [
        (
            duration(max(0, ended - begun)) if begun is not None and ended is not None else "",
            "start to last change",
        ),
        (number, what + (f" on {counted(len(machines), 'machine')}" if machines else "")),
        of(compactions, "compaction"),
        (f"{100 * (before - saved['tokens_after']) / before:.0f}\u00a0%" if before else "", "of tool tokens saved"),
        (f"{report['files_total']:,}" if report["files_total"] else "", "files touched"),
    ]


def _phases(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Group the stages by phase, in the order in which they are planned and were visited.

    within: those of branches, by the parallel step's stage and the branch; ahead: the steps without a stage.
    """
    by_phase: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["stages"]:
        by_phase.setdefault(one["phase"], []).append(one)
    known = {one["id"]: one for one in report["phases"]}
    told = []
    for name in dict.fromkeys([*known, *by_phase]):
        phase, visited = known.get(name, {"status": "", "steps": ()}), by_phase.get(name, [])
        within: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for one in visited:
            if one["branch"]:
                within.setdefault((one["branch"]["stage"], one["branch"]["id"]), []).append(one)
        met = {one["step_id"] for one in visited}
        told.append(
            {
                "name": name,
                "status": phase["status"],
                "stages": [one for one in visited if not one["branch"]],
                "within": within,
                "ahead": [step for step in phase["steps"] if step["key"] not in met and not step["inner"]],
            }
        )
    return told


def _areas(points: Sequence[Sequence[int]]) -> list[tuple[str, str]]:
    if len(points) < 3:
        return []
    most, last = max(1, *(max(point[1:]) for point in points)), max(1, points[-1][0])
    areas = []
    for column, kind in ((1, "before"), (2, "after")):
        line = " ".join(f"L{1000 * one[0] / last:.1f} {150 - 146 * one[column] / most:.1f}" for one in points)
        areas.append((kind, f"M0 150{line}L1000 150Z"))
    return areas


def _what_was_given(priming: Mapping[str, Any]) -> str:
    if priming["restored"]:
        return f"lost in a compaction: {', '.join(priming['restored'])}"
    given, left = (
        ", ".join(f"{name} ({how})" for name, how in priming[key].items()) for key in ("loaded", "not_loaded")
    )
    fresh = f"{len(priming['fresh'])} unchanged" if priming["fresh"] else ""
    return "; ".join(filter(None, (given or "nothing new", fresh, f"not loaded: {left}" if left else "")))


def _rows(report: Mapping[str, Any]) -> dict[str, Any]:
    """Give the events as the script reads them: each name once."""
    names: dict[str, dict[str, int]] = {"event": {}, "step_id": {}, "session_id": {}}
    rows = []
    for one in report["events"]["rows"]:
        places = [held.setdefault(one[key] or "", len(held)) for key, held in names.items()]
        properties = json.dumps(one["properties"], ensure_ascii=False, indent=1) if one["properties"] else ""
        told = properties[:_LONGEST] + ("…" if len(properties) > _LONGEST else "")
        rows.append([one["seq"], str(one["at"] or "")[:20], *places, one["said"], told])
    return {**dict(zip(("kinds", "steps", "sessions"), map(list, names.values()), strict=True)), "rows": rows}


# ---- The timeline: where phases, visits, sessions and turns lie on one scale of time.


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
    steps = _step_rows(report, scale)
    ends = [("0%", "start", scale.begin), ("100%", "end", scale.end)]
    statuses = ("succeeded", "partially_succeeded", "failed", "skipped", "in_progress", "closing")
    there = {one["status"] for one in report["stages"]}
    return {
        "note": _note(scale),
        "gaps": scale.gaps,
        "ends": [_end(*one) for one in ends[: 2 if scale.end > scale.begin else 1]],
        "phases": _phase_rows(report, scale),
        "steps": steps[:_ROWS],
        "steps_more": len(steps[_ROWS:]),
        "sessions": _session_rows(report, scale),
        "turns": [
            ("Rewound, forked", "↶", _turns(report, scale, is_taken_over=False)),
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
    spent = duration(scale.end - scale.begin)
    if not scale.gaps:
        return f"From the first to the last event: {spent}." if spent else ""
    idle = duration(sum(gap.end - gap.begin for gap in scale.gaps))
    return f"From the first to the last event: {spent}. Hatched: {idle} without events, drawn short."


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


def _phase_rows(report: Mapping[str, Any], scale: Scale) -> list[dict[str, Any]]:
    told = []
    for one in report["phases"]:
        start, stop = seconds(one["started_at"]), seconds(one["completed_at"])
        if start is None:
            continue
        spent = duration(max(0, stop - start)) if stop is not None else ""
        said = f"{one['id']}: {words(one['status'])}{f', {spent}' if spent else ''}"
        piece = _piece(scale, one["started_at"], one["completed_at"], one["status"], said, y=6, tall=10)
        told.append({"name": one["id"], "piece": piece})
    return told


def _step_rows(report: Mapping[str, Any], scale: Scale) -> list[dict[str, Any]]:
    by_step: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["stages"]:
        by_step.setdefault(one["step_id"], []).append(one)
    told: list[dict[str, Any]] = []
    for key, every in by_step.items():
        last, pieces = every[-1], []
        for one in every if len(told) < _ROWS else ():
            spent = duration(one["seconds"])
            said = f"{one['stage']}: {words(one['status'])}{f', {spent}' if spent else ''}"
            pieces.append(_piece(scale, one["started_at"], one["completed_at"], one["status"], said))
        branch = last["branch"]
        name = key.removeprefix(f"{branch['of']}.") if branch else key
        told.append({"key": key, "name": name, "anchor": last["anchor"], "inner": bool(branch), "pieces": pieces})
    return told


def _session_rows(report: Mapping[str, Any], scale: Scale) -> list[dict[str, Any]]:
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
    became, tone_of_it = fate(one["receipt"])
    said = f"compaction ({one['trigger']})" + (f": {became}" if became else "")
    return [{**sign, "tone": tone_of_it} for sign in _sign(scale, one["at"], said)]


def _sign(scale: Scale, stamp: object, said: str) -> list[dict[str, Any]]:
    """Give a sign at a time, within the drawing's edges; none at what is no time."""
    time = seconds(stamp)
    return [] if time is None else [{"x": min(max(scale.x(time), 1.2), 98.8), "said": said}]


def _turns(report: Mapping[str, Any], scale: Scale, *, is_taken_over: bool) -> list[dict[str, Any]]:
    held = (one for one in report["turns"] if (one["kind"] == _TAKEN_OVER) == is_taken_over)
    return [sign for one in held for sign in _sign(scale, one["at"], f"{one['kind']}: {one['said']}")]


def seconds(stamp: object) -> int | None:
    """Give a time of the form `YYYY-MM-DDTHH:MM:SSZ` in seconds since the epoch; None for what is none."""
    return max(0, clock.seconds_of(stamp)) or None if isinstance(stamp, str) else None


def duration(count: int | None) -> str:
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


def fate(receipt: Mapping[str, Any] | None) -> tuple[str, str]:
    """Say what survived a compaction, and in which tone; empty where nobody looked."""
    if receipt is None:
        return "", "calm"
    if not receipt["proven"]:
        return "unproven: there is no summary", "warn"
    kept, lost, restored = (len(receipt[key]) for key in ("kept", "lost", "restored"))
    absent = f", {len(receipt['absent'])} absent" if receipt["absent"] else ""
    if not lost:
        return f"all {kept} kept{absent}" if kept or not absent else absent[2:], "good" if kept else "calm"
    pending = len(receipt["pending"])
    coming = f", {pending} still to be put back" if pending else ""
    missing = f", {lost - restored - pending} still missing" if lost > restored + pending else ""
    tone = "bad" if missing else "warn" if pending else "good"
    return f"{kept} kept, {lost} lost, {restored} put back{coming}{missing}{absent}", tone
