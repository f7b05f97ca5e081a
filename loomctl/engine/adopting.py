"""A run of FABER's gets a plan that Loom can follow: its own plan, else its workflow, frozen for it (D5)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.disk import clock, files
from loomctl.engine.resolve import resolve
from loomctl.model import faber_plan
from loomctl.model.errors import LoomError
from loomctl.model.plan import build_plan

if TYPE_CHECKING:
    from typing import Any

    from loomctl.disk.faber_files import PlanFile
    from loomctl.disk.layouts import Home
    from loomctl.disk.project import Project
    from loomctl.engine.resolve import Resolved
    from loomctl.model.state import State


def plan_of(project: Project, home: Home, state: State, source: PlanFile | None) -> dict[str, Any]:
    """Freeze the plan of a FABER run.

    Its phases and steps are those of its plan file. What must be in context the plan seldom says: then the workflow
    that it names does, if there is such a workflow here or in the bundle. Without a plan file the workflow is all.
    Raises BAD_PLAN, or what is wrong with the workflow.
    """
    raw = _read(source) if source is not None else None
    named = (faber_plan.workflow_id(raw) if raw else "") or state["workflow_id"]
    resolved = _resolved(project, named)
    if raw is None:
        if resolved is None:
            raise LoomError(
                "BAD_PLAN",
                f"the FABER run {home.run_id} has no plan here, and its workflow {named!r:.80} is not here either",
                where=home.state,
                why="without one of them nobody knows its steps",
                hint=f"loomctl state show {home.run_id}",
            )
        return _built(resolved.checked(), state, [*resolved.sources])
    merged = faber_plan.workflow(raw)
    if not merged["phases"]:
        raise LoomError(
            "BAD_PLAN",
            "this FABER plan names no phases",
            where=source.path if source else home.top,
            hint=f"loomctl state show {home.run_id}",
        )
    if "critical_artifacts" not in merged and resolved is not None and resolved.merged is not None:
        merged["critical_artifacts"] = _for_phases(resolved.merged.get("critical_artifacts"), merged["phases"])
    return _built(merged, state, [])


def _read(source: PlanFile) -> dict[str, Any]:
    raw = files.parse_json(source.data, where=source.path)
    if not faber_plan.is_plan(raw):
        raise LoomError(
            "BAD_PLAN", "this is no plan of FABER's", where=source.path, why="it holds no workflow", hint="loomctl runs"
        )
    found: dict[str, Any] = raw
    return found


def _resolved(project: Project, named: str) -> Resolved | None:
    """Find the workflow that a run names; None where there is none that can be used."""
    try:
        found = resolve(
            named,
            project_dir=os.path.dirname(project.store),
            store=project.store,
            bundle=project.plugin_root,
            base=project.root,
        )
    except LoomError:
        return None
    return found if found.merged is not None else None


def _for_phases(declared: Any, phases: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a workflow wants for phases that the plan does not have."""
    if not isinstance(declared, dict):
        return {}
    own = declared.get("phase_specific")
    kept = {name: value for name, value in own.items() if name in phases} if isinstance(own, dict) else {}
    return {**{key: value for key, value in declared.items() if key != "phase_specific"}, "phase_specific": kept}


def _built(merged: dict[str, Any], state: State, sources: list[dict[str, str]]) -> dict[str, Any]:
    return build_plan(merged, plan_id=state["plan_id"], created_at=clock.now(), sources=sources)
