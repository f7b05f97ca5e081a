"""What a workflow is, read from JSON with all of its problems at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.kit.problems import choices, error, errors, shown
from loomctl.kit.strict_json import ID_RULE, Fields, is_id
from loomctl.workflows import artifacts, steps
from loomctl.workflows.routing import FIDELITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.kit.problems import Problem
    from loomctl.workflows.artifacts import CriticalArtifact
    from loomctl.workflows.steps import Step

LEVELS = ("dry-run", "assist", "guarded", "autonomous")
# FABER's fields that are kept and change nothing here.
INERT_FIELDS = ("hooks", "context", "executor", "phase_executors", "prompt", "defaults", "phase_defaults")
INERT_PHASE_FIELDS = ("validation",)
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
    must_survive: as declared (`workflows.survival`).
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
        rule = "letters, digits, '_', '-', '.', ':' and '/', 120 characters at most"
        fields.fail("BAD_ID", "id", f"{shown(name)} is no workflow id", rule)
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
        inner.fail("UNKNOWN_VALUE", where, f"{shown(level)} is no autonomy", choices(level, LEVELS))
        level = None
    names = inner.texts("require_approval_for")
    before_release = inner.flag("pause_before_release")
    if before_release and "release" not in (names or ()):
        names = (*(names or ()), "release")
    if inner.raw("overrides"):
        inner.warn("IGNORED_FIELD", "overrides", "kept, but Loom does not act on overrides")
    extra = inner.rest()
    for key in ("pause_before_release", "overrides"):
        if inner.has(key):
            extra[key] = inner.raw(key)
    said = {"level": level, "require_approval_for": None if names is None else list(names)}
    return {**{key: value for key, value in said.items() if value is not None}, **extra}


def _read_phases(fields: Fields) -> tuple[Phase, ...]:
    if isinstance(fields.raw("phases"), list):
        hint = 'write {"build": {"steps": […]}}: the phases by their ids, in their order'
        fields.fail("WRONG_TYPE", "phases", "phases: expected an object, got a list", hint)
        return ()
    entries = fields.entries("phases")
    if entries is None:
        if not fields.has("phases") and not fields.has("extends"):
            hint = "write phases, or extend a workflow that has them: core"
            fields.fail("MISSING_FIELD", "", "neither phases nor extends is there", hint)
        return ()
    found = []
    for name, where, raw in entries:
        if not is_id(name):
            fields.problems.append(error("BAD_ID", where, f"{shown(name)} is no phase id", ID_RULE))
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
