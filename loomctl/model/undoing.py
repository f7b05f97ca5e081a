"""A run taken back: the last end of a step is undone, and its visit is open again (D31). Pure."""

from __future__ import annotations

from loomctl.model import phase_marks, run_life, sessions, visits
from loomctl.model.errors import EXIT_USAGE, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.model.state import State


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
    registered = entry.pop("artifacts", None) or {}
    artifacts = dict(state["artifacts"])
    for name, value in registered.get("before", {}).items():
        if value is None:
            artifacts.pop(name, None)
        else:
            artifacts[name] = value
    for mark in _OF_ITS_END:
        entry.pop(mark, None)
    entry.update(status="in_progress", completed_at=None)
    first = state["steps"].index(last)
    left, gone = state["steps"][:first], {_visit_of(one) for one in state["steps"][first:]}
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


def _visit_of(of: object) -> tuple[str, str] | None:
    """Name the visit that an entry or an error is of; what the engine did itself has no stage."""
    return (str(of.get("step_id")), str(of.get("stage"))) if isinstance(of, dict) else None
