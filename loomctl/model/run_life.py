"""A run's way through its plan, step by step: what is current, what ends it, what comes next, and back (D7, D31).

Linear: phases in order, steps in order. Pure: the time comes in.
"""

from __future__ import annotations

from loomctl.model import ids, sessions
from loomctl.model.errors import EXIT_INVALID, EXIT_USAGE, LoomError
from loomctl.model.records import NamedTuple
from loomctl.model.state import TERMINAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.model.state import State

OUTCOMES = ("succeeded", "failed", "partially_succeeded", "skipped")  # D32
SPELLINGS = {"SUCCESS": "succeeded", "FAILURE": "failed", "PARTIAL": "partially_succeeded", "SKIPPED": "skipped"}
OPEN = ("in_progress", "closing")
# What an ended visit keeps of its directive.
SAID = ("failure_reason", "preferred_next_label", "suggested_next_ids")
_NO_BOUND = 1 << 30


class Place(NamedTuple):
    """A step of the plan with the phase it belongs to."""

    phase: dict[str, Any]
    step: dict[str, Any]

    @property
    def key(self) -> str:
        """The step's name everywhere: `phase/id` (D7)."""
        return str(self.step["key"])


class Move(NamedTuple):
    """Where a run stands after a change.

    kind: `step` (a step is current and may be worked on), `approval` (somebody must approve first),
    `completed`, `failed`. before/after: the phases of a transition that the move made, `after` empty if none.
    """

    kind: str
    step: str | None = None
    before: str | None = None
    after: str | None = None


def steps_unknown(plan: Mapping[str, Any]) -> str:
    """Say why a run of FABER's has steps that nobody knows, so that it is looked at alone; empty for others (D5)."""
    made_of = plan.get("faber")
    return str(made_of.get("unknown") or "") if isinstance(made_of, dict) else ""


def places(plan: Mapping[str, Any]) -> list[Place]:
    """List the plan's steps in the order in which they are done."""
    return [Place(phase, step) for phase in plan["phases"] for step in phase["steps"]]


def place_of(plan: Mapping[str, Any], key: str | None) -> Place | None:
    """Find a step by its key."""
    found = (Place(phase, step) for phase in plan["phases"] for step in phase["steps"] if step["key"] == key)
    return next(found, None)


def visits(state: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Give a step's visits, oldest first. For many steps `visits_by_step` looks at each visit once."""
    return [entry for entry in state["steps"] if entry["step_id"] == key]


def visits_by_step(state: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Give the visits of every step that has some, oldest first, in one pass."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in state["steps"]:
        found.setdefault(entry["step_id"], []).append(entry)
    return found


def is_done(seen: Sequence[Mapping[str, Any]]) -> bool:
    """Tell from a step's visits whether it needs no more work: the last ended well, or failed and was passed.

    A visit that stopped the run, or that was reopened, ended without being the last word on its step.
    """
    if not seen or seen[-1].get("stopped") or seen[-1].get("reopened"):
        return False
    last = seen[-1]
    return last["status"] in ("succeeded", "partially_succeeded", "skipped") or bool(last.get("passed"))


def how_it_ended(entry: Mapping[str, Any]) -> str:
    """Say how a visit stands: its status, or that its step is to be done again."""
    return "to be done again" if entry.get("reopened") else str(entry["status"])


def reason_of(entry: Mapping[str, Any]) -> str:
    """Say why a visit failed, as far as anybody said; empty for one that did not fail."""
    return str(entry.get("failure_reason") or entry.get("note") or "") if entry["status"] == "failed" else ""


def open_visit(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the visit that is being worked on (or closing), if there is one."""
    return next((entry for entry in reversed(state["steps"]) if entry["status"] in OPEN), None)


def first_open(state: Mapping[str, Any], plan: Mapping[str, Any]) -> Place | None:
    """Give the first step that is not done: where a run goes on after any interruption."""
    seen = visits_by_step(state)
    steps = ((phase, step) for phase in plan["phases"] for step in phase["steps"])
    return next((Place(phase, step) for phase, step in steps if not is_done(seen.get(step["key"], ()))), None)


def advance(state: State, plan: Mapping[str, Any], *, at: str) -> tuple[State, Move]:
    """Make the first step that is not done current, unless its phase or itself must be approved first.

    For a run that is pending or in progress. The move names a phase transition only when this call makes it; phases
    without a step to do are passed as skipped.
    """
    place = first_open(state, plan)
    if place is None:
        return _completed(state, plan, at=at), Move("completed", before=state.get("current_phase"))
    phase_id, key = str(place.phase["id"]), place.key
    gate = _gate(state, plan, place)
    if gate is not None:
        waiting = {**state, "status": "awaiting_feedback", "current_step": key}
        if not any(item.get("id") == gate["id"] for item in state["pending_approvals"]):
            waiting["pending_approvals"] = [*state["pending_approvals"], {**gate, "requested_at": at}]
        return waiting, Move("approval", step=key)
    before = state.get("current_phase")
    changed = before != phase_id
    phases = _left_behind(state, plan, phase_id, at=at)
    phase = {name: value for name, value in phases.get(phase_id, {}).items() if name != "completed_at"}
    phases[phase_id] = {**phase, "status": "in_progress", **({"started_at": at} if changed else {})}
    state = {**state, "status": "in_progress", "current_phase": phase_id, "current_step": key, "phases": phases}
    return state, Move("step", step=key, before=before if changed else None, after=phase_id if changed else None)


def start_visit(
    state: State, key: str, phase: str, *, at: str, by_engine: bool = False
) -> tuple[State, dict[str, Any]]:
    """Open a visit of a step, or give the one that is open already.

    Rank counts visits in order of their start, from 1 (D41). What the engine does itself has no stage, and rank 0.
    Raises STEP_OPEN where another step is being worked on: one visit is open at a time.
    """
    current = open_visit(state)
    if current is not None and current["step_id"] == key:
        return state, current
    if current is not None:
        raise LoomError(
            "STEP_OPEN",
            f"{current['step_id']} is being worked on, and {key} is to be done before it",
            why="one step is open at a time, to be ended first; this state was changed by hand",
            hint="loomctl done",
        )
    visit = len(visits(state, key)) + 1
    rank = 0 if by_engine else max((entry["rank"] for entry in state["steps"]), default=0) + 1
    entry: dict[str, Any] = {
        "step_id": key,
        "phase": phase,
        "visit": visit,
        "rank": rank,
        "stage": None if by_engine else ids.stage_name(rank, key, visit),
        "status": "in_progress",
        "started_at": at,
        "completed_at": None,
    }
    if by_engine:
        entry["by"] = "engine"
    return {**state, "steps": [*state["steps"], entry]}, entry


def end_visit(
    state: State,
    plan: Mapping[str, Any],
    *,
    outcome: str,
    at: str,
    note: str = "",
    artifacts: Mapping[str, str] | None = None,
    directive: Mapping[str, Any] | None = None,
    retry: bool = True,
) -> tuple[State, str]:
    """End the open visit with an outcome and say what follows for it: `done`, `retry`, `prompt` or `stop`.

    A failed visit is retried while the step has retries and visits left; then `result_handling` decides. A run that is
    over stays so (D4). artifacts: what the step registers, `{name: portable path}`; kept with what they replaced, for
    `undone`. directive: what the step said of the way on (D33). retry: False for a failure that a retry would only
    repeat (D36). Raises BAD_OUTCOME and NO_OPEN_STEP.
    """
    if outcome not in OUTCOMES:
        why = f"there are {', '.join(OUTCOMES)}"
        raise LoomError("BAD_OUTCOME", f"{outcome!r:.60} is no outcome", why=why, hint="loomctl done --help")
    entry = open_visit(without_closing(state))
    if entry is None:
        raise _nothing_open()
    place = place_of(plan, entry["step_id"])
    handling = (place.step.get("result_handling") if place else None) or {}
    failed = outcome == "failed"
    word = {"failed": "on_failure", "partially_succeeded": "on_warning"}.get(outcome, "on_success")
    choice = handling.get(word) or ("stop" if failed else "continue")
    retries = int(place.step.get("max_retries") or 0) if place else 0
    tried = len([visit for visit in visits(state, entry["step_id"]) if not visit.get("reopened")])
    again = retry and tried <= retries and tried < _most_visits(place)
    follows = "retry" if failed and again else {"continue": "done", "prompt": "prompt"}.get(choice, "stop")
    ended = {**entry, "status": outcome, "completed_at": at}
    ended.update({key: value for key, value in (directive or {}).items() if key in SAID and value})
    if note:
        ended["note"] = note
    if failed and follows in ("done", "prompt"):
        ended["passed"] = True
    if follows == "stop":
        ended["stopped"] = True
    if artifacts:
        before = {name: state["artifacts"].get(name) for name in artifacts}
        ended["artifacts"] = {"set": dict(artifacts), "before": before}
        state = {**state, "artifacts": {**state["artifacts"], **artifacts}}
    state = _replaced(state, ended)
    if failed or follows == "stop":
        message = note or ended.get("failure_reason") or f"the step ended {outcome}"
        error = {"at": at, "step_id": entry["step_id"], "stage": entry["stage"], "message": message}
        state = {**state, "errors": [*state["errors"], error]}
    if state["status"] in TERMINAL:
        return state, follows
    if follows == "stop":
        state = {**state, "status": "failed", "phases": _phase_marked(state, entry["phase"], "failed")}
    if follows == "prompt":
        gate = {
            "id": f"result:{entry['stage'] or entry['step_id']}",
            "reason": f"{entry['step_id']} ended {outcome}",
            "requested_at": at,
        }
        state = {**state, "status": "awaiting_feedback", "pending_approvals": [*state["pending_approvals"], gate]}
    return state, follows


def _most_visits(place: Place | None) -> int:
    """Give how often a step may be visited in all."""
    most = place.step.get("max_visits") if place else None
    return most if type(most) is int and most > 0 else _NO_BOUND


def last_ended(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the visit that `undone` takes back; None where there is none. One that is closing has not ended."""
    worked = (entry for entry in reversed(state["steps"]) if not _without_stage(entry))
    return next((entry for entry in worked if entry["status"] in OUTCOMES), None)


def undone(state: State, plan: Mapping[str, Any]) -> tuple[State, dict[str, Any]]:
    """Take the last `done` back (D31): its visit is open again, what it registered is as before.

    Gives the state and the visit that is open again. Visits that were opened after it, and nothing was done in, go.
    """
    closing = open_visit(state)
    if closing is not None and closing["status"] == "closing":
        state = without_closing(state)
        return state, open_visit(state) or closing
    last = last_ended(state)
    if last is None or state["status"] == "cancelled":
        raise LoomError(
            "NOTHING_TO_UNDO",
            "no step of this run has been ended yet" if last is None else "the run is cancelled",
            hint="loomctl show",
            exit_code=EXIT_USAGE,
        )
    entry = dict(last)
    registered = entry.pop("artifacts", None) or {}
    artifacts = dict(state["artifacts"])
    for name, value in registered.get("before", {}).items():
        if value is None:
            artifacts.pop(name, None)
        else:
            artifacts[name] = value
    for mark in ("passed", "stopped", "reopened", "note", "repairs", *SAID):
        entry.pop(mark, None)
    entry.update(status="in_progress", completed_at=None)
    behind = _from(plan, entry["phase"])
    taken_back = [name for name in state["phases"] if name in behind]
    phases = dict(state["phases"])
    for name in taken_back:
        gone = ("completed_at",) if name == entry["phase"] else ("started_at", "completed_at")
        kept = {key: value for key, value in phases[name].items() if key not in gone}
        phases[name] = {**kept, "status": "in_progress" if name == entry["phase"] else "pending"}
    state = {
        **sessions.uncompleted_phases(state, taken_back),
        "status": "paused" if state["status"] == "paused" else "in_progress",
        "current_phase": entry["phase"],
        "current_step": entry["step_id"],
        "phases": phases,
        "steps": [*state["steps"][: state["steps"].index(last)], entry],
        "artifacts": artifacts,
        "errors": [error for error in state["errors"] if _stage_of(error) != entry["stage"]],
        "pending_approvals": [],
        # What was approved on the strength of the undone work is asked again.
        "approvals": [item for item in state.get("approvals", []) if item.get("after_rank", 0) < entry["rank"]],
    }
    for past in ("completed_at", "feedback"):
        state.pop(past, None)
    return state, entry


def approved(state: State, *, at: str) -> tuple[State, list[str]]:
    """Grant every approval that is asked for; gives their ids. Raises NOTHING_TO_APPROVE.

    A run that is paused, failed or over asks for none, whatever its list holds: it is taken up again first (D4).
    """
    granted = [str(item["id"]) for item in state["pending_approvals"]]
    if not granted or state["status"] not in ("awaiting_feedback", "in_progress"):
        why = f"the run is {state['status']}: it is taken up first" if granted else ""
        hint = f"loomctl {'resume' if granted else 'show'} {state['run_id']}"
        raise LoomError("NOTHING_TO_APPROVE", "this run asks for no approval", why=why, hint=hint, exit_code=EXIT_USAGE)
    rank = max((entry["rank"] for entry in state["steps"]), default=0)
    given = [{"id": name, "granted_at": at, "after_rank": rank} for name in granted]
    approvals = [*state.get("approvals", []), *given]
    return {**state, "pending_approvals": [], "approvals": approvals, "status": "in_progress"}, granted


def goes_on(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is under way, so that its next step may be opened."""
    return state["status"] in ("pending", "in_progress")


def awaiting(state: State, entry: Mapping[str, Any], message: str, *, at: str) -> State:
    """Let a run wait for its user's answer: the assistant stopped twice without a result (D27).

    message: what it said last, in a line.
    """
    waits = {"stage": entry["stage"], "at": at, "message": message}
    return {**state, "status": "awaiting_feedback", "feedback": waits}


def answered(state: State) -> State:
    """Put a run under way that waited for its user's answer and for nothing else; every other stays as it is."""
    if "feedback" not in state:
        return state
    bare = {key: value for key, value in state.items() if key != "feedback"}
    waits = state["status"] == "awaiting_feedback" and not state["pending_approvals"]
    return {**bare, "status": "in_progress"} if waits else bare


def mark_closing(
    state: State,
    *,
    outcome: str | None,
    note: str,
    artifacts: Mapping[str, str],
    at: str,
    session_id: str | None = None,
) -> State:
    """Mark the open visit as closing: its response is still to come, as the conversation's next final message (D27).

    session_id: whose conversation that is.
    """
    entry = open_visit(state)
    if entry is None:
        raise _nothing_open()
    closing = {"outcome": outcome, "note": note, "artifacts": dict(artifacts), "at": at}
    closing["session_id"] = session_id
    return _replaced(state, {**entry, "status": "closing", "closing": closing})


def repaired(state: State) -> State:
    """Count a corrective turn of the open visit (D36); one that was closing still is."""
    entry = open_visit(state)
    if entry is None:
        raise _nothing_open()
    return _replaced(state, {**entry, "repairs": repairs_of(entry) + 1})


def repairs_of(entry: Mapping[str, Any]) -> int:
    """Give how often a visit's answer was asked to be repaired."""
    count = entry.get("repairs")
    return count if type(count) is int and count > 0 else 0


def without_closing(state: State) -> State:
    """Take the mark of a closing visit off; it is open as before."""
    entry = open_visit(state)
    if entry is None or entry["status"] != "closing":
        return state
    bare = {key: value for key, value in entry.items() if key != "closing"}
    return _replaced(state, {**bare, "status": "in_progress"})


def reopened_step(state: State, plan: Mapping[str, Any]) -> State:
    """For `resume --reopen` of a completed run: its last step is open to a new visit; all else stays."""
    last = next((place for place in reversed(places(plan)) if not place.step.get("engine")), None)
    if last is None or first_open(state, plan) is not None:
        return state
    return _replaced(state, {**visits(state, last.key)[-1], "reopened": True})


def _replaced(state: State, entry: Mapping[str, Any]) -> State:
    steps = [
        dict(entry) if (old["step_id"], old["visit"]) == (entry["step_id"], entry["visit"]) else old
        for old in state["steps"]
    ]
    return {**state, "steps": steps}


def _gate(state: Mapping[str, Any], plan: Mapping[str, Any], place: Place) -> dict[str, str] | None:
    granted = {item["id"] for item in state.get("approvals", [])}
    for pending in state["pending_approvals"]:
        return {"id": str(pending["id"]), "reason": str(pending.get("reason", ""))}
    if open_visit(state) is not None:  # it was let in when its visit began
        return None
    phase_id = str(place.phase["id"])
    autonomy = plan.get("autonomy") or {}
    entering = state.get("current_phase") != phase_id
    asked = place.phase.get("require_approval") or phase_id in (autonomy.get("require_approval_for") or ())
    if autonomy.get("level") == "assist" and state.get("current_phase") is not None:
        asked = True
    if entering and asked and f"phase:{phase_id}" not in granted:
        return {"id": f"phase:{phase_id}", "reason": f"the workflow asks for approval before the phase {phase_id}"}
    if place.step.get("require_approval") and f"step:{place.key}" not in granted:
        return {"id": f"step:{place.key}", "reason": f"the workflow asks for approval before the step {place.key}"}
    return None


def _completed(state: State, plan: Mapping[str, Any], *, at: str) -> State:
    phases = _left_behind(state, plan, None, at=at)
    completed_at = state.get("completed_at") or at
    return {**state, "status": "completed", "current_step": None, "completed_at": completed_at, "phases": phases}


def _left_behind(state: State, plan: Mapping[str, Any], phase_id: str | None, *, at: str) -> dict[str, Any]:
    """Give the phases with those before `phase_id` (None: all) marked completed, or skipped if they had no step."""
    phases = dict(state["phases"])
    for phase in plan["phases"]:
        if phase["id"] == phase_id:
            break
        status = "completed" if phase["steps"] else "skipped"
        known = phases.get(phase["id"], {})
        if known.get("status") != status:
            phases[phase["id"]] = {**known, "status": status, **({"completed_at": at} if phase["steps"] else {})}
    return phases


def _phase_marked(state: Mapping[str, Any], phase_id: object, status: str) -> dict[str, Any]:
    return {name: {**phase, "status": status} if name == phase_id else phase for name, phase in state["phases"].items()}


def _from(plan: Mapping[str, Any], phase_id: str) -> set[str]:
    """Name a phase and those behind it; itself alone where the plan has no such phase."""
    order = [phase["id"] for phase in plan["phases"]]
    return {phase_id, *(order[order.index(phase_id) :] if phase_id in order else ())}


def _stage_of(error: object) -> object:
    return error.get("stage") if isinstance(error, dict) else None


def _without_stage(entry: Mapping[str, Any]) -> bool:
    """Tell what no session worked on here: the engine or FABER did it."""
    return entry.get("stage") is None


def _nothing_open() -> LoomError:
    return LoomError(
        "NO_OPEN_STEP",
        "no step of this run is being worked on",
        hint="loomctl next",
        exit_code=EXIT_INVALID,
    )
