"""How far a run is in each phase of its plan."""

from __future__ import annotations

from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.store.store import Run

_OVER = ("completed", "cancelled")


def progress(run: Run) -> list[dict[str, Any]]:
    """Give the plan's phases, each `{id, status, done, steps}`; status: `done`, `open`, `skipped` or `pending`."""
    seen = visits.by_step(run.state)
    current = run.state.get("current_phase")
    found = []
    for phase in run.plan["phases"]:
        steps = [step for step in phase["steps"] if not step.get("engine")]
        done = sum(visits.is_done(seen.get(step["key"], ())) for step in steps)
        known = run.state["phases"].get(phase["id"])
        said = known.get("status") if isinstance(known, dict) else None
        status = {"completed": "done", "skipped": "skipped"}.get(str(said), "pending")
        if phase["id"] == current and run.state["status"] not in _OVER:
            status = "open"
        found.append({"id": str(phase["id"]), "status": status, "done": done, "steps": len(steps)})
    return found
