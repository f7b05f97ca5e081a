"""Saying everything that is wrong with a workflow, plan, state or log at once: by its schema and by what it means."""

from __future__ import annotations

import json
import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from loomctl.expressions.output_schemas import TYPES
from loomctl.kit import files, trouble
from loomctl.kit.errors import UPDATE, LoomError, quoted
from loomctl.kit.problems import at, choices, error, errors, kind_of, objects, placed, shown, warning, weight
from loomctl.kit.strict import MOST_PROBLEMS
from loomctl.runs import faber_state, log_verdict
from loomctl.runs.model import frozen_plan, state, visit_list, visits
from loomctl.runs.model.state import handle
from loomctl.runs.store import event_log, events, visit_files
from loomctl.workflows import refreeze, workflow_files
from loomctl.workflows.resolve import outside, resolve_file
from loomctl.workflows.workflow import build_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jsonschema.exceptions import ValidationError

    from loomctl.kit.problems import Problem
    from loomctl.workflows.workflow_files import Places

WORKFLOW, PLAN, STATE = "workflow", "plan", "state"
KINDS = (WORKFLOW, PLAN, STATE)
# Plans and states are written by machines and may hold more than a person would write.
_DEEPEST = files.DEEPEST
_LARGEST = 64 << 20
_COPY = "Loom has no second copy of it; a backup of yours may have one"


def check_file(path: str, places: Places, *, by_user: bool = True) -> list[Problem]:
    """Give every problem of a workflow, plan or state file, or of a run's log, errors first; none: all is well.

    A log is known by its name, the others by their content. by_user: its user named it; a file that was only found in
    the project is not read where it is a link out of it (D10). Raises nothing for what is in the file.
    """
    if not by_user and not files.is_inside(path, places.project_dir):
        return [outside(path)]
    if os.path.basename(path) == events.FILE:
        return _check_log(path)
    loaded = workflow_files.load(path, max_depth=_DEEPEST, largest=_LARGEST)
    if errors(loaded.problems):
        return sorted(loaded.problems, key=weight)
    raw, kind = loaded.raw, document_kind(loaded.raw)
    if kind is None:
        hint = "a workflow has id and phases (or extends), a plan has plan_id, a state has run_id"
        return [error("UNKNOWN_KIND", "$", "this file is not a workflow, a plan or a state", hint)]
    if kind == WORKFLOW:
        found = resolve_file(path, places).problems
    else:
        raw, found = _as_today(raw, kind)
        found += _plan_problems(raw) if kind == PLAN else _state_problems(raw, path)
    if not _is_foreign(kind, raw) and not any(problem.code in ("TOO_DEEP", "SCHEMA_TOO_NEW") for problem in found):
        spoken = {problem.where for problem in errors(found)} if loaded.places else ()
        more = placed(_beyond(raw, kind, bundle=places.bundle, known=found), loaded.places)
        found += [problem for problem in more if problem.where not in spoken]
    found = [one._replace(hint=trouble.update(places.bundle)) if one.hint == UPDATE else one for one in found]
    return _first(sorted(found, key=weight))


def _check_log(path: str) -> list[Problem]:
    """Give every fault of a log by its path, and the state beside it; what a kill left at its end is a warning."""
    run_id = os.path.basename(os.path.dirname(os.path.abspath(path)))
    try:
        beside = files.read_json(os.path.join(os.path.dirname(path), "state.json"))
    except (OSError, LoomError):  # has an error of its own
        beside = None
    try:
        verdict = log_verdict.of_log(path, run_id, beside if isinstance(beside, dict) else None, event_log.all_of(path))
    except LoomError as unreadable:
        return [error("UNREADABLE", "$", unreadable.why or unreadable.what, f"ls -l {quoted(path)}")]
    found = []
    for fault in verdict.faults:
        message = f"{fault.what}: {fault.why}" if fault.why else fault.what
        found.append(error(fault.code, f"line {fault.line}", message, _COPY))
    if verdict.torn_at is not None and verdict.ok:
        message = "this line is incomplete: a killed process left it, and the next write repairs it"
        called = handle({**beside, "run_id": run_id}) if isinstance(beside, dict) else run_id
        found.append(warning("TORN_LINE", f"line {verdict.torn_at.line}", message, f"loomctl prove --log {called}"))
    return found


def commands_of(path: str, places: Places, test_command: str = "") -> list[dict[str, str]]:
    """List what a run of the workflow in a file would run, in its order; nothing for other files, or one with errors.

    Each is `{step, run, workdir?}`, its placeholders as they stand. test_command: the project's.
    """
    plan = plan_of(path, places, test_command)
    commands: list[dict[str, str]] = plan["commands"] if plan is not None else []
    return commands


def plan_of(path: str, places: Places, test_command: str = "") -> dict[str, Any] | None:
    """Give the plan that a run of the workflow in a file would have; None for other files, and one with errors."""
    if not path.endswith(workflow_files.SUFFIXES):
        return None
    if document_kind(workflow_files.load(path, max_depth=_DEEPEST, largest=_LARGEST).raw) != WORKFLOW:
        return None
    merged = resolve_file(path, places).merged
    if merged is None:
        return None
    return build_plan(merged, plan_id="check", created_at="", sources=[], test_command=test_command)


def _first(found: list[Problem]) -> list[Problem]:
    """Cut what nobody reads to the end; the last one says how much there is."""
    more = len(found) - MOST_PROBLEMS
    if more <= 0:
        return found
    told = f"this file has {more:,} more problems"
    return [
        *found[:MOST_PROBLEMS],
        found[0]._replace(code="TOO_MANY", where="$", message=told, hint="fix these first"),
    ]


def document_kind(raw: object) -> str | None:
    """Tell from a file's content whether it is a workflow, a plan or a state; None: none of them."""
    if not isinstance(raw, dict):
        return None
    if "run_id" in raw or ("status" in raw and ("current_phase" in raw or "phases" in raw)):
        return STATE
    if "plan_id" in raw or ("execution" in raw and "workflow" in raw):
        return PLAN
    named = any(key in raw for key in ("phases", "extends", "critical_artifacts", "autonomy"))
    return WORKFLOW if named or ("id" in raw and "description" in raw) else None


def _is_foreign(kind: str, raw: dict[str, Any]) -> bool:
    """Tell whether a plan or state is FABER's own, which Loom reads and never refuses (D5)."""
    return kind != WORKFLOW and "schema_version" not in raw


def _foreign(what: str) -> Problem:
    message = f"no schema_version: Loom takes it for one of FABER's {what}s and checks no more"
    return warning("FABER_LAYOUT", "$", message)


def _as_today(raw: dict[str, Any], kind: str) -> tuple[dict[str, Any], list[Problem]]:
    """Give a plan or state as it would be read, and what is to be said of one whose schema is older (D56)."""
    current = frozen_plan.SCHEMA_VERSION if kind == PLAN else state.SCHEMA_VERSION
    version = raw.get("schema_version")
    if type(version) is not int or version >= current:
        return raw, []
    try:
        made = state.migrated(raw, current, (frozen_plan if kind == PLAN else state).MIGRATIONS)
    except ValueError as refused:
        return raw, [
            error(
                "SCHEMA_TOO_OLD",
                "$.schema_version",
                str(refused),
                "the number is wrong, or a version of Loom wrote it that is too old",
            )
        ]
    message = f"schema {version} is older than {current}; Loom would migrate it: {', '.join(made.steps)}"
    return made, [warning("OLDER_SCHEMA", "$.schema_version", message)]


def _newer(raw: dict[str, Any], known: int) -> Iterator[Problem]:
    version = raw.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version > known:
        message = f"schema {version} is newer than this loomctl, which knows {known}; Loom checks no more"
        yield error("SCHEMA_TOO_NEW", "$.schema_version", message, UPDATE)


def _plan_problems(raw: dict[str, Any]) -> Iterator[Problem]:
    if _is_foreign(PLAN, raw):
        yield _foreign("plan")
        for at_field, _, field in refreeze.ignored_fields(raw) if faber_state.is_plan(raw) else ():
            yield warning("IGNORED_FIELD", at_field, f"Loom ignores {field}")
        return
    yield from _newer(raw, frozen_plan.SCHEMA_VERSION)
    seen: dict[object, str] = {}
    for where, phase in objects(raw, "phases"):
        yield from _twice(seen, f"phase {phase.get('id')}", phase.get("id"), at(where, "id"))
        for step_where, step in objects(phase, "steps", where):
            key, wanted = step.get("key"), f"{phase.get('id')}/{step.get('id')}"
            if isinstance(key, str) and key != wanted:
                hint = "a step's key must be phase/id"
                yield error("KEY_MISMATCH", at(step_where, "key"), f"{shown(key)} is not {shown(wanted)}", hint)
            yield from _twice(seen, f"step {key}", ("step", key), at(step_where, "key"))
    yield from _leads_nowhere(raw)
    for where, artifact in objects(raw, "artifacts"):
        yield from _twice(seen, f"artifact {artifact.get('id')}", ("artifact", artifact.get("id")), at(where, "id"))


def _leads_nowhere(raw: dict[str, Any]) -> Iterator[Problem]:
    steps = [one for where, phase in objects(raw, "phases") for one in objects(phase, "steps", where)]
    keys = [step["key"] for _, step in steps if isinstance(step.get("key"), str)]
    led = [(at("$", "retry_target"), raw.get("retry_target"))]
    for where, step in steps:
        led.append((at(where, "retry_target"), step.get("retry_target")))
        led += [(at(way, "to"), one.get("to")) for way, one in objects(step, "transitions", where)]
    for where, key in led:
        if isinstance(key, str) and key not in keys and not (key == visits.END and where.endswith(".to")):
            yield error("UNKNOWN_STEP", where, f"there is no step {shown(key)}", choices(key, keys))


def _state_problems(raw: dict[str, Any], path: str) -> Iterator[Problem]:
    run_id, folder = raw.get("run_id"), os.path.dirname(os.path.abspath(path))
    # FABER keeps several runs of one plan in the plan's folder, as state-{suffix}.json.
    ours = raw.get("plan_id") if os.path.basename(path).startswith("state-") else run_id
    name = os.path.basename(folder)
    if _is_foreign(STATE, raw) and faber_state.belongs(raw, name):  # such as organisation/project/uuid
        ours = name
    if os.path.basename(os.path.dirname(folder)) == "runs" and name != ours:
        message = f"the folder is called {shown(name)}, but the file says {shown(run_id)}"
        hint = "loomctl runs"
        yield error("RUN_ID_MISMATCH", "$.run_id", message, hint)
    if _is_foreign(STATE, raw):
        yield _foreign("state")
        return
    newer = list(_newer(raw, state.SCHEMA_VERSION))
    yield from newer
    if newer:
        return
    phases = raw.get("phases")
    current = raw.get("current_phase")
    if isinstance(phases, dict) and isinstance(current, str) and current not in phases:
        message = f"the run has no phase {shown(current)}"
        yield error("UNKNOWN_PHASE", "$.current_phase", message, choices(current, list(phases)))
    yield from _moved_visits(raw, path, name)
    seen: dict[object, str] = {}
    for where, entry in objects(raw, "steps"):
        visit = (entry.get("step_id"), entry.get("visit"))
        yield from _twice(seen, f"step {visit[0]}@{visit[1]}", visit, where)
        yield from _twice(seen, f"rank {entry.get('rank')}", ("rank", entry.get("rank")), at(where, "rank"))


def _moved_visits(raw: dict[str, Any], path: str, run_id: str) -> Iterator[Problem]:
    """Read the file of the visits that left a state, where the state itself can be used."""
    try:
        read = visit_files.reader(os.path.dirname(os.path.abspath(path)), run_id)
        steps = state.accepted(raw, where=path, read=read)["steps"]
    except LoomError:  # its shape is told by the schema
        return
    try:
        list(steps)
    except LoomError as unreadable:
        message = f"{unreadable.what}: {unreadable.where}: {unreadable.why}"
        yield error(unreadable.code, f"$.{visit_list.KEY}", message, f"loomctl debug state restore {quoted(run_id)}")


def _twice(seen: dict[object, str], what: str, key: object, where: str) -> Iterator[Problem]:
    try:
        before = seen.setdefault(key, where)
    except TypeError:  # a list or object in an id's place: the schema says so
        return
    if before != where:
        yield error("DUPLICATE_ID", where, f"{before} has {what} already")


def schema(kind: str, *, bundle: str) -> dict[str, Any]:
    """Give a schema by its name: `workflow`, `plan`, `state`, `tool_step`, `status`, `changes`, `report`."""
    read: dict[str, Any] = files.read_json(os.path.join(bundle, "config", f"{kind}.schema.json"))
    return read


def schema_problems(raw: object, kind: str, *, bundle: str) -> list[Problem]:
    """Give what the schema says, by place: the first MOST_PROBLEMS of it."""
    from jsonschema import Draft202012Validator

    found = Draft202012Validator(schema(kind, bundle=bundle)).iter_errors(raw)
    said = dict.fromkeys(islice((problem for refused in found for problem in _said(refused)), MOST_PROBLEMS))
    return sorted(said, key=lambda problem: problem.where)


def _beyond(raw: object, kind: str, *, bundle: str, known: Sequence[Problem]) -> Iterator[Problem]:
    """Give what the schema says of places that no error in `known` speaks of already; nothing where it says enough."""
    spoken = [problem.where for problem in errors(known)]
    if len(spoken) >= MOST_PROBLEMS:
        return
    for problem in schema_problems(raw, kind, bundle=bundle):
        if not any(_related(problem.where, where) for where in spoken):
            spoken.append(problem.where)
            yield problem


def _related(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return longer == shorter or (shorter != "$" and longer.startswith((shorter + ".", shorter + "[")))


def _said(refused: ValidationError) -> Iterator[Problem]:
    where = at("$", *refused.absolute_path)
    rule: str = str(refused.validator)
    value: Any = refused.instance
    limit: Any = refused.validator_value
    if rule == "required":
        for key in limit:
            if key not in value:
                yield error("MISSING_FIELD", at(where, key), f"{key} is missing")
    elif rule == "type":
        wanted = " or ".join(TYPES[name] for name in ([limit] if isinstance(limit, str) else limit))
        yield error("WRONG_TYPE", where, f"expected {wanted}, got {kind_of(value)}")
    elif rule in ("enum", "const"):
        words = [word for word in (limit if rule == "enum" else [limit]) if isinstance(word, str)]
        hint = choices(value, words) if words else f"expected {json.dumps(limit)}"
        yield error("UNKNOWN_VALUE", where, f"unknown value {shown(value)}", hint)
    elif rule == "pattern":
        yield error("BAD_TEXT", where, f"{shown(value)} does not match {limit}")
    elif rule == "minimum":
        yield error("OUT_OF_RANGE", where, f"{value} is below {limit}")
    else:
        about = refused.schema.get("description", "") if isinstance(refused.schema, dict) else ""
        yield error("SCHEMA", where, f"this does not match the schema. {about}".strip())
