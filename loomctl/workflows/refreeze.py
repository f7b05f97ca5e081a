"""Freeze a plan later than at a run's start: for a run of FABER's (D5), or anew where the plan was damaged (D53)."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions.placeholders import NAMES
from loomctl.kit import clock, files
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.problems import is_id
from loomctl.runs import faber_runs, faber_state
from loomctl.runs.model import frozen_plan
from loomctl.runs.store import event_log, recovery
from loomctl.runs.store.events import Event
from loomctl.workflows import workflow_files
from loomctl.workflows.resolve import resolve, resolve_file
from loomctl.workflows.steps import ADDED_FIELDS, INERT_FIELDS, LATER_FIELDS, PARTS
from loomctl.workflows.workflow import INERT_PHASE_FIELDS, TEST_COMMAND, build_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.faber_runs import PlanFile
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Project, Workspace
    from loomctl.runs.store.layouts import Home
    from loomctl.runs.store.store import Run
    from loomctl.workflows.resolve import Resolved

LOOMS = "loom:"
_POSITIONS = {"pre_step": "pre_steps", "post_step": "post_steps"}
_STEP_TEXTS = ("id", "name", "description", "prompt", "command", "skill")
_STEP_FIELDS: dict[str, type] = {"max_retries": int, "require_approval": bool, "result_handling": dict}
# What FABER's state fills in as a step begins stands in these instead of braces while the plan is built.
_OPENING, _CLOSING = "\ue000", "\ue001"
_NAMED = re.compile(r"(?<!\{)\{([a-z][a-z0-9_]*)\}(?!\})")


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
    named = (workflow_id(raw) if raw else "") or state["workflow_id"]
    merged = workflow_in(raw) if raw is not None else None
    if merged is not None and source is not None and not merged["phases"]:
        raise LoomError(
            "BAD_PLAN",
            "this FABER plan has no phases",
            where=source.path,
            hint=f"loomctl debug state show {recovery.handle(home)}",
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
    ignored = [f"{key} of {whose}" for _, whose, key in ignored_fields(raw or {})]
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
    last = str(chain[-1].get("path")) if chain and isinstance(chain[-1], dict) else ""
    return bool(last) and (named.startswith(LOOMS) or not last.startswith("{plugin_root}/"))


def _is_bundled(project: Project, found: Resolved, named: str) -> bool:
    return not named.startswith(LOOMS) and files.is_inside(found.path, project.plugin_root)


def _to_look_at(
    home: Home, state: State, stand_in: Resolved | None, stamp: Mapping[str, Any], named: str
) -> dict[str, Any]:
    merged: dict[str, Any] = {"id": named, "description": "its steps are unknown here", "phases": {}}
    declared = _for_phases(stand_in.merged.get("critical_artifacts"), {}) if stand_in and stand_in.merged else {}
    for key in ("always_load", "conditional_load"):
        listed = [one for one in declared.get(key) or () if "{plan_path}" not in str(one.get("path"))]
        merged.setdefault("critical_artifacts", {})[key] = listed
    unknown = _unknown_steps(home, state["plan_id"], named)
    return {**_built(merged, state, []), "faber": {**stamp, "unknown": unknown.why}}


def _unknown_steps(home: Home, plan_id: str, named: str) -> LoomError:
    plans = faber_runs.plan_places(home, plan_id)
    bare = workflow_files.faber_name(named) or named
    places = [f"{folder}/{bare}.json" for folder in workflow_files.FABER_FOLDERS] if is_id(bare) else []
    wanted = f"put FABER's plan at {plans[0]}" + (f", or its workflow at {places[0]}" if places else "")
    looked = f"Loom looked for {', '.join(plans + places)}"
    what = f"Loom does not know the steps of the FABER run {recovery.handle(home)}; it can only show the run"
    why = f"its plan and its workflow {named!r:.80} are missing here: {wanted}. {looked}"
    return LoomError("BAD_PLAN", what, where=home.state, why=why, hint=f"loomctl show {recovery.handle(home)}")


def _resolved(project: Project, named: str) -> Resolved | None:
    try:
        return resolve(named, workflow_files.places_of(project), base=project.root)
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
    """Freeze a workflow; `{pr_number}` in its steps is for the run's state to fill, as it begins them."""
    phases = _mapped(merged["phases"], _hold)
    plan = build_plan({**merged, "phases": phases}, plan_id=state["plan_id"], created_at=clock.now(), sources=sources)
    released = _mapped(plan["phases"], lambda text: text.replace(_OPENING, "{").replace(_CLOSING, "}"))
    return {**plan, "phases": released}


def _hold(text: str) -> str:
    return _NAMED.sub(lambda match: match[0] if match[1] in NAMES else f"{_OPENING}{match[1]}{_CLOSING}", text)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(entry, change) for key, entry in value.items()}
    return [_mapped(entry, change) for entry in value] if isinstance(value, list) else value


# ---- FABER's plan file. Real ones are of several years and break FABER's own schema: what does not fit is left out.


def workflow_id(raw: Mapping[str, Any]) -> str:
    """Name the workflow that a FABER plan was made from; empty if it does not say."""
    found = raw["workflow"].get("id")
    return found if isinstance(found, str) else ""


def workflow_in(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Give the workflow that stands in a FABER plan: its phases with the steps that ran there, and its autonomy.

    What is no phase or step, or has no name, is left out. `critical_artifacts` is there only if the plan has them.
    """
    inner = raw["workflow"]
    found: dict[str, Any] = {
        "id": workflow_id(raw) or "faber",
        "description": str(inner.get("description") or "the workflow of a FABER plan"),
        "phases": {name: _phase(phase) for name, phase in faber_state.phases_in(inner.get("phases"))},
    }
    autonomy = raw.get("autonomy") or inner.get("autonomy")
    if isinstance(autonomy, (str, dict)):
        found["autonomy"] = autonomy
    if isinstance(inner.get("critical_artifacts"), dict):
        found["critical_artifacts"] = inner["critical_artifacts"]
    return found


def _phase(phase: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {part: [] for part in PARTS}
    for part in PARTS:
        entries = phase.get(part)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and faber_state.name_of(entry, "id", "name"):
                where = _POSITIONS.get(str(entry.get("position")), part) if part == "steps" else part
                found[where].append(_step(entry))
    if isinstance(phase.get("description"), str):
        found["description"] = phase["description"]
    for key, kind in (("enabled", bool), ("require_approval", bool), ("max_retries", int)):
        if type(phase.get(key)) is kind:
            found[key] = phase[key]
    return found


def _step(entry: Mapping[str, Any]) -> dict[str, Any]:
    step = {key: entry[key] for key in _STEP_TEXTS if isinstance(entry.get(key), str) and entry[key].strip()}
    return step | {key: entry[key] for key, kind in _STEP_FIELDS.items() if type(entry.get(key)) is kind}


def ignored_fields(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Give what a FABER plan says and nothing here acts on: its JSON path, whose it is, the field."""
    listed = raw["workflow"].get("phases")
    places = {id(phase): f"[{index}]" for index, phase in enumerate(listed)} if isinstance(listed, list) else {}
    for name, phase in faber_state.phases_in(listed):
        at = "$.workflow.phases" + places.get(id(phase), f".{name}")
        for key in INERT_PHASE_FIELDS:
            if _says(phase.get(key)):
                yield f"{at}.{key}", name, key
        for part in PARTS:
            entries = phase.get(part)
            for index, entry in enumerate(entries if isinstance(entries, list) else ()):
                step_id = faber_state.name_of(entry, "id", "name")
                for key in (*INERT_FIELDS, *LATER_FIELDS, *ADDED_FIELDS) if step_id else ():
                    if _says(entry.get(key)):
                        yield f"{at}.{part}[{index}].{key}", f"{name}/{step_id}", key


def _says(value: object) -> bool:
    return bool(any(value.values()) if isinstance(value, dict) else value)


# A plan whose beginning is whole still says these, however it ends.
_SALVAGED = ("plan_id", "created_at", "sources", "autonomy", TEST_COMMAND)
_LARGEST = 64 << 20


class Refrozen(NamedTuple):
    """A plan that was made anew, or would be.

    kept: the name under which the damaged plan stays, None where there was none; same: whether the new one says exactly
    what the one did that the run began with; None where that is not recorded.
    """

    kept: str | None
    same: bool | None
    sources: list[str]


class Recipe(NamedTuple):
    """What a plan was made of.

    sha256: of what the plan said, empty where it is not recorded; test_command: the project's as the run began.
    """

    plan_id: str
    created_at: str
    sources: list[dict[str, str]]
    autonomy: str | None
    sha256: str
    test_command: str = ""


def recipe_for_the_log(plan: Mapping[str, Any], autonomy: str | None) -> dict[str, Any]:
    """Give what the event `run.created` records, so that a plan that is lost can be made anew.

    autonomy: what the user asked for instead of the workflow's.
    """
    return {
        "sha256": files.sha256_of_json(plan),
        "created_at": plan["created_at"],
        "sources": plan["sources"],
        "autonomy": autonomy,
        **({TEST_COMMAND: plan[TEST_COMMAND]} if TEST_COMMAND in plan else {}),
    }


def trouble(folder: str) -> LoomError | None:
    """Give what is wrong with a run's plan. Raises SCHEMA_TOO_NEW, for a newer one is whole."""
    path = os.path.join(folder, recovery.PLAN)
    try:
        frozen_plan.accepted(files.read_json(path), where=path)
    except OSError as error:
        hint = f"ls -l {quoted(path)}"
        return LoomError("BAD_PLAN", "Loom cannot read the run's plan", where=path, why=str(error), hint=hint)
    except LoomError as error:
        if error.code == "SCHEMA_TOO_NEW":
            raise
        return error
    return None


def outlook(space: Workspace, run_id: str, state: State) -> Refrozen | LoomError:
    """Tell what making the plan anew would give, or why it cannot be; writes nothing."""
    folder = space.store.run_dir(run_id)
    try:
        recipe = _recipe(folder, state)
        return _told(recipe, _made(space, folder, recipe), None)
    except LoomError as error:
        return error


def refreeze(space: Workspace, run_id: str) -> Refrozen:
    """Make the plan anew and put it in its place, under the run's lock; the damaged one is kept.

    Raises PLAN_LOST where nothing says what it was made of, or a workflow file is gone or is not what it was.
    """
    folder = space.store.run_dir(run_id)
    path = os.path.join(folder, recovery.PLAN)
    held: list[Refrozen] = []

    def change(state: State) -> tuple[State, list[Event]]:
        recipe = _recipe(folder, state)
        plan = _made(space, folder, recipe)
        kept = recovery.set_aside(path, path, recovery.BROKEN)
        files.write_atomically(path, files.to_json(plan), mode=0o644)
        held[:] = [_told(recipe, plan, kept)]
        told = {**held[0]._asdict(), "sha256": files.sha256_of_json(plan)}
        return state, [Event("plan.restored", told, space.caller.session_id)]

    space.store.update(run_id, change)
    return held[0]


def keep_migrated(run: Run) -> list[Event]:
    """Write a plan of an older schema as it was read; the original is kept (D56). The caller holds the run's lock."""
    if type(run.plan) is dict:  # of today's schema
        return []
    path = os.path.join(run.folder, recovery.PLAN)
    plan = frozen_plan.accepted(files.read_json(path), where=path)
    if type(plan) is dict:  # somebody else did it in the same moment
        return []
    happened = [recovery.keep_original(path, plan)]
    files.write_atomically(path, files.to_json(plan), mode=0o644)
    return happened


def _told(recipe: Recipe, plan: Mapping[str, Any], kept: str | None) -> Refrozen:
    same = files.sha256_of_json(plan) == recipe.sha256 if recipe.sha256 else None
    return Refrozen(kept, same, [one["path"] for one in recipe.sources])


def _recipe(folder: str, state: State) -> Recipe:
    for entry in event_log.entries(folder)[0]:
        made = (entry.get("properties") or {}).get("plan") if entry["event"] == "run.created" else None
        if isinstance(made, dict) and _are_sources(made.get("sources")):
            said = made.get("autonomy")
            return Recipe(
                state["plan_id"],
                str(made.get("created_at")),
                made["sources"],
                said if isinstance(said, str) else None,
                str(made.get("sha256") or ""),
                _text(made.get(TEST_COMMAND)),
            )
    left = _left_of(os.path.join(folder, recovery.PLAN))
    if not _are_sources(left.get("sources")):
        raise _lost(folder, "neither the log nor the rest of plan.json names its workflow")
    autonomy = left.get("autonomy")
    level = autonomy.get("level") if isinstance(autonomy, dict) else None
    return Recipe(
        state["plan_id"],
        str(left.get("created_at") or state.get("created_at") or ""),
        left["sources"],
        level if isinstance(level, str) else None,
        "",
        _text(left.get(TEST_COMMAND)),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _are_sources(value: object) -> bool:
    keys = ("id", "path", "sha256")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and all(isinstance(one.get(key), str) for key in keys) for one in value)
    )


def _left_of(path: str) -> dict[str, Any]:
    try:
        text = files.read_bytes(path, limit=_LARGEST).decode("utf-8", "replace")
    except (OSError, LoomError):
        return {}
    found: dict[str, Any] = {}
    for key in _SALVAGED:
        mark = f'\n "{key}": '  # how Loom writes a key at the top
        at = text.find(mark)
        if at >= 0:
            try:
                found[key] = json.JSONDecoder().raw_decode(text, at + len(mark))[0]
            except (ValueError, RecursionError):
                continue
    return found


def _made(space: Workspace, folder: str, recipe: Recipe) -> dict[str, Any]:
    places = workflow_files.places_of(space.project)
    named = recipe.sources[-1]["path"]
    for mark, root in (("{project_root}/", places.project_dir), ("{plugin_root}/", places.bundle)):
        if named.startswith(mark):
            path = os.path.normpath(os.path.join(root, named.removeprefix(mark)))
            break
    else:
        raise _lost(folder, f"its workflow {named} was outside of the project")
    if not files.is_inside(path, root):
        raise _lost(folder, f"its workflow {named} leads out of the project")
    if not os.path.isfile(path):
        raise _lost(folder, f"the workflow's file {named} is gone")
    resolved = resolve_file(path, places)
    if resolved.sources != recipe.sources:
        now = {source["path"]: source["sha256"] for source in resolved.sources}
        other = [one["path"] for one in recipe.sources if now.get(one["path"]) != one["sha256"]]
        changed = f"these files of its workflow have changed: {', '.join(other)}"
        raise _lost(folder, changed if other else "its workflow extends other files now")
    merged = resolved.checked()
    if recipe.autonomy is not None:
        said = merged.get("autonomy")
        merged = {**merged, "autonomy": {**(said if isinstance(said, dict) else {}), "level": recipe.autonomy}}
    return build_plan(
        merged,
        plan_id=recipe.plan_id,
        created_at=recipe.created_at,
        sources=recipe.sources,
        test_command=recipe.test_command,
    )


def _lost(folder: str, why: str) -> LoomError:
    return LoomError(
        "PLAN_LOST",
        "Loom cannot rebuild the run's plan",
        where=os.path.join(folder, recovery.PLAN),
        why=f"{why}; restore the workflow's file as it was, and Loom can",
        hint="git log --oneline -- .loom/workflows",
    )
