"""What a person is asked for before a run goes on, and what their answer does to it.

Pure, over a state and a plan.
"""

from __future__ import annotations

from loomctl.model import phase_marks, visits
from loomctl.model.errors import EXIT_USAGE, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.model.places import Place
    from loomctl.model.state import State


def before(state: Mapping[str, Any], plan: Mapping[str, Any], place: Place) -> dict[str, str] | None:
    """Give what must be approved before a step begins, `{id, reason}`; None where nothing is."""
    granted = {item["id"] for item in state.get("approvals", []) if not phase_marks.is_lapsed(item)}
    for pending in state["pending_approvals"]:
        return {"id": str(pending["id"]), "reason": str(pending.get("reason", ""))}
    if visits.open_visit(state) is not None:  # it was let in when its visit began
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
