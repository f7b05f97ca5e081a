"""Why a step came next in a run, and why an artifact is loaded or is not, as documents (D13, D45). Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.expressions import conditions
from loomctl.flow import route
from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.kit.problems import choices
from loomctl.priming.examine import Examiner
from loomctl.runs import stages
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import event_log
from loomctl.workflows import triggers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_CHOSEN, _PRIMED = "transition.chosen", "context.primed"


def why(space: Workspace, run: Run, word: str | None) -> dict[str, Any]:
    """Tell why a run came to the step that a word means, or why an artifact is loaded; without one, where the run is.

    A step: `{step_id, visit, stage, after, way, weighed}`. visit and stage: null where it comes next; after: the visit
    before, null for the first of the run. way: as that visit keeps it, empty where it leads elsewhere: somebody took
    the run up again. weighed: every transition that was weighed, with what its condition came to.
    An artifact: `{artifact_id, when, phase, triggers, condition, holds, values, warnings, last}`. holds: what its
    condition comes to now, `true`, `false` or `unknown`; values: what a simple one looks at; last: the newest priming
    that named it, `{at, event, fired, became}`; fired: the trigger that the event's name tells of.
    A stage goes before an artifact of the same name. Raises NOT_VISITED for a step that the run did not come to, and
    NO_SUCH_STAGE for what is none.
    """
    if word is None:
        return _here(run)
    matches = stages.matches(run, word)
    artifact = next((one for one in run.plan["artifacts"] if one["id"] == word), None)
    if artifact is not None and not matches:
        return _load(space, run, artifact)
    keys = [place.key for place in frozen_plan.with_branches(run.plan) if word in (place.key, place.step["id"])]
    if keys and not matches:
        return _ahead(run, keys)
    entry = stages.find_stage(run, word)
    # The visits among which it stands: those of the run, or of the branch that it is in (D43).
    branches = [record["steps"] for visit in run.state["steps"] for record in visit.get("branches", ())]
    line = next((line for line in branches if entry in line), run.state["steps"])
    at = line.index(entry)
    return _came(run, str(entry["step_id"]), entry, line[at - 1] if at else None)


def _here(run: Run) -> dict[str, Any]:
    """Tell of the step that a run is at: the one being worked on, else what comes next, else the last that it had."""
    state = run.state
    last = state["steps"][-1] if state["steps"] else None
    if last is None and not state.get("current_step"):
        hint = f"loomctl next {run.run_id}"
        raise LoomError("NOT_VISITED", "this run has not come to a step", hint=hint, exit_code=EXIT_NO_RUN)
    if last is None:
        return _came(run, str(state["current_step"]), None, None)
    way = last.get("next")
    coming = way.get("step_id") if isinstance(way, dict) else None
    if visits.open_visit(state) is None and coming and state["status"] not in TERMINAL:
        return _came(run, str(coming), None, last)
    return _came(run, str(last["step_id"]), last, state["steps"][-2] if len(state["steps"]) > 1 else None)


def _ahead(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    for key in keys:
        if run.state["steps"] and route.way_to(run.state, key):
            return _came(run, key, None, run.state["steps"][-1])
    known = [str(entry["stage"]) for entry in stages.entries(run)]
    raise LoomError(
        "NOT_VISITED",
        f"this run has not come to {', '.join(keys)}",
        why=f"it came to {', '.join(known[-20:])}" if known else choices(keys[0], known),
        hint=f"loomctl stages {run.run_id}",
        exit_code=EXIT_NO_RUN,
    )


def _came(run: Run, key: str, entry: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> dict[str, Any]:
    said = before.get("next") if before is not None else None
    way = said if isinstance(said, dict) and said.get("step_id") == key else {}
    visit, stage = (entry["visit"], entry["stage"]) if entry is not None else (None, None)
    return {
        "step_id": key,
        "visit": visit,
        "stage": stage,
        "after": {name: before.get(name) for name in ("step_id", "visit", "stage", "status")} if before else None,
        "way": dict(way),
        "weighed": _weighed(run, before.get("stage")) if before is not None and way else [],
    }


def _weighed(run: Run, stage: object) -> list[dict[str, Any]]:
    """Give what the newest choice after a stage weighed; nothing where there was none, or its event is gone."""

    def of_stage(entry: dict[str, Any]) -> bool:
        properties = entry.get("properties")
        named = properties.get("stage") if isinstance(properties, dict) else None
        return entry.get("event") == _CHOSEN and named == stage

    for line in event_log.tail(run.folder, 1, of_stage, (_CHOSEN.encode(),)):
        listed = (line.entry or {}).get("properties", {}).get("weighed")
        if isinstance(listed, list):
            return [one for one in listed if isinstance(one, dict)]
    return []


def _load(space: Workspace, run: Run, artifact: Mapping[str, Any]) -> dict[str, Any]:
    reader = Examiner(space, run, triggers.manual(), artifacts=[artifact])
    holds = reader.condition(artifact)
    return {
        "artifact_id": artifact["id"],
        **{key: artifact.get(key) for key in ("when", "phase", "triggers", "condition")},
        "holds": holds,
        "values": dict(conditions.values_of(artifact.get("condition_code"), {"state": run.state})),
        "warnings": [text for code, text in reader.warnings if code == "CONDITION_THREW"],
        "last": _last_priming(run, artifact),
    }


def _last_priming(run: Run, artifact: Mapping[str, Any]) -> dict[str, Any] | None:
    name = str(artifact["id"])

    def names_it(entry: dict[str, Any]) -> bool:
        return entry.get("event") == _PRIMED and _became(entry.get("properties"), name) != ""

    for line in event_log.tail(run.folder, 1, names_it, (_PRIMED.encode(),)):
        if line.entry is not None:
            event = str(line.entry["properties"].get("event") or "")
            happened = triggers.from_word(event)
            fired = None if happened is None else triggers.fires(artifact.get("triggers") or (), happened)
            became = _became(line.entry["properties"], name)
            return {"at": line.entry.get("ts"), "event": event, "fired": fired, "became": became}
    return None


def _became(properties: object, name: str) -> str:
    """Say what a priming made of an artifact: its form, `fresh`, or why it was not loaded; empty: it names it not."""
    if not isinstance(properties, dict):
        return ""
    for key in ("loaded", "not_loaded"):
        listed = properties.get(key)
        if isinstance(listed, dict) and name in listed:
            return str(listed[name])
    fresh = properties.get("fresh")
    return "fresh" if isinstance(fresh, list) and name in fresh else ""
