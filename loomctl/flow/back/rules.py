"""A run taken back: by one step, whose visit is open again, or to the moment when a stage had ended (D31). Pure."""

from __future__ import annotations

from loomctl.flow.route import run_life
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs.model import sessions, visits
from loomctl.workflows.model import phase_marks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State


# Marks of a visit's end, which an undo takes off.
_OF_ITS_END = ("passed", "stopped", "reopened", "note", "repairs", "next", "error", *run_life.SAID)


def undone(state: State, plan: Mapping[str, Any]) -> tuple[State, dict[str, Any]]:
    """Take the last `done` back (D31): its visit is open again, what it registered is as before.

    Gives the state and the visit that is open again. Visits that were opened after it, and nothing was done in, go.
    Raises NOTHING_TO_UNDO.
    """
    closing = visits.open_visit(state)
    if closing is not None and closing["status"] == "closing":
        state = visits.without_closing(state)
        return state, visits.open_visit(state) or closing
    last = visits.last_ended(state)
    if last is None or state["status"] == "cancelled":
        raise LoomError(
            "NOTHING_TO_UNDO",
            "no step of this run has been ended yet" if last is None else "the run is cancelled",
            hint="loomctl show",
            exit_code=EXIT_USAGE,
        )
    entry = dict(last)
    first = state["steps"].index(last)
    inside = [one for after in state["steps"][first + 1 :] for one in visits.within(after)]
    artifacts = _unregistered(state["artifacts"], [*reversed(inside), entry])
    entry.pop("artifacts", None)
    for mark in _OF_ITS_END:
        entry.pop(mark, None)
    entry.update(status="in_progress", completed_at=None)
    left, gone = state["steps"][:first], {_visit_of(one) for one in (*state["steps"][first:], *inside)}
    phases, taken_back = phase_marks.undone(state, plan, entry["phase"], left)
    state = {
        **sessions.uncompleted_phases(state, taken_back),
        "status": "paused" if state["status"] == "paused" else "in_progress",
        "current_phase": entry["phase"],
        "current_step": entry["step_id"],
        "phases": phases,
        "steps": [*left, entry],
        "artifacts": artifacts,
        "errors": [error for error in state["errors"] if _visit_of(error) not in gone],
        "pending_approvals": [],
        # What was approved on the strength of the undone work is asked again.
        "approvals": phase_marks.kept_by_undo(state, entry["rank"]),
    }
    for past in ("completed_at", "feedback"):
        state.pop(past, None)
    return state, entry


def cut(state: State, stage: str, *, with_it: bool) -> State:
    """Give a state without the visits that came after a stage, and without the errors of those; with_it: its own, too.

    Nothing else is taken back: the stages among them were undone before, the engine's own steps leave nothing.
    """
    at = next(index for index, entry in enumerate(state["steps"]) if entry.get("stage") == stage)
    first = at if with_it else at + 1
    inside = [one for after in state["steps"][first:] for one in visits.within(after)]
    ends = {_visit_of(one) for one in (*state["steps"][first:], *inside)}
    gone = ends - {_visit_of(one) for one in state["steps"][:first]}
    errors = [error for error in state["errors"] if _visit_of(error) not in gone]
    artifacts = _unregistered(state["artifacts"], inside[::-1])
    return {**state, "steps": state["steps"][:first], "errors": errors, "artifacts": artifacts}


def _unregistered(artifacts: Mapping[str, Any], taken_back: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the artifacts as they were before visits registered some. taken_back: the newest first."""
    kept = dict(artifacts)
    for entry in taken_back:
        for name, value in (entry.get("artifacts") or {}).get("before", {}).items():
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = value
    return kept


def as_it_ended(state: State, plan: Mapping[str, Any], stage: str) -> State:
    """Give a run as it was when a stage had ended, and nothing after it had begun; it is `pending`.

    state: one whose later stages were undone, the first of them open at most. What asked for approval by the stage's
    own end is asked again; a mark that it is to be done again came later, and goes.
    """
    state = {**cut(state, stage, with_it=False), "status": "in_progress"}
    opened, _ = undone(state, plan)
    last = {key: value for key, value in state["steps"][-1].items() if key != "reopened"}
    gate = f"result:{stage}"
    asked = [item for item in (*state["pending_approvals"], *state.get("approvals", [])) if item["id"] == gate]
    reason = f"{last['step_id']} ended {last['status']}"
    again = [{"id": gate, "reason": reason, "requested_at": last["completed_at"]}] if asked else []
    kept = {"artifacts": state["artifacts"], "errors": state["errors"], "steps": [*state["steps"][:-1], last]}
    state = {**opened, **kept, "status": "pending", "pending_approvals": again}
    state.pop("pending_triggers", None)
    return state


def _visit_of(of: object) -> tuple[str, str] | None:
    """Name the visit that an entry or an error is of; what the engine did itself has no stage."""
    return (str(of.get("step_id")), str(of.get("stage"))) if isinstance(of, dict) else None
