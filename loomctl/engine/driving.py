"""Driving a run: its next step, the end of a step, and back; approval, pause and cancel (D27, D31)."""

from __future__ import annotations

from loomctl.disk import clock
from loomctl.disk.events import Event
from loomctl.disk.local import TERMINAL
from loomctl.engine import finding, presence, priming, prompts, stages
from loomctl.model import run_life, sessions, triggers
from loomctl.model.errors import EXIT_USAGE, LoomError
from loomctl.model.fences import one_line
from loomctl.model.records import NamedTuple
from loomctl.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Conversation, Workspace
    from loomctl.engine.priming import Slip
    from loomctl.model.state import State


class Settled(NamedTuple):
    """Where a run came to rest.

    entered: the phases that were entered, as (before, after); engine_primed: a step that is only a priming was
    passed (D7).
    """

    state: State
    happened: list[Event]
    entered: list[tuple[str | None, str]]
    engine_primed: bool
    move: run_life.Move


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


def settle(space: Workspace, run: Run, state: State) -> Settled:
    """Go on to the first step that is not done: pass what the engine does itself, open a visit, write its prompt."""
    happened: list[Event] = []
    entered: list[tuple[str | None, str]] = []
    engine_primed = False
    session_id = space.caller.session_id
    while True:
        at = clock.now()
        asked_before = len(state["pending_approvals"])
        phase_before = state.get("current_phase")
        state, move = run_life.advance(state, run.plan, at=at)
        if move.after is not None:
            if phase_before and state["phases"].get(phase_before, {}).get("status") == "completed":
                happened.append(Event("phase.completed", {"phase": phase_before}, session_id))
                state = sessions.completed_phase(state, session_id, phase_before)
            happened.append(Event("phase.started", {"phase": move.after, "before": move.before}, session_id))
            entered.append((move.before, move.after))
        if move.kind == "approval" and len(state["pending_approvals"]) > asked_before:
            happened.append(Event("approval.requested", dict(state["pending_approvals"][-1]), session_id, move.step))
        if move.kind == "completed":
            if phase_before:
                state = sessions.completed_phase(state, session_id, phase_before)
            happened.append(Event("run.completed", {}, session_id))
        if move.kind != "step" or move.step is None:
            return Settled(state, happened, entered, engine_primed, move)
        place = run_life.place_of(run.plan, move.step)
        assert place is not None  # advance chose it from this plan
        by_engine = bool(place.step.get("engine"))
        opened_before = run_life.open_visit(state)
        state, entry = run_life.start_visit(state, place.key, str(place.phase["id"]), at=at, by_engine=by_engine)
        if by_engine:
            state, _ = run_life.end_visit(state, run.plan, outcome="succeeded", at=at)
            engine_primed = True
            continue
        if entry is not opened_before:
            known = prompts.placeholder_values(space.project, run._replace(state=state))
            stages.set_aside(run.folder, entry["stage"])  # of a visit that was undone
            stages.write_prompt(run.folder, entry["stage"], prompts.step_prompt(place, entry["visit"], known))
            happened.append(
                Event("stage.started", {"stage": entry["stage"], "visit": entry["visit"]}, session_id, place.key)
            )
        return Settled(state, happened, entered, engine_primed, move)


def rest_here(space: Workspace, run: Run, state: State) -> Settled:
    """Settle where the assistant is not told of it; what a phase that is entered loads is owed to the next telling."""
    if not _goes_on(state):
        return _rest(state)
    settled = settle(space, run, state)
    facts = _facts(settled)
    if not facts:
        return settled
    owed = _owed(settled.state)
    more = [fact for fact in facts if fact not in owed]
    return settled._replace(state={**settled.state, "pending_triggers": [*owed, *more]})


def _gone_on(space: Workspace, run: Run, state: State) -> Settled:
    """Settle as far as the run goes on; what a phase loads is owed to the run's session where another one enters it."""
    if not _goes_on(state):
        return _rest(state)
    return settle(space, run, state) if finding.is_bound(space, run.run_id) else rest_here(space, run, state)


def primed_for(space: Workspace, run: Run, settled: Settled) -> Slip | None:
    """Make the slip of the phase transitions that were made or are owed to this session; None where there is none."""
    owed = _owed(run.state) if finding.is_bound(space, run.run_id) else []
    facts = [*owed, *(fact for fact in _facts(settled) if fact not in owed)]
    if not facts:
        return None
    return priming.prime(space, run, triggers.of_facts(facts), priming.command_budget(space), may_write=True)


def with_owed(event: triggers.Event, state: Mapping[str, Any]) -> triggers.Event:
    """Add to an event what phases entered at a Stop still owe."""
    return event._replace(facts=(*event.facts, *_owed(state)))


def _facts(settled: Settled) -> list[str]:
    facts = [fact for before, after in settled.entered for fact in triggers.phase_transition(before, after).facts]
    return [*facts, triggers.MANUAL] if settled.engine_primed else facts


def _owed(state: Mapping[str, Any]) -> list[str]:
    """Give the facts of phases that were entered while no assistant was told (at a Stop)."""
    owed = state.get("pending_triggers")
    return [fact for fact in owed if isinstance(fact, str)] if isinstance(owed, list) else []


def next_step(space: Workspace, run_id: str) -> Driven:
    """Give the step that is to be worked on, opening its visit if need be; what is closing is closed first (D27)."""
    run = space.store.read(run_id)
    notes: list[str] = []
    closed: list[Mapping[str, Any]] = []
    settled: list[Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        happened: list[Event] = []
        _refuse_standing(state, run_id)
        state, ended, said = close_pending(space, run, state, happened)
        if ended is not None:
            closed.append(ended)
            notes.append(said)
        result = _gone_on(space, run, state)
        settled.append(result)
        return sessions.active(result.state, space.caller.session_id, at=clock.now()), happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    ended = closed[0] if closed else None
    made = _tell(space, run, settled[0])
    presence.note_stage(space, run.state)
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
    run = space.store.read(run_id)
    held: dict[str, Any] = {"notes": [], "settled": None, "ended": None, "closing": None}

    def change(state: State) -> tuple[State, list[Event]]:
        happened: list[Event] = []
        _refuse_over(state, run_id)  # a paused run keeps the result, and goes no further
        entry = run_life.open_visit(state)
        if entry is None:
            waits = bool(state["pending_approvals"])
            raise LoomError(
                "NO_OPEN_STEP",
                f"no step of this run is being worked on (status {state['status']})",
                where=run.folder,
                why="the run waits for its user's approval" if waits else "",
                hint=f"loomctl {'approve' if waits else 'next'} {run_id}",
                exit_code=EXIT_USAGE,
            )
        _refuse_moved(space, run_id, entry)
        before = _object(entry.get("closing"))
        word = outcome or before.get("outcome")
        said = note or str(before.get("note") or "")
        made = {**_object(before.get("artifacts")), **(artifacts or {})}
        if response is not None:
            state, held["ended"] = end(
                space, run, state, happened, response, outcome=word, note=said, artifacts=made, source="done"
            )
        else:
            state = run_life.mark_closing(
                state, outcome=word, note=said, artifacts=made, at=clock.now(), session_id=space.caller.session_id
            )
            if entry["status"] != "closing":
                held["closing"] = run_life.open_visit(state)
                closing = Event("stage.closing", {"stage": entry["stage"]}, space.caller.session_id, entry["step_id"])
                return sessions.active(state, space.caller.session_id, at=clock.now()), [closing]
            state, held["ended"], closed = close_pending(space, run, state, happened)
            held["notes"].append(closed)
        result = _gone_on(space, run, state)
        held["settled"] = result
        return sessions.active(result.state, space.caller.session_id, at=clock.now()), happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    if held["closing"] is not None:
        return Driven(run, run_life.Move("step", step=held["closing"]["step_id"]), closing=held["closing"])
    made = _tell(space, run, held["settled"])
    presence.note_stage(space, run.state)
    notes = [*held["notes"], *_unregistered(run, held["ended"])]
    return Driven(run, held["settled"].move, ended=held["ended"], slip=made, notes=notes)


def _unregistered(run: Run, ended: Mapping[str, Any]) -> list[str]:
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
    closing = _object(entry.get("closing"))
    response, source = message, "conversation"
    if response is None:
        response, source = _conversation_of(space, closing).said_since(entry["started_at"]), "transcript"
    if response is None:
        response, source = stages.read_text(run.folder, entry["stage"], stages.CANDIDATE), "candidate"
    if response is None:
        source = "none"
    artifacts = _object(closing.get("artifacts"))
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


def is_closing_here(space: Workspace, state: Mapping[str, Any]) -> bool:
    """Tell whether a closing step may be closed for this session: its own, or of one that lives no more (D27)."""
    entry = run_life.open_visit(state)
    if entry is None or entry["status"] != "closing":
        return False
    owner = _object(entry.get("closing")).get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return True
    binding = space.local.binding(owner)
    return binding is None or not space.local.is_alive(binding)


def _conversation_of(space: Workspace, closing: Mapping[str, Any]) -> Conversation:
    """Give the conversation in which a step was marked as closing, as far as this machine knows it."""
    owner = closing.get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return space.caller.conversation
    path = (space.local.binding(owner) or {}).get("transcript_path")
    return space.caller.conversation.another(path if isinstance(path, str) else None)


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
        state, ended, how = close_pending(space, run, state, happened, message=message)
        if ended is None:
            return state, []
        result = rest_here(space, run, state)
        driven = Driven(run._replace(state=result.state), result.move)
        how = how if message is None else f"{ended['step_id']} {ended['status']}."
        said.append(f"Loom: {how} {say_move(driven)}")
        return sessions.active(result.state, space.caller.session_id, at=clock.now()), happened + result.happened

    space.store.update(run_id, change, patience=2.0)
    return said[0] if said else ""


def undo(space: Workspace, run_id: str) -> Driven:
    """Take the last `done` back (D31): the step is open again, its response is kept aside."""
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
        state, entry = run_life.undone(state, run.plan)
        stages.set_aside(run.folder, entry["stage"])
        session_id = space.caller.session_id
        happened = [Event("stage.undone", {"stage": entry["stage"]}, session_id, entry["step_id"])]
        return sessions.active(state, session_id, at=clock.now()), happened

    run = run._replace(state=space.store.update(run_id, change))
    presence.note_stage(space, run.state)
    entry = run_life.open_visit(run.state)
    return Driven(run, run_life.Move("step", step=entry["step_id"] if entry else None))


def approve(space: Workspace, run_id: str) -> Driven:
    """Grant what the run asks for and go on."""
    run = space.store.read(run_id)
    settled: list[Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        _refuse_over(state, run_id)
        state, granted = run_life.approved(state, at=clock.now())
        happened = [Event("approval.granted", {"id": name}, space.caller.session_id) for name in granted]
        # An approval from a terminal is not read by the assistant: what the phase loads is owed to its next `next`.
        result = rest_here(space, run, state) if space.caller.host == TERMINAL else settle(space, run, state)
        settled.append(result)
        return result.state, happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    made = None if space.caller.host == TERMINAL else _tell(space, run, settled[0])
    return Driven(run, settled[0].move, slip=made)


def set_standing(space: Workspace, run_id: str, status: str, event: str, *, allowed: Sequence[str]) -> Run:
    """Pause or cancel a run. allowed: the statuses from which that can be done; raises BAD_STATUS from others."""
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
        if state["status"] not in allowed:
            raise LoomError(
                "BAD_STATUS",
                f"the run is {state['status']}",
                where=run.folder,
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
            one_line(str(item.get("reason") or item.get("id")), 200) for item in state["pending_approvals"]
        )
        return f"The run waits for approval: {asked}. Its user decides: loomctl approve {driven.run.run_id}"
    if driven.move.kind == "completed":
        return "The run is completed."
    if driven.move.kind == "failed":
        return f"The run failed. To try the step again: loomctl resume {driven.run.run_id}"
    if driven.move.kind == "paused":
        return f"The run is paused. To go on: loomctl resume {driven.run.run_id}"
    return f"Now: {driven.move.step}"


def _tell(space: Workspace, run: Run, settled: Settled) -> Slip | None:
    """Make the slip of what was entered, and record it."""
    made = primed_for(space, run, settled)
    if made is None:
        return None
    made = record(space, run.run_id, made)
    return made if made.loaded or made.failed else None


def record(space: Workspace, run_id: str, made: Slip, *, may_write: bool = True) -> Slip:
    """Remember what a slip gave, here and (if the caller may write it) in the run.

    Where that cannot be, the slip says so and is given all the same.
    """
    try:
        priming.remember(space, made)
        if may_write:
            space.store.update(run_id, lambda state: priming.recorded(space, state, made), durable=False)
    except (LoomError, OSError) as error:
        return made._replace(
            warnings=[*made.warnings, ("NOT_RECORDED", f"this priming could not be recorded: {error}")]
        )
    return made


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _goes_on(state: Mapping[str, Any]) -> bool:
    return state["status"] in ("pending", "in_progress")


def _rest(state: State) -> Settled:
    status = state["status"]
    kind = "approval" if status == "awaiting_feedback" else status
    return Settled(state, [], [], False, run_life.Move(kind, step=state.get("current_step")))


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
        exit_code=EXIT_USAGE,
    )


def _refuse_over(state: Mapping[str, Any], run_id: str) -> None:
    if state["status"] in OVER:
        raise LoomError(
            "BAD_STATUS",
            f"the run is {state['status']}",
            hint=f"loomctl resume {run_id} --reopen",
            exit_code=EXIT_USAGE,
        )
