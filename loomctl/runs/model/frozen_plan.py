"""A run's `plan.json` as the engine and the hooks read it: a plain dict whose shape they may rely on."""

from __future__ import annotations

from loomctl.kit.errors import EXIT_SKEW, UPDATE, LoomError, quoted
from loomctl.kit.ids import is_fit
from loomctl.kit.json.shapes import FLAG, LIST, NOTHING, NUMBER, OBJECT, TEXT, WHOLE, Shape, misfit, not_text
from loomctl.runs.model.joins import JOINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

SCHEMA_VERSION = 1
_TEXT_OR_NULL, _LIST_OR_NULL = TEXT + NOTHING, LIST + NOTHING
_PLAN = Shape(
    {"plan_id": TEXT, "workflow_id": TEXT, "phases": LIST, "artifacts": LIST},
    {"autonomy": OBJECT, "commands": LIST, "retry_target": TEXT, "max_visits": WHOLE, "must_survive": LIST},
    ("plan_id", "workflow_id"),
)
_AUTONOMY = Shape({}, {"level": TEXT, "require_approval_for": LIST}, ("level",))
_PHASE = Shape({"id": TEXT, "steps": LIST}, {"require_approval": FLAG}, ("id",))
_STEP = Shape(
    {"key": TEXT, "id": TEXT},
    {
        "prompt": _TEXT_OR_NULL,
        "command": _TEXT_OR_NULL,
        "skill": _TEXT_OR_NULL,
        "engine": _TEXT_OR_NULL,
        "max_retries": WHOLE,
        "require_approval": FLAG,
        "result_handling": OBJECT,
        "kind": TEXT,
        "run": TEXT,
        "timeout": NUMBER,
        "workdir": TEXT,
        "output_schema": TEXT,
        "schema": OBJECT,
        "output_retries": WHOLE,
        "fidelity": TEXT,
        "max_visits": WHOLE,
        "transitions": LIST,
        "retry_target": TEXT,
        "parallel": OBJECT,
        "evidence": LIST,
    },
    ("key", "id"),
)
_PARALLEL = Shape({"join": TEXT, "branches": LIST}, {}, ("join",))
_BRANCH = Shape({"id": TEXT, "steps": LIST}, {}, ("id",))
_TRANSITION = Shape(
    {"to": TEXT},
    {
        "label": TEXT,
        "condition": TEXT,
        "condition_code": _LIST_OR_NULL,
        "weight": NUMBER,
        "fidelity": TEXT,
        "on_failure": FLAG,
    },
    ("to",),
)
_EVIDENCE = {
    "file": Shape({"kind": TEXT, "file": TEXT}, {"changed": FLAG}),
    "command": Shape({"kind": TEXT, "run": TEXT}, {"timeout": NUMBER}),
    "state": Shape(
        {"kind": TEXT},
        {"state": TEXT, "path_steps": _LIST_OR_NULL, "condition": TEXT, "condition_code": _LIST_OR_NULL},
    ),
}
_HANDLING = Shape({}, {"on_success": TEXT, "on_warning": TEXT, "on_failure": TEXT})
_ARTIFACT = Shape(
    {"id": TEXT, "type": TEXT},
    {
        "path": TEXT,
        "path_from_state": TEXT,
        "command": TEXT,
        "load_strategy": TEXT,
        "when": TEXT,
        "phase": _TEXT_OR_NULL,
        "triggers": LIST,
        "condition": _TEXT_OR_NULL,
        "condition_code": _LIST_OR_NULL,
        "path_steps": _LIST_OR_NULL,
    },
    ("id", "type", "load_strategy", "when", "phase"),
)
_KINDS = (
    "agent",
    "prompt",
    "command",
    "human",
    "parallel",
)  # what this loomctl does; a plan that asks for more is not done in part


def accepted(raw: object, *, where: str) -> dict[str, Any]:
    """Check what was read from a plan file and give it back; one of an older schema is migrated (D56).

    Raises BAD_PLAN with the JSON path, or SCHEMA_TOO_NEW.
    """
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if type(version) is int and version > SCHEMA_VERSION:
        raise LoomError(
            "SCHEMA_TOO_NEW",
            f"this plan has schema {version}, this loomctl knows {SCHEMA_VERSION}",
            where=where,
            hint=UPDATE,
            exit_code=EXIT_SKEW,
        )
    if not isinstance(raw, dict) or type(version) is not int:
        raise _bad(where, "$.schema_version", f"the schema version is {SCHEMA_VERSION}")
    if version < SCHEMA_VERSION:
        raw = _migrated(raw, where)
    for problem in _problems(raw, where):
        if problem is not None:
            raise _bad(where, *problem)
    return raw


def _migrated(raw: dict[str, Any], where: str) -> dict[str, Any]:
    from loomctl.runs.model import migrations  # for older files alone: hooks pay for it only then

    try:
        return migrations.migrated(raw, SCHEMA_VERSION, migrations.PLAN)
    except ValueError as error:
        raise _bad(where, "$.schema_version", str(error)) from None


def _problems(plan: dict[str, Any], where: str) -> Iterator[tuple[str, str] | None]:
    """Look at one place after the other, the outer before the inner."""
    yield misfit("$", plan, _PLAN)
    if "autonomy" in plan:
        yield misfit("$.autonomy", plan["autonomy"], _AUTONOMY)
    for index, phase in enumerate(plan["phases"]):
        path = f"$.phases[{index}]"
        yield misfit(path, phase, _PHASE)
        for number, step in enumerate(phase["steps"]):
            yield from _of_step(f"{path}.steps[{number}]", step, where)
    yield from _nowhere(plan)
    for index, artifact in enumerate(plan["artifacts"]):
        path = f"$.artifacts[{index}]"
        yield misfit(path, artifact, _ARTIFACT)
        yield not_text(f"{path}.triggers", artifact.get("triggers"))


def _of_step(path: str, step: Any, where: str) -> Iterator[tuple[str, str] | None]:
    yield misfit(path, step, _STEP)
    _refuse_later(path, step, where)
    yield misfit(f"{path}.result_handling", step.get("result_handling", {}), _HANDLING)
    for place, transition in enumerate(step.get("transitions", ())):
        yield misfit(f"{path}.transitions[{place}]", transition, _TRANSITION)
    for place, wanted in enumerate(step.get("evidence", ())):
        yield from _of_evidence(f"{path}.evidence[{place}]", wanted)
    if "parallel" in step:
        yield from _of_branches(f"{path}.parallel", step["parallel"], where)


def _of_evidence(path: str, wanted: Any) -> Iterator[tuple[str, str] | None]:
    kind = wanted.get("kind") if isinstance(wanted, dict) else None
    if not isinstance(kind, str) or kind not in _EVIDENCE:
        yield path, f"evidence has a kind, one of {', '.join(_EVIDENCE)}"
        return
    yield misfit(path, wanted, _EVIDENCE[kind])
    if kind == "state" and ("state" in wanted) == ("condition" in wanted):
        yield path, "evidence in the state is a path or a condition"


def _of_branches(path: str, parallel: Any, where: str) -> Iterator[tuple[str, str] | None]:
    yield misfit(path, parallel, _PARALLEL)
    if parallel["join"] not in JOINS:
        yield f"{path}.join", f"a join is one of {', '.join(JOINS)}"
    for index, branch in enumerate(parallel["branches"]):
        inner = f"{path}.branches[{index}]"
        yield misfit(inner, branch, _BRANCH)
        if not is_fit(branch["id"]):
            yield f"{inner}.id", "a branch's id is letters, digits, '.', '_' and '-'"
        if not branch["steps"]:
            yield inner, "a branch has steps"
        for number, step in enumerate(branch["steps"]):
            yield from _of_step(f"{inner}.steps[{number}]", step, where)
            if "parallel" in step:
                yield f"{inner}.steps[{number}]", "a branch holds no parallel step"


def _nowhere(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what leads to a step that the plan, or the branch, does not have."""
    steps = [
        (f"$.phases[{index}].steps[{number}]", step)
        for index, phase in enumerate(plan["phases"])
        for number, step in enumerate(phase["steps"])
    ]
    led = [("$.retry_target", plan["retry_target"])] if "retry_target" in plan else []
    yield from _nowhere_among(steps, led)
    for path, step in steps:
        for number, branch in enumerate(step["parallel"]["branches"] if "parallel" in step else ()):
            inside = f"{path}.parallel.branches[{number}].steps"
            yield from _nowhere_among([(f"{inside}[{at}]", one) for at, one in enumerate(branch["steps"])], [])


def _nowhere_among(steps: list[tuple[str, Any]], led: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    led = [*led, *(found for path, step in steps for found in _led(path, step))]
    keys = {step["key"] for _, step in steps} if led else ()
    yield from ((path, "the plan has no such step here") for path, key in led if key not in keys)


def _led(path: str, step: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give where a step's ways lead, each with its place; the end is no step."""
    if "retry_target" in step:
        yield f"{path}.retry_target", step["retry_target"]
    for place, transition in enumerate(step.get("transitions", ())):
        if transition["to"] != "end":
            yield f"{path}.transitions[{place}].to", transition["to"]


def _refuse_later(path: str, step: dict[str, Any], where: str) -> None:
    """Refuse a step of a kind that is not done here, or one that is half of its kind (D30). Raises NOT_SUPPORTED."""
    kind = step.get("kind", _KINDS[0])
    halves = (kind == "command") == ("run" in step) and (kind == "parallel") == ("parallel" in step)
    if kind not in _KINDS or not halves:
        raise LoomError(
            "NOT_SUPPORTED",
            f"this plan has a step of a kind that this loomctl does not do: {kind:.40}",
            where=f"{where} {path}",
            why="a command step has run, a parallel one has parallel, and no other" if kind in _KINDS else "",
            hint=f"loomctl check {quoted(where)}",
        )


def _bad(where: str, path: str, why: str) -> LoomError:
    return LoomError(
        "BAD_PLAN", "the run's plan is damaged", where=f"{where} {path}", why=why, hint=f"loomctl check {quoted(where)}"
    )


def steps_unknown(plan: Mapping[str, Any]) -> str:
    """Say why a run of FABER's has steps that nobody knows, so that it is looked at alone; empty for others (D5)."""
    made_of = plan.get("faber")
    return str(made_of.get("unknown") or "") if isinstance(made_of, dict) else ""
