"""What a workflow is, read from JSON with all of its problems at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.kit.json.fields import ID_RULE, Fields, is_id, only
from loomctl.kit.problems import Problem, error, refusal, shown
from loomctl.workflows.model import critical_artifacts, steps, survival_checks, transitions
from loomctl.workflows.model.fidelity import FIDELITIES
from loomctl.workflows.model.policies import read_autonomy, read_handling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.workflows.model.critical_artifacts import CriticalArtifacts
    from loomctl.workflows.model.policies import Autonomy, ResultHandling
    from loomctl.workflows.model.steps import Step

__all__ = ["PARTS", "Phase", "Problem", "Workflow", "parse"]

PARTS = ("pre_steps", "steps", "post_steps")
# FABER's fields that are kept and change nothing here.
INERT_FIELDS = ("hooks", "context", "executor", "phase_executors", "prompt", "defaults", "phase_defaults")
INERT_PHASE_FIELDS = ("validation",)
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,119}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A named group of steps; None for what the file does not say (which inheritance fills in)."""

    id: str
    description: str | None = None
    enabled: bool | None = None
    require_approval: bool | None = None
    max_retries: int | None = None
    result_handling: ResultHandling | None = None
    pre_steps: tuple[Step, ...] | None = None
    steps: tuple[Step, ...] | None = None
    post_steps: tuple[Step, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("description", "enabled", "require_approval", "max_retries", "result_handling", *PARTS)

    def to_dict(self) -> dict[str, Any]:
        """Give the phase as a workflow file writes it, under its id."""
        values = {key: getattr(self, key) for key in self.KEYS}
        for part in PARTS:
            listed: tuple[Step, ...] | None = values[part]
            values[part] = None if listed is None else [step.to_dict() for step in listed]
        handling = self.result_handling
        return only(self.KEYS, {**values, "result_handling": handling and handling.to_dict()}, self.extra)

    def each_step(self) -> Iterator[tuple[str, Step]]:
        """Go through the steps in their order, each with its part: `pre`, `main` or `post`."""
        for part, listed in (("pre", self.pre_steps), ("main", self.steps), ("post", self.post_steps)):
            for step in listed or ():
                yield part, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One workflow file, or several merged into one. phases is None only where `extends` brings them.

    retry_target: where a failure leads that nothing else catches, `phase/id`, or an id that one phase alone has (D45).
    max_visits: of each step that does not say. must_survive: as declared (`workflows.model.survival`).
    """

    id: str
    description: str | None = None
    extends: str | None = None
    autonomy: Autonomy | None = None
    result_handling: ResultHandling | None = None
    default_fidelity: str | None = None
    retry_target: str | None = None
    max_visits: int | None = None
    skip_steps: tuple[str, ...] | None = None
    critical_artifacts: CriticalArtifacts | None = None
    must_survive: tuple[str | dict[str, Any], ...] | None = None
    phases: tuple[Phase, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = (
        "id",
        "description",
        "extends",
        "autonomy",
        "result_handling",
        "default_fidelity",
        "retry_target",
        "max_visits",
        "skip_steps",
        "critical_artifacts",
        "must_survive",
        "phases",
    )

    @classmethod
    def from_dict(cls, raw: object, where: str = "workflow") -> Workflow:
        """Read a workflow. Raises LoomError with every error in it; where: the file's name for the message."""
        workflow, problems = parse(raw)
        refused = refusal(problems, what="this workflow cannot be used", where=where)
        if workflow is None:
            raise refused or AssertionError("a workflow without errors was not read")
        return workflow

    def to_dict(self) -> dict[str, Any]:
        """Give the workflow as a file writes it; unknown keys are kept at every level."""
        autonomy, handling, artifacts = self.autonomy, self.result_handling, self.critical_artifacts
        values = {
            "id": self.id,
            "description": self.description,
            "extends": self.extends,
            "autonomy": autonomy and autonomy.to_dict(),
            "result_handling": handling and handling.to_dict(),
            "default_fidelity": self.default_fidelity,
            "retry_target": self.retry_target,
            "max_visits": self.max_visits,
            "skip_steps": None if self.skip_steps is None else list(self.skip_steps),
            "critical_artifacts": artifacts and artifacts.to_dict(),
            "must_survive": None if self.must_survive is None else list(self.must_survive),
            "phases": None if self.phases is None else {phase.id: phase.to_dict() for phase in self.phases},
        }
        return only(self.KEYS, values, self.extra)


def parse(raw: object) -> tuple[Workflow | None, list[Problem]]:
    """Read a workflow and gather every problem; the workflow is None if one of them is an error."""
    problems: list[Problem] = []
    fields = Fields.opened(raw, "$", problems)
    if fields is None:
        return None, problems
    workflow = Workflow(
        id=_read_id(fields),
        description=fields.text("description", blank=True),
        extends=fields.text("extends"),
        autonomy=read_autonomy(fields, problems),
        result_handling=read_handling(fields, problems),
        default_fidelity=fields.choice("default_fidelity", FIDELITIES),
        retry_target=transitions.read_target(fields, "retry_target"),
        max_visits=steps.read_max_visits(fields),
        skip_steps=fields.texts("skip_steps"),
        critical_artifacts=(
            critical_artifacts.read(fields.raw("critical_artifacts"), fields.path("critical_artifacts"), problems)
            if fields.has("critical_artifacts")
            else None
        ),
        must_survive=survival_checks.read_declared(fields, problems),
        phases=_read_phases(fields, problems),
        extra=fields.rest(inert=INERT_FIELDS),
    )
    failed = any(problem.severity == "error" for problem in problems)
    return (None if failed else workflow), problems


def is_workflow_id(text: str) -> bool:
    """Tell whether text may name a workflow."""
    return _ID.fullmatch(text) is not None


def _read_id(fields: Fields) -> str:
    name = fields.text("id", required=True)
    if name is not None and not is_workflow_id(name):
        rule = "letters, digits, '_', '-', '.', ':' and '/', 120 characters at most"
        fields.fail("BAD_ID", "id", f"{shown(name)} is no workflow id", rule)
    return name or ""


def _read_phases(fields: Fields, problems: list[Problem]) -> tuple[Phase, ...] | None:
    if isinstance(fields.raw("phases"), list):
        hint = 'write {"build": {"steps": […]}}: the phases by their ids, in their order'
        fields.fail("WRONG_TYPE", "phases", "phases: expected an object, got a list", hint)
        return None
    entries = fields.entries("phases")
    if entries is None:
        if not fields.has("phases") and not fields.has("extends"):
            hint = "write phases, or extend a workflow that has them: core"
            problems.append(error("MISSING_FIELD", fields.where, "neither phases nor extends is there", hint))
        return None
    return tuple(
        phase for name, where, raw in entries if (phase := _read_phase(name, raw, where, problems)) is not None
    )


def _read_phase(name: str, raw: object, where: str, problems: list[Problem]) -> Phase | None:
    if not is_id(name):
        problems.append(error("BAD_ID", where, f"{shown(name)} is no phase id", ID_RULE))
    fields = Fields.opened(raw, where, problems)
    if fields is None:
        return None
    seen: dict[str, str] = {}
    return Phase(
        id=name,
        description=fields.text("description", blank=True),
        enabled=fields.flag("enabled"),
        require_approval=fields.flag("require_approval"),
        max_retries=fields.whole("max_retries"),
        result_handling=read_handling(fields, problems),
        pre_steps=_read_steps(fields, "pre_steps", seen, problems),
        steps=_read_steps(fields, "steps", seen, problems),
        post_steps=_read_steps(fields, "post_steps", seen, problems),
        extra=fields.rest(inert=INERT_PHASE_FIELDS),
    )


def _read_steps(fields: Fields, part: str, seen: dict[str, str], problems: list[Problem]) -> tuple[Step, ...] | None:
    entries = fields.items(part)
    if entries is None:
        return None
    found = (steps.read(raw, where, seen, problems) for where, raw in entries)
    return tuple(step for step in found if step is not None)
