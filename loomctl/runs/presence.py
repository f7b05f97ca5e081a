"""A session comes to a run and leaves it: its record, its machine, and the records that others left open (D24-D26)."""

from __future__ import annotations

from loomctl.kit import clock, git, machine, trouble
from loomctl.kit.errors import LoomError
from loomctl.runs import leases
from loomctl.runs.model import sessions, visits
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State


def surroundings(space: Workspace) -> dict[str, Any]:
    """Describe this machine for a session record; asks git, so it is done before a lock is taken."""
    return machine.environment(space.project.root, space.caller.cwd, on_hook_path=space.caller.on_hook_path)


def without_git(space: Workspace) -> list[str]:
    """Say what cannot be known of a repository where there is no git to ask; empty where that is no loss."""
    import shutil

    if git.top_of(space.project.root) is None or shutil.which("git") is not None:
        return []
    return ["There is no git on PATH: changed files are not noticed here, and what git would tell is left out."]


def enter(
    space: Workspace, state: State, source: str, environment: Mapping[str, Any], *, compaction: str = "auto"
) -> tuple[State, list[Event]]:
    """Record that the caller's session works on the run; a caller without a session changes nothing.

    source: the host's word (startup, resume, clear, fork, compact) or `bound`.
    """
    session_id = space.caller.session_id
    if session_id is None:
        return state, []
    at = clock.now()
    known = sessions.record_of(state, session_id) is not None
    earlier = None
    if not known and sessions.count(state) > len(sessions.history(state)):
        from loomctl.runs.store import recovery

        earlier = recovery.earlier_session(space.store.run_dir(state["run_id"]), session_id)
    known = known or earlier is not None
    alive = set(space.local.live_sessions(state["run_id"]))
    lost_before = {record.get("session_id") for record in sessions.history(state) if record.get("ended_at")}
    state = sessions.entered(
        state,
        session_id,
        host=space.caller.host,
        source=source,
        at=at,
        environment=environment,
        alive=alive,
        compaction=compaction,
        earlier=earlier,
    )
    if source == "compact":
        state = sessions.forgotten(state)
    happened = [
        Event("session.lost", {"session_id": record["session_id"]}, session_id)
        for record in sessions.history(state)
        if record.get("end_reason") == "lost" and record.get("session_id") not in lost_before
    ]
    if source == "compact":
        happened.append(Event("session.compacted", {"trigger": compaction}, session_id))
    elif not known:
        origin = (space.local.binding(session_id) or {}).get("inherited_from")  # whose run it took over (D2)
        properties = {"source": source, "hostname": environment.get("hostname")}
        properties |= {"inherited_from": origin} if isinstance(origin, str) else {}
        happened.append(Event("session.started", properties, session_id))
    elif source != "bound":
        happened.append(Event("session.resumed", {"source": source}, session_id))
    return state, happened


def active(space: Workspace, state: State) -> State:
    """Note the session's last sign of life, and at which commit it gave it: what a resume elsewhere compares with."""
    return sessions.active(state, space.caller.session_id, at=clock.now(), commit=_commit(space))


def _commit(space: Workspace) -> str | None:
    top = git.top_of(space.project.root)
    return git.head(top).commit if top is not None else None


def note_stage(
    space: Workspace,
    state: Mapping[str, Any],
    *,
    transcript_path: str | None = None,
    told: bool = True,
) -> None:
    """Note in the session's binding which visit it was told of: another session may end it meanwhile (design §4).

    It is a sign of life besides. transcript_path: what a hook event tells of it; told: False where nothing was said.
    """
    binding = space.local.binding(space.caller.session_id)
    if binding is None or binding["run_id"] != state["run_id"]:
        return
    entry = visits.open_visit(state)
    if told:
        here = {"step": entry["step_id"], "stage": entry.get("stage")} if entry else {"step": None, "stage": None}
        binding = {**binding, **here}
    space.local.refresh(binding, pid=space.caller.pid, transcript_path=transcript_path)


def noted_stage(space: Workspace, state: Mapping[str, Any]) -> list[str]:
    """Note the same after what cannot be taken back: what goes wrong is given as a line for the user, not raised.

    A branch is worked on beside the session's own line, which stays at its parallel step.
    """
    if visits.is_branch(state):
        return []
    try:
        note_stage(space, state)
    except (OSError, LoomError) as error:
        return [f"What this session was told of could not be noted ({trouble.said(error)})."]
    return []


def leave(space: Workspace, run_id: str, reason: str) -> None:
    """Close the caller's record when its conversation ends, and give the lease up: one small write (D26)."""
    session_id = space.caller.session_id
    if session_id is None:
        return
    commit = _commit(space)

    def change(state: State) -> tuple[State, list[Event]]:
        closed = sessions.left(state, session_id, at=clock.now(), reason=reason, commit=commit)
        ended = Event("session.ended", {"reason": reason}, session_id)
        if reason == "clear":  # its process goes on, and the session that comes inherits (D2)
            return closed, [ended]
        freed, gave_up = leases.release(closed, session_id, reason)
        return freed, [*gave_up, ended]

    try:
        leases.watching(space).store.update(run_id, change, durable=False, patience=0.5)
    finally:
        if reason != "clear":  # also where the state could not be written: nobody waits for who went
            leases.forget(space, run_id)
