"""Letting a run stand still: paused or cancelled by a person, paused at the host's cap, waiting for an answer (D28)."""

from __future__ import annotations

from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.lock import HOOK_PATIENCE
from loomctl.runs import leases
from loomctl.runs.model import standing, visits
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

_LAST_WORDS = 200  # characters of what an assistant said last that the state keeps, where its user is to answer
_LOOKED_AT = 50_000  # characters of them in which secrets are looked for


def set_standing(space: Workspace, run_id: str, status: str, event: str, *, allowed: Sequence[str]) -> Run:
    """Pause or cancel a run. allowed: the statuses from which that can be done; raises BAD_STATUS from others.

    A cancelled run is cancelled again without a change: the first cancel may have been killed before it was through.
    """
    space = leases.deciding(space)
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
        if state["status"] == status == "cancelled":
            return state, []
        if state["status"] not in allowed:
            raise LoomError(
                "BAD_STATUS",
                f"the run is {state['status']}",
                where=run.state_path,
                why=f"from {', '.join(allowed)} it can become {status}",
                hint=f"loomctl show {run_id}",
                exit_code=EXIT_USAGE,
            )
        return {**state, "status": status}, [Event(event, {"before": state["status"]}, space.caller.session_id)]

    return run._replace(state=space.store.update(run_id, change))


def wait_for_answer(space: Workspace, run: Run, entry: Mapping[str, Any], message: str) -> str:
    """Let the run wait for its user, who is told so: the assistant stopped twice without a result."""
    from loomctl.kit.text.secrets import masked_line

    session_id = space.caller.session_id
    words = masked_line(message[:_LOOKED_AT], _LAST_WORDS)

    def change(state: State) -> tuple[State, list[Event]]:
        now = visits.open_visit(state)
        if now is None or now["stage"] != entry["stage"] or not standing.is_under_way(state) or "feedback" in state:
            return state, []
        waits = Event("run.awaiting_feedback", {"stage": entry["stage"]}, session_id, entry["step_id"])
        return standing.awaiting(state, entry, words, at=clock.now()), [waits]

    space.store.update(run.run_id, change, patience=HOOK_PATIENCE)
    return f"Loom: {entry['step_id']} waits for your answer; the run goes on when you give it."


def pause_at_cap(space: Workspace, run: Run) -> str:
    """Pause a run whose assistant the host lets stop now, whatever a hook says; gives the line for its user."""

    def change(state: State) -> tuple[State, list[Event]]:
        return paused_at_cap(state, space.caller.session_id) if standing.is_under_way(state) else (state, [])

    space.store.update(run.run_id, change, patience=HOOK_PATIENCE)
    return say_paused(run.run_id)


def paused_at_cap(state: State, session_id: str | None) -> tuple[State, list[Event]]:
    """Give the state of such a run, and the event."""
    happened = Event("run.paused", {"before": state["status"], "reason": "stop_block_cap"}, session_id)
    return {**standing.answered(state), "status": "paused"}, [happened]


def say_paused(run_id: str, before: str = "") -> str:
    """Say that a run is paused so, and how it goes on."""
    return (
        f"Loom: {before}The run is paused: the assistant stopped as often as it may be sent on. "
        f"To go on: loomctl resume {run_id}"
    )
