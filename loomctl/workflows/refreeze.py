"""Making a run's damaged plan anew from the workflow files that it was made of, as long as they are the same (D53)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError, quoted
from loomctl.runs.model import frozen_plan
from loomctl.runs.store import event_log, recovery
from loomctl.runs.store.events import Event
from loomctl.workflows.plan import build_plan
from loomctl.workflows.resolve import resolve_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

# A plan whose beginning is whole still says these, however it ends.
_SALVAGED = ("plan_id", "created_at", "sources", "autonomy")
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
    """What a plan was made of. sha256: of what the plan said, empty where it is not recorded."""

    plan_id: str
    created_at: str
    sources: list[dict[str, str]]
    autonomy: str | None
    sha256: str


def recipe_for_the_log(plan: Mapping[str, Any], autonomy: str | None) -> dict[str, Any]:
    """Give what the event `run.created` records, so that a plan that is lost can be made anew.

    autonomy: what the user asked for instead of the workflow's.
    """
    return {
        "sha256": digests.of_json(plan),
        "created_at": plan["created_at"],
        "sources": plan["sources"],
        "autonomy": autonomy,
    }


def trouble(folder: str) -> LoomError | None:
    """Give what is wrong with a run's plan. Raises SCHEMA_TOO_NEW, for a newer one is whole."""
    path = os.path.join(folder, recovery.PLAN)
    try:
        frozen_plan.accepted(files.read_json(path), where=path)
    except OSError as error:
        hint = f"ls -l {quoted(path)}"
        return LoomError("BAD_PLAN", "the run's plan cannot be read", where=path, why=str(error), hint=hint)
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
        told = {**held[0]._asdict(), "sha256": digests.of_json(plan)}
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
    same = digests.of_json(plan) == recipe.sha256 if recipe.sha256 else None
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
            )
    left = _left_of(os.path.join(folder, recovery.PLAN))
    if not _are_sources(left.get("sources")):
        raise _lost(folder, "neither the log nor what is left of plan.json says which workflow it was made of")
    autonomy = left.get("autonomy")
    level = autonomy.get("level") if isinstance(autonomy, dict) else None
    return Recipe(
        state["plan_id"],
        str(left.get("created_at") or state.get("created_at") or ""),
        left["sources"],
        level if isinstance(level, str) else None,
        "",
    )


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
    project = space.project
    project_dir = os.path.dirname(project.store)
    named = recipe.sources[-1]["path"]
    for mark, root in (("{project_root}/", project_dir), ("{plugin_root}/", project.plugin_root)):
        if named.startswith(mark):
            path = os.path.normpath(os.path.join(root, named.removeprefix(mark)))
            break
    else:
        raise _lost(folder, f"its workflow {named} lay outside of the project")
    if not files.is_inside(path, root):
        raise _lost(folder, f"its workflow {named} leads out of the project")
    if not os.path.isfile(path):
        raise _lost(folder, f"the workflow's file {named} is gone")
    resolved = resolve_file(path, project_dir=project_dir, store=project.store, bundle=project.plugin_root)
    if resolved.sources != recipe.sources:
        now = {source["path"]: source["sha256"] for source in resolved.sources}
        other = [one["path"] for one in recipe.sources if now.get(one["path"]) != one["sha256"]]
        raise _lost(
            folder, f"of what it was made of, this is not as it was: {', '.join(other) or 'the chain of files'}"
        )
    merged = resolved.checked()
    if recipe.autonomy is not None:
        said = merged.get("autonomy")
        merged = {**merged, "autonomy": {**(said if isinstance(said, dict) else {}), "level": recipe.autonomy}}
    return build_plan(merged, plan_id=recipe.plan_id, created_at=recipe.created_at, sources=recipe.sources)


def _lost(folder: str, why: str) -> LoomError:
    return LoomError(
        "PLAN_LOST",
        "the run's plan cannot be made anew",
        where=os.path.join(folder, recovery.PLAN),
        why=f"{why}; once the workflow's file is back as it was, it can be",
        hint="git log --oneline -- .loom/workflows",
    )
