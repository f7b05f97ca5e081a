"""Where a run comes to rest after a change: what the engine passes, the visit it opens, what it owes (D7, D13)."""

from __future__ import annotations

from loomctl.flow.route import run_life
from loomctl.kit import clock
from loomctl.kit.records import NamedTuple
from loomctl.priming import memory_of_session, prime_run
from loomctl.runs import find, stages
from loomctl.runs.model import places, sessions, standing, visits
from loomctl.runs.store.events import Event
from loomctl.workflows.model import gates, phase_marks, triggers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.priming.primed import Slip
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run


_WARNINGS = 5  # of a preamble that the event of a stage's start names


class Settled(NamedTuple):
    """Where a run came to rest.

    entered: the phases that were entered, as (before, after); engine_primed: a step that is only a priming was
    passed (D7). opened: the visit that was opened, if one was. left: branches that a join on the way went on
    without, as they were seen then (D43).
    """

    state: State
    happened: list[Event]
    entered: list[tuple[str | None, str]]
    engine_primed: bool
    move: run_life.Move
    opened: Mapping[str, Any] | None = None
    left: Sequence[Run] = ()


def settle(space: Workspace, run: Run, state: State) -> Settled:
    """Go on to the first step that is not done: pass what the engine does itself, open a visit, write its prompt."""
    happened: list[Event] = []
    entered: list[tuple[str | None, str]] = []
    engine_primed = False
    while True:
        at = clock.now()
        state, move = _advanced(run, state, happened, space.caller.session_id, at=at)
        if move.after is not None:
            entered.append((move.before, move.after))
        if move.kind != "step" or move.step is None:
            return Settled(state, happened, entered, engine_primed, move)
        place = places.place_of(run.plan, move.step)
        assert place is not None  # advance chose it from this plan
        if not place.step.get("engine"):
            came = _come_to(space, run, state, happened, place, move, at=at)
            return came._replace(
                happened=happened, entered=[*entered, *came.entered], engine_primed=engine_primed or came.engine_primed
            )
        engine_primed = True
        state, goes_on = _primed(space, run, state, happened, place, at=at)
        if not goes_on:
            return Settled(state, happened, entered, engine_primed, rest(state).move)


def _advanced(
    run: Run, state: State, happened: list[Event], session_id: str | None, *, at: str
) -> tuple[State, run_life.Move]:
    """Make the next step current; adds to `happened` what that means for phases, approvals and the run."""
    asked_before = len(state["pending_approvals"])
    given_before = state.get("approvals", [])
    phase_before = state.get("current_phase")
    phases_before = state["phases"]
    in_a_branch = visits.is_branch(state)  # whose end is none of its phase, nor of its run
    state, move = run_life.advance(state, run.plan, at=at)
    if not in_a_branch:
        happened += _left(phases_before, state["phases"], session_id)
    happened += _lapsed(given_before, state.get("approvals", []), session_id)
    if move.after is not None:
        if phase_before and state["phases"].get(phase_before, {}).get("status") == "completed":
            state = sessions.completed_phase(state, _worked(state, session_id), phase_before)
        happened.append(Event("phase.started", {"phase": move.after, "before": move.before}, session_id))
    if move.kind == "approval" and len(state["pending_approvals"]) > asked_before:
        happened.append(Event("approval.requested", dict(state["pending_approvals"][-1]), session_id, move.step))
    if move.kind == "completed" and not in_a_branch:
        if phase_before:
            state = sessions.completed_phase(state, _worked(state, session_id), phase_before)
        from loomctl.flow.end import blob_count  # once in a run

        counted = {"artifact_count": blob_count.offloaded(run.folder, state)}
        happened.append(Event("run.completed", counted, session_id))
    return state, move


def _come_to(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    place: places.Place,
    move: run_life.Move,
    *,
    at: str,
) -> Settled:
    """Come to a step that somebody works on: its visit is opened; what a person decides is asked for."""
    state, opened = _opened(space, run, state, happened, place, at=at)
    late = _joined_late(space, run, state, happened, place) if opened is None else None
    if late is not None:
        return late
    if places.is_human(place.step):
        state, move = asking(space, run, state, happened, at=at), run_life.Move("approval", step=place.key)
    return Settled(state, happened, [], False, move, opened)


def _primed(
    space: Workspace, run: Run, state: State, happened: list[Event], place: places.Place, *, at: str
) -> tuple[State, bool]:
    """Pass a step that is only a priming; gives whether the run goes on from there."""
    state, _ = visits.start_visit(state, place.key, str(place.phase["id"]), at=at, by_engine=True)
    from loomctl.flow.route import route_conditions  # most steps are more than a priming

    judge = route_conditions.judge(space, run)
    came = run_life.end_visit(state, run.plan, outcome="succeeded", at=at, judge=judge)
    session_id = space.caller.session_id
    happened.append(Event("step.primed", {}, session_id, place.key))
    if came.follows == "stop":
        told = {"step_id": place.key, "failure_reason": came.way.why}
        happened.append(Event("run.failed", told, session_id, place.key))
    return came.state, came.follows != "stop"


def _joined_late(
    space: Workspace, run: Run, state: State, happened: list[Event], place: places.Place
) -> Settled | None:
    """Join a parallel step whose branches have ended while the run stood still; None where there is nothing to join."""
    if not place.step.get("parallel"):
        return None
    from loomctl.flow import join  # most steps have no branches
    from loomctl.workflows.model import branches

    now = join.caught_up(run, state, happened, space.caller.session_id, at=clock.now())
    entry = branches.fan(now)
    found = join.joined(space, run, now, happened, branches.ended_last(entry), None) if entry is not None else None
    if found is None and now is not state:
        return Settled(now, happened, [], False, run_life.Move("step", step=place.key))
    return found


def asking(space: Workspace, run: Run, state: State, happened: list[Event], *, at: str) -> State:
    """Let a run whose open step a person decides wait for that; adds to `happened` that it was asked."""
    if gates.open_human(state, run.plan) is None:
        return state
    from loomctl.runs import run_values

    known = run_values.prompt_values(space.project, run._replace(state=state))
    waiting = gates.asked(state, run.plan, at=at, known=known)
    if waiting is not state:
        asked = dict(waiting["pending_approvals"][-1])
        happened.append(Event("approval.requested", asked, space.caller.session_id, asked["step_id"]))
    return waiting


def _opened(
    space: Workspace, run: Run, state: State, happened: list[Event], place: places.Place, *, at: str
) -> tuple[State, Mapping[str, Any] | None]:
    """Open a visit of a step and write its prompt; gives the visit, None where it was open already."""
    before = visits.open_visit(state)
    state, entry = visits.start_visit(state, place.key, str(place.phase["id"]), at=at)
    if place.step.get("parallel"):
        from loomctl.workflows.model import branches

        state = branches.waiting(branches.fanned_out(state, place.step))
    if entry is before:
        return state, None
    from loomctl.flow.preamble import preambles  # a hook that opens no step does not pay for it

    stages.set_aside(run.folder, entry["stage"])  # of a visit that was undone
    prompt, warnings = preambles.opening(space, run, state, place, entry["visit"])
    written = stages.write_prompt(run.folder, entry["stage"], prompt)
    properties = {"stage": entry["stage"], "visit": entry["visit"], "files_sha256": written}
    if warnings:
        properties["warnings"] = list(warnings[:_WARNINGS])
    happened.append(Event("stage.started", properties, space.caller.session_id, place.key))
    return state, entry


def _left(before: Mapping[str, Any], after: Mapping[str, Any], session_id: str | None) -> Iterator[Event]:
    """Say of each phase that it is completed or passed by now, or to be done again, and was not before."""
    for name, phase in after.items():
        if phase == before.get(name) or not isinstance(phase, dict):
            continue
        known, status = before.get(name), phase.get("status")
        if isinstance(known, dict) and status == known.get("status"):
            continue
        if status == "completed":
            yield Event("phase.completed", {"phase": name}, session_id)
        if status == "skipped":
            yield Event("phase.skipped", {"phase": name}, session_id)
        if status == "pending" and known is not None:
            yield Event("phase.set_back", {"phase": name}, session_id)


def _lapsed(before: Sequence[Any], after: Sequence[Any], session_id: str | None) -> Iterator[Event]:
    """Say of each approval that it holds no more: the run went back before what was approved."""
    if after is before:
        return
    for item in after:
        if isinstance(item, dict) and phase_marks.is_lapsed(item) and item not in before:
            yield Event("approval.lapsed", {"id": item["id"]}, session_id)


def _worked(state: State, session_id: str | None) -> str | None:
    """Name the session that worked on what ends now: the caller's, else (an approval in a terminal) the current one."""
    if session_id is not None and sessions.record_of(state, session_id) is not None:
        return session_id
    current = state["sessions"].get("current_session_id")
    return current if isinstance(current, str) else None


def rest_here(space: Workspace, run: Run, state: State) -> Settled:
    """Settle as far as the run goes on; what a phase that is entered loads is owed until it was told.

    It is owed to the assistant also where it is told at once, for a kill may come between the two.
    """
    if not standing.goes_on(state):
        return rest(state)
    settled = settle(space, run, state)
    facts = _facts(settled)
    if not facts:
        return settled
    owed = _owed(settled.state)
    more = [fact for fact in facts if fact not in owed]
    return settled._replace(state={**settled.state, "pending_triggers": [*owed, *more]})


def begun(space: Workspace, run: Run, settled: Settled) -> list[str]:
    """Note what the checkout is as a visit that was opened begins, once the run's lock is free (D39).

    Of a command's visit it is noted as the command starts: trust and time may lie between (D40). Commands of branches
    that a join went on without are stopped, and so is what still runs as evidence of a visit that ended without it, as
    `failed` or `skipped` do; gives a line for each of the latter.
    """
    for line in settled.left:
        from loomctl.flow.commands import command_ends  # most joins leave nothing behind

        command_ends.stop_left(space, line)
    if settled.opened is not None and not _is_command(run, settled.opened):
        from loomctl.flow import visit_notes  # a session's start opens none

        visit_notes.begin(space, run, settled.opened)
    from loomctl.flow.evidence import notes

    if not notes.are_any(space.store.local, run.run_id):
        return []
    from loomctl.flow.evidence import evidence_commands  # most steps have no command to pass

    return evidence_commands.stop_ended(space, run.run_id)


def _is_command(run: Run, entry: Mapping[str, Any]) -> bool:
    place = places.place_of(run.plan, entry["step_id"])
    return place is not None and place.step.get("kind") == "command"


def tell(space: Workspace, run: Run, settled: Settled) -> Slip | None:
    """Note what a visit that was opened begins with; then as `told_of`."""
    begun(space, run, settled)
    return told_of(space, run, settled)


def told_of(space: Workspace, run: Run, settled: Settled) -> Slip | None:
    """Make the slip of what was entered, and record it."""
    made = primed_for(space, run, settled)
    if made is None:
        return None
    made = memory_of_session.record(space, run.run_id, made)
    return made if made.loaded or made.failed else None


def primed_for(space: Workspace, run: Run, settled: Settled) -> Slip | None:
    """Make the slip of the phase transitions that were made or are owed to this session; None where there is none."""
    owed = _owed(run.state) if find.is_bound(space, run.run_id) else []
    facts = [*owed, *(fact for fact in _facts(settled) if fact not in owed)]
    if not facts:
        return None
    return prime_run.prime(space, run, triggers.of_facts(facts), prime_run.command_budget(space), may_write=True)


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


def rest(state: State) -> Settled:
    """Settle a run that stands still where it is."""
    status = state["status"]
    kind = "approval" if status == "awaiting_feedback" else status
    return Settled(state, [], [], False, run_life.Move(kind, step=state.get("current_step")))
