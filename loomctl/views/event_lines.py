"""What an event says to people: a line for each kind, compact `name=value` for one that nobody here knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.workflows.model import ways

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PROPERTY = 80  # UTF-16 units of a value
_MOST_NAMED = 5  # of several stages or phases


def said(entry: Mapping[str, Any]) -> str:
    """Give what an entry of the log says, on one line; whatever its properties are."""
    raw = entry.get("properties")
    properties: dict[str, Any] = raw if isinstance(raw, dict) else {}
    teller = LINES.get(str(entry.get("event")))
    told = _plain if teller is None else teller
    return " ".join(part for part in told(properties) if part)


def _plain(properties: Mapping[str, Any], *but: str) -> list[str]:
    return [_property(str(name), value) for name, value in properties.items() if name not in but]


def _property(name: str, value: Any) -> str:
    """Give a property as `name=value`: of lists how many, of objects their keys, of tokens the two sums."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list):
        short = all(isinstance(one, str) for one in value) and len(value) <= 3
        return f"{name}={one_line(','.join(value), _PROPERTY)}" if short else f"{name}={len(value)}"
    if isinstance(value, dict):
        return f"{name}={one_line(','.join(map(str, value)), _PROPERTY)}"
    told = json.dumps(value) if isinstance(value, bool) else one_line(str(value), _PROPERTY)
    return f'{name}="{told}"' if " " in told else f"{name}={told}"


def _word(value: Any) -> str:
    """Give a text or a number as it is; what is neither, by its kind of JSON, in short."""
    if isinstance(value, (dict, list)):
        return one_line(json.dumps(value, ensure_ascii=False), _PROPERTY)
    return "" if value is None else one_line(str(value), _PROPERTY)


def _words(*names: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """Tell these properties by their values alone, then all others by name."""

    def told(properties: Mapping[str, Any]) -> list[str]:
        return [*(_word(properties.get(name)) for name in names), *_plain(properties, *names)]

    return told


def _checked(properties: Mapping[str, Any]) -> list[str]:
    """Tell a receipt: how many items were kept and lost, or that nobody could look."""
    if properties.get("proven") is not True:
        return ["unproven", *_plain(properties, "proven", "restored", "compaction")]
    counts = [f"{len(properties[key])} {key}" for key in ("kept", "lost") if isinstance(properties.get(key), list)]
    return [", ".join(counts), *_plain(properties, "proven", "kept", "restored", "notes", "compaction")]


def _checked_start(properties: Mapping[str, Any]) -> list[str]:
    """Tell the receipt of a start: how many artifacts there were of each fate."""
    artifacts = properties.get("artifacts")
    fates = [one for one in artifacts.values() if isinstance(one, str)] if isinstance(artifacts, dict) else []
    counts = [f"{fates.count(fate)} {one_line(fate, _PROPERTY)}" for fate in dict.fromkeys(fates)]
    return [_word(properties.get("event")), ", ".join(counts), *_plain(properties, "event", "at", "artifacts")]


def _restored_items(properties: Mapping[str, Any]) -> list[str]:
    listed = properties.get("items")
    names = [one_line(str(name), _PROPERTY) for name in listed] if isinstance(listed, list) else []
    return ["; ".join(names[:5]), *_plain(properties, "items", "compaction")]


def _change(before: str, after: str, link: str = "→") -> Callable[[Mapping[str, Any]], list[str]]:
    """Tell of one property that became another, then of all others by name."""

    def told(properties: Mapping[str, Any]) -> list[str]:
        held = [_word(properties.get(name)) for name in (before, after)]
        return [f" {link} ".join(filter(None, held)), *_plain(properties, before, after)]

    return told


def _run_created(properties: Mapping[str, Any]) -> list[str]:
    plan = properties.get("plan")
    sources = plan.get("sources") if isinstance(plan, dict) else None
    of = f"(plan of {counted(len(sources), 'file')})" if isinstance(sources, list) and sources else ""
    work, goal = _word(properties.get("work_id")), _word(properties.get("goal"))
    named = f"work item {work}" if work else ""
    text = ": ".join(part for part in (named, f"“{goal}”" if goal else "") if part)
    return [
        _word(properties.get("workflow_id")),
        text,
        of,
        *_plain(properties, "workflow_id", "work_id", "goal", "plan"),
    ]


def _stage_completed(properties: Mapping[str, Any]) -> list[str]:
    known = ("stage", "status", "failure_reason", "files_touched", "files_touched_count", "usage", "follows", "next")
    for_machines = ("response_sha256", "files_sha256")
    touched, more = properties.get("files_touched"), properties.get("files_touched_count")
    count = more if type(more) is int else len(touched) if isinstance(touched, list) else 0
    files = counted(count, "file") if count else ""
    named = ", ".join(map(str, touched)) if isinstance(touched, list) and 0 < count <= 3 else ""
    stage, status, reason, follows = (_word(properties.get(name)) for name in (*known[:3], "follows"))
    ended = f"{stage} {status}".strip() + (f": {reason}" if reason else "")
    then = f"then {follows}" if follows not in ("", "done") else ""
    way = properties.get("next")
    if isinstance(way, dict) and not then and ways.how(way):
        then = f"then {_word(way.get('step_id')) or 'the end'} {_word(ways.how(way))}"
    paths = f"{files}{f' ({one_line(named, _PROPERTY)})' if named else ''}"
    return [_joined(ended, then, paths, _tokens(properties.get("usage"))), *_plain(properties, *known, *for_machines)]


def _transition_chosen(properties: Mapping[str, Any]) -> list[str]:
    """Tell where a run went on and why; of the ways that were weighed their number."""
    known = ("stage", "step_id", "reason", "by", "to", "weighed")
    stage, to, reason, by, refused = (_word(properties.get(name)) for name in known[:-1])
    listed = properties.get("weighed")
    of = f"of {counted(len(listed), 'way')}" if isinstance(listed, list) and listed else ""
    how = reason if by in ("", reason) else f"{reason} by {by}"
    led = f"{stage} → {to or refused or 'end'}"
    return [led, f"({', '.join(filter(None, (how, of)))})", *_plain(properties, *known)]


def _joined_branches(properties: Mapping[str, Any]) -> list[str]:
    """Tell how branches came together: each one's status, and the keys that they left with different values."""
    known = ("stage", "status", "results", "conflicts")
    lists = [properties.get(name) for name in ("results", "conflicts")]
    results, conflicts = (
        [one for one in held if isinstance(one, dict)] if isinstance(held, list) else [] for held in lists
    )
    each = ", ".join(f"{_word(one.get('id'))} {_word(one.get('status'))}" for one in results)
    keys = ", ".join(_word(one.get("key")) for one in conflicts)
    stage, status = (_word(properties.get(name)) for name in ("stage", "status"))
    return [
        f"{stage} {status}".strip(),
        f"({one_line(each, _PROPERTY)})" if each else "",
        f"conflicts: {one_line(keys, _PROPERTY)}" if keys else "",
        *_plain(properties, *known),
    ]


def _tokens(usage: Any) -> str:
    """Give the tokens of a stage as the transcript told them, in and out."""
    if not isinstance(usage, dict) or not usage:
        return ""
    return f"tokens {_word(usage.get('input_tokens', '?'))}/{_word(usage.get('output_tokens', '?'))}"


def _command_ended(properties: Mapping[str, Any]) -> list[str]:
    known = ("stage", "exit_code", "signal", "duration_ms", "timed_out", "bytes")
    code, signal, spent = (properties.get(name) for name in ("exit_code", "signal", "duration_ms"))
    how = f"exit code {_word(code)}" if code is not None else f"killed by {_word(signal)}" if signal is not None else ""
    printed = properties.get("bytes")
    return [
        _word(properties.get("stage")),
        "timed out" if properties.get("timed_out") is True else how,
        f"after {spent / 1000:.1f} s" if type(spent) is int else "",
        counted(printed, "byte") if type(printed) is int else "",
        *_plain(properties, *known),
    ]


def _evidence(properties: Mapping[str, Any]) -> list[str]:
    listed = properties.get("items")
    items = [one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict)]
    lacking = ", ".join(_word(one.get("name")) for one in items if one.get("passed") is not True)
    told = f"missing: {lacking}" if lacking else f"all {len(items)} found"
    return [_word(properties.get("stage")), told, *_plain(properties, "stage", "passed", "items")]


def _asset_captured(properties: Mapping[str, Any]) -> list[str]:
    size = properties.get("bytes")
    told = counted(size, "byte") if type(size) is int else _word(size)
    rest = _plain(properties, "stage", "path", "bytes", "sha256", "stored")
    return [_word(properties.get("stage")), _word(properties.get("path")), f"({told})" if told else "", *rest]


def _primed(properties: Mapping[str, Any]) -> list[str]:
    known = ("slip_id", "event", "loaded", "fresh", "not_loaded", "budget", "tool_history", "tokens", "characters")
    budget = properties.get("budget")
    limits = [budget.get(key) for key in ("used", "limit")] if isinstance(budget, dict) else []
    used = " of ".join(f"{one:,}" for one in limits if type(one) is int)
    fresh = properties.get("fresh")
    told = _joined(
        _forms("loaded", properties.get("loaded")) or "nothing loaded",
        _forms("not loaded", properties.get("not_loaded")),
        f"{len(fresh):,} fresh" if isinstance(fresh, list) and fresh else "",
        "tool steps told" if properties.get("tool_history") else "",
    )
    size = f"({used})" if used and limits[0] else ""
    return [_word(properties.get("event")) + ":", told, size, *_plain(properties, *known)]


def _forms(what: str, held: Any) -> str:
    """Tell artifacts with the form they were given in, or the reason why they were not."""
    if not isinstance(held, dict) or not held:
        return ""
    return f"{what} " + one_line(", ".join(f"{name} ({_word(how)})" for name, how in held.items()), 2 * _PROPERTY)


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _context_updated(properties: Mapping[str, Any]) -> list[str]:
    """Tell which keys were set, and by whom; what they held stands in the entry itself."""
    who = [_word(properties.get(name)) for name in ("stage", "by")]
    return [*who, *_plain(properties, "stage", "by", "values", "before")]


def _mismatch(properties: Mapping[str, Any]) -> list[str]:
    """Tell of the two ends of a log by their numbers; of the same number, by their hashes."""
    ends = [one if isinstance(one, dict) else {} for one in (properties.get("expected"), properties.get("found"))]
    same = ends[0].get("seq") == ends[1].get("seq")
    told = [f"{_word(end.get('seq'))}{f' ({_short(end)})' if same else ''}" for end in ends]
    return [f"expected entry {told[0]}, found {told[1]}", *_plain(properties, "expected", "found")]


def _damaged(properties: Mapping[str, Any]) -> list[str]:
    """Tell what was wrong with the log of which this one is a copy."""
    line, what = (_word(properties.get(name)) for name in ("line", "what"))
    where = f"line {line}: {what}" if line else what
    return [f"copied from the log of {_word(properties.get('of'))};", where, *_plain(properties, "of", "line", "what")]


def _short(end: Mapping[str, Any]) -> str:
    return one_line(str(end.get("sha256")), 12)


def _listed(what: str, found: Any) -> str:
    """Name the first of several things, and how many there are."""
    names = [_word(one) for one in found] if isinstance(found, list) else []
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{what}: {', '.join(names[:_MOST_NAMED])}{more}" if names else ""


def _undone(properties: Mapping[str, Any]) -> list[str]:
    """Tell whose end was taken back, what had begun after it, and which phases are not what they were."""
    raw = properties.get("phases")
    held = raw if isinstance(raw, dict) else {}
    phases = [f"{_word(name)} ({_word(status).replace('_', ' ')})" for name, status in held.items()]
    told = (_word(properties.get("stage")), _listed("gone", properties.get("gone")), _listed("set back", phases))
    return [_joined(*told), *_plain(properties, "stage", "gone", "phases")]


def _rewound(properties: Mapping[str, Any]) -> list[str]:
    """Tell to where a run was taken back, and of which stages."""
    known = ("to", "undone", "gone", "context_left")
    lists = [properties.get(name) for name in known[1:]]
    words = ("taken back", "gone", "their context stays")
    listed = (_listed(*pair) for pair in zip(words, lists, strict=True))
    return [_joined(f"to {_word(properties.get('to'))}", *listed), *_plain(properties, *known)]


def _forked(properties: Mapping[str, Any]) -> list[str]:
    """Tell from which run and stage a run was made; what had made its context stands in the entry itself."""
    stages = properties.get("stages")
    came = f"{counted(len(stages), 'stage')} came along" if isinstance(stages, list) else ""
    where = f"from {_word(properties.get('from'))} at {_word(properties.get('at'))}"
    return [_joined(where, came), *_plain(properties, "from", "at", "stages", "context")]


def _restored(properties: Mapping[str, Any]) -> list[str]:
    raw = properties.get("revision")
    revision = raw if isinstance(raw, dict) else {}
    held = [_word(revision.get(key)) for key in ("before", "restored")]
    later = properties.get("events_after")
    return [
        f"from {_word(properties.get('source'))}",
        f"revision {held[0] or '?'} → {held[1]}" if held[1] else "",
        f"{counted(later, 'event')} after it stay" if type(later) is int and later else "",
        *_plain(properties, "source", "revision", "events_after"),
    ]


def _who(found: Any) -> str:
    """Name a driver as an event has it: its session in short, host and machine."""
    held = found if isinstance(found, dict) else {}
    session, host, machine = (_word(held.get(name)) for name in ("session_id", "host", "hostname"))
    around = " on ".join(filter(None, (host, machine)))
    named = (f"session {one_line(session, 8)}" if session else "", f"({around})" if around else "")
    return " ".join(filter(None, named))


def _times(found: Any) -> str:
    held = found if isinstance(found, dict) else {}
    since, seen = (_word(held.get(name)) for name in ("since", "seen"))
    return ", ".join(filter(None, (f"since {since}" if since else "", f"last sign {seen}" if seen else "")))


def _taken(link: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """Tell who drives from here on, and who did until then."""

    def told(properties: Mapping[str, Any]) -> list[str]:
        last = properties.get("from")
        before = ", ".join(filter(None, (_who(last), _times(last))))
        known = ("why", "epoch", "host", "hostname", "from")
        now = _who({key: properties.get(key) for key in ("host", "hostname")})
        why = _word(properties.get("why"))
        driven = " ".join(filter(None, ("driven from here", now))) + (f": {why}" if why else "")
        change = _joined(driven, f"{link} {before}" if before else "")
        return [change, _epoch(properties), *_plain(properties, *known)]

    return told


def _refused(properties: Mapping[str, Any]) -> list[str]:
    """Tell of a write that was refused: who drives, and under which epochs it was."""
    holder = properties.get("holder")
    driver = ", ".join(filter(None, (_who(holder), _times(holder))))
    began, epoch = (_word(properties.get(name)) for name in ("began", "epoch"))
    by = f"a write was refused: driven by {driver}" if driver else "a write was refused: the run changed hands since"
    epochs = f"(begun under epoch {began}, now {epoch})" if began and epoch else ""
    return [by, epochs, *_plain(properties, "holder", "began", "epoch")]


def _released(properties: Mapping[str, Any]) -> list[str]:
    reason = _word(properties.get("reason"))
    return ["given up" + (f": {reason}" if reason else ""), _epoch(properties), *_plain(properties, "reason", "epoch")]


def _epoch(properties: Mapping[str, Any]) -> str:
    epoch = _word(properties.get("epoch"))
    return f"(epoch {epoch})" if epoch else ""


_STAGE = _words("stage")
LINES: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "run.created": _run_created,
    "run.resumed": _words("status_before"),
    "run.paused": _words("before"),
    "run.awaiting_feedback": _STAGE,
    "run.feedback_given": _STAGE,
    "run.failed": _words("failure_reason"),
    "run.cancelled": _words("before"),
    "run.completed": _words(),
    "run.rewound": _rewound,
    "run.forked": _forked,
    "run.pushed": _words("remote"),
    "run.push_failed": _words("remote", "reason"),
    "run.pulled": _words("remote", "kind"),
    "run.saved_aside": _words("whose", "from"),
    "phase.started": _change("before", "phase"),
    "phase.completed": _words("phase"),
    "phase.skipped": _words("phase"),
    "step.primed": _words(),
    "stage.started": _STAGE,
    "stage.prompt_renewed": _STAGE,
    "stage.asked": _STAGE,
    "stage.handed_on": _STAGE,
    "stage.closing": _STAGE,
    "stage.repair_requested": _STAGE,
    "evidence.checked": _evidence,
    "stage.completed": _stage_completed,
    "stage.undone": _undone,
    "transition.chosen": _transition_chosen,
    "branch.ended": _words("branch", "status", "failure_reason"),
    "branches.joined": _joined_branches,
    "phase.set_back": _words("phase"),
    "approval.lapsed": _words("id"),
    "context.updated": _context_updated,
    "context.primed": _primed,
    "asset.captured": _asset_captured,
    "command.started": _STAGE,
    "command.ended": _command_ended,
    "approval.requested": _words("id", "reason"),
    "approval.granted": _words("id", "label"),
    "approval.rejected": _words("id", "label"),
    "approval.chosen": _words("id", "label"),
    "lease.taken": _taken("before it"),
    "lease.taken_over": _taken("taken from"),
    "lease.released": _released,
    "lease.refused": _refused,
    "session.started": _words("source"),
    "session.resumed": _words("source"),
    "session.compacted": _words("trigger"),
    "context.checked": _checked_start,
    "survival.checked": _checked,
    "survival.restored": _restored_items,
    "survival.declared": _words(),
    "session.ended": _words("reason"),
    "session.lost": _words("session_id"),
    "hook.failed": _words("hook", "error"),
    "tools.unreadable": _words("file"),
    "tools.unfinished": _words("file"),
    "outputs.removed": _words(),
    "state.restored": _restored,
    "plan.restored": _words(),
    "plan.frozen": _words(),
    "state.changed": _words(),
    "state.migrated": _change("from", "to"),
    "plan.migrated": _change("from", "to"),
    "ledger.torn_line": _words(),
    "ledger.mismatch": _mismatch,
    "ledger.damaged": _damaged,
}
