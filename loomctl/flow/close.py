"""A step that is closing waits for its response: the final message of the session that marked it (D27)."""

from __future__ import annotations

from loomctl.kit import clock
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError
from loomctl.kit.lock import HOOK_PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.runs import leases, stages
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import lease, standing, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow.finish_records import Ended, Gathered, Given
    from loomctl.runs.caller import Conversation, Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

_WORDS = {
    "conversation": "with its final message",
    "transcript": "with what the transcript holds since it began",
    "candidate": "with the last message that was kept",
    "none": "without a response: no message since it began can be read",
}


class Ready(NamedTuple):
    """What a closing visit is to be ended with, and what was found out about its end."""

    given: Given
    known: Gathered


def ready(space: Workspace, run: Run, state: Mapping[str, Any]) -> Ready | None:
    """Find the response of the visit that is closing; None where none is, or the run is over (D4). Takes no lock.

    It is the transcript's text since the step began, else the last candidate, else none.
    """
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing" or state["status"] in OVER:
        return None
    from loomctl.changes import track
    from loomctl.flow import finish  # of most visits none is closing
    from loomctl.flow.finish_records import Given, with_mark

    began = clock.exact_stamp(track.began_at(space, run, entry))
    response, source = _conversation_of(space, as_object(entry.get("closing"))).said_since(began), "transcript"
    if response is None:
        response, source = stages.read_text(run.folder, entry["stage"], stages.CANDIDATE), "candidate"
    given = Given(response, "none" if response is None else source)
    return Ready(given, finish.gather(space, run, entry, with_mark(entry, given)))


def is_of(space: Workspace, entry: Mapping[str, Any]) -> bool:
    """Tell whether the caller's own session marked a visit as closing."""
    owner = as_object(entry.get("closing")).get("session_id")
    return owner is not None and owner == space.caller.session_id


def close(
    space: Workspace, run: Run, state: State, happened: list[Event], found: Ready | None
) -> tuple[Ended | None, str]:
    """End the visit that is closing; gives what came of it, None if none is, and a line that says so.

    found: what was made ready before the lock was taken. A step whose answer has to be repaired is open again; what is
    to be given is in `Ended.repair`.
    """
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing" or state["status"] in OVER:
        return None, ""
    if found is None or found.known.for_stage != entry["stage"]:
        found = ready(space, run, state)
        assert found is not None  # it is closing
    from loomctl.flow import finish
    from loomctl.flow.finish_records import Ended, is_result, with_mark

    given = with_mark(entry, found.given)  # as it is marked by now
    if not is_result(given):
        said = f"{entry['step_id']} has no result yet. Give one: {visits.done_command(entry)} --response-file result.md"
        return Ended(visits.without_closing(state), None, found.known.reading), said
    ended = finish.end(space, run, state, happened, given, found.known)
    if ended.entry is None:
        said = f"{entry['step_id']} was closing; what it answered has to be repaired, and it is open again."
        return ended._replace(state=visits.without_closing(ended.state)), said
    return ended, f"{entry['step_id']} was closing; it is closed {_WORDS[found.given.source]}."


def is_closing_here(space: Workspace, state: Mapping[str, Any], *, with_a_message: bool = False) -> bool:
    """Tell whether a closing step may be closed for this session: its own, or of one that lives or drives no more.

    with_a_message: it would be closed with this session's final message; then it must be its own, for what another
    session says is no result of it.
    """
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing":
        return False
    owner = as_object(entry.get("closing")).get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return True
    if with_a_message:
        return False
    driver = lease.holder(state)
    if driver is not None and driver.session_id != owner:  # it was taken over, so its final message ends nothing
        return True
    binding = space.local.binding(owner)
    return binding is None or binding.get("host") == TERMINAL or not space.local.is_alive(binding)


def refuse_pending(space: Workspace, state: Mapping[str, Any], run_id: str) -> None:
    """Refuse to close a step whose own session is alive and about to give its result. Raises HELD."""
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing" or is_closing_here(space, state):
        return
    owner = as_object(entry.get("closing")).get("session_id")
    raise LoomError(
        "HELD",
        f"the step {entry['step_id']} is being ended by the session {str(owner)[:60]}, which is alive",
        why="its result is expected as that session's final message; with --response-file you end the step yourself",
        hint=f"loomctl show {run_id}",
        exit_code=EXIT_HELD,
    )


def _conversation_of(space: Workspace, closing: Mapping[str, Any]) -> Conversation:
    owner = closing.get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return space.caller.conversation
    path = (space.local.binding(owner) or {}).get("transcript_path")
    return space.caller.conversation.another(path if isinstance(path, str) else None)


def as_object(value: object) -> dict[str, Any]:
    """Give what should be a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


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
