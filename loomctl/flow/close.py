"""A step that is closing waits for its response: the final message of the session that marked it (D27)."""

from __future__ import annotations

from loomctl.kit import clock
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.runs import stages
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import lease, visits
from loomctl.runs.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.finish_records import Ended, Gathered, Given
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Conversation, Workspace
    from loomctl.runs.store.events import Event
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
