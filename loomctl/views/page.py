"""A report as one page that needs nothing else: the templates of the folder `assets` over the document of a run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from loomctl.kit import files
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line, visible
from loomctl.runs.model import standing
from loomctl.views import timeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

MADE_BY = "loomctl report"
"""What the page's `generator` begins with: a file that says so may be replaced by another report."""
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
_LONGEST = 1500  # characters of an event's properties
_TITLE = 140  # UTF-16 units of a run's goal in the page's title
# A link that a page holds leads to a place below it or beside it, never to another site or a program.
_RELATIVE = re.compile(r"(?:#|\./|(?:\.\./)+)[A-Za-z0-9._~%/@+-]*\Z")


def page(report: Mapping[str, Any]) -> str:
    """Give the whole page of what `document.gather` and `document.linked` made.

    Whatever the report says, nothing of it becomes markup, style or script: the policy in the page's head allows the
    one style and the one script alone, by their hashes, and no connection at all.
    """
    style, script = _asset("report.css"), _asset("report.js")
    shown = _visible(report)
    run = shown["run"]
    made: str = (
        _environment()
        .get_template("page.html")
        .render(
            report=shown,
            title=one_line(run["goal"] or run["work_id"] or run["run_id"], _TITLE),
            copy_of=_visible(standing.saved_from_line(report["run"]["saved_from"])) if run["saved_from"] else "",
            tiles=_tiles(shown),
            drawn=timeline.draw(shown),
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
    """Give the page's content security policy."""
    return (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
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


@cache
def _environment() -> Environment:
    import jinja2

    def source(name: str) -> str:
        """Read a template; a line break with its indent comes to nothing."""
        return "".join(line.strip() for line in _asset(name).splitlines())

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
        "sign": timeline.sign,
        "thousands": "{:,}".format,
        "tone": timeline.tone,
        "words": timeline.words,
    }
    made.globals |= {
        "counted": counted,
        "lasted": timeline.lasted,
        "percent": percent,
        "seconds": timeline.seconds,
        "survived": timeline.survived,
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
    begun, ended = timeline.seconds(run["created_at"]), timeline.seconds(run["completed_at"] or run["updated_at"])
    before = saved["tokens_before"]

    def of(count: int, noun: str) -> tuple[str, str]:
        number, _, what = counted(count, noun).partition(" ")
        return number, what

    number, what = of(len(sessions), "session")
    return [
        (
            timeline.lasted(max(0, ended - begun)) if begun is not None and ended is not None else "",
            "start to last change",
        ),
        of(len(report["stages"]), "stage"),
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
    fresh = f"{len(priming['fresh'])} fresh" if priming["fresh"] else ""
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
