"""Workflows as data, and the plan that a run freezes of one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.expressions.conditions import compile_condition
from loomctl.expressions.placeholders import LEFT_TO_ASSISTANT
from loomctl.expressions.state_paths import compile_path
from loomctl.kit.problems import ID_RULE, Fields, choices, error, errors, is_id, refusal, shown
from loomctl.runs.model.frozen_plan import SCHEMA_VERSION
from loomctl.runs.model.visits import END, WAIT_ALL
from loomctl.workflows import artifacts, steps
from loomctl.workflows.artifacts import ALLOW, ALWAYS, EVIDENCE, PRODUCES, TESTS
from loomctl.workflows.routing import FIDELITIES
from loomctl.workflows.steps import ADDED_FIELDS, HUMAN, PARALLEL, inner_id, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.workflows.artifacts import CriticalArtifact
    from loomctl.workflows.steps import Step


LEVELS = ("dry-run", "assist", "guarded", "autonomous")
# FABER's fields that are kept and change nothing here.
INERT_FIELDS = ("hooks", "context", "executor", "phase_executors", "prompt", "defaults", "phase_defaults")
INERT_PHASE_FIELDS = ("validation",)
TEST_COMMAND = "test_command"  # in a plan, where a step wants the tests to be run; empty where none is known
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,119}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A named group of steps; None for what the file does not say. extra: unknown keys."""

    id: str
    description: str | None = None
    enabled: bool | None = None
    require_approval: bool | None = None
    max_retries: int | None = None
    result_handling: dict[str, str] | None = None
    pre_steps: tuple[Step, ...] = ()
    steps: tuple[Step, ...] = ()
    post_steps: tuple[Step, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def each_step(self) -> Iterator[tuple[str, Step]]:
        """Go through the steps in their order, each with its part: `pre`, `main` or `post`."""
        for part, listed in (("pre", self.pre_steps), ("main", self.steps), ("post", self.post_steps)):
            for step in listed:
                yield part, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One workflow file, or several merged into one. phases is empty only where `extends` brings them.

    autonomy: `{level?, require_approval_for?}` with what else it says. retry_target: where a failure leads that nothing
    else catches, `phase/id`, or an id that one phase alone has (D45). artifact_phases: those of phase_specific.
    must_survive: as declared (`workflows.survival`). allow: what an assistant may use at every step, as at a step.
    """

    id: str
    description: str | None
    autonomy: dict[str, Any] | None
    result_handling: dict[str, str] | None
    retry_target: str | None
    skip_steps: tuple[str, ...]
    artifacts: tuple[CriticalArtifact, ...]
    artifact_phases: tuple[str, ...]
    must_survive: tuple[str | dict[str, Any], ...]
    allow: tuple[str, ...]
    phases: tuple[Phase, ...]

    def each_step(self) -> Iterator[tuple[Phase, str, Step]]:
        """Go through the steps of all phases, each with its phase and key."""
        for phase in self.phases:
            for _, step in phase.each_step():
                yield phase, f"{phase.id}/{step.id}", step

    def skips(self, phase: str, step: str) -> bool:
        """Tell whether skip_steps leaves a step out."""
        return step in self.skip_steps or f"{phase}/{step}" in self.skip_steps


def parse(raw: object) -> tuple[Workflow | None, list[Problem]]:
    """Read a workflow and gather every problem; the workflow is None if one of them is an error."""
    problems: list[Problem] = []
    fields = Fields.opened(raw, "$", problems)
    if fields is None:
        return None, problems
    fields.text("extends")
    fields.choice("default_fidelity", FIDELITIES)
    steps.read_max_visits(fields)
    declared, artifact_phases = artifacts.read(fields)
    workflow = Workflow(
        id=_read_id(fields),
        description=fields.text("description", blank=True),
        autonomy=_read_autonomy(fields),
        result_handling=steps.read_handling(fields),
        retry_target=steps.read_target(fields, "retry_target"),
        skip_steps=fields.texts("skip_steps") or (),
        artifacts=declared,
        artifact_phases=artifact_phases,
        must_survive=artifacts.read_must_survive(fields),
        allow=artifacts.read_allow(fields) or (),
        phases=_read_phases(fields),
    )
    fields.rest(inert=INERT_FIELDS)
    return (None if errors(problems) else workflow), problems


def is_workflow_id(text: str) -> bool:
    """Tell whether text may name a workflow."""
    return _ID.fullmatch(text) is not None


def _read_id(fields: Fields) -> str:
    name = fields.text("id", required=True)
    if name is not None and not is_workflow_id(name):
        rule = "use letters, digits, '_', '-', '.', ':' and '/', at most 120 characters"
        fields.fail("BAD_ID", "id", f"{shown(name)} is not a valid workflow id", rule)
    return name or ""


def _read_autonomy(fields: Fields) -> dict[str, Any] | None:
    """Read a workflow's `autonomy`, a word or an object; FABER's pause_before_release is an approval of release."""
    if not fields.has("autonomy"):
        return None
    raw = fields.raw("autonomy")
    if isinstance(raw, str):
        raw = {"level": raw}
    inner = Fields.opened(raw, fields.path("autonomy"), fields.problems)
    if inner is None:
        return None
    where = "level" if isinstance(fields.raw("autonomy"), dict) else ""
    level = inner.text("level")
    if level is not None and level not in LEVELS:
        inner.fail("UNKNOWN_VALUE", where, f"unknown autonomy {shown(level)}", choices(level, LEVELS))
        level = None
    names = inner.texts("require_approval_for")
    before_release = inner.flag("pause_before_release")
    if before_release and "release" not in (names or ()):
        names = (*(names or ()), "release")
    if inner.raw("overrides"):
        inner.warn("IGNORED_FIELD", "overrides", "Loom ignores overrides")
    extra = inner.rest()
    for key in ("pause_before_release", "overrides"):
        if inner.has(key):
            extra[key] = inner.raw(key)
    said = {"level": level, "require_approval_for": None if names is None else list(names)}
    return {**{key: value for key, value in said.items() if value is not None}, **extra}


def _read_phases(fields: Fields) -> tuple[Phase, ...]:
    if isinstance(fields.raw("phases"), list):
        hint = 'name the phases in order: {"build": {"steps": […]}}'
        fields.fail("WRONG_TYPE", "phases", "phases: expected an object, got a list", hint)
        return ()
    entries = fields.entries("phases")
    if entries is None:
        if not fields.has("phases") and not fields.has("extends"):
            hint = "write phases, or extend a workflow that has them: core"
            fields.fail("MISSING_FIELD", "", "phases and extends are both missing", hint)
        return ()
    found = []
    for name, where, raw in entries:
        if not is_id(name):
            fields.problems.append(error("BAD_ID", where, f"{shown(name)} is not a valid phase id", ID_RULE))
        opened = Fields.opened(raw, where, fields.problems)
        if opened is not None:
            found.append(_read_phase(name, opened))
    return tuple(found)


def _read_phase(name: str, fields: Fields) -> Phase:
    seen: dict[str, str] = {}
    return Phase(
        id=name,
        description=fields.text("description", blank=True),
        enabled=fields.flag("enabled"),
        require_approval=fields.flag("require_approval"),
        max_retries=fields.whole("max_retries"),
        result_handling=steps.read_handling(fields),
        pre_steps=_read_steps(fields, "pre_steps", seen),
        steps=_read_steps(fields, "steps", seen),
        post_steps=_read_steps(fields, "post_steps", seen),
        extra=fields.rest(inert=INERT_PHASE_FIELDS),
    )


def _read_steps(fields: Fields, part: str, seen: dict[str, str]) -> tuple[Step, ...]:
    return tuple(steps.read(one, seen) for one in fields.each(part) or ())


HANDLING_DEFAULTS = {"on_success": "continue", "on_warning": "continue", "on_failure": "stop"}
DEFAULT_LEVEL = "guarded"
# What a workflow says and a plan says otherwise; every other top-level key is kept under its own name.
_CONSUMED = ("id", "extends", "$schema", "phases", "critical_artifacts", "skip_steps", "result_handling")
_PRIME_CONTEXT = re.compile(r"\s*/[A-Za-z0-9_-]+:prime-context(\s+--trigger[ =]\S+)?\s*")
_LEFT = re.compile(r"(?<!\{)\{(" + "|".join(LEFT_TO_ASSISTANT) + r")\}(?!\})")


def build_plan(
    merged: Mapping[str, Any],
    *,
    plan_id: str,
    created_at: str,
    sources: Sequence[Mapping[str, str]],
    test_command: str = "",
) -> dict[str, Any]:
    """Freeze a merged workflow into a plan.

    created_at: UTC, `YYYY-MM-DDTHH:MM:SSZ`; sources: `{id, path, sha256}` of each file, the root ancestor first.
    test_command: the project's, which evidence `tests` becomes; without one that evidence is left out.
    Disabled phases and skipped steps are left out. A step's result_handling is resolved (step, phase, workflow,
    default) and so is max_retries (step, phase, 0); approvals asked for by step stand at the step. Raises LoomError if
    the workflow has errors.
    """
    workflow, problems = parse(merged)
    refused = refusal(problems, what="this workflow is invalid", where=str(merged.get("id", "workflow")))
    if workflow is None:
        raise refused or AssertionError("a workflow without errors was not read")
    freezer = _Freezer(workflow, test_command)
    own: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "plan_id": plan_id,
        "workflow_id": workflow.id,
        "created_at": created_at,
        "description": workflow.description or "",
        "sources": [dict(source) for source in sources],
        "autonomy": freezer.autonomy(),
        "phases": [freezer.phase(phase) for phase in workflow.phases if phase.enabled is not False],
        "artifacts": [_artifact(artifact) for artifact in workflow.artifacts],
        "commands": _commands(workflow, test_command),
    }
    if asks_for_tests(workflow):
        own[TEST_COMMAND] = test_command
    if workflow.retry_target is not None:
        own["retry_target"] = _retry_target(workflow, workflow.retry_target)
    return {**own, **{key: value for key, value in merged.items() if key not in own and key not in _CONSUMED}}


class _Freezer:
    def __init__(self, workflow: Workflow, test_command: str) -> None:
        self._workflow = workflow
        self._test_command = test_command
        said = workflow.autonomy or {}
        # Guarded without a word of it means the release.
        guarded = said.get("level") in (None, "guarded") and any(phase.id == "release" for phase in workflow.phases)
        self._approvals: Sequence[str] = said.get("require_approval_for", ["release"] if guarded else [])

    def autonomy(self) -> dict[str, Any]:
        said = self._workflow.autonomy or {}
        return {**said, "level": said.get("level") or DEFAULT_LEVEL, "require_approval_for": list(self._approvals)}

    def phase(self, phase: Phase) -> dict[str, Any]:
        own: dict[str, Any] = {
            "id": phase.id,
            "description": phase.description or "",
            "require_approval": bool(phase.require_approval) or phase.id in self._approvals,
            "max_retries": phase.max_retries or 0,
            "steps": [
                self._step(step, part, phase)
                for part, step in phase.each_step()
                if not self._workflow.skips(phase.id, step.id)
            ],
        }
        return {**own, **{key: value for key, value in phase.extra.items() if key not in own}}

    def _step(self, step: Step, part: str, phase: Phase, before: str = "") -> dict[str, Any]:
        """Freeze a step. before: what stands before its own id in its id in the phase; empty but for a branch (D7)."""
        name = before + step.id
        key = f"{phase.id}/{name}"
        retries = step.max_retries if step.max_retries is not None else phase.max_retries or 0
        said = (step.result_handling, phase.result_handling, self._workflow.result_handling)
        own: dict[str, Any] = {
            "key": key,
            "id": name,
            "name": (step.name or "").strip() or step.id,
            "description": step.description or "",
            "kind": PARALLEL if step.parallel else "command" if step.run is not None else step.kind or "agent",
            "part": part,
            **_asked(step),
            **self._added(step, phase, before),
            "max_retries": 0 if step.kind == HUMAN else retries,
            "require_approval": bool(step.require_approval) or step.id in self._approvals or key in self._approvals,
            "result_handling": {
                word: next((one[word] for one in said if one and word in one), default)
                for word, default in HANDLING_DEFAULTS.items()
            },
            "engine": "prime-context" if part == "pre" and _primes_only(step) else None,
        }
        return {**own, **{key: value for key, value in step.extra.items() if key not in own}}

    def _added(self, step: Step, phase: Phase, before: str) -> dict[str, Any]:
        def key(name: str) -> str:
            return key_of(name if name == END or "/" in name else before + name, phase.id)

        said = {field: value for field in ADDED_FIELDS if (value := getattr(step, field)) is not None}
        if step.transitions is not None:
            said["transitions"] = [
                {**one, "to": key(one["to"]), **_compiled(one.get("condition"))} for one in step.transitions
            ]
        if step.evidence is not None:
            said[EVIDENCE] = [_evidence(one, self._test_command) for one in _checkable(step, self._test_command)]
        for name in (PRODUCES, ALLOW):
            if (listed := getattr(step, name)) is not None:
                said[name] = list(listed)
        if step.for_each is not None:
            said["for_each"] = {**step.for_each, "path_steps": compile_path(step.for_each["list"])}
        if step.retry_target is not None:
            said["retry_target"] = key(step.retry_target)
        if step.parallel is not None:
            branches = []
            for branch in step.parallel.branches:
                inside = inner_id(step.id, branch.id, "")
                steps = [self._step(inner, "main", phase, inside) for inner in branch.steps]
                branches.append({**branch.extra, "id": branch.id, "steps": steps})
            join = step.parallel.join or WAIT_ALL
            said[PARALLEL] = {**step.parallel.extra, "join": join, "branches": branches}
        return said


def _compiled(condition: str | None) -> dict[str, Any]:
    return {} if condition is None else {"condition_code": compile_condition(condition)}


def asks_for_tests(workflow: Workflow) -> bool:
    """Tell whether a step wants the project's tests to be run as evidence."""
    steps = (one for _, _, outer in workflow.each_step() for one in (outer, *(inner for _, _, inner in outer.inner())))
    return any(TESTS in piece for step in steps for piece in step.evidence or ())


def _checkable(step: Step, test_command: str) -> list[dict[str, Any]]:
    return [piece for piece in step.evidence or () if test_command or TESTS not in piece]


def _evidence(said: Mapping[str, Any], test_command: str) -> dict[str, Any]:
    if "file" in said:
        return {"kind": "file", "file": said["file"], "changed": said.get("changed") is not False}
    if TESTS in said:
        timeout = {"timeout": said["timeout"]} if "timeout" in said else {}
        return {"kind": "command", "run": test_command, TESTS: said[TESTS], **timeout}
    if "run" in said:
        return {"kind": "command", **{key: said[key] for key in ("run", "timeout") if key in said}}
    if "state" in said:
        return {"kind": "state", "state": said["state"], "path_steps": compile_path(said["state"])}
    return {"kind": "state", "condition": said["condition"], **_compiled(said["condition"])}


def _retry_target(workflow: Workflow, name: str) -> str:
    """Give the key of the step where failures lead; a bare id is that of the one phase that has it, else it stays."""
    found = [key for _, key, _ in workflow.each_step() if key.partition("/")[2] == name]
    return found[0] if len(found) == 1 else name


def _commands(workflow: Workflow, test_command: str) -> list[dict[str, str]]:
    """List what a machine would be asked to run, in the order of the steps: it is trusted by this list's hash (D23)."""
    return [
        command
        for phase, _, outer in workflow.each_step()
        if phase.enabled is not False and not workflow.skips(phase.id, outer.id)
        for name, step in ((outer.id, outer), *((name, inner) for _, name, inner in outer.inner()))
        for command in _commands_of(f"{phase.id}/{name}", step, test_command)
    ]


def _commands_of(key: str, step: Step, test_command: str) -> Iterator[dict[str, str]]:
    """Give a step's commands; the project's tests run at its root, wherever the step works."""
    place = {"workdir": step.workdir} if step.workdir else {}
    if step.run is not None:
        yield {"step": key, "run": step.run, **place}
    for piece in _checkable(step, test_command):
        if TESTS in piece:
            yield {"step": key, "run": test_command}
        elif "run" in piece:
            yield {"step": key, "run": piece["run"], **place}


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
    if step.kind == HUMAN or step.for_each is not None:
        return False
    return step.skill is None and len(asked) == 1 and _PRIME_CONTEXT.fullmatch(asked[0]) is not None


def _artifact(artifact: CriticalArtifact) -> dict[str, Any]:
    condition = None if artifact.when == ALWAYS else artifact.condition
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
        "when": artifact.when,
        "phase": artifact.phase,
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
