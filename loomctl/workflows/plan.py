"""A workflow as it is frozen for one run: phases and steps in order, artifacts with conditions and paths compiled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions.conditions import compile_condition
from loomctl.expressions.placeholder_checks import LEFT_TO_ASSISTANT
from loomctl.expressions.state_paths import compile_path
from loomctl.runs.model.frozen_plan import SCHEMA_VERSION
from loomctl.runs.model.visits import END, WAIT_ALL
from loomctl.workflows.model.critical_artifacts import ALWAYS
from loomctl.workflows.model.steps import ADDED_FIELDS, HUMAN, PARALLEL, inner_id
from loomctl.workflows.model.transitions import key_of
from loomctl.workflows.model.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.workflows.model.critical_artifacts import CriticalArtifact, Placed
    from loomctl.workflows.model.policies import ResultHandling
    from loomctl.workflows.model.steps import Step
    from loomctl.workflows.model.transitions import Transition
    from loomctl.workflows.model.workflow import Phase

HANDLING_DEFAULTS = {"on_success": "continue", "on_warning": "continue", "on_failure": "stop"}
DEFAULT_LEVEL = "guarded"
# What a workflow says and a plan says otherwise; every other top-level key is kept under its own name.
_CONSUMED = ("id", "extends", "$schema", "phases", "critical_artifacts", "skip_steps", "result_handling")
_PRIME_CONTEXT = re.compile(r"\s*/[A-Za-z0-9_-]+:prime-context(\s+--trigger[ =]\S+)?\s*")
_LEFT = re.compile(r"(?<!\{)\{(" + "|".join(LEFT_TO_ASSISTANT) + r")\}(?!\})")


def build_plan(
    merged: Mapping[str, Any], *, plan_id: str, created_at: str, sources: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Freeze a merged workflow into a plan.

    created_at: UTC, `YYYY-MM-DDTHH:MM:SSZ`; sources: `{id, path, sha256}` of each file, the root ancestor first.
    Disabled phases and skipped steps are left out. A step's result_handling is resolved (step, phase, workflow,
    default) and so is max_retries (step, phase, 0); approvals asked for by step stand at the step. Raises LoomError if
    the workflow has errors.
    """
    workflow = Workflow.from_dict(dict(merged), where=str(merged.get("id", "workflow")))
    approvals = _approvals(workflow)
    skipped = workflow.skip_steps or ()
    own: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "plan_id": plan_id,
        "workflow_id": workflow.id,
        "created_at": created_at,
        "description": workflow.description or "",
        "sources": [dict(source) for source in sources],
        "autonomy": _autonomy(workflow, approvals),
        "phases": [
            _phase(phase, workflow.result_handling, approvals, skipped)
            for phase in workflow.phases or ()
            if phase.enabled is not False
        ],
        "artifacts": _artifacts(workflow),
        "commands": _commands(workflow, skipped),
    }
    if workflow.retry_target is not None:
        own["retry_target"] = retry_target(workflow)
    extra = {key: value for key, value in merged.items() if key not in own and key not in _CONSUMED}
    return {**own, **extra}


def _approvals(workflow: Workflow) -> Sequence[str]:
    """Give what must be approved: what the workflow names; guarded without a word of it means the release."""
    said = workflow.autonomy
    if said is not None and said.require_approval_for is not None:
        return said.require_approval_for
    guarded = said is None or said.level in (None, "guarded")
    return ["release"] if guarded and any(phase.id == "release" for phase in workflow.phases or ()) else []


def _autonomy(workflow: Workflow, approvals: Sequence[str]) -> dict[str, Any]:
    said = workflow.autonomy.to_dict() if workflow.autonomy else {}
    return {**said, "level": said.get("level") or DEFAULT_LEVEL, "require_approval_for": list(approvals)}


def _phase(
    phase: Phase, handling: ResultHandling | None, approvals: Sequence[str], skipped: Sequence[str]
) -> dict[str, Any]:
    own: dict[str, Any] = {
        "id": phase.id,
        "description": phase.description or "",
        "require_approval": bool(phase.require_approval) or phase.id in approvals,
        "max_retries": phase.max_retries or 0,
        "steps": [
            _step(step, part, phase, handling, approvals, Names(phase.id))
            for part, step in phase.each_step()
            if step.id not in skipped and f"{phase.id}/{step.id}" not in skipped
        ],
    }
    return {**own, **{key: value for key, value in phase.extra.items() if key not in own}}


class Names(NamedTuple):
    """How steps are called where others lead to them: within a phase, or within one branch of a parallel step.

    before: what stands before a step's own id in its id in the phase; empty for a phase.
    """

    phase: str
    before: str = ""

    def key(self, name: str) -> str:
        """Give the key of the step that is called so here; `end` stays."""
        return key_of(name if name == END or "/" in name else self.before + name, self.phase)


def _step(
    step: Step, part: str, phase: Phase, handling: ResultHandling | None, approvals: Sequence[str], names: Names
) -> dict[str, Any]:
    key = names.key(step.id)
    own: dict[str, Any] = {
        "key": key,
        "id": key.partition("/")[2],
        "name": (step.name or "").strip() or step.id,
        "description": step.description or "",
        "kind": _kind(step),
        "part": part,
        **_asked(step),
        **_said(step, names),
        **_branches(step, phase, handling, approvals),
        "max_retries": 0 if step.kind == HUMAN else _first_number(step.max_retries, phase.max_retries),
        "require_approval": bool(step.require_approval) or step.id in approvals or key in approvals,
        "result_handling": {
            word: _first(word, step.result_handling, phase.result_handling, handling) or default
            for word, default in HANDLING_DEFAULTS.items()
        },
        "engine": "prime-context" if part == "pre" and step.kind != HUMAN and _primes_only(step) else None,
    }
    return {**own, **{key: value for key, value in step.extra.items() if key not in own}}


def _first_number(*said: int | None) -> int:
    return next((number for number in said if number is not None), 0)


def _kind(step: Step) -> str:
    if step.parallel is not None:
        return PARALLEL
    return "command" if step.run is not None else step.kind or "agent"


def _branches(step: Step, phase: Phase, handling: ResultHandling | None, approvals: Sequence[str]) -> dict[str, Any]:
    """Freeze the branches of a parallel step; a step of one is known by the names before it, too (D7)."""
    if step.parallel is None:
        return {}
    found = []
    for branch in step.parallel.branches:
        names = Names(phase.id, inner_id(step.id, branch.id, ""))
        steps = [_step(inner, "main", phase, handling, approvals, names) for inner in branch.steps]
        found.append({**branch.extra, "id": branch.id, "steps": steps})
    return {PARALLEL: {**step.parallel.extra, "join": step.parallel.join or WAIT_ALL, "branches": found}}


def _said(step: Step, names: Names) -> dict[str, Any]:
    """Give what only some steps say; a plan holds it for those alone."""
    kept = (key for key in ADDED_FIELDS if key != PARALLEL)
    said = {key: value for key in kept if (value := getattr(step, key)) is not None}
    if "transitions" in said:
        said["transitions"] = [_transition(one, names) for one in step.transitions or ()]
    if "evidence" in said:
        said["evidence"] = [one.frozen() for one in step.evidence or ()]
    if "retry_target" in said:
        said["retry_target"] = names.key(said["retry_target"])
    return said


def _transition(transition: Transition, names: Names) -> dict[str, Any]:
    """Freeze a transition: the step that it leads to by its key, its condition compiled where it is a simple one."""
    said = {**transition.to_dict(), "to": names.key(transition.to)}
    if transition.condition is not None:
        said["condition_code"] = compile_condition(transition.condition)
    return said


def retry_target(workflow: Workflow) -> str:
    """Give the key of the step where failures lead; a bare id is that of the one phase that has it, else it stays."""
    name = workflow.retry_target or ""
    keys = [f"{phase.id}/{step.id}" for phase in workflow.phases or () for _, step in phase.each_step()]
    found = [key for key in keys if key.partition("/")[2] == name]
    return found[0] if len(found) == 1 else name


def _commands(workflow: Workflow, skipped: Sequence[str]) -> list[dict[str, str]]:
    """List what a machine would be asked to run, in the order of the steps: it is trusted by this list's hash (D23)."""
    return [
        {"step": f"{phase.id}/{name}", "run": run, **({"workdir": step.workdir} if step.workdir else {})}
        for phase in workflow.phases or ()
        if phase.enabled is not False
        for _, outer in phase.each_step()
        if outer.id not in skipped and f"{phase.id}/{outer.id}" not in skipped
        for name, step in _with_branches(outer)
        for run in (step.run, *(one.run for one in step.evidence or ()))
        if run is not None
    ]


def _with_branches(step: Step) -> Iterator[tuple[str, Step]]:
    """Give a step and those of its branches, each with its id in the phase."""
    yield step.id, step
    if step.parallel is not None:
        yield from ((name, inner) for _, name, inner in step.parallel.each_step(step.id))


def _asked(step: Step) -> dict[str, str | None]:
    """Give exactly one of prompt, command and skill (of a step with run none).

    A skill or command that is named beside a prompt goes in front of it.
    """
    prompt, command, skill = _left_open(step.prompt), _left_open(step.command), _left_open(step.skill)
    if command is not None and not command.lstrip().startswith("/"):
        command = "/" + command.lstrip()
    if prompt is not None and command is not None:
        prompt, command = f"Run `{command.strip()}` for this step.\n\n{prompt}", None
    elif prompt is not None and skill is not None:
        prompt, skill = f"Use the skill `{skill.strip()}` for this step.\n\n{prompt}", None
    elif prompt is None and command is None and skill is None and step.run is None:
        prompt = _left_open(step.description)
    return {"prompt": prompt, "command": command, "skill": skill}


def _left_open(text: str | None) -> str | None:
    """Write what the assistant fills in itself as literal braces, so that no run stops at it."""
    return None if text is None else _LEFT.sub(r"{{\1}}", text)


def _primes_only(step: Step) -> bool:
    """Tell whether a step asks for a priming and nothing else: then the engine does it (D7)."""
    asked = [text for text in (step.prompt, step.command) if text is not None]
    return step.skill is None and len(asked) == 1 and _PRIME_CONTEXT.fullmatch(asked[0]) is not None


def _first(word: str, *said: ResultHandling | None) -> str | None:
    values = (getattr(handling, word) for handling in said if handling is not None)
    return next((value for value in values if value is not None), None)


def _artifacts(workflow: Workflow) -> list[dict[str, Any]]:
    declared = workflow.critical_artifacts
    return [] if declared is None else [_artifact(placed) for placed in declared.each()]


def _artifact(placed: Placed) -> dict[str, Any]:
    artifact = placed.artifact
    condition = None if placed.when == ALWAYS else artifact.condition
    sources = {
        "path": artifact.path,
        "path_from_state": artifact.path_from_state,
        "command": _left_open(artifact.command),
    }
    own: dict[str, Any] = {
        "id": artifact.id,
        "type": artifact.type,
        **{key: value for key, value in sources.items() if value is not None},
        "description": artifact.description or "",
        "required": artifact.required,
        "load_strategy": _strategy(artifact),
        "when": placed.when,
        "phase": placed.phase,
        "triggers": [trigger.strip() for trigger in artifact.reload_triggers],
        "condition": condition,
        "condition_code": None if condition is None else compile_condition(condition),
        "path_steps": None if artifact.path_from_state is None else compile_path(artifact.path_from_state),
    }
    return {**own, **{key: value for key, value in artifact.extra.items() if key not in own}}


def _strategy(artifact: CriticalArtifact) -> str:
    """Give the strategy that fits the type: `all` and `latest_only` mean something for a directory alone (D16)."""
    said = artifact.load_strategy
    if artifact.type == "directory":
        return "all" if said in (None, "full") else str(said)
    return "summary" if said == "summary" else "full"
