"""The end of a step: its files, its outcome, and the message that a closing step still waits for (D27)."""

from __future__ import annotations

from loomctl.disk import clock
from loomctl.disk.events import Event
from loomctl.disk.local import TERMINAL
from loomctl.engine import stages
from loomctl.model import run_life
from loomctl.model.errors import EXIT_HELD, LoomError
from loomctl.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Conversation, Workspace
    from loomctl.model.state import State


def end(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    response: str | None,
    *,
    outcome: str | None,
    note: str,
    artifacts: Mapping[str, str],
    source: str,
) -> tuple[State, Mapping[str, Any]]:
    """End the open visit: its files first, then the state; adds to `happened` what did.

    source: where the response came from: `done`, `conversation`, `transcript`, `candidate` or `none`.
    """
    entry = run_life.open_visit(state)
    assert entry is not None  # callers looked
    at = clock.now()
    outcome = outcome or "succeeded"
    status = {
        "schema_version": 1,
        "run_id": run.run_id,
        "step_id": entry["step_id"],
        "stage": entry["stage"],
        "visit": entry["visit"],
        "status": outcome,
        "started_at": entry["started_at"],
        "completed_at": at,
        "response_source": source,
        "note": note,
        "artifacts": dict(artifacts),
        "session_id": space.caller.session_id,
    }
    stages.write_end(run.folder, entry["stage"], response, status)
    state = run_life.without_closing(state)
    state, follows = run_life.end_visit(state, run.plan, outcome=outcome, at=at, note=note, artifacts=artifacts)
    properties = {"stage": entry["stage"], "status": outcome, "response_source": source, "follows": follows}
    happened.append(Event("stage.completed", properties, space.caller.session_id, entry["step_id"]))
    if follows == "stop":
        happened.append(Event("run.failed", {"step_id": entry["step_id"]}, space.caller.session_id, entry["step_id"]))
    ended = next(one for one in state["steps"] if one["stage"] == entry["stage"])
    return state, ended


def close_pending(
    space: Workspace, run: Run, state: State, happened: list[Event], *, message: str | None = None
) -> tuple[State, Mapping[str, Any] | None, str]:
    """Close a closing step with the conversation's final message, or with what can still be found (D27).

    message: the final message, from a Stop. Without it: the transcript's text since the step began, else the last
    candidate, else none. Gives the state, the visit that ended (None if none was closing) and a line that says so.
    In a run that is over nothing is closed any more (D4).
    """
    entry = run_life.open_visit(state)
    if entry is None or entry["status"] != "closing" or state["status"] in OVER:
        return state, None, ""
    closing = as_object(entry.get("closing"))
    response, source = message, "conversation"
    if response is None:
        response, source = _conversation_of(space, closing).said_since(entry["started_at"]), "transcript"
    if response is None:
        response, source = stages.read_text(run.folder, entry["stage"], stages.CANDIDATE), "candidate"
    if response is None:
        source = "none"
    artifacts = as_object(closing.get("artifacts"))
    state, ended = end(
        space,
        run,
        state,
        happened,
        response,
        outcome=closing.get("outcome"),
        note=str(closing.get("note") or ""),
        artifacts=artifacts,
        source=source,
    )
    words = {
        "conversation": "with its final message",
        "transcript": "with what the transcript holds since it began",
        "candidate": "with the last message that was kept",
        "none": "without a response: no transcript could be read",
    }
    return state, ended, f"{entry['step_id']} was closing; it is closed {words[source]}."


def is_closing_here(space: Workspace, state: Mapping[str, Any], *, with_a_message: bool = False) -> bool:
    """Tell whether a closing step may be closed for this session: its own, or of one that lives no more (D27).

    with_a_message: it would be closed with this session's final message; then it must be its own, for what another
    session says is no result of it.
    """
    entry = run_life.open_visit(state)
    if entry is None or entry["status"] != "closing":
        return False
    owner = as_object(entry.get("closing")).get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return True
    if with_a_message:
        return False
    binding = space.local.binding(owner)
    return binding is None or binding.get("host") == TERMINAL or not space.local.is_alive(binding)


def refuse_pending(space: Workspace, state: Mapping[str, Any], run_id: str) -> None:
    """Refuse to close a step whose own session is alive and about to give its result. Raises HELD."""
    entry = run_life.open_visit(state)
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
    """Give the conversation in which a step was marked as closing, as far as this machine knows it."""
    owner = closing.get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return space.caller.conversation
    path = (space.local.binding(owner) or {}).get("transcript_path")
    return space.caller.conversation.another(path if isinstance(path, str) else None)


def unregistered(run: Run, ended: Mapping[str, Any]) -> list[str]:
    """Say of a step that ended well which file it was asked to register and did not: later sessions will miss it."""
    place = run_life.place_of(run.plan, ended["step_id"])
    words = str(place.step.get("prompt") or "").split("--artifact ")[1:] if place else []
    given = [word.partition("=")[0] for word in words if "=" in word]
    names = {name for name in given if name.replace("-", "_").isidentifier() and not name.isupper()}
    if ended["status"] not in ("succeeded", "partially_succeeded"):
        return []
    return [
        f"{ended['step_id']} was asked to register {name}, and did not: give it with the next `loomctl done "
        f"--artifact {name}=PATH`, or `loomctl undo` and end the step again."
        for name in sorted(names - set(run.state["artifacts"]))
    ]


def as_object(value: object) -> dict[str, Any]:
    """Give what should be a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}
