"""Why a step came next in a run, and why an artifact is loaded or is not (D13, D45). Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions import conditions
from loomctl.flow import route
from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.kit.problems import choices
from loomctl.priming.examine import Examiner
from loomctl.runs import stage_records
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import event_log
from loomctl.workflows.model import triggers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

_CHOSEN, _PRIMED = "transition.chosen", "context.primed"


class Came(NamedTuple):
    """How a run came to a step.

    visit: None where it has not begun and comes next; stage: its own, None as above. after: the visit before, None for
    the first of the run. way: as that visit keeps it, empty where it leads elsewhere: somebody took the run up again.
    weighed: every transition that was weighed, with what its condition came to.
    """

    step_id: str
    visit: int | None
    stage: str | None
    after: Mapping[str, Any] | None
    way: Mapping[str, Any]
    weighed: Sequence[Mapping[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Give it as `--json` prints it."""
        after = self.after
        before = {key: after.get(key) for key in ("step_id", "visit", "stage", "status")} if after else None
        told = {"step_id": self.step_id, "visit": self.visit, "stage": self.stage, "after": before}
        return {**told, "way": dict(self.way), "weighed": [dict(one) for one in self.weighed]}


def step(run: Run, named: str) -> Came:
    """Tell of the stage that is meant by a word, as `stage_records.find` takes it, or of a step that comes next.

    Raises NOT_VISITED for a step that the run did not come to, and NO_SUCH_STAGE for what is none.
    """
    if not stage_records.matches(run, named):
        keys = [place.key for place in frozen_plan.with_branches(run.plan) if named in (place.key, place.step["id"])]
        if keys:
            return _ahead(run, keys)
    entry = stage_records.find_stage(run, named)
    line = _line_of(run, entry)
    at = line.index(entry)
    before = line[at - 1] if at else None
    return _came(run, str(entry["step_id"]), entry, before)


def here(run: Run) -> Came:
    """Tell of the step that a run is at: the one being worked on, else what comes next, else the last that it had.

    Raises NOT_VISITED for a run that has come to none.
    """
    state = run.state
    last = state["steps"][-1] if state["steps"] else None
    if last is None and not state.get("current_step"):
        raise LoomError(
            "NOT_VISITED",
            "this run has not come to a step",
            hint=f"loomctl next {run.run_id}",
            exit_code=EXIT_NO_RUN,
        )
    if last is None:
        return _came(run, str(state["current_step"]), None, None)
    way = last.get("next")
    coming = way.get("step_id") if isinstance(way, dict) else None
    if visits.open_visit(state) is None and coming and state["status"] not in TERMINAL:
        return _came(run, str(coming), None, last)
    return _came(run, str(last["step_id"]), last, state["steps"][-2] if len(state["steps"]) > 1 else None)


def _line_of(run: Run, entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Give the visits among which one stands: those of the run, or of the branch that it is in (D43)."""
    lines = [record["steps"] for visit in run.state["steps"] for record in visit.get("branches", ())]
    return next((line for line in lines if entry in line), run.state["steps"])


def _ahead(run: Run, keys: Sequence[str]) -> Came:
    for key in keys:
        if run.state["steps"] and route.way_to(run.state, key):
            return _came(run, key, None, run.state["steps"][-1])
    known = [str(entry["stage"]) for entry in stage_records.entries(run)]
    raise LoomError(
        "NOT_VISITED",
        f"this run has not come to {', '.join(keys)}",
        why=f"it came to {', '.join(known[-20:])}" if known else choices(keys[0], known),
        hint=f"loomctl stages {run.run_id}",
        exit_code=EXIT_NO_RUN,
    )


def _came(run: Run, key: str, entry: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> Came:
    said = before.get("next") if before is not None else None
    way = said if isinstance(said, dict) and said.get("step_id") == key else {}
    visit, stage = (entry["visit"], entry["stage"]) if entry is not None else (None, None)
    weighed = _weighed(run, before.get("stage")) if before is not None and way else []
    return Came(key, visit, stage, before, way, weighed)


def _weighed(run: Run, stage: object) -> list[dict[str, Any]]:
    def of_stage(entry: dict[str, Any]) -> bool:
        properties = entry.get("properties")
        named = properties.get("stage") if isinstance(properties, dict) else None
        return entry.get("event") == _CHOSEN and named == stage

    for line in event_log.tail(run.folder, 1, of_stage, (_CHOSEN.encode(),)):
        listed = (line.entry or {}).get("properties", {}).get("weighed")
        if isinstance(listed, list):
            return [one for one in listed if isinstance(one, dict)]
    return []


class Load(NamedTuple):
    """Why an artifact of a plan is loaded, or is not.

    artifact: as the plan declares it. holds: what its condition comes to now, `true`, `false` or `unknown`; values:
    what a simple one looks at, None for what is not there. warnings: of the condition. last: the newest priming that
    named it, `{at, event, fired, became}`, None where none did; fired: the trigger that the event's name tells of.
    """

    artifact: Mapping[str, Any]
    holds: str
    values: Mapping[str, Any]
    warnings: Sequence[str]
    last: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Give it as `--json` prints it."""
        of_plan = {key: self.artifact.get(key) for key in ("when", "phase", "triggers", "condition")}
        now = {"holds": self.holds, "values": dict(self.values), "warnings": list(self.warnings)}
        return {"artifact_id": self.artifact["id"], **of_plan, **now, "last": self.last}


def named(space: Workspace, run: Run, word: str) -> Came | Load:
    """Tell of the step that a word means, or of an artifact; a stage goes before an artifact of the same name."""
    found = next((one for one in run.plan["artifacts"] if one["id"] == word), None)
    if found is None or stage_records.matches(run, word):
        return step(run, word)
    reader = Examiner(space, run, triggers.manual(), artifacts=[found])
    holds = reader.condition(found)
    values = conditions.values_of(found.get("condition_code"), {"state": run.state})
    warnings = [text for code, text in reader.warnings if code == "CONDITION_THREW"]
    return Load(found, holds, values, warnings, _last_priming(run, found))


def _last_priming(run: Run, artifact: Mapping[str, Any]) -> dict[str, Any] | None:
    name = str(artifact["id"])

    def names_it(entry: dict[str, Any]) -> bool:
        return entry.get("event") == _PRIMED and _became(entry.get("properties"), name) != ""

    for line in event_log.tail(run.folder, 1, names_it, (_PRIMED.encode(),)):
        if line.entry is not None:
            event = str(line.entry["properties"].get("event") or "")
            became = _became(line.entry["properties"], name)
            return {"at": line.entry.get("ts"), "event": event, "fired": _fired(artifact, event), "became": became}
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


def _fired(artifact: Mapping[str, Any], event: str) -> str | None:
    happened = triggers.from_word(event)
    return None if happened is None else triggers.fires(artifact.get("triggers") or (), happened)
