"""FABER's state files as the engine sees them; what is not understood stays where it stands (D5).

The format had several eras: phases as a list or an object, steps in a list of their own or below their phase, a current
step by its bare id or as `phase:id`. Any of them is read into the shape that the engine relies on; `faber_runs`
writes a change of that shape into the file's own words.
"""

from __future__ import annotations

from loomctl.kit import ids
from loomctl.kit.quick_json import as_list, as_object, as_texts
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.state import STATUSES, TERMINAL, new_state
from loomctl.runs.model.visits import OPEN, is_last_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.runs.model.state import State


# A run's own words for how it stands; what is in neither list is kept, and counts as not under way.
_WORDS = {
    "in_progress": ("running", "active", "started", "resumed"),
    "awaiting_feedback": ("awaiting_approval", "awaiting_input", "waiting"),
    "paused": ("blocked", "interrupted"),
    "completed": ("success", "succeeded", "complete", "done"),
    "failed": ("failure", "error"),
    "cancelled": ("canceled", "aborted"),
    "pending": ("not_started", "planned"),
}
_STATUSES = {word: status for status, words in _WORDS.items() for word in words}
# How a step ended. FABER's word for each outcome of Loom's comes first.
ENDS = {
    "succeeded": ("success", "succeeded", "completed", "complete", "done", "passed"),
    "failed": ("failure", "failed", "error"),
    "partially_succeeded": ("warning", "partial", "partially_succeeded"),
    "skipped": ("skipped", "skip", "disabled"),
}
_OUTCOMES = {word: end for end, words in ENDS.items() for word in words}
BY_FABER = "faber"  # who ended a step without a stage of Loom's


class View(NamedTuple):
    """A FABER state. raw: what the file holds; state: as the engine sees it.

    entries: where in the file's list of steps a visit stands, by `(step key, visit)`.
    """

    raw: Mapping[str, Any]
    state: State
    entries: Mapping[tuple[str, int], int]


def view(raw: Mapping[str, Any], run_id: str, plan: Mapping[str, Any] | None = None) -> View:
    """Read a FABER state.

    run_id: what it is called by its place; plan: the run's frozen plan, which says where in the workflow the run stands
    (None: only what the file says by itself is known).
    """
    visits, entries = _visits(raw)
    state = _state(raw, run_id, visits, plan)
    return View(raw, state if plan is None else _placed(state, plan), entries)


def _state(raw: Mapping[str, Any], run_id: str, visits: list[dict[str, Any]], plan: Mapping[str, Any] | None) -> State:
    plan_id = text_of(raw.get("plan_id")) or ids.split_run_id(run_id)[0]
    workflow_id = text_of(raw.get("workflow_id")) or text_of((plan or {}).get("workflow_id")) or "faber"
    naming = {"plan_id": plan_id, "workflow_id": workflow_id, "phases": []}
    at = next((at for key in ("started_at", "created_at", "updated_at") if (at := text_of(raw.get(key)))), "")
    empty = new_state(naming, run_id=run_id, work_id=_work_id(raw), goal=_goal(raw), at=at)
    known = ("schema_version", "run_id", "plan_id", "workflow_id", "work_id", "goal")
    state: State = {**empty, **raw, **{key: empty[key] for key in known}}
    state["status"] = status_of(raw.get("status"))
    for key in ("context", "artifacts", "ledger_head", "errors", "approvals", "revision", "created_at", "updated_at"):
        if type(state[key]) is not type(empty[key]):
            state[key] = empty[key]
    if "completed_at" in raw:
        state["completed_at"] = text_of(raw["completed_at"])
    if not isinstance(state.get("lease", {}), dict):  # FABER's own word, which stays in its file
        del state["lease"]
    state["approvals"] = [entry for entry in state["approvals"] if name_of(entry, "id")]
    state["pending_approvals"] = [entry for _, entry in asked(raw)]
    state["phases"] = {name: {**phase, "status": _phase_status(phase)} for name, phase in phases_in(raw.get("phases"))}
    state["sessions"] = _sessions(raw.get("sessions"), empty["sessions"])
    state["context_metadata"] = _metadata(raw.get("context_metadata"), empty["context_metadata"])
    state["current_phase"], state["current_step"] = _position(raw)
    state["steps"] = visits
    return state


def asked(raw: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the approvals that a file asks for, each with its index and an id."""
    entries = raw.get("pending_approvals")
    for index, entry in enumerate(as_list(entries)):
        if isinstance(entry, dict):
            phase = text_of(entry.get("phase"))
            named = text_of(entry.get("id")) or (f"phase:{phase}" if phase else f"faber:{index}")
            yield index, {**entry, "id": named}


def _phase_status(phase: Mapping[str, Any]) -> str:
    if phase.get("enabled") is False:
        return "skipped"
    word = text_of(phase.get("status")) or "pending"
    return "completed" if outcome_of(word) == "succeeded" else word


def _position(raw: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Give the current phase and the current step's key (`phase/id`, D7), as far as the file names them."""
    phase = text_of(raw.get("current_phase"))
    phase = None if phase == "none" else phase
    named = text_of(raw.get("current_step")) or text_of(raw.get("current_step_id"))
    if named is None or outcome_of(named) is not None:  # `completed` is no step
        return phase, None
    for mark in ("/", ":"):
        before, found, after = named.partition(mark)
        if found and before and after:
            return phase or before, f"{before}/{after}"
    return phase, f"{phase}/{named}" if phase else named


# ---- Steps.


def _visits(raw: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[tuple[str, int], int]]:
    """Give the visits that a file records: Loom's own as they were, FABER's as ended without a stage."""
    found: list[dict[str, Any]] = []
    entries: dict[tuple[str, int], int] = {}
    counted: dict[str, int] = {}
    listed = raw.get("steps")
    for index, entry in enumerate(as_list(listed)):
        visit = _visit(entry, counted)
        if visit is not None and (visit["step_id"], visit["visit"]) not in entries:
            entries[visit["step_id"], visit["visit"]] = index
            found.append(visit)
    for key, outcome, record in _counted(raw):
        if key not in counted:
            counted[key] = 1
            found.append(_by_faber(key, outcome, record))
    return found, entries


def _counted(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Give the steps that phases and counters call ended: `(key, outcome, record)`."""
    for name, phase in phases_in(raw.get("phases")):
        for step_id, record in _named(phase.get("steps"), "step_id", "id", "name"):
            ended = outcome_of(record.get("status"))
            if ended is not None:
                yield (
                    f"{name}/{step_id}",
                    (outcome_of(record.get("result")) if ended == "succeeded" else None) or ended,
                    record,
                )
        for counter in ("completed_steps", "completed_step_ids"):
            for step_id in as_texts(phase.get(counter)):
                yield f"{name}/{step_id.rpartition(':')[2]}", "succeeded", {}
    for key in as_texts(raw.get("steps_completed")):
        before, mark, after = key.partition(":")
        if mark and before and after:
            yield f"{before}/{after}", "succeeded", {}


def _visit(entry: object, counted: dict[str, int]) -> dict[str, Any] | None:
    """Read one entry of a list of steps; None for what is no ended step and no visit of Loom's."""
    step_id = name_of(entry, "step_id", "id", "name")
    if step_id is None or not isinstance(entry, dict):
        return None
    phase = text_of(entry.get("phase"))
    for mark in ("/", ":"):
        before, found, after = step_id.partition(mark)
        if found:
            step_id, phase = after, phase or before
    key = f"{phase or ''}/{step_id}"
    number, rank = entry.get("visit"), entry.get("rank")
    has_stage = isinstance(entry.get("stage"), str) or entry.get("by") == "engine"
    begun = entry.get("status") == "in_progress"
    outcome = outcome_of(entry.get("status"))
    if has_stage and type(number) is int and type(rank) is int and isinstance(entry.get("started_at"), str):
        status = ("closing" if isinstance(entry.get("closing"), dict) else "in_progress") if begun else outcome
        if status is not None:
            counted[key] = max(counted.get(key, 0), number)
            return {**entry, "step_id": key, "phase": phase or "", "status": status}
    if outcome is None:
        return None
    counted[key] = counted.get(key, 0) + 1
    return _by_faber(key, outcome, entry, visit=counted[key])


def _by_faber(key: str, outcome: str, record: Mapping[str, Any], *, visit: int = 1) -> dict[str, Any]:
    return {
        **{name: value for name, value in record.items() if name not in ("id", "name", "result", "artifacts")},
        "step_id": key,
        "phase": key.partition("/")[0],
        "visit": visit,
        "rank": 0,
        "stage": None,
        "status": outcome,
        "started_at": text_of(record.get("started_at")) or "",
        "completed_at": text_of(record.get("completed_at")),
        "by": BY_FABER,
    }


# ---- Where the run stands.


def _placed(state: State, plan: Mapping[str, Any]) -> State:
    """Let the run stand where its file says: what comes before is done, what comes after is not, whatever is noted.

    A step is current by `current_phase` and `current_step`; notes about later steps mean that somebody set the run
    back. Then what is noted of the current one does not count either.
    """
    order = [(phase["id"], step["key"]) for phase in plan["phases"] for step in phase["steps"]]
    state["phases"] = {**{phase["id"]: {"status": "pending"} for phase in plan["phases"]}, **state["phases"]}
    if state["status"] in TERMINAL:
        return state
    skipped = {name for name, phase in state["phases"].items() if phase["status"] == "skipped"}
    whole = skipped | {name for name, phase in state["phases"].items() if phase["status"] == "completed"}
    last = {visit["step_id"]: visit for visit in state["steps"]}
    good = {key for phase, key in order if phase in whole or (key in last and is_last_word(last[key]))}
    state["current_step"] = _current_step(state, order)
    stands = _stands_at(state, order, good, skipped)
    where = {key: index for index, (_, key) in enumerate(order)}
    marked = [
        _marked(visit, where[visit["step_id"]] - stands, is_last=visit is last[visit["step_id"]])
        if visit["step_id"] in where
        else _given_up(visit)
        for visit in state["steps"]
    ]
    passed = [
        _by_faber(key, "skipped" if phase in skipped else "succeeded", {}, visit=0)
        for index, (phase, key) in enumerate(order)
        if key not in last and (index < stands or phase in skipped)
    ]
    ahead = {phase for phase, _ in order[stands:]} - skipped
    phases = {
        name: {**phase, "status": "in_progress" if name == state["current_phase"] else "pending"}
        if name in ahead and phase["status"] == "completed"
        else phase
        for name, phase in state["phases"].items()
    }
    return {**state, "steps": [*passed, *marked], "phases": phases}


def _current_step(state: State, order: list[tuple[str, str]]) -> str | None:
    """Give the current step's key, where what the file names is one step of the plan."""
    named, current = state["current_step"], state["current_phase"]
    if named is None or any(key == named for _, key in order):
        return named if named is None else str(named)
    bare = named.rpartition("/")[2]
    same = [key for phase, key in order if key.rpartition("/")[2] == bare and phase == (current or phase)]
    return same[0] if len(same) == 1 else None


def _stands_at(state: State, order: list[tuple[str, str]], good: set[str], skipped: set[str]) -> int:
    """Give the place in the plan's order that is to be worked on; its length where nothing is left."""
    current, named = state["current_phase"], state["current_step"]
    at = next((index for index, (_, key) in enumerate(order) if key == named), None)
    here = order[at][0] if at is not None else current
    of_phase = [index for index, (phase, _) in enumerate(order) if phase == here]
    if not of_phase:  # nothing says where: what is not done comes next
        return next((index for index, (_, key) in enumerate(order) if key not in good), len(order))
    after = of_phase[-1] + 1

    def noted_from(place: int) -> bool:
        return any(key in good and phase not in skipped for phase, key in order[place:])

    if at is not None:
        return at + 1 if order[at][1] in good and not noted_from(at + 1) else at
    if noted_from(after):  # it was set back
        return of_phase[0]
    return next((index for index in of_phase if order[index][1] not in good), after)


def _marked(visit: dict[str, Any], distance: int, *, is_last: bool) -> dict[str, Any]:
    """Let a visit say what the run's place says of its step. distance: in steps; below 0: the step lies behind."""
    if visit["status"] in OPEN:
        if distance == 0:
            return visit
        visit = {**visit, "status": "skipped"}
    if not is_last or is_last_word(visit) == (distance < 0):
        return visit
    if distance >= 0:
        return {**visit, "reopened": True}
    kept = {key: value for key, value in visit.items() if key not in ("stopped", "reopened")}
    return {**kept, "passed": True}


def _given_up(visit: dict[str, Any]) -> dict[str, Any]:
    """Close an open visit of a step that the plan, which may have been made anew since, does not have."""
    return {**visit, "status": "skipped"} if visit["status"] in OPEN else visit


# ---- The rest.


def _work_id(raw: Mapping[str, Any]) -> str | None:
    for key in ("work_id", "issue_number"):
        value = raw.get(key)
        if type(value) is int:
            return str(value)
        if text_of(value):
            return str(value).strip().lstrip("#")
    return None


def _goal(raw: Mapping[str, Any]) -> str:
    items = raw.get("work_items")
    item = as_object(next(iter(as_list(items)), None))
    title = as_object(item.get("issue")).get("title")
    said = (raw.get("goal"), title, item.get("target"), raw.get("target"))
    return next((text for text in map(text_of, said) if text), "")


def _sessions(raw: object, empty: dict[str, Any]) -> dict[str, Any]:
    found = {**empty, **as_object(raw)}
    entries = found["session_history"]
    named = [entry for entry in as_list(entries) if name_of(entry, "session_id")]
    found["session_history"] = [_record(entry) for entry in named]
    if not isinstance(found["current_session_id"], (str, type(None))):
        found["current_session_id"] = None
    return found


_SHAPES = {"environment": dict, "compactions": list, "phases_completed": list, "artifacts_loaded": list, "resumes": int}


def _record(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Give a session record; what the engine counts with and is of another shape is left out of sight."""
    return {key: value for key, value in entry.items() if key not in _SHAPES or type(value) is _SHAPES[key]}


def _metadata(raw: object, empty: dict[str, Any]) -> dict[str, Any]:
    found = {**empty, **as_object(raw)}
    entries = found["artifacts_in_context"]
    found["artifacts_in_context"] = [entry for entry in as_list(entries) if name_of(entry, "artifact_id")]
    if type(found["reload_count"]) is not int:
        found["reload_count"] = 0
    return found


# ---- Words and forms of every era.


def belongs(raw: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether a FABER state is the run that its place says (D6).

    Its id is that of the place, or was left out, or ends with the place's name after a slash.
    """
    named = raw.get("run_id")
    return named is None or (isinstance(named, str) and named.rpartition("/")[2] == run_id)


def status_of(word: object) -> str:
    """Give a FABER state's status in Loom's words; an unknown one is kept as it is."""
    if not isinstance(word, str) or not word.strip():
        return "pending"
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    return plain if plain in STATUSES else _STATUSES.get(plain, word)


def text_of(value: object) -> str | None:
    """Give a text that says something, else None."""
    return value if isinstance(value, str) and value.strip() else None


def phases_in(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the phases by name, from an object or a list."""
    return _named(value, "name", "id", "phase")


def _named(value: object, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the objects in an object by their names there, those in a list by the first of these keys."""
    if isinstance(value, dict):
        yield from ((name, entry) for name, entry in value.items() if isinstance(entry, dict))
    elif isinstance(value, list):
        yield from ((name, entry) for entry in value if (name := name_of(entry, *keys)) is not None)


def name_of(entry: object, *keys: str) -> str | None:
    """Give the first of an entry's keys that names it."""
    return next((name for key in keys if (name := text_of(as_object(entry).get(key)))), None)


def outcome_of(word: object) -> str | None:
    """Give the outcome that a step's status means; None for one that has not ended."""
    return _OUTCOMES.get(word.strip().lower()) if isinstance(word, str) else None


def is_plan(raw: object) -> bool:
    """Tell a plan of FABER's: its workflow stands in it, and it has no schema version of Loom's."""
    return isinstance(raw, dict) and "schema_version" not in raw and isinstance(raw.get("workflow"), dict)
