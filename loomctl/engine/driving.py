"""Driving a run: its next step, the end of a step, and back; approval, pause and cancel (D27, D31)."""

from __future__ import annotations

from loomctl.disk import clock
from loomctl.disk.events import Event
from loomctl.disk.local import TERMINAL
from loomctl.disk.lock import HOOK_PATIENCE
from loomctl.engine import ending, presence, settling, stages
from loomctl.model import run_life, sessions
from loomctl.model.errors import EXIT_HELD, EXIT_USAGE, LoomError
from loomctl.model.records import NamedTuple
from loomctl.model.secrets import masked_line
from loomctl.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.engine.priming import Slip
    from loomctl.model.state import State


class Driven(NamedTuple):
    """What a verb did.

    ended: the visit that it ended, if any; slip: what a phase transition loaded, if one was made; closing: the visit
    whose response is still to come (D27); notes: lines that its user must see.
    """

    run: Run
    move: run_life.Move
    ended: Mapping[str, Any] | None = None
    slip: Slip | None = None
    closing: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()


def next_step(space: Workspace, run_id: str) -> Driven:
    """Give the step that is to be worked on, opening its visit if need be; what is closing is closed first (D27)."""
    notes = _recorded(space)
    run = space.store.read(run_id)
    closed: list[Mapping[str, Any]] = []
    settled: list[settling.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        happened: list[Event] = []
        _refuse_standing(state, run_id)
        ending.refuse_pending(space, state, run_id)
        state, ended, said = ending.close_pending(space, run, state, happened)
        if ended is not None:
            closed.append(ended)
            notes.append(said)
        result = settling.rest_here(space, run, state)
        settled.append(result)
        return sessions.active(result.state, space.caller.session_id, at=clock.now()), happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    ended = closed[0] if closed else None
    made = settling.tell(space, run, settled[0])
    notes += presence.noted_stage(space, run.state)
    return Driven(run, settled[0].move, ended=ended, slip=made, notes=notes)


def done(
    space: Workspace,
    run_id: str,
    *,
    response: str | None,
    outcome: str | None = None,
    note: str = "",
    artifacts: Mapping[str, str] | None = None,
) -> Driven:
    """End the current step, with a response or with the conversation's next final message (D27).

    response: None marks the step as closing. outcome: one of D32's words, None for `succeeded`.
    artifacts: `{name: portable path}` to register. What is given for a step that is closing is that step's own, and
    comes before what was given when it was marked.
    """
    noted = _recorded(space)
    run = space.store.read(run_id)
    held: dict[str, Any] = {"notes": noted, "settled": None, "ended": None, "closing": None}

    def change(state: State) -> tuple[State, list[Event]]:
        happened: list[Event] = []
        _refuse_over(state, run_id)  # a paused run keeps the result, and goes no further
        entry = run_life.open_visit(state)
        if entry is None:
            raise _nothing_open(run, state)
        _refuse_moved(space, run_id, entry)
        before = ending.as_object(entry.get("closing"))
        word = outcome or before.get("outcome")
        said = note or str(before.get("note") or "")
        made = {**ending.as_object(before.get("artifacts")), **(artifacts or {})}
        if response is not None:
            state, held["ended"] = ending.end(
                space, run, state, happened, response, outcome=word, note=said, artifacts=made, source="done"
            )
        else:
            ending.refuse_pending(space, state, run_id)
            state = run_life.mark_closing(
                state, outcome=word, note=said, artifacts=made, at=clock.now(), session_id=space.caller.session_id
            )
            if entry["status"] != "closing":
                held["closing"] = run_life.open_visit(state)
                closing = Event("stage.closing", {"stage": entry["stage"]}, space.caller.session_id, entry["step_id"])
                return sessions.active(state, space.caller.session_id, at=clock.now()), [closing]
            state, held["ended"], closed = ending.close_pending(space, run, state, happened)
            held["notes"].append(closed)
        result = settling.rest_here(space, run, state)
        held["settled"] = result
        return sessions.active(result.state, space.caller.session_id, at=clock.now()), happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    if held["closing"] is not None:
        return Driven(run, run_life.Move("step", step=held["closing"]["step_id"]), closing=held["closing"], notes=noted)
    made = settling.tell(space, run, held["settled"])
    notes = [*held["notes"], *presence.noted_stage(space, run.state), *ending.unregistered(run, held["ended"])]
    return Driven(run, held["settled"].move, ended=held["ended"], slip=made, notes=notes)


def close_with(space: Workspace, run_id: str, message: str | None) -> str:
    """Complete a closing step at a Stop with the conversation's final message; gives the line for the user.

    message: None where there is none, at a Stop or a session's start; then the line says what was taken instead.
    Nothing is handed to the assistant: the next step waits for `next`.
    """
    run = space.store.read(run_id)
    said: list[str] = []

    def change(state: State) -> tuple[State, list[Event]]:
        said.clear()
        happened: list[Event] = []
        state, ended, how = ending.close_pending(space, run, state, happened, message=message)
        if ended is None:
            return state, []
        result = settling.rest_here(space, run, state)
        driven = Driven(run._replace(state=result.state), result.move)
        how = how if message is None else f"{ended['step_id']} {ended['status']}."
        said.append(f"Loom: {how} {say_move(driven)}")
        return sessions.active(result.state, space.caller.session_id, at=clock.now()), happened + result.happened

    space.store.update(run_id, change, patience=HOOK_PATIENCE)
    return said[0] if said else ""


def undo(space: Workspace, run_id: str) -> Driven:
    """Take the last `done` back (D31): the step is open again, its response is kept aside."""
    notes = _recorded(space)
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
        state, entry = run_life.undone(state, run.plan)
        stages.set_aside(run.folder, entry["stage"])
        session_id = space.caller.session_id
        happened = [Event("stage.undone", {"stage": entry["stage"]}, session_id, entry["step_id"])]
        return sessions.active(state, session_id, at=clock.now()), happened

    run = run._replace(state=space.store.update(run_id, change))
    notes += presence.noted_stage(space, run.state)
    entry = run_life.open_visit(run.state)
    kind = "paused" if run.state["status"] == "paused" else "step"
    return Driven(run, run_life.Move(kind, step=entry["step_id"] if entry else None), notes=notes)


def approve(space: Workspace, run_id: str) -> Driven:
    """Grant what the run asks for and go on."""
    notes = _recorded(space)
    run = space.store.read(run_id)
    settled: list[settling.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        _refuse_over(state, run_id)
        state, granted = run_life.approved(state, at=clock.now())
        happened = [Event("approval.granted", {"id": name}, space.caller.session_id) for name in granted]
        result = settling.rest_here(space, run, state)
        settled.append(result)
        return result.state, happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    # An approval from a terminal is not read by the assistant: what the phase loads is owed to its next `next`.
    made = None if space.caller.host == TERMINAL else settling.tell(space, run, settled[0])
    return Driven(run, settled[0].move, slip=made, notes=notes)


def set_standing(space: Workspace, run_id: str, status: str, event: str, *, allowed: Sequence[str]) -> Run:
    """Pause or cancel a run. allowed: the statuses from which that can be done; raises BAD_STATUS from others."""
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
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


def say_move(driven: Driven) -> str:
    """Say in one line where the run stands after a verb."""
    state = driven.run.state
    if driven.move.kind == "approval":
        asked = "; ".join(
            masked_line(str(item.get("reason") or item.get("id")), 200) for item in state["pending_approvals"]
        )
        return f"The run waits for approval: {asked}. Its user decides: loomctl approve {driven.run.run_id}"
    if driven.move.kind == "completed":
        return "The run is completed."
    if driven.move.kind == "failed":
        return f"The run failed. To try the step again: loomctl resume {driven.run.run_id}"
    if driven.move.kind == "paused":
        return f"The run is paused. To go on: loomctl resume {driven.run.run_id}"
    if driven.ended is not None and driven.ended["status"] == "failed" and driven.ended["step_id"] == driven.move.step:
        return f"Now: {driven.move.step}, tried again"
    return f"Now: {driven.move.step}"


def _recorded(space: Workspace) -> list[str]:
    """Digest what tools gave, before anything changes; what a session's start imports is kept small."""
    from loomctl.engine import recording

    return recording.noted(space)


def _refuse_standing(state: Mapping[str, Any], run_id: str) -> None:
    status = state["status"]
    if status in ("paused", "failed"):
        raise LoomError(
            "BAD_STATUS",
            f"the run is {status}",
            why="a run that is paused or failed goes on after it was resumed",
            hint=f"loomctl resume {run_id}",
            exit_code=EXIT_USAGE,
        )
    _refuse_over(state, run_id)


_AFTER = {"paused": "resume", "failed": "resume"}


def _nothing_open(run: Run, state: Mapping[str, Any]) -> LoomError:
    waits = bool(state["pending_approvals"])
    return LoomError(
        "NO_OPEN_STEP",
        f"no step of this run is being worked on (status {state['status']})",
        where=run.state_path,
        why="the run waits for its user's approval" if waits else "",
        hint=f"loomctl {'approve' if waits else _AFTER.get(state['status'], 'next')} {run.run_id}",
        exit_code=EXIT_USAGE,
    )


def _refuse_moved(space: Workspace, run_id: str, entry: Mapping[str, Any]) -> None:
    """Refuse a `done` that was meant for another visit than the open one: the caller was not told of this one."""
    binding = space.local.binding(space.caller.session_id) or {}
    told = binding.get("stage")
    if binding.get("run_id") != run_id or not isinstance(told, str) or told == entry.get("stage"):
        return
    raise LoomError(
        "STAGE_MOVED",
        f"the run has gone on to {entry['step_id']} since this session was told of {binding.get('step')}",
        why="a step is ended by who worked on it",
        hint=f"loomctl next {run_id}",
        exit_code=EXIT_HELD,
    )


def _refuse_over(state: Mapping[str, Any], run_id: str) -> None:
    if state["status"] in OVER:
        raise LoomError(
            "BAD_STATUS",
            f"the run is {state['status']}",
            hint=f"loomctl resume {run_id} --reopen",
            exit_code=EXIT_USAGE,
        )
