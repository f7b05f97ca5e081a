"""A report as one page that needs nothing else: its head, its sections, its style and script, its data."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line, visible
from loomctl.runs.model import saved_copies
from loomctl.views.report import sections
from loomctl.views.report.markup import Markup, data, el, join
from loomctl.views.report.parts import facts, mark, percent, tone
from loomctl.views.report.stage_section import stages
from loomctl.views.report.timeline import at, lasted, seconds, timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.views.report.parts import Section

MADE_BY = "loomctl report"
"""What the page's `generator` begins with: a file that says so may be replaced by another report."""
_LONGEST = 1500  # characters of an event's properties
_TITLE = 140  # UTF-16 units of a run's goal in the page's title


def page(report: Mapping[str, Any], *, style: str, script: str) -> str:
    """Give the whole page. report: what `views.report.document` gathers; style, script: of the package's folder `page`.

    Whatever the report says, nothing of it becomes markup, style or script: the policy in the page's head allows the
    one style and the one script alone, by their hashes, and no connection at all.
    """
    run = report["run"]
    title = one_line(str(run["goal"] or run["work_id"] or run["run_id"]), _TITLE)
    parts = [
        sections.attention(report),
        timeline(report),
        stages(report),
        sections.sessions(report),
        sections.turns(report),
        sections.takeovers(report),
        sections.decisions(report),
        sections.economy(report),
        sections.artifacts(report),
        sections.files(report),
        sections.events(report),
    ]
    shown = [part for part in parts if part is not None]
    body = el(
        "body",
        el("a", "Skip to the report", href="#main", class_="skip"),
        _header(report, title),
        _contents(shown),
        el("main", *(part.shown for part in shown), id="main", tabindex="-1"),
        _footer(report),
        data(_rows(report), "event-data"),
        Markup(f"<script>{script}</script>"),
    )
    return "<!doctype html>\n" + el("html", _head(report, title, style, script), body, lang="en") + "\n"


def policy(style: str, script: str) -> str:
    """Give the page's content security policy."""
    return (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _head(report: Mapping[str, Any], title: str, style: str, script: str) -> Markup:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy(style, script)),
        el("meta", name="generator", content=f"{MADE_BY} {report['made_by']}"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{title} · {report['run']['status'].replace('_', ' ')}"),
        Markup(f"<style>{style}</style>"),
    )


def _header(report: Mapping[str, Any], title: str) -> Markup:
    run, progress = report["run"], report["progress"]
    work = [el("span", f"Work item {run['work_id']}"), " · "] if run["work_id"] else []
    eyebrow = el("p", *work, el("span", run["workflow_id"]), class_="eyebrow")
    where = " · ".join(str(one) for one in (run["phase"], run["step"]) if one) if run["status"] != "completed" else ""
    forked = run["forked_from"]
    told = facts(
        [
            ("Run", el("code", run["run_id"])),
            ("Began", at(run["created_at"]) if run["created_at"] else ""),
            ("Last change", at(run["updated_at"]) if run["updated_at"] else ""),
            ("At", where),
            ("Forked from", f"{forked['run_id']} at {forked['stage']}" if forked else ""),
            ("Copy of", saved_copies.said(run["saved_from"]) if run["saved_from"] else ""),
            ("Driven by", _driver(run["driver"])),
            ("Ledger", _ledger(report["ledger"])),
        ]
    )
    return el(
        "header",
        eyebrow,
        el("h1", title),
        el(
            "p",
            mark(str(run["status"])),
            " ",
            el("span", _progress(progress), class_="progress-words"),
            class_="standing",
        ),
        _progress_bar(progress, str(run["status"])),
        told,
        _tiles(report),
    )


def _driver(driver: Mapping[str, Any] | None) -> Markup | None:
    """Say who drives the run, and since when."""
    if driver is None:
        return None
    words = f"session {driver['session_id'][:13]} on {driver['hostname'] or 'an unknown machine'}"
    return join([words, ", since " if driver["since"] else None, at(driver["since"]) if driver["since"] else None])


def _ledger(ledger: Mapping[str, Any] | None) -> str:
    """Say whether the run's log is the one that was written."""
    if ledger is None:
        return ""
    if ledger["fault"] is not None:
        return f"not as it was written: line {ledger['fault']['line']:,}, {ledger['fault']['what']}"
    behind = f", {ledger['unproven']:,} of them behind the checkpoint and unproven" if ledger["unproven"] else ""
    return f"whole, {counted(ledger['entries'], 'event')}{behind}"


def _progress(progress: Mapping[str, Any]) -> str:
    if not progress["steps"]:
        return "the plan's steps are not known"
    return f"{progress['done']} of {counted(progress['steps'], 'step')} done"


def _progress_bar(progress: Mapping[str, Any], status: str) -> Markup | None:
    if not progress["steps"]:
        return None
    done = el("rect", x="0", y="0", width=f"{percent(progress['done'], progress['steps']):g}%", height="6", rx="3")
    back = el("rect", x="0", y="0", width="100%", height="6", rx="3", class_="track")
    kind = "good" if status == "completed" else tone(status)
    return el("svg", back, done, width="100%", height="6", class_=f"progress {kind}", aria_hidden="true")


def _tiles(report: Mapping[str, Any]) -> Markup:
    run, saved = report["run"], report["savings"]["all"]
    machines = {one["hostname"] for one in report["sessions"] if one["hostname"]}
    compactions = [one for session in report["sessions"] for one in session["compactions"]]
    begun, ended = seconds(run["created_at"]), seconds(run["completed_at"] or run["updated_at"])
    before = saved["tokens_before"]
    tiles = [
        (lasted(max(0, ended - begun)) if begun is not None and ended is not None else "", "start to last change"),
        (f"{len(report['stages']):,}", "stages" if len(report["stages"]) != 1 else "stage"),
        (
            f"{len(report['sessions']):,}",
            f"session{'' if len(report['sessions']) == 1 else 's'}"
            + (f" on {counted(len(machines), 'machine')}" if machines else ""),
        ),
        (f"{len(compactions):,}", "compactions" if len(compactions) != 1 else "compaction"),
        (f"{100 * (before - saved['tokens_after']) / before:.0f}\u00a0%" if before else "", "of tool tokens saved"),
        (f"{report['files_total']:,}" if report["files_total"] else "", "files touched"),
    ]
    return el(
        "ul", *(el("li", el("b", number), " ", el("span", what)) for number, what in tiles if number), class_="tiles"
    )


def _contents(shown: list[Section]) -> Markup:
    links = [el("li", el("a", part.name, href=f"#{part.identity}")) for part in shown]
    clock = el("button", "Local time", type="button", id="clock", aria_pressed="false", hidden=True)
    return el("nav", el("ul", *links), clock, aria_label="Sections")


def _footer(report: Mapping[str, Any]) -> Markup:
    return el(
        "footer",
        el("p", f"Made by loomctl {report['made_by']}, ", at(report["made_at"]), ". ", report["linked"]["said"]),
        el("p", "Secrets of known kinds are masked. Folders of the machine are shortened to ~ or {project_root}."),
    )


def _rows(report: Mapping[str, Any]) -> dict[str, Any]:
    """Give the events as the script reads them: each name once, and every text made visible."""
    names: dict[str, dict[str, int]] = {"event": {}, "step_id": {}, "session_id": {}}
    rows = []
    for one in report["events"]["rows"]:
        places = [held.setdefault(visible(str(one[key] or "")), len(held)) for key, held in names.items()]
        properties = visible(json.dumps(one["properties"], ensure_ascii=False, indent=1)) if one["properties"] else ""
        told = properties[:_LONGEST] + ("…" if len(properties) > _LONGEST else "")
        rows.append([one["seq"], visible(str(one["at"] or ""))[:20], *places, visible(str(one["said"])), told])
    return {
        "kinds": list(names["event"]),
        "steps": list(names["step_id"]),
        "sessions": list(names["session_id"]),
        "rows": rows,
    }
