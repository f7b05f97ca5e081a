"""Custom output schemas put into the steps that name them, file by file, before a workflow is merged (D35)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.expressions import engine, output_schemas, questions
from loomctl.kit.problems import at, error
from loomctl.workflows.model.workflow import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.kit.problems import Problem

FIELD = "schema"  # of a step in the plan


def frozen(raw: Mapping[str, Any], path: str, roots: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Give a workflow with each `"@file"` schema of its steps in the step's `schema`, and what is wrong with them.

    raw: as it was read from `path`, of whatever shape; it is not changed. roots: as workflow files may lie in.
    """
    problems: list[Problem] = []
    phases = raw.get("phases")
    if not isinstance(phases, dict):
        return dict(raw), problems
    done = {name: _phase(phase, at("$", "phases", name), path, roots, problems) for name, phase in phases.items()}
    return {**raw, "phases": done}, problems


def _phase(phase: Any, where: str, path: str, roots: Sequence[str], problems: list[Problem]) -> Any:
    if not isinstance(phase, dict):
        return phase
    changed = dict(phase)
    for part in PARTS:
        if isinstance(steps := phase.get(part), list):
            changed[part] = [
                _step(step, at(where, part, index), path, roots, problems) for index, step in enumerate(steps)
            ]
    return changed


def _branch(branch: Any, where: str, path: str, roots: Sequence[str], problems: list[Problem]) -> Any:
    if not isinstance(branch, dict) or not isinstance(steps := branch.get("steps"), list):
        return branch
    found = [_step(step, at(where, "steps", index), path, roots, problems) for index, step in enumerate(steps)]
    return {**branch, "steps": found}


def _step(step: Any, where: str, path: str, roots: Sequence[str], problems: list[Problem]) -> Any:
    parallel = step.get("parallel") if isinstance(step, dict) else None
    if isinstance(parallel, dict) and isinstance(parallel.get("branches"), list):
        inside = at(where, "parallel", "branches")
        held = [
            _branch(branch, at(inside, index), path, roots, problems)
            for index, branch in enumerate(parallel["branches"])
        ]
        return {**step, "parallel": {**parallel, "branches": held}}
    if not isinstance(step, dict) or not output_schemas.is_reference(step.get("output_schema")):
        return step
    where = at(where, "output_schema")
    loaded = output_schemas.load(step["output_schema"], path, roots, where)
    problems += loaded.problems
    if loaded.schema is None:
        return step
    tried = engine.held_against({}, loaded.schema, environment_python=None)
    if tried.status == "threw":
        message = f"the schema cannot be held against an object: {questions.one_line(tried.message)}"
        problems.append(error("BAD_SCHEMA", where, message, "a $ref that leads to itself goes in circles"))
    return {**step, FIELD: loaded.schema}
