"""Where a run comes to rest after a change: what the engine passes, the visit it opens, what it owes (D7, D13)."""

from __future__ import annotations

import os

from loomctl.flow import lines, route
from loomctl.kit import clock
from loomctl.kit.records import NamedTuple
from loomctl.priming import memory_of_session, prime_run
from loomctl.runs import find, stages
from loomctl.runs.model import frozen_plan, sessions, standing, visits
from loomctl.runs.store.events import Event
from loomctl.workflows import branches, gates, routing, triggers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.flow import tasks
    from loomctl.flow.finish_records import Gathered
    from loomctl.priming.slip import Slip
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Change, Run


_SAID = 100_000  # characters of a branch's last response that the parallel step's own holds
_WARNINGS = 5  # of a preamble that the event of a stage's start names


class Settled(NamedTuple):
    """Where a run came to rest.

    facts: what that makes due: phases that were entered, then a step that is only a priming (D7, D13). opened: the
    visit that was opened, if one was. left: branches that a join on the way went on without, as they were seen
    then (D43).
    """

    state: State
    happened: list[Event]
    move: route.Move
    facts: Sequence[str] = ()
    opened: Mapping[str, Any] | None = None
    left: Sequence[Run] = ()


def settle(space: Workspace, run: Run, state: State) -> Settled:
    """Go on to the first step that is not done: pass what the engine does itself, open a visit, write its prompt."""
    happened: list[Event] = []
    facts: list[str] = []
    while True:
        at = clock.now()
        state, move = _advanced(run, state, happened, space.caller.session_id, at=at)
        if move.after is not None:
            facts = together(facts, triggers.phase_transition(move.before, move.after).facts)
        if move.kind != "step" or move.step is None:
            return Settled(state, happened, move, facts)
        place = frozen_plan.place_of(run.plan, move.step)
        assert place is not None  # advance chose it from this plan
        task = _task(space, run, state, place)
        if task is not None and task.task is None:
            state, goes_on = _without_task(space, run, state, happened, place, task, at=at)
        elif not place.step.get("engine"):
            came = _come_to(space, run, state, happened, place, move, at=at, task=task.task if task else None)
            return came._replace(happened=happened, facts=together(facts, came.facts))
        else:
            facts = together(facts, (triggers.MANUAL,))
            state, goes_on = _primed(space, run, state, happened, place, at=at)
        if not goes_on:
            return Settled(state, happened, rest(state).move, facts)


def together(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Join what is due: phases in their order, a priming of everything last."""
    every = [*before, *now]
    facts = [fact for fact in every if fact != triggers.MANUAL]
    return facts if len(facts) == len(every) else [*facts, triggers.MANUAL]


def _advanced(
    run: Run, state: State, happened: list[Event], session_id: str | None, *, at: str
) -> tuple[State, route.Move]:
    """Make the next step current; adds to `happened` what that means for phases, approvals and the run."""
    asked_before = len(state["pending_approvals"])
    given_before = state.get("approvals", [])
    phase_before = state.get("current_phase")
    phases_before = state["phases"]
    in_a_branch = visits.is_branch(state)  # whose end is none of its phase, nor of its run
    state, move = route.advance(state, run.plan, at=at)
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
        from loomctl.flow import finish_records

        counted = {"artifact_count": finish_records.offloaded(run.folder, state)}
        happened.append(Event("run.completed", counted, session_id))
    return state, move


def _come_to(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    place: frozen_plan.Place,
    move: route.Move,
    *,
    at: str,
    task: Mapping[str, Any] | None = None,
) -> Settled:
    state, opened = _opened(space, run, state, happened, place, at=at, task=task)
    late = _joined_late(space, run, state, happened, place) if opened is None else None
    if late is not None:
        return late
    if frozen_plan.is_human(place.step):
        state, move = asking(space, run, state, happened, at=at), route.Move("approval", step=place.key)
    return Settled(state, happened, move, opened=opened)


def _primed(
    space: Workspace, run: Run, state: State, happened: list[Event], place: frozen_plan.Place, *, at: str
) -> tuple[State, bool]:
    state, _ = visits.start_visit(state, place.key, str(place.phase["id"]), at=at, by_engine=True)
    from loomctl.flow import route

    judge = route.judge(space, run)
    came = route.end_visit(state, run.plan, outcome="succeeded", at=at, judge=judge)
    session_id = space.caller.session_id
    happened.append(Event("step.primed", {}, session_id, place.key))
    if came.follows == "stop":
        told = {"step_id": place.key, "failure_reason": came.way.why}
        happened.append(Event("run.failed", told, session_id, place.key))
    return came.state, came.follows != "stop"


def _task(space: Workspace, run: Run, state: State, place: frozen_plan.Place) -> tasks.Next | None:
    """Give the task of the visit that is about to begin; None where one has begun, or the step goes through no list."""
    if not place.step.get("for_each") or visits.open_visit(state) is not None:
        return None
    from loomctl.flow import tasks  # most steps go through no list

    return tasks.next_task(space, run, state, place)


def _without_task(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    place: frozen_plan.Place,
    found: tasks.Next,
    *,
    at: str,
) -> tuple[State, bool]:
    """End a step that has no task to do, as the engine's own visit; whether the run goes on (D65)."""
    session_id = space.caller.session_id
    state, _ = visits.start_visit(state, place.key, str(place.phase["id"]), at=at, by_engine=True)
    error = routing.error_of(found.why, final=True) if found.outcome == visits.FAILED else None
    judge = route.judge(space, run)
    came = route.end_visit(state, run.plan, outcome=found.outcome, at=at, note=found.why, error=error, judge=judge)
    happened.append(Event("tasks.none", {"status": found.outcome, "why": found.why}, session_id, place.key))
    if came.follows == "stop":
        happened.append(Event("run.failed", {"step_id": place.key, "failure_reason": found.why}, session_id, place.key))
    if came.follows == "prompt":
        happened.append(Event("approval.requested", dict(came.state["pending_approvals"][-1]), session_id, place.key))
    return came.state, came.follows == "done"


def _joined_late(
    space: Workspace, run: Run, state: State, happened: list[Event], place: frozen_plan.Place
) -> Settled | None:
    """Join a parallel step whose branches have ended while the run stood still; None where there is nothing to join."""
    if not place.step.get("parallel"):
        return None
    now = _caught_up(run, state, happened, space.caller.session_id, at=clock.now())
    entry = branches.fan(now)
    found = _joined(space, run, now, happened, branches.ended_last(entry), None) if entry is not None else None
    if found is None and now is not state:
        return Settled(now, happened, route.Move("step", step=place.key))
    return found


def asking(space: Workspace, run: Run, state: State, happened: list[Event], *, at: str) -> State:
    """Let a run whose open step a person decides wait for that; adds to `happened` that it was asked."""
    if gates.open_human(state, run.plan) is None:
        return state
    from loomctl.runs import artifact_paths

    known = artifact_paths.prompt_values(space.project, run._replace(state=state))
    waiting = gates.ask(state, run.plan, at=at, known=known)
    if waiting is not state:
        asked = dict(waiting["pending_approvals"][-1])
        happened.append(Event("approval.requested", asked, space.caller.session_id, asked["step_id"]))
    return waiting


def _opened(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    place: frozen_plan.Place,
    *,
    at: str,
    task: Mapping[str, Any] | None = None,
) -> tuple[State, Mapping[str, Any] | None]:
    before = visits.open_visit(state)
    state, entry = visits.start_visit(state, place.key, str(place.phase["id"]), at=at)
    if task is not None:
        entry = {**entry, "task": dict(task)}
        state = visits.replaced(state, entry)
    if place.step.get("parallel"):
        state = branches.wait_or_go_on(branches.fan_out(state, place.step))
    if entry is before:
        return state, None
    from loomctl.flow import preambles  # a hook that opens no step does not pay for it

    stages.set_aside(run.folder, entry["stage"])  # of a visit that was undone
    prompt, warnings = preambles.opening(space, run, state, place, entry["visit"])
    written = stages.write_prompt(run.folder, entry["stage"], prompt)
    properties = {"stage": entry["stage"], "visit": entry["visit"], "files_sha256": written}
    if task is not None:
        properties["task"] = {key: task[key] for key in ("number", "of", "text")}
    if warnings:
        properties["warnings"] = list(warnings[:_WARNINGS])
    happened.append(Event("stage.started", properties, space.caller.session_id, place.key))
    return state, entry


def _left(before: Mapping[str, Any], after: Mapping[str, Any], session_id: str | None) -> Iterator[Event]:
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
    if after is before:
        return
    for item in after:
        if isinstance(item, dict) and gates.is_lapsed(item) and item not in before:
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
    if _pauses_here(run, state):
        asked = Event("run.paused", {"before": state["status"], "reason": "after_step"}, space.caller.session_id)
        paused = rest(standing.pause_no_more({**state, "status": "paused"}))
        return paused._replace(happened=[asked])
    settled = settle(space, run, state)
    if not settled.facts:
        return settled
    owed = _owed(settled.state)
    more = [fact for fact in settled.facts if fact not in owed]
    return settled._replace(state={**settled.state, "pending_triggers": [*owed, *more]})


def _pauses_here(run: Run, state: State) -> bool:
    """Tell whether the step after which the run is to pause has ended, and the run is not at its end."""
    due = not visits.is_branch(state) and standing.is_pause_due(state)
    return due and route.onward(state, run.plan) is not None


def begun(space: Workspace, run: Run, settled: Settled) -> list[str]:
    """Do what follows a settled run once its lock is free: note what the checkout is as a visit begins (D39).

    Of a command's visit it is noted as the command starts: trust and time may lie between (D40). Commands of branches
    that a join went on without are stopped, and so is what still runs as evidence of a visit that ended without it, as
    `failed` or `skipped` do; gives a line for each of the latter.
    """
    for line in settled.left:
        from loomctl.flow.commands import evidence_commands

        evidence_commands.stop_left(space, line)
    if settled.opened is not None and not is_command(run, settled.opened):
        note_visit(space, run, settled.opened)
    if not os.path.isdir(os.path.join(space.store.local, lines.EVIDENCE, run.run_id)):
        return []
    from loomctl.flow.commands import evidence_commands  # most steps have no command to pass

    return evidence_commands.stop_ended(space, run.run_id)


def note_visit(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note what a visit, or its command, finds: the checkout, its assets, the files that it has to change (D40).

    Raises nothing, for no step is held up by it.
    """
    from loomctl.changes import track  # a session's start opens no visit

    track.begin(space, run, entry)
    place = frozen_plan.find(run.plan, entry["step_id"])
    if place is None or not place.step.get("evidence") or not isinstance(entry.get("stage"), str):
        return
    try:
        from loomctl.flow.outcomes import evidence

        evidence.begin(space, run, entry)
    except Exception:  # noqa: BLE001 - as above
        return


def is_command(run: Run, entry: Mapping[str, Any]) -> bool:
    """Tell whether a visit is one of a command step."""
    place = frozen_plan.place_of(run.plan, entry["step_id"])
    return place is not None and place.step.get("kind") == "command"


def told_of(space: Workspace, run: Run, settled: Settled) -> Slip | None:
    """Make and record the slip of phase transitions that were made or are owed to this session; None: nothing is."""
    owed = _owed(run.state) if find.is_bound(space, run.run_id) else []
    facts = [*owed, *(fact for fact in settled.facts if fact not in owed)]
    if not facts:
        return None
    made = prime_run.prime(space, run, triggers.of_facts(facts), prime_run.command_budget(space), may_write=True)
    made = memory_of_session.record(space, run.run_id, made)
    return made if made.loaded or made.failed else None


def with_owed(event: triggers.Event, state: Mapping[str, Any]) -> triggers.Event:
    """Add to an event what phases entered at a Stop still owe."""
    return event._replace(facts=(*event.facts, *_owed(state)))


def _owed(state: Mapping[str, Any]) -> list[str]:
    owed = state.get("pending_triggers")
    return [fact for fact in owed if isinstance(fact, str)] if isinstance(owed, list) else []


def rest(state: State) -> Settled:
    """Settle a run that stands still where it is."""
    status = state["status"]
    kind = "approval" if status == "awaiting_feedback" else status
    return Settled(state, [], route.Move(kind, step=state.get("current_step")))


# ---- The join of a parallel step: its visit ends with what its branches came to, and the run goes on (D43).


def update(space: Workspace, line: Run, change: Change, *, may_end: bool = False) -> Run:
    """Change a line as `lines.update` does; a branch that ends by it may join its parallel step, and the run goes on.

    may_end: the change may end a branch, so that what a join needs to know is found out before the lock is taken.
    """
    outside = visits.seen_from(line.state)
    if not outside.stage:
        return lines.update(space, line, change)
    whole = line._replace(plan=line.plan["whole"])
    known = _foreseen(space, whole, outside) if may_end else None
    joined: list[Settled] = []

    def join(state: State, happened: list[Event]) -> State:
        joined[:] = filter(None, [_joined(space, whole, state, happened, outside.name, known)])
        return joined[0].state if joined else state

    line = lines.update(space, line, change, then=join)
    if joined:
        begun(space, whole._replace(state=joined[0].state), joined[0])
    return line


def _foreseen(space: Workspace, run: Run, outside: visits.Outside) -> Gathered | None:
    """Find out what a join will need to know, before the lock is taken; None where this branch's end is none yet."""
    fresh = space.store.read(run.run_id)
    entry = branches.fan(fresh.state)
    if entry is None or entry["stage"] != outside.stage:
        return None
    others = [one for number, one in enumerate(entry["branches"]) if number != outside.place]
    place = frozen_plan.place_of(run.plan, entry["step_id"])
    waits = place is not None and place.step["parallel"]["join"] == "wait_all"
    if waits and any(one["status"] not in branches.ENDED for one in others):
        return None
    return _gathered(space, fresh, entry)


def _gathered(space: Workspace, run: Run, entry: Mapping[str, Any]) -> Gathered:
    from loomctl.changes import track
    from loomctl.flow import finish
    from loomctl.flow.finish_records import Gathered
    from loomctl.flow.outcomes.directives import Reading

    return Gathered(entry["stage"], Reading(), track.ended(space, run, dict(entry)), finish.usage_of(space, run, entry))


def _caught_up(run: Run, state: State, happened: list[Event], session_id: str | None, *, at: str) -> State:
    entry = branches.fan(state)
    for record in branches.open_records(entry) if entry is not None else ():
        view = branches.view(state, run.plan, str(record["id"]))
        if not record["steps"] or visits.open_visit(view.state) is not None or not standing.goes_on(view.state):
            continue
        after, move = route.advance(view.state, view.plan, at=at)
        if move.kind == "completed":
            state = branches.fold(state, after)
            ended = branches.view(state, run.plan, str(record["id"])).state
            happened.append(lines.branch_ended(ended, session_id))
    return state


def _joined(
    space: Workspace, run: Run, state: State, happened: list[Event], by: str, known: Gathered | None
) -> Settled | None:
    """End the open parallel step if its join is met, and go on; adds to `happened` what did. None: it waits.

    For who holds the run's lock. by: the branch whose end it is; known: as it was foreseen, else it is found out now.
    """
    entry = branches.fan(state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry is not None else None
    made = branches.fan_in(state, place.step) if place is not None else None
    if entry is None or place is None or made is None or state["status"] not in ("in_progress", "awaiting_feedback"):
        return None
    from loomctl.flow import finish, finish_records

    run = run._replace(state=state)
    left = [lines.seen(run, name, entry["stage"]) for name in made.left]
    records = entry["branches"]
    state = branches.cancel_open(state)
    for name in made.left:
        cancelled = {"branch": name, "stage": entry["stage"], "status": branches.CANCELLED}
        happened.append(Event("branch.ended", cancelled, space.caller.session_id, entry["step_id"]))
    context, warnings = _context(space, made)
    given = finish_records.Given(
        _said(run, entry),
        "branches",
        made.outcome,
        made.note,
        context=context,
        gone=made.changes.gone,
        updates=made.updates,
        warnings=warnings,
        branches=records,
        joined_by=by,
    )
    told = {"stage": entry["stage"], "status": made.outcome, "results": [branches.short(one) for one in made.results]}
    happened.append(Event("branches.joined", {**told, "conflicts": made.conflicts}, space.caller.session_id, place.key))
    state = {**state, "status": "in_progress"}
    if known is None or known.for_stage != entry["stage"]:
        known = _gathered(space, run, entry)
    ended = finish.end(space, run, state, happened, given, known)
    assert ended.entry is not None  # nothing asks a parallel step for another answer
    state = visits.replaced(ended.state, branches.without_contexts(ended.entry))
    settled = rest_here(space, run, state)
    happened += settled.happened
    return settled._replace(left=left)


def _context(space: Workspace, made: branches.FanIn) -> tuple[dict[str, Any], list[dict[str, str]]]:
    from loomctl.runs import context_values

    stored, warnings = context_values.stored(space, made.told)
    return {**made.own, **stored}, warnings


def _said(run: Run, entry: Mapping[str, Any]) -> str:
    from loomctl.kit.text.secrets import masked_line

    parts = []
    for record in entry["branches"]:
        status = record["status"] if record["status"] in branches.ENDED else branches.CANCELLED
        last = next((one for one in reversed(record["steps"]) if one["status"] not in visits.OPEN), None)
        text = stages.read_text(run.folder, last["stage"], stages.RESPONSE) if last and last.get("stage") else None
        head = f"## Branch {record['id']}: {status}"
        if last is not None and status == "failed":
            head += f" ({masked_line(visits.reason_of(last), 200)})" if visits.reason_of(last) else ""
        parts.append(f"{head}\n\n{(text or '(no response)').strip()[:_SAID]}")
    return "\n\n".join(parts) + "\n"
