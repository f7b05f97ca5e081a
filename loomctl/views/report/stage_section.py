"""The stages of a report: each with how it ended, what it touched and left, and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.kit.text.counts import counted
from loomctl.views.report.markup import Markup, el, join
from loomctl.views.report.parts import excerpt, facts, mark, path, section, table
from loomctl.views.report.timeline import at, lasted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.views.report.parts import Section


def stages(report: Mapping[str, Any]) -> Section:
    """Show the phases with their steps and stages, in the order in which they are planned and were visited."""
    by_phase: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["stages"]:
        by_phase.setdefault(str(one["phase"]), []).append(one)
    planned = [str(one["id"]) for one in report["phases"]]
    order = [*planned, *(name for name in by_phase if name not in planned)]
    known = {str(one["id"]): one for one in report["phases"]}
    shown = [_phase(name, known.get(name), by_phase.get(name, [])) for name in order]
    empty = el("p", "No step has begun.", class_="empty") if not report["stages"] else None
    return section("stages", "Phases and stages", empty, *shown, name="Stages")


def _phase(name: str, phase: Mapping[str, Any] | None, visited: Sequence[Mapping[str, Any]]) -> Markup:
    status = str(phase["status"]) if phase is not None else ""
    head = el("h3", el("span", name), " ", mark(status) if status else None)
    main = [one for one in visited if not one.get("branch")]
    within: dict[str, list[Mapping[str, Any]]] = {}
    for one in visited:
        if one.get("branch"):
            within.setdefault(str(one["branch"]["stage"]), []).append(one)
    told = [_stage(one, within.get(str(one["stage"]), [])) for one in main]
    met = {str(one["step_id"]) for one in visited}
    ahead = [step for step in (phase["steps"] if phase else ()) if step["key"] not in met]
    rest = [
        el("li", el("code", step["key"]), *([" · ", step["name"]] if step["name"] else []))
        for step in ahead
        if not step["inner"]
    ]
    more = (
        el("details", el("summary", f"{counted(len(rest), 'step')} without a stage"), el("ul", *rest)) if rest else None
    )
    return el("div", head, *told, more, class_="phase-block")


def _stage(one: Mapping[str, Any], within: Sequence[Mapping[str, Any]]) -> Markup:
    """Show a stage, its branches inside it."""
    spent = lasted(one["seconds"])
    branch = one.get("branch")
    name = str(one["step_id"]).removeprefix(f"{branch['of']}.") if branch else str(one["step_id"])
    again = el("span", f"visit {one['visit']}", class_="dim") if one["visit"] > 1 else None
    head = el(
        "summary",
        el("span", el("span", f"{one['rank']:03} ", class_="dim rank"), el("b", name), class_="name"),
        " ",
        again,
        " ",
        mark(str(one["status"])),
        " ",
        el("span", spent, class_="dim spent") if spent else None,
    )
    body = [_why(one), _facts(one), _branches(one, within), _evidence(one), _files(one), _assets(one)]
    texts = [excerpt(text, opened=text["name"] == "response.md") for text in one["texts"]]
    others = [path(str(other["name"]), other.get("href")) for other in one["others"]]
    more = el("p", "Also there: ", join(others, between=", "), class_="way") if others else None
    return el("details", head, el("div", *body, *texts, more, class_="body"), class_="stage", id=one["anchor"])


def _why(one: Mapping[str, Any]) -> Markup | None:
    return el("p", one["reason"], class_="reason") if one["reason"] else None


def _facts(one: Mapping[str, Any]) -> Markup | None:
    tokens = one["tokens"]
    used = f"{tokens['in']:,} in, {tokens['out']:,} out" if tokens else ""
    return facts(
        [
            ("Stage", el("code", one["stage"])),
            ("Began", at(one["started_at"])),
            ("Ended", at(one["completed_at"]) if one["completed_at"] else ""),
            ("Way on", one["way"]),
            ("Response", one["source"]),
            ("Command", one["command"]),
            ("Attempt", one["attempt"] or ""),
            ("Repairs", one["repairs"] or ""),
            ("Model", ", ".join(one["models"])),
            ("Tokens", used),
            ("Context set", ", ".join(one["context"])),
            ("Not readable", one["trouble"]),
        ]
    )


def _branches(one: Mapping[str, Any], within: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not one["branches"]:
        return None
    blocks = []
    for branch in one["branches"]:
        inside = [_stage(stage, []) for stage in within if stage["branch"]["id"] == branch["id"]]
        head = el("h4", "Branch ", el("b", branch["id"]), " ", mark(str(branch["status"])))
        why = el("p", branch["reason"], class_="reason") if branch["reason"] else None
        empty = el("p", "No step of it has begun.", class_="empty") if not inside else None
        blocks.append(el("div", head, why, empty, *inside, class_="branch"))
    return el("div", *blocks, class_="branches")


def _evidence(one: Mapping[str, Any]) -> Markup | None:
    if not one["evidence"]:
        return None
    rows = [
        [
            el("code", item["name"], class_="path"),
            item["kind"],
            mark("found" if item["passed"] else "missing"),
            el("code", item["sha256"][:8], title=item["sha256"], class_="id") if item["sha256"] else "—",
            item["why"] or "—",
        ]
        for item in one["evidence"]
    ]
    found = sum(item["passed"] for item in one["evidence"])
    header = ["What had to be shown", "Kind", "Checked", "SHA-256", "Why"]
    return table(f"Evidence: {found} of {len(rows)} found", header, rows, class_="cards")


def _files(one: Mapping[str, Any]) -> Markup | None:
    if not one["files"]:
        return None
    listed = [el("li", path(str(file["path"])), " ", changed(file)) for file in one["files"]]
    more = one["files_total"] - len(one["files"])
    rest = el("li", f"and {more:,} more", class_="dim") if more > 0 else None
    return el(
        "details",
        el("summary", counted(one["files_total"], "file"), " touched"),
        el("ul", *listed, rest, class_="paths"),
    )


def changed(file: Mapping[str, Any]) -> Markup:
    """Say how a file was changed, and by how many lines."""
    counts = []
    if file["added"] is not None and file["removed"] is not None:
        plus = el("span", f"+{file['added']}", class_="plus")
        counts = [" ", plus, " ", el("span", f"\u2212{file['removed']}", class_="minus")]
    return el("span", file["change"], *counts, class_="dim")


def _assets(one: Mapping[str, Any]) -> Markup | None:
    if not one["assets"] and not one["passed_over"]:
        return None
    kept = [
        el("li", path(str(asset["path"]), asset.get("href")), " ", el("span", _size(asset), class_="dim"))
        for asset in one["assets"]
    ]
    over = [
        el("li", path(str(asset["path"])), " ", el("span", f"not captured: {asset['reason']}", class_="dim"))
        for asset in one["passed_over"]
    ]
    total = sum(asset["bytes"] for asset in one["assets"])
    head = el("summary", counted(len(kept), "asset"), f", {total:,} bytes")
    return el("details", head, el("ul", *kept, *over, class_="paths"), open=bool(kept))


def _size(asset: Mapping[str, Any]) -> str:
    return f"{asset['bytes']:,} bytes" + ("" if asset["there"] else ", gone")
