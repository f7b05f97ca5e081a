"""Whether the names that a workflow uses exist once its ancestors are merged in: phases, steps, approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.kit.problems import at, choices, error, shown, warning
from loomctl.workflows.model import triggers
from loomctl.workflows.model.survival import KEY
from loomctl.workflows.model.survival_checks import everything_said, unknown_artifact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.workflows.model.critical_artifacts import CriticalArtifact
    from loomctl.workflows.model.workflow import Workflow


def dangling(own: Workflow, merged: Workflow) -> list[Problem]:
    """Name what `own` (one file) refers to and `merged` (the file with its ancestors) does not have; all warnings."""
    phases = [phase.id for phase in merged.phases or ()]
    keys = [f"{phase.id}/{step.id}" for phase in merged.phases or () for _, step in phase.each_step()]
    step_ids = list(dict.fromkeys(key.partition("/")[2] for key in keys))
    found: list[Problem] = []
    steps = [*step_ids, *keys]
    for index, name in enumerate(own.skip_steps or ()):
        if name not in steps:
            message = f"skip_steps names {shown(name)}, and there is no such step"
            found.append(warning("UNKNOWN_STEP", at("$", "skip_steps", index), message, choices(name, steps)))
    approvals = own.autonomy.require_approval_for if own.autonomy else None
    for index, name in enumerate(approvals or ()):
        if name not in phases and name not in steps:
            where = at("$", "autonomy", "require_approval_for", index)
            message = f"approval is asked for {shown(name)}, and there is no such phase or step"
            found.append(warning("UNKNOWN_STEP", where, message, choices(name, [*phases, *step_ids])))
    for placed in own.critical_artifacts.each() if own.critical_artifacts else ():
        found += _unknown_phases(placed.where, placed.artifact, phases)
    groups = own.critical_artifacts.phase_specific if own.critical_artifacts else None
    for name in groups or {}:
        if name not in phases:
            where = at("$", "critical_artifacts", "phase_specific", name)
            message = f"there is no phase {shown(name)}: these are never loaded"
            found.append(warning("UNKNOWN_PHASE", where, message, choices(name, phases)))
    return found


def stepless(merged: Workflow) -> list[Problem]:
    """Refuse a workflow whose run would be completed at once, with nothing done."""
    skipped = merged.skip_steps or ()
    for phase in merged.phases or ():
        for _, step in phase.each_step():
            if phase.enabled is not False and step.id not in skipped and f"{phase.id}/{step.id}" not in skipped:
                return []
    hint = "add a step to a phase, enable a phase, or extend a workflow that has some"
    return [error("NO_STEPS", "$.phases", "no step is left to do in any phase", hint)]


def _unknown_phases(where: str, artifact: CriticalArtifact, phases: Sequence[str]) -> Iterator[Problem]:
    for index, trigger in enumerate(artifact.reload_triggers):
        for name in triggers.split(trigger)[1:]:
            if name and name != "*" and name not in phases:
                message = f"{shown(trigger)} never fires: there is no phase {shown(name)}"
                place = at(where, "reload_triggers", index)
                yield warning("UNKNOWN_PHASE", place, message, choices(name, phases))


def unknown_artifacts(own: Workflow, merged: Workflow, raw: Mapping[str, Any]) -> list[Problem]:
    """Find items of `own` (one file) that name an artifact which `merged` (the file with its ancestors) has not.

    raw: what was merged, as it was written.
    """
    declared = merged.critical_artifacts
    ids = [placed.artifact.id for placed in declared.each()] if declared else []
    said = everything_said(raw)
    return [
        problem
        for index, entry in enumerate(own.must_survive or ())
        for problem in unknown_artifact(entry, at("$", KEY, index), ids, said)
    ]
