"""What an event says to people: a line for each kind, compact `name=value` for what nobody here knows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import mask, masked
from loomctl.workflows import routing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PROPERTY = 80  # UTF-16 units of a value
_MOST_NAMED = 5  # of several stages or phases
_DRIVER = "{host:-}{hostname:-}driven from here[ ({host} on {hostname})| ({host})| ({hostname})][: {why}]"

# By event. `{name}` is a property, `{name.key}` one of an object, and a property that is named anywhere is told by its
# name no more: `{name:-}` says nothing of it, `{name:noun}` counts it, `{name:,}` lists it. `[a|b]` is the first of
# its forms whose properties are there, or nothing. A kind that is not here is told by its properties.
LINES = {
    "run.created": (
        "{workflow_id} [work item {work_id}: “{goal}”|work item {work_id}|“{goal}”] [(plan of {plan.sources:file})]"
    ),
    "run.resumed": "{status_before}",
    "run.paused": "{before}",
    "run.awaiting_feedback": "{stage}",
    "run.feedback_given": "{stage}",
    "run.failed": "{failure_reason}",
    "run.cancelled": "{before}",
    "run.rewound": "to {to}[; taken back: {undone:,}][; gone: {gone:,}][; their context stays: {context_left:,}]",
    "run.forked": "from {from} at {at}[; {stages:stage} came along]{context:-}",
    "run.pushed": "{remote}",
    "run.push_failed": "{remote} {reason}",
    "run.pulled": "{remote} {kind}",
    "run.saved_aside": "{whose} {from}",
    "phase.started": "[{before} → {phase}|{phase}|{before}]",
    "phase.completed": "{phase}",
    "phase.skipped": "{phase}",
    "phase.set_back": "{phase}",
    "stage.started": "{stage}",
    "stage.prompt_renewed": "{stage}",
    "stage.asked": "{stage}",
    "stage.handed_on": "{stage}",
    "stage.closing": "{stage}",
    "stage.repair_requested": "{stage}",
    "stage.completed": (
        "{stage} {status}[: {failure_reason}][; then {follows}|; then {way}][; {touched} ({names})|; {touched}]"
        "[; tokens {tokens}]"
        "{response_sha256:-}{files_sha256:-}{files_touched:-}{files_touched_count:-}{usage:-}{next:-}"
    ),
    "stage.undone": "{stage}[; gone: {gone:,}][; set back: {phases:,}]",
    "evidence.checked": "{stage} [missing: {lacking}|all {items} found]{passed:-}",
    "transition.chosen": "{stage} → [{to}|{step_id}|end] ([{reason} by {by}|{reason}][, of {weighed:way}])",
    "branch.ended": "{branch} {status} {failure_reason}",
    "branches.joined": "{stage} {status} [({results})] [conflicts: {conflicts}]",
    "command.started": "{stage}",
    "command.ended": (
        "{stage} [{late}|exit code {exit_code}|killed by {signal}] [after {spent}] [{bytes:byte}]"
        "{timed_out:-}{duration_ms:-}"
    ),
    "asset.captured": "{stage} {path} [({bytes:byte})]{sha256:-}{stored:-}",
    "approval.requested": "{id} {reason}",
    "approval.granted": "{id} {label}",
    "approval.rejected": "{id} {label}",
    "approval.chosen": "{id} {label}",
    "approval.lapsed": "{id}",
    "context.updated": "{stage} {by}{values:-}{before:-}",
    "context.primed": (
        "{event}: [loaded {loaded}|nothing loaded][; not loaded {not_loaded}][; {fresh_ones} fresh][; {tools}]"
        "[ ({used} of {limit})| ({used})]{slip_id:-}{fresh:-}{budget:-}{tool_history:-}{tokens:-}{characters:-}"
    ),
    "context.checked": "{event} [{artifacts}]{at:-}",
    "survival.checked": "{counts}{proven:-}{restored:-}{compaction:-}",
    "survival.restored": "{items}{compaction:-}",
    "session.started": "{source}",
    "session.resumed": "{source}",
    "session.compacted": "{trigger}",
    "session.ended": "{reason}",
    "session.lost": "{session_id}",
    "hook.failed": "{hook} {error}",
    "tools.unreadable": "{file}",
    "tools.unfinished": "{file}",
    "lease.taken": _DRIVER + "[; before it {from}] [(epoch {epoch})]",
    "lease.taken_over": _DRIVER + "[; taken from {from}] [(epoch {epoch})]",
    "lease.released": "given up[: {reason}] [(epoch {epoch})]",
    "lease.refused": (
        "a write was refused: [driven by {holder}|the run changed hands since]"
        " [(begun under epoch {began}, now {epoch})]{began:-}{epoch:-}"
    ),
    "state.restored": (
        "from {source} [revision {revision.before} → {revision.restored}|revision ? → {revision.restored}]"
        " [{events_after:event} after it stay]"
    ),
    "state.migrated": "[{from} → {to}|{to}|{from}]",
    "plan.migrated": "[{from} → {to}|{to}|{from}]",
    "ledger.mismatch": "expected entry {expected}, found {found}",
    "ledger.damaged": "copied from the log of {of}; [line {line}:] {what}",
}
_PARTS = re.compile(r"\[([^]]*)\]")
_FIELD = re.compile(r"\{([\w.]+)(?::([^}]+))?\}")


def line_of(entry: Mapping[str, Any]) -> str:
    """Give what an entry of the log says, on one line; whatever its properties are."""
    name, properties = str(entry.get("event")), _object(entry.get("properties"))
    line = LINES.get(name, "")
    derive = _DERIVED.get(name)
    made = derive(properties) if derive else {}
    # What stands between the brackets is an optional part, at every odd place.
    parts = [
        _form(part, properties, made) if at % 2 else _filled(part, properties, made)[0]
        for at, part in enumerate(_PARTS.split(line))
    ]
    told = {field.partition(".")[0] for field, _ in _FIELD.findall(line)}
    rest = [_property(str(key), value) for key, value in properties.items() if key not in told]
    return " ".join([*"".join(parts).split(), *filter(None, rest)])


def without_secrets(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give entries with their secrets masked (D21): looked for in all at once, for Loom's own logs have none."""
    clean = mask(json.dumps(entries, ensure_ascii=False))[1] == 0
    return list(entries) if clean else [masked(entry) for entry in entries]


def _form(part: str, properties: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    forms = (_filled(form, properties, made) for form in part.split("|"))
    return next((text for text, is_whole in forms if is_whole), "")


def _filled(form: str, properties: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[str, bool]:
    values = [
        made[field] if field in made and not how else _value(field, how, made if field in made else properties)
        for field, how in _FIELD.findall(form)
    ]
    told = iter(values)
    return _FIELD.sub(lambda _: next(told), form), all(values)


def _value(field: str, how: str, known: Mapping[str, Any]) -> str:
    name, _, key = field.partition(".")
    value = _object(known.get(name)).get(key) if key else known.get(name)
    if how == "-":
        return ""
    if how == ",":
        return _listed(value)
    if not how:
        return _word(value)
    count = len(value) or None if isinstance(value, list) else value
    return counted(count, how) if type(count) is int else ""


def _listed(found: object) -> str:
    names = [_word(one) for one in _list(found)]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


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
        return one_line(json.dumps(value, ensure_ascii=False), _PROPERTY) if value else ""
    return "" if value is None else one_line(str(value), _PROPERTY)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


# ---- What has to be made of an event's properties first.


def _completed(of: Mapping[str, Any]) -> dict[str, Any]:
    touched, more = of.get("files_touched"), of.get("files_touched_count")
    names = _list(touched)
    count = more if type(more) is int else len(names)
    way, usage = _object(of.get("next")), _object(of.get("usage"))
    how = routing.how(way) if way else ""
    return {
        "follows": "" if of.get("follows") == "done" else _word(of.get("follows")),
        "way": f"{_word(way.get('step_id')) or 'the end'} {_word(how)}" if how else "",
        "touched": counted(count, "file") if count else "",
        "names": one_line(", ".join(map(str, names)), _PROPERTY) if 0 < count <= 3 else "",
        "tokens": "/".join(_word(usage.get(f"{key}_tokens", "?")) for key in ("input", "output")) if usage else "",
    }


def _evidence(of: Mapping[str, Any]) -> dict[str, Any]:
    items = _objects(of.get("items"))
    lacking = [_word(one.get("name")) for one in items if one.get("passed") is not True]
    return {"items": str(len(items)), "lacking": ", ".join(lacking)}


def _joined(of: Mapping[str, Any]) -> dict[str, Any]:
    each = [f"{_word(one.get('id'))} {_word(one.get('status'))}" for one in _objects(of.get("results"))]
    keys = [_word(one.get("key")) for one in _objects(of.get("conflicts"))]
    return {"results": one_line(", ".join(each), _PROPERTY), "conflicts": one_line(", ".join(keys), _PROPERTY)}


def _command(of: Mapping[str, Any]) -> dict[str, Any]:
    spent = of.get("duration_ms")
    late = "timed out" if of.get("timed_out") is True else ""
    return {"late": late, "spent": f"{spent / 1000:.1f} s" if type(spent) is int else ""}


def _primed(of: Mapping[str, Any]) -> dict[str, Any]:
    budget, fresh = _object(of.get("budget")), _list(of.get("fresh"))
    return {
        **{key: _forms(of.get(key)) for key in ("loaded", "not_loaded")},
        **{key: f"{budget[key]:,}" if type(budget.get(key)) is int else "" for key in ("used", "limit")},
        "fresh_ones": f"{len(fresh):,}" if fresh else "",
        "tools": "tool steps told" if of.get("tool_history") else "",
    }


def _forms(held: object) -> str:
    """Tell artifacts with the form they were given in, or the reason why they were not."""
    return one_line(", ".join(f"{name} ({_word(how)})" for name, how in _object(held).items()), 2 * _PROPERTY)


def _fates(of: Mapping[str, Any]) -> dict[str, Any]:
    fates = [one for one in _object(of.get("artifacts")).values() if isinstance(one, str)]
    return {"artifacts": ", ".join(f"{fates.count(fate)} {_word(fate)}" for fate in dict.fromkeys(fates))}


def _receipt(of: Mapping[str, Any]) -> dict[str, Any]:
    if of.get("proven") is not True:
        return {"counts": "unproven"}
    held = [(key, of[key]) for key in ("kept", "lost") if isinstance(of.get(key), list)]
    return {"counts": ", ".join(f"{len(items)} {key}" for key, items in held)}


def _who(found: object) -> str:
    held = _object(found)
    session, host, machine, since, seen = (
        _word(held.get(name)) for name in ("session_id", "host", "hostname", "since", "seen")
    )
    around = " on ".join(filter(None, (host, machine)))
    who = [f"session {one_line(session, 8)}"] if session else []
    who += [f"({around})"] if around else []
    times = (f"{word} {time}" for word, time in (("since", since), ("last sign", seen)) if time)
    return ", ".join(filter(None, (" ".join(who), *times)))


def _ends(of: Mapping[str, Any]) -> dict[str, Any]:
    ends = {key: _object(of.get(key)) for key in ("expected", "found")}
    same = len({json.dumps(end.get("seq")) for end in ends.values()}) == 1
    short = {key: f" ({one_line(str(end.get('sha256')), 12)})" if same else "" for key, end in ends.items()}
    return {key: _word(end.get("seq")) + short[key] for key, end in ends.items()}


_DERIVED: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "stage.completed": _completed,
    "stage.undone": lambda of: {
        "phases": [f"{name} ({_word(how).replace('_', ' ')})" for name, how in _object(of.get("phases")).items()]
    },
    "evidence.checked": _evidence,
    "transition.chosen": lambda of: {"by": "" if of.get("by") == of.get("reason") else _word(of.get("by"))},
    "branches.joined": _joined,
    "command.ended": _command,
    "context.primed": _primed,
    "context.checked": _fates,
    "survival.checked": _receipt,
    "survival.restored": lambda of: {"items": "; ".join(map(_word, _list(of.get("items"))[:5]))},
    "lease.taken": lambda of: {"from": _who(of.get("from"))},
    "lease.taken_over": lambda of: {"from": _who(of.get("from"))},
    "lease.refused": lambda of: {"holder": _who(of.get("holder"))},
    "ledger.mismatch": _ends,
}
