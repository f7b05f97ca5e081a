"""A run of FABER's gets a plan that Loom can follow: its own plan, else its workflow, frozen for it (D5)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.kit import clock, files
from loomctl.kit.errors import LoomError
from loomctl.kit.json.fields import is_id
from loomctl.runs.faber import faber_runs
from loomctl.workflows import faber_plan, workflow_files
from loomctl.workflows.plan import build_plan
from loomctl.workflows.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.faber.faber_runs import PlanFile
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Project
    from loomctl.runs.store.layouts import Home
    from loomctl.workflows.resolve import Resolved

LOOMS = "loom:"


def plan_of(
    project: Project,
    home: Home,
    state: State,
    source: PlanFile | None,
    held: dict[str, Any] | None,
    *,
    to_show: bool = False,
) -> dict[str, Any]:
    """Freeze the plan of a FABER run, or give `held`, the frozen one, where it is of the same files.

    Its phases and steps are those of its plan file. What must be in context the plan seldom says: then the workflow
    that it names does; Loom's own stands in for that alone, and `faber.stands_in` says so. Without a plan file a
    workflow of the project's is all. What is gone since takes nothing away from `held`. to_show: a run whose steps
    nobody knows gets a plan without phases, whose `faber.unknown` says what is missing; it is never frozen. Raises
    BAD_PLAN, or what is wrong with the plan or the workflow.
    """
    raw = faber_runs.plan_in(source) if source is not None else None
    named = (faber_plan.workflow_id(raw) if raw else "") or state["workflow_id"]
    merged = faber_plan.workflow(raw) if raw is not None else None
    if merged is not None and source is not None and not merged["phases"]:
        raise LoomError(
            "BAD_PLAN", "this FABER plan names no phases", where=source.path, hint=f"loomctl state show {home.run_id}"
        )
    found = _resolved(project, named) if merged is None or "critical_artifacts" not in merged else None
    usable = found if found is not None and found.merged is not None else None
    stamp = _stamp(source, usable)
    was = held.get("faber") if held is not None else None
    if held is not None and isinstance(was, dict) and _still_holds(was, stamp, named):
        return held
    if merged is None and (found is None or _is_bundled(project, found, named)):
        if to_show:
            return _to_look_at(home, state, usable, stamp, named)
        raise _unknown_steps(home, state["plan_id"], named)
    if merged is None:
        assert found is not None  # decided above
        ignored = [one.where for one in found.problems if one.code == "IGNORED_FIELD"]
        return {**_built(found.checked(), state, [*found.sources]), "faber": {**stamp, "ignored": ignored}}
    if "critical_artifacts" not in merged and usable is not None and usable.merged is not None:
        merged["critical_artifacts"] = _for_phases(usable.merged.get("critical_artifacts"), merged["phases"])
    ignored = [f"{key} of {whose}" for _, whose, key in faber_plan.ignored(raw or {})]
    return {**_built(merged, state, []), "faber": {**stamp, "ignored": ignored}}


def _stamp(source: PlanFile | None, found: Resolved | None) -> dict[str, Any]:
    """Say what a plan is made of: FABER's plan file, the workflow's files, and what of Loom's own stands in for one.

    Of the bundle's files the name counts alone, for an update of Loom changes no run that is under way.
    """
    chain = found.sources if found is not None else []
    return {
        **(source.stamp if source is not None else faber_runs.NO_PLAN),
        "workflow": [
            {"path": one["path"], "sha256": "" if one["path"].startswith("{plugin_root}/") else one["sha256"]}
            for one in chain
        ],
        "stands_in": [one.message for one in (found.problems if found is not None else ()) if one.code == "STAND_IN"],
    }


def _still_holds(was: Mapping[str, Any], now: Mapping[str, Any], named: str) -> bool:
    """Tell whether a frozen plan is of the files that are here, or of such as are here no more.

    Loom's stand-in alone is nothing that a plan without a plan file may be of.
    """
    before = was.get("workflow")
    if not isinstance(before, list) or not (was.get("path") or _is_the_projects(before, named)):
        return False
    gone = not now["path"] and was.get("path")
    if not gone and any(was.get(key) != now[key] for key in ("path", "sha256")):
        return False
    if before == now["workflow"] and was.get("stands_in") == now["stands_in"]:
        return True
    return _is_the_projects(before, named) and not _is_the_projects(now["workflow"], named)


def _is_the_projects(chain: Sequence[Mapping[str, Any]], named: str) -> bool:
    """Tell whether a chain of workflow files ends with one of the project's, or with one that names Loom's own."""
    last = str(chain[-1].get("path")) if chain and isinstance(chain[-1], dict) else ""
    return bool(last) and (named.startswith(LOOMS) or not last.startswith("{plugin_root}/"))


def _is_bundled(project: Project, found: Resolved, named: str) -> bool:
    """Tell whether a workflow is Loom's own, although nobody asked for that one."""
    return not named.startswith(LOOMS) and files.is_inside(found.path, project.plugin_root)


def _to_look_at(
    home: Home, state: State, stand_in: Resolved | None, stamp: Mapping[str, Any], named: str
) -> dict[str, Any]:
    """Give a plan without steps, for a look at a run whose steps nobody knows: its state and what that names."""
    merged: dict[str, Any] = {"id": named, "description": "nothing here says its steps", "phases": {}}
    declared = _for_phases(stand_in.merged.get("critical_artifacts"), {}) if stand_in and stand_in.merged else {}
    for key in ("always_load", "conditional_load"):
        listed = [one for one in declared.get(key) or () if "{plan_path}" not in str(one.get("path"))]
        merged.setdefault("critical_artifacts", {})[key] = listed
    unknown = _unknown_steps(home, state["plan_id"], named)
    return {**_built(merged, state, []), "faber": {**stamp, "unknown": unknown.why}}


def _unknown_steps(home: Home, plan_id: str, named: str) -> LoomError:
    """Say what is missing, where it was looked for, and where it may be put."""
    plans = faber_runs.plan_places(home, plan_id)
    bare = workflow_files.faber_name(named) or named
    places = [f"{folder}/{bare}.json" for folder in workflow_files.FABER_FOLDERS] if is_id(bare) else []
    wanted = f"FABER's plan belongs at {plans[0]}" + (f", its workflow at {places[0]}" if places else "")
    looked = f"looked for {', '.join(plans + places)}"
    return LoomError(
        "BAD_PLAN",
        f"the steps of the FABER run {home.run_id} are not known here, so it is shown and not driven",
        where=home.state,
        why=f"neither its plan nor its workflow {named!r:.80} is here: {wanted}; {looked}",
        hint=f"loomctl show {home.run_id}",
    )


def _resolved(project: Project, named: str) -> Resolved | None:
    """Find the workflow that a run names; None where nothing goes by that name."""
    try:
        return resolve(
            named,
            project_dir=os.path.dirname(project.store),
            store=project.store,
            bundle=project.plugin_root,
            base=project.root,
        )
    except LoomError:
        return None


def _for_phases(declared: Any, phases: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a workflow wants for phases that the plan does not have."""
    if not isinstance(declared, dict):
        return {}
    own = declared.get("phase_specific")
    kept = {name: value for name, value in own.items() if name in phases} if isinstance(own, dict) else {}
    return {**{key: value for key, value in declared.items() if key != "phase_specific"}, "phase_specific": kept}


def _built(merged: dict[str, Any], state: State, sources: list[dict[str, str]]) -> dict[str, Any]:
    held = faber_plan.held_open(merged)
    return faber_plan.filled_in(build_plan(held, plan_id=state["plan_id"], created_at=clock.now(), sources=sources))
