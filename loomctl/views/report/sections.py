"""The sections of a report beside its timeline and stages: what needs somebody, sessions, context, files, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.kit.text.counts import counted
from loomctl.views.report.markup import Markup, el, join
from loomctl.views.report.parts import TAKEN_OVER, bar, mark, path, percent, section, survived, table, term
from loomctl.views.report.stage_section import changed
from loomctl.views.report.timeline import at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.views.report.parts import Section

_PRIMINGS = 60  # rows of a chart
_BECAME = (
    ("kept", "Kept"),
    ("lost", "Lost"),
    ("restored", "Put back"),
    ("pending", "Pending"),
    ("absent", "Absent: had no text then"),
)
_LATEST = 50  # events that are shown without a script


def attention(report: Mapping[str, Any]) -> Section | None:
    """Show what waits for somebody, what went wrong, and what could not be read."""
    waits = [_waiting(one) for one in report["approvals"]]
    if report["run"]["waits_for"]:
        waits.append(el("li", el("b", "An answer is waited for: "), report["run"]["waits_for"]))
    errors = [_error(one) for one in report["errors"] if not one["mended"]]
    troubles = [el("li", el("code", one["code"]), " ", one["what"]) for one in report["troubles"]]
    blocks = [
        el("div", el("h3", title), el("ul", *items), class_=f"note {kind}")
        for title, items, kind in (
            ("Waiting for a person", waits, "warn"),
            ("What went wrong", errors, "bad"),
            ("What could not be read, or is not as it was written", troubles, "bad"),
        )
        if items
    ]
    return section("attention", "Needs attention", *blocks, name="Attention") if blocks else None


def _waiting(one: Mapping[str, Any]) -> Markup:
    choices = join((el("span", choice, class_="choice") for choice in one["choices"]), between=" ")
    since = join([" since ", at(one["at"])]) if one["at"] else None
    return el("li", el("b", one["reason"] or one["id"]), " ", el("code", one["id"]), since, " ", choices)


def _error(one: Mapping[str, Any]) -> Markup:
    head = [el("code", one["where"]), " "] if one["where"] else []
    kind = [" ", el("span", one["type"], class_="dim")] if one["type"] else []
    return el("li", *head, one["message"], *kind)


def sessions(report: Mapping[str, Any]) -> Section | None:
    """Show who worked on the run, where and when, and what survived each compaction."""
    held = report["sessions"]
    if not held:
        return None
    rows = [_session(one) for one in held]
    header = ["Session", "Machine", "Host", "Began", "Ended", "Commit", "Phases"]
    listed = table("Sessions of this run", header, rows, class_="cards")
    compactions = [(one, compaction) for one in held for compaction in one["compactions"]]
    told = el("div", *(_compaction(one, compaction) for one, compaction in compactions)) if compactions else None
    title = el("h3", "Compactions, and what survived them") if compactions else None
    return section("sessions", "Sessions and machines", listed, title, told, name="Sessions")


def _session(one: Mapping[str, Any]) -> list[object]:
    ended = join([at(one["ended_at"]), f" ({one['end_reason']})" if one["end_reason"] else None])
    commit = [el("code", str(one["git_commit"])[:10])] if one["git_commit"] else []
    dirty = {True: " and changes", False: ""}.get(one["dirty"], "")
    return [
        el("code", str(one["session_id"])[:8], title=one["session_id"], class_="id"),
        join(
            [one["hostname"] or "unknown", el("span", f" {one['platform']}", class_="dim") if one["platform"] else ""]
        ),
        one["host"],
        at(one["started_at"], "—"),
        ended if one["ended_at"] else "open" if one["started_at"] else "—",
        join([*commit, dirty, el("span", f" {one['git_branch']}", class_="dim") if one["git_branch"] else ""]) or "—",
        ", ".join(one["phases_completed"]) or "—",
    ]


def _item(name: str, receipt: Mapping[str, Any]) -> Markup:
    note = receipt.get("notes", {}).get(name)
    return el("span", f"{name} — {note}" if note else name, class_="chip")


def _compaction(session: Mapping[str, Any], one: Mapping[str, Any]) -> Markup:
    receipt = one["receipt"]
    said, tone = survived(receipt)
    head = el(
        "p",
        at(one["at"]),
        f" · {one['trigger']} · session {str(session['session_id'])[:8]} ",
        el("span", said, class_=f"mark {tone}") if said else el("span", "no receipt", class_="mark calm"),
    )
    if receipt is None:
        return el("div", head, class_="receipt")
    lists = [
        el(
            "div",
            el("dt", title),
            el("dd", join((_item(name, receipt) for name in receipt[key]), between=" ")),
        )
        for key, title in _BECAME
        if receipt[key]
    ]
    return el("div", head, el("dl", *lists, class_="facts") if lists else None, class_="receipt")


def economy(report: Mapping[str, Any]) -> Section | None:
    """Draw what was injected by each priming, and what the reduction of tool output saved."""
    blocks = [_primings(report["primings"]), *_savings(report["savings"]), _usage(report["stages"])]
    told = [one for one in blocks if one is not None]
    if not told:
        return None
    note = (
        "Injected: estimated tokens of what a priming, or what put back a loss of a compaction, put into the "
        "conversation. Saved: estimated tokens of tool calls as they were, and as a history tells them."
    )
    return section("context", "Context: injected and saved", *told, name="Context", note=note)


def _primings(held: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not held:
        return None
    widest = max(one["tokens"] for one in held)
    rows = []
    for one in held[-_PRIMINGS:]:
        said = f"{'≈ ' if one['guessed'] else ''}{one['tokens']:,}"
        drawn = bar([(0, percent(one["tokens"], widest), "accent")], f"{said} tokens")
        share = f"{percent(one['used'], one['limit']):.0f}\u00a0%" if one["limit"] else "—"
        event = "put back" if one["restored"] else one["event"]
        rows.append([at(one["at"]), term(event, "span"), drawn, said, share, _gave(one)])
    whole, guessed = sum(one["tokens"] for one in held), sum(one["guessed"] for one in held)
    over = f", the newest {_PRIMINGS} of {len(held):,}" if len(held) > _PRIMINGS else ""
    older = f"; {guessed:,} of them (≈) tell none, and are guessed at four characters a token" if guessed else ""
    caption = f"Injected: about {whole:,} tokens at {counted(len(held), 'time')}{over}{older}"
    header = ["When", "Event", "", "Tokens", "Of its budget", "What"]
    return table(caption, header, rows, numeric=(3, 4), class_="cards chart")


def _gave(one: Mapping[str, Any]) -> str:
    """Say what was put into a conversation."""
    if one["restored"]:
        return f"lost in a compaction: {', '.join(one['restored'])}"
    given = ", ".join(f"{name} ({form})" for name, form in one["loaded"].items())
    left = ", ".join(f"{name} ({why})" for name, why in one["not_loaded"].items())
    fresh = f"{len(one['fresh'])} fresh" if one["fresh"] else ""
    return "; ".join(filter(None, (given or "nothing new", fresh, f"not loaded: {left}" if left else "")))


def _savings(savings: Mapping[str, Any]) -> list[Markup]:
    tools, whole = savings["tools"], savings["all"]
    if not tools:
        return []
    widest = max(max(one["tokens_before"], one["tokens_after"]) for one in tools)
    rows = []
    for one in tools[:30]:
        before, after = one["tokens_before"], one["tokens_after"]
        said = f"{before:,} before, {after:,} after"
        drawn = bar([(0, percent(before, widest), "before"), (0, percent(after, widest), "accent")], said)
        numbers = [f"{one['steps']:,}", drawn, f"{before:,}", f"{after:,}", _saved(before, after)]
        rows.append([el("code", one["tool_name"]), *numbers])
    all_saved = _saved(whole["tokens_before"], whole["tokens_after"])
    saved = whole["tokens_before"] - whole["tokens_after"]
    caption = (
        f"Saved: {saved:,} of {whole['tokens_before']:,} tokens ({all_saved}) in {counted(whole['steps'], 'call')}"
    )
    header = ["Tool", "Calls", "", "Before", "After", "Saved"]
    listed = table(caption, header, rows, numeric=(1, 3, 4, 5), class_="cards chart")
    return [one for one in (_over_time(savings["over_time"]), listed) if one is not None]


def _saved(before: int, after: int) -> str:
    return f"{100 * (before - after) / before:.0f}\u00a0%" if before else "—"


def _over_time(points: Sequence[Sequence[int]]) -> Markup | None:
    """Draw the two sums as they grew, call by call."""
    if len(points) < 3:
        return None
    most, last = max(1, *(point[1] for point in points), *(point[2] for point in points)), points[-1]
    areas = []
    for column, kind in ((1, "before"), (2, "after")):
        line = " ".join(
            f"L{1000 * point[0] / max(1, last[0]):.1f} {150 - 146 * point[column] / most:.1f}" for point in points
        )
        areas.append(el("path", d=f"M0 150{line}L1000 150Z", class_=f"area {kind}"))
    said = f"After {last[0]:,} calls: {last[1]:,} tokens as they were, {last[2]:,} as they are told."
    drawn = el(
        "svg", *areas, viewBox="0 0 1000 150", preserveAspectRatio="none", class_="areas", role="img", aria_label=said
    )
    keys = el(
        "p",
        el("span", el("span", class_="swatch before", aria_hidden="true"), f" as they were: {last[1]:,}"),
        " ",
        el("span", el("span", class_="swatch after", aria_hidden="true"), f" as they are told: {last[2]:,}"),
        class_="legend",
    )
    caption = el("figcaption", f"Estimated tokens of tool calls, summed over {counted(last[0], 'call')}")
    return el("figure", caption, drawn, keys)


def _usage(stages: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw the tokens that the models used in each stage, where a transcript told them."""
    held = [one for one in stages if one["tokens"]]
    if not held:
        return None
    widest = max(one["tokens"]["in"] + one["tokens"]["out"] for one in held)
    rows = []
    for one in held[-_PRIMINGS:]:
        into, out = one["tokens"]["in"], one["tokens"]["out"]
        first = percent(into, widest)
        drawn = bar([(0, first, "accent"), (first, percent(out, widest), "second")], f"{into:,} in, {out:,} out")
        rows.append([el("code", one["stage"]), drawn, f"{into:,}", f"{out:,}", ", ".join(one["models"])])
    header = ["Stage", "", "In", "Out", "Model"]
    return table("Tokens that the models used", header, rows, numeric=(2, 3), class_="cards chart")


def artifacts(report: Mapping[str, Any]) -> Section | None:
    """Show the critical artifacts with what became of each, and what the run has made."""
    rows = [_artifact(one) for one in report["artifacts"]]
    header = ["Artifact", "What it is", "Loaded", "Form now", "Last"]
    listed = table("Critical artifacts", header, rows, class_="cards") if rows else None
    made = [[el("code", one["name"]), path(one["path"], _href(one))] for one in report["made_files"]]
    of_run = table("Made by this run", ["Name", "Path"], made, class_="cards") if made else None
    return section("artifacts", "Artifacts", listed, of_run) if rows or made else None


def _href(one: Mapping[str, Any]) -> object:
    """Give the link of an artifact's file, where it has one."""
    return (one["file"] or {}).get("href")


def _artifact(one: Mapping[str, Any]) -> list[object]:
    href, shown = _href(one), el("code", one["id"])
    name = el("a", shown, href=str(href)) if href else shown
    needed = el("span", " required", class_="dim") if one["required"] else None
    counts = ", ".join(f"{form} \u00d7{number}" for form, number in one["forms"].items())
    size = f", {one['bytes']:,} bytes" if one["bytes"] is not None else ""
    last = join([at(one["at"]), f" ({one['event']})" if one["event"] else None]) if one["at"] else "never"
    return [join([name, needed]), one["description"] or one["type"], counts or "—", (one["form"] or "—") + size, last]


def files(report: Mapping[str, Any]) -> Section | None:
    """Show the files that the run's stages touched."""
    held = report["files"]
    if not held:
        return None
    rows = [
        [path(str(one["path"])), changed(one), ", ".join(one["stages"][:4]) + (" …" if len(one["stages"]) > 4 else "")]
        for one in held
    ]
    over = f", the first {len(held):,} of {report['files_total']:,}" if report["files_total"] > len(held) else ""
    listed = table(f"Files touched{over}", ["File", "Change", "Stages"], rows, class_="cards")
    return section("files", "Files touched", _folded(listed, len(held), "file"), name="Files")


def _folded(shown: Markup, count: int, noun: str) -> Markup:
    """Fold what is long."""
    return el("details", el("summary", counted(count, noun)), shown, open=count <= 25)


def turns(report: Mapping[str, Any]) -> Section | None:
    """Show what was taken back, and where the run came from or was forked."""
    held = [one for one in report["turns"] if one["kind"] != TAKEN_OVER]
    if not held:
        return None
    rows = [[at(one["at"]), term(one["kind"]), one["said"]] for one in held[:200]]
    return section(
        "turns", "Taken back, forked", table("In order", ["When", "What", "Which"], rows, class_="cards"), name="Turns"
    )


def takeovers(report: Mapping[str, Any]) -> Section | None:
    """Show when a session took the run from another."""
    held = [one for one in report["turns"] if one["kind"] == TAKEN_OVER]
    if not held:
        return None
    rows = [[at(one["at"]), one["said"]] for one in held[:200]]
    listed = table("In order", ["When", "Who, from whom"], rows, class_="cards")
    return section("takeovers", "Taken over by another session", listed, name="Taken over")


def decisions(report: Mapping[str, Any]) -> Section | None:
    """Show what people decided."""
    held = report["decisions"]
    if not held:
        return None
    rows = [
        [at(one["at"]), mark(one["what"]), el("code", one["id"]), one["label"], one["by"], one["note"]] for one in held
    ]
    header = ["When", "Decision", "What", "Choice", "By", "Note"]
    return section(
        "decisions", "Decisions by people", table("Decisions", header, rows, class_="cards"), name="Decisions"
    )


def events(report: Mapping[str, Any]) -> Section:
    """Show the events: the newest as they are, all of them to a script."""
    told = report["events"]
    rows = [_event(one) for one in told["rows"][-_LATEST:]]
    count = len(told["rows"])
    parts = [f"{counted(told['total'], 'event')}"]
    if count < told["total"]:
        parts.append(f"the newest {count:,} are in this page")
    if told["broken"]:
        torn = report["ledger"] is not None and report["ledger"]["ok"]
        why = "no entries, for a kill tore them off" if torn else "no entries"
        parts.append(f"{counted(told['broken'], 'line')} of the log: {why}")
    listed = table(
        "Events, oldest first", ["#", "When", "Event", "What it says"], rows, id="event-table", class_="cards"
    )
    without = el("noscript", el("p", f"Without scripts, the newest {min(_LATEST, count)} are shown.", class_="about"))
    return section("events", "Events", _filter(), without, listed, _pages(), note="; ".join(parts) + ".")


def _event(one: Mapping[str, Any]) -> list[object]:
    step = [" ", el("span", one["step_id"], class_="dim")] if one["step_id"] else []
    return [str(one["seq"]), at(one["at"]), term(one["event"]), join([one["said"], *step])]


def _filter() -> Markup:
    """Give what events are chosen by; a script fills the lists and shows it."""
    lists = [
        el("label", el("span", name), el("select", el("option", "all", value=""), id=f"by-{key}"))
        for key, name in (("kind", "Event"), ("step", "Step"), ("session", "Session"))
    ]
    sought = el("label", el("span", "Text"), el("input", type="search", id="by-text", autocomplete="off"))
    clear = el("button", "Clear", type="button", id="clear-filter")
    return el("form", sought, *lists, clear, id="filter", hidden=True, role="search", aria_label="Filter events")


def _pages() -> Markup:
    older = el("button", "Earlier", type="button", id="page-before")
    newer = el("button", "Later", type="button", id="page-after")
    count = el("output", id="shown", aria_live="polite")
    return el("div", older, count, newer, id="pages", hidden=True, role="group", aria_label="Pages of events")
