"""Whether a run is under way, or waits for its user's answer (D27)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.model.state import State


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


def is_under_way(state: Mapping[str, Any]) -> bool:
    """Tell whether a run goes on once its user has spoken, as they have where the assistant did."""
    return goes_on(answered(dict(state)))
