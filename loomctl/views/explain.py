"""What happened in a run, in words: each event in a line; why it came to a step, or loads an artifact (D13, D45)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.flow import route
from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.kit.quick_json import as_list, as_object, as_objects
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import mask, masked
from loomctl.runs import stages
from loomctl.runs.model import driving, frozen_plan, visits
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import event_log
from loomctl.workflows import routing, triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

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
    "run.pause_asked": "[once {stage} has ended|no more]",
    "run.awaiting_feedback": "{stage}",
    "run.feedback_given": "{stage}",
    "run.completed": "[{large} kept apart]{artifact_count:-}",
    "run.failed": "{failure_reason}",
    "run.cancelled": "{before}",
    "run.rewound": "to {to}[; undone: {undone:,}][; removed: {gone:,}][; context kept of: {context_left:,}]",
    "run.forked": "from {from} at {at}[; with {stages:step}]{context:-}",
    "run.pushed": "{remote}",
    "run.push_failed": "{remote} {reason}",
    "run.pulled": "{remote} {kind}",
    "run.saved_aside": "{whose} {from}",
    "phase.started": "[{before} → {phase}|{phase}|{before}]",
    "phase.completed": "{phase}",
    "phase.skipped": "{phase}",
    "phase.set_back": "{phase}",
    "stage.started": "{stage}[, task {task.number} of {task.of}: {task.text}]",
    "stage.prompt_renewed": "{stage}",
    "stage.asked": "{stage}",
    "stage.handed_on": "{stage}",
    "stage.closing": "{stage}",
    "stage.repair_requested": "{stage}",
    "stage.completed": (
        "{stage} {status}[, task {task.number} of {task.of}][: {failure_reason}][; then {follows}|; then {way}]"
        "[; {touched} ({names})|; {touched}]"
        "[; tokens {tokens}]"
        "{response_sha256:-}{files_sha256:-}{files_touched:-}{files_touched_count:-}{usage:-}{next:-}"
    ),
    "stage.undone": "{stage}[; removed: {gone:,}][; open again: {phases:,}]",
    "tasks.none": "{status}: {why}",
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
        "{event}: [loaded {loaded}|nothing loaded][; not loaded {not_loaded}][; {fresh_ones} unchanged][; {tools}]"
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
    "drive.started": "{host}[, {within}]{limits:-}",
    "turn.started": "turn {turn}[, {again}]{conversation:-}{goes_on:-}",
    "turn.ended": (
        "turn {turn} {class}[: {why}][; {spent}][; {tokens:token}][; {calls:call}][; {killed} killed]"
        "[; refused: {denials:,}]{conversation:-}{cost:-}{estimated:-}{seconds:-}"
    ),
    "drive.ended": "{why} [(exit code {code})]{kind:-}",
    "lease.taken": _DRIVER + "[; before: {from}] [(epoch {epoch})]",
    "lease.taken_over": _DRIVER + "[; taken from {from}] [(epoch {epoch})]",
    "lease.released": "released[: {reason}] [(epoch {epoch})]{how:-}{from:-}",
    "lease.refused": (
        "refused a write: [driven by {holder}|the run has another driver since]"
        " [(began in epoch {began}, now {epoch})]{began:-}{epoch:-}"
    ),
    "state.restored": (
        "from {source} [revision {revision.before} → {revision.restored}|revision ? → {revision.restored}]"
        " [{events_after:later event} stay]"
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
    name, properties = str(entry.get("event")), as_object(entry.get("properties"))
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
    value = as_object(known.get(name)).get(key) if key else known.get(name)
    if how == "-":
        return ""
    if how == ",":
        return _listed(value)
    if not how:
        return _word(value)
    count = len(value) or None if isinstance(value, list) else value
    return counted(count, how) if type(count) is int else ""


def _listed(found: object) -> str:
    names = [_word(one) for one in as_list(found)]
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


# ---- What has to be made of an event's properties first.


def _completed(of: Mapping[str, Any]) -> dict[str, Any]:
    touched, more = of.get("files_touched"), of.get("files_touched_count")
    names = as_list(touched)
    count = more if type(more) is int else len(names)
    way, usage = as_object(of.get("next")), as_object(of.get("usage"))
    how = routing.how(way) if way else ""
    return {
        "follows": "" if of.get("follows") == "done" else _word(of.get("follows")),
        "way": f"{_word(way.get('step_id')) or 'the end'} {_word(how)}" if how else "",
        "touched": counted(count, "file") if count else "",
        "names": one_line(", ".join(map(str, names)), _PROPERTY) if 0 < count <= 3 else "",
        "tokens": "/".join(_word(usage.get(f"{key}_tokens", "?")) for key in ("input", "output")) if usage else "",
    }


def _evidence(of: Mapping[str, Any]) -> dict[str, Any]:
    items = as_objects(of.get("items"))
    lacking = [_word(one.get("name")) for one in items if one.get("passed") is not True]
    return {"items": str(len(items)), "lacking": ", ".join(lacking)}


def _joined(of: Mapping[str, Any]) -> dict[str, Any]:
    each = [f"{_word(one.get('id'))} {_word(one.get('status'))}" for one in as_objects(of.get("results"))]
    keys = [_word(one.get("key")) for one in as_objects(of.get("conflicts"))]
    return {"results": one_line(", ".join(each), _PROPERTY), "conflicts": one_line(", ".join(keys), _PROPERTY)}


def _command(of: Mapping[str, Any]) -> dict[str, Any]:
    spent = of.get("duration_ms")
    late = "timed out" if of.get("timed_out") is True else ""
    return {"late": late, "spent": f"{spent / 1000:.1f} s" if type(spent) is int else ""}


def _primed(of: Mapping[str, Any]) -> dict[str, Any]:
    budget, fresh = as_object(of.get("budget")), as_list(of.get("fresh"))
    return {
        **{key: _forms(of.get(key)) for key in ("loaded", "not_loaded")},
        **{key: f"{budget[key]:,}" if type(budget.get(key)) is int else "" for key in ("used", "limit")},
        "fresh_ones": f"{len(fresh):,}" if fresh else "",
        "tools": "with tool calls" if of.get("tool_history") else "",
    }


def _forms(held: object) -> str:
    """Tell artifacts with the form they were given in, or the reason why they were not."""
    return one_line(", ".join(f"{name} ({_word(how)})" for name, how in as_object(held).items()), 2 * _PROPERTY)


def _fates(of: Mapping[str, Any]) -> dict[str, Any]:
    fates = [one for one in as_object(of.get("artifacts")).values() if isinstance(one, str)]
    return {"artifacts": ", ".join(f"{fates.count(fate)} {_word(fate)}" for fate in dict.fromkeys(fates))}


def _receipt(of: Mapping[str, Any]) -> dict[str, Any]:
    if of.get("proven") is not True:
        return {"counts": "unproven"}
    held = [(key, of[key]) for key in ("kept", "lost") if isinstance(of.get(key), list)]
    return {"counts": ", ".join(f"{len(items)} {key}" for key, items in held)}


def _who(found: object) -> str:
    held = as_object(found)
    session, host, machine, since, seen = (
        _word(held.get(name)) for name in ("session_id", "host", "hostname", "since", "seen")
    )
    around = " on ".join(filter(None, (host, machine)))
    who = [f"session {one_line(session, 8)}"] if session else []
    who += [f"({around})"] if around else []
    times = (f"{word} {time}" for word, time in (("since", since), ("last sign", seen)) if time)
    return ", ".join(filter(None, (" ".join(who), *times)))


def _ends(of: Mapping[str, Any]) -> dict[str, Any]:
    ends = {key: as_object(of.get(key)) for key in ("expected", "found")}
    same = len({json.dumps(end.get("seq")) for end in ends.values()}) == 1
    short = {key: f" ({one_line(str(end.get('sha256')), 12)})" if same else "" for key, end in ends.items()}
    return {key: _word(end.get("seq")) + short[key] for key, end in ends.items()}


def _limits(of: Mapping[str, Any]) -> dict[str, Any]:
    limits = as_object(of.get("limits"))
    time, cost, turns = (limits.get(key) for key in ("time", "cost", "turns"))
    found = [f"{time / 60:g} min"] if isinstance(time, (int, float)) else []
    found += [f"{cost:g} USD"] if isinstance(cost, (int, float)) else []
    found += [counted(turns, "turn")] if type(turns) is int else []
    return {"within": f"at most {', '.join(found)}" if found else ""}


def _turn(of: Mapping[str, Any]) -> dict[str, Any]:
    cost = of.get("cost")
    about = "about " if of.get("estimated") is True else ""
    return {"spent": f"{about}{cost:.2f} USD" if isinstance(cost, (int, float)) and cost else ""}


def _large(of: Mapping[str, Any]) -> dict[str, Any]:
    count = of.get("artifact_count")
    return {"large": counted(count, "large value") if type(count) is int and count else ""}


_DERIVED: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "run.completed": _large,
    "stage.completed": _completed,
    "stage.undone": lambda of: {
        "phases": [f"{name} ({_word(how).replace('_', ' ')})" for name, how in as_object(of.get("phases")).items()]
    },
    "evidence.checked": _evidence,
    "transition.chosen": lambda of: {"by": "" if of.get("by") == of.get("reason") else _word(of.get("by"))},
    "branches.joined": _joined,
    "command.ended": _command,
    "context.primed": _primed,
    "context.checked": _fates,
    "survival.checked": _receipt,
    "survival.restored": lambda of: {"items": "; ".join(map(_word, as_list(of.get("items"))[:5]))},
    "drive.started": _limits,
    "turn.started": lambda of: {"again": "in the same conversation" if of.get("goes_on") is True else ""},
    "turn.ended": _turn,
    "lease.taken": lambda of: {"from": _who(of.get("from"))},
    "lease.taken_over": lambda of: {"from": _who(of.get("from"))},
    "lease.refused": lambda of: {"holder": _who(of.get("holder"))},
    "ledger.mismatch": _ends,
}


_CHOSEN, _PRIMED = "transition.chosen", "context.primed"


def why(space: Workspace, run: Run, word: str | None) -> dict[str, Any]:
    """Tell why a run came to the step that a word means, or why an artifact is loaded; without one, where the run is.

    A step: `{step_id, visit, stage, after, way, weighed, denied, drive}`. visit and stage: null where it comes next;
    after: the visit before, null for the first of the run. way: as that visit keeps it, empty where it leads elsewhere:
    somebody took the run up again. weighed: every transition that was weighed, with what its condition came to. denied:
    the calls that the assistant was refused in it; drive: why `loomctl drive` left it, null where it did not.
    An artifact: `{artifact_id, when, phase, triggers, condition, holds, values, warnings, last}`. holds: what its
    condition comes to now, `true`, `false` or `unknown`; values: what a simple one looks at; last: the newest priming
    that named it, `{at, event, fired, became}`; fired: the trigger that the event's name tells of.
    A stage goes before an artifact of the same name. Raises NOT_VISITED for a step that the run did not come to, and
    NO_SUCH_STAGE for what is none.
    """
    if word is None:
        return _here(run)
    matches = stages.matches(run, word)
    artifact = next((one for one in run.plan["artifacts"] if one["id"] == word), None)
    if artifact is not None and not matches:
        return _load(space, run, artifact)
    keys = [place.key for place in frozen_plan.with_branches(run.plan) if word in (place.key, place.step["id"])]
    if keys and not matches:
        return _ahead(run, keys)
    entry = stages.find_stage(run, word)
    # The visits among which it stands: those of the run, or of the branch that it is in (D43).
    branches = [record["steps"] for visit in run.state["steps"] for record in visit.get("branches", ())]
    line = next((line for line in branches if entry in line), run.state["steps"])
    at = line.index(entry)
    return _came(run, str(entry["step_id"]), entry, line[at - 1] if at else None)


def _here(run: Run) -> dict[str, Any]:
    """Tell of the step that a run is at: the one being worked on, else what comes next, else the last that it had."""
    state = run.state
    last = state["steps"][-1] if state["steps"] else None
    if last is None and not state.get("current_step"):
        hint = f"loomctl next {run.handle}"
        raise LoomError("NOT_VISITED", "this run has not begun a step yet", hint=hint, exit_code=EXIT_NO_RUN)
    if last is None:
        return _came(run, str(state["current_step"]), None, None)
    way = last.get("next")
    coming = way.get("step_id") if isinstance(way, dict) else None
    if visits.open_visit(state) is None and coming and state["status"] not in TERMINAL:
        return _came(run, str(coming), None, last)
    return _came(run, str(last["step_id"]), last, state["steps"][-2] if len(state["steps"]) > 1 else None)


def _ahead(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    for key in keys:
        if run.state["steps"] and route.way_to(run.state, key):
            return _came(run, key, None, run.state["steps"][-1])
    from loomctl.kit.problems import choices

    known = [str(entry["stage"]) for entry in stages.entries(run)]
    why = f"its steps so far: {', '.join(known[-20:])}" if known else choices(keys[0], known)
    what = f"this run has not come to {', '.join(keys)} yet"
    raise LoomError("NOT_VISITED", what, why=why, hint=f"loomctl show --stages {run.handle}", exit_code=EXIT_NO_RUN)


def _came(run: Run, key: str, entry: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> dict[str, Any]:
    said = before.get("next") if before is not None else None
    way = said if isinstance(said, dict) and said.get("step_id") == key else {}
    visit, stage = (entry["visit"], entry["stage"]) if entry is not None else (None, None)
    return {
        "step_id": key,
        "visit": visit,
        "stage": stage,
        "after": {name: before.get(name) for name in ("step_id", "visit", "stage", "status")} if before else None,
        "way": dict(way),
        "weighed": _weighed(run, before.get("stage")) if before is not None and way else [],
        "denied": [text for one in as_objects((entry or {}).get("denied")) if (text := _word(one.get("what")))],
        "drive": _last_drive(run) if entry is not None and entry.get("status") in visits.OPEN else None,
    }


def _last_drive(run: Run) -> dict[str, Any] | None:
    """Tell why `loomctl drive` ended, `{at, kind, why}`; None where it drives, or never did."""
    ended = driving.end(run.state)
    return {key: ended[key] for key in ("at", "kind", "why")} if ended is not None else None


def _weighed(run: Run, stage: object) -> list[dict[str, Any]]:
    """Give what the newest choice after a stage weighed; nothing where there was none, or its event is gone."""

    def of_stage(entry: dict[str, Any]) -> bool:
        return entry.get("event") == _CHOSEN and as_object(entry.get("properties")).get("stage") == stage

    for line in event_log.tail(run.folder, 1, of_stage, (_CHOSEN.encode(),)):
        return as_objects((line.entry or {}).get("properties", {}).get("weighed"))
    return []


def _load(space: Workspace, run: Run, artifact: Mapping[str, Any]) -> dict[str, Any]:
    from loomctl.expressions import conditions
    from loomctl.priming.examine import Examiner

    reader = Examiner(space, run, triggers.manual(), artifacts=[artifact])
    holds = reader.condition(artifact)
    return {
        "artifact_id": artifact["id"],
        **{key: artifact.get(key) for key in ("when", "phase", "triggers", "condition")},
        "holds": holds,
        "values": dict(conditions.values_of(artifact.get("condition_code"), {"state": run.state})),
        "warnings": [text for code, text in reader.warnings if code == "CONDITION_THREW"],
        "last": _last_priming(run, artifact),
    }


def _last_priming(run: Run, artifact: Mapping[str, Any]) -> dict[str, Any] | None:
    name = str(artifact["id"])

    def names_it(entry: dict[str, Any]) -> bool:
        return entry.get("event") == _PRIMED and _became(entry.get("properties"), name) != ""

    for line in event_log.tail(run.folder, 1, names_it, (_PRIMED.encode(),)):
        if line.entry is not None:
            event = str(line.entry["properties"].get("event") or "")
            happened = triggers.from_word(event)
            fired = None if happened is None else triggers.fires(artifact.get("triggers") or (), happened)
            became = _became(line.entry["properties"], name)
            return {"at": line.entry.get("ts"), "event": event, "fired": fired, "became": became}
    return None


def _became(properties: object, name: str) -> str:
    """Say what a priming made of an artifact: its form, `fresh`, or why it was not loaded; empty: it names it not."""
    known = as_object(properties)
    for key in ("loaded", "not_loaded"):
        if name in (listed := as_object(known.get(key))):
            return str(listed[name])
    return "fresh" if name in as_list(known.get("fresh")) else ""
