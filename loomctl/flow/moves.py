"""Where a run stands after a verb, said in one line."""

from __future__ import annotations

from loomctl.flow import gate_texts, route
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import visits
from loomctl.workflows import routing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.flow.drive import Driven
    from loomctl.runs.store.store import Run


def say_move(driven: Driven) -> str:
    """Say in one line where the run stands after a verb, and by which way it came there where that is new."""
    state = driven.run.state
    if visits.is_branch(state):
        return _say_branch(driven)
    if driven.move.kind == "approval":
        return gate_texts.line(driven.run)
    if driven.move.kind == "completed":
        return "The run is completed."
    if driven.move.kind == "cancelled":
        return f"The run is cancelled. To take it up again: loomctl resume {driven.run.run_id} --reopen"
    if driven.move.kind == "failed":
        return _say_failed(driven.run)
    if driven.move.kind == "paused" and state["pending_approvals"]:
        refused = gate_texts.paused(driven.run)
        if refused:
            return refused
    if driven.move.kind == "paused":
        return f"The run is paused. To go on: loomctl resume {driven.run.run_id}"
    way = route.way_to(state, driven.move.step)
    how = routing.how(way) if driven.ended is not None or driven.untold or way.get("not_before") else ""
    return f"Now: {driven.move.step}" + (f", {masked_line(how, 120)}" if how else "")


def _say_branch(driven: Driven) -> str:
    outside = visits.seen_from(driven.run.state)
    name = masked_line(outside.name, 80)
    if outside.outcome is None:
        if driven.move.kind == "approval":
            waits = "; ".join(masked_line(str(one.get("reason")), 200) for one in driven.run.state["pending_approvals"])
            return f"The branch {name} waits for its user: {waits}."
        return f"Now: {driven.move.step}" if driven.move.step else f"The branch {name} stands still with its run."
    return f"The branch {name} has ended: {outside.outcome}. {outside.left}"


def _say_failed(run: Run) -> str:
    """Say that a run failed, and what resuming it does: the step is tried again, or one too often visited once more."""
    way = route.way_to(run.state, None)
    again = f"loomctl resume {run.run_id}"
    if way.get("reason") == visits.MAX_VISITS:
        why = masked_line(str(run.state["errors"][-1]["message"]), 200) if run.state["errors"] else ""
        return f"The run failed: {why}. To visit it once more: {again}"
    why = ""
    if way.get("reason") == visits.NOWHERE and run.state["steps"][-1]["status"] != "failed" and run.state["errors"]:
        why = ": " + masked_line(str(run.state["errors"][-1]["message"]), 200)
    return f"The run failed{why}. To try the step again: {again}"
