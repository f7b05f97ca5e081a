"""The way of a run: its next step, and the end of a step (D27)."""

from __future__ import annotations

from loomctl.flow import lines, route, settle, turn_ends
from loomctl.flow.finish_records import Ended, Gathered, Given, is_result, with_mark
from loomctl.flow.outcomes.directives import WITHOUT_RESULT
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import leases
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, standing, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import handle
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording
from loomctl.workflows import branches, gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from loomctl.flow.commands import run_commands
    from loomctl.flow.outcomes.directives import Reading
    from loomctl.priming.slip import Slip
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_OVER_BY_NOW = ("BRANCH_OVER", "BRANCH_ENDED", "NOT_PARALLEL", "NO_OPEN_STEP", "BAD_STATUS")
_AFTER = {"paused": "resume", "failed": "resume"}


class Driven(NamedTuple):
    """What a verb did.

    ended: the visit that it ended, if any; slip: what a phase transition loaded, if one was made; closing: the visit
    whose response is still to come (D27); reading: what the answer of the ended visit means; repair: the message that
    asks for another answer, where the one that was given does not fit (D36); notes: lines that its user must see. ran:
    the command steps that ended; pending: the one that the run stands at (D30). untold: the session is shown the step
    for the first time: a stop, a person or a command led to it. had_ended: `ended` had ended before, and nothing was
    changed (D67).
    """

    run: Run
    move: route.Move
    ended: Mapping[str, Any] | None = None
    slip: Slip | None = None
    closing: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    reading: Reading | None = None
    repair: str = ""
    ran: Sequence[run_commands.Ran] = ()
    pending: run_commands.Pending | None = None
    untold: bool = False
    had_ended: bool = False

    @property
    def line(self) -> str:
        """Where the run stands, in one line."""
        from loomctl.flow import gate_texts  # a hook says so by other words

        return gate_texts.say_move(self.run, self.move, is_new=self.ended is not None or self.untold)


def next_step(
    space: Workspace,
    run_id: str,
    tell: Callable[[run_commands.Pending], None] | None = None,
    *,
    branch: str | None = None,
) -> Driven:
    """Give the step that is to be worked on, opening its visit if need be; what is closing is closed first (D27).

    Command steps are run here, one after the other (D30); tell: is given what runs, now and then. branch: of the open
    parallel step; its own next step is given (D43).
    """
    notes = recording.noted(space)
    binding = space.local.binding(space.caller.session_id)
    run = lines.read(space, run_id, branch)
    if visits.seen_from(run.state).outcome is not None:
        return Driven(run, route.Move("branch"), notes=notes)
    from loomctl.flow.commands import run_commands  # no hook runs commands, so none imports what does

    waiting = run_commands.waiting_for_trust(space, run)
    if waiting is not None:  # nothing has changed, so nothing is written
        notes += leases.noted_stage(space, run.state)
        return Driven(run, route.Move("step", step=waiting.step_id), notes=notes, pending=waiting)
    found = turn_ends.ready(space, run, run.state) if turn_ends.is_closing_here(space, run.state) else None
    closed: list[Ended] = []
    settled: list[settle.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        happened: list[Event] = []
        if state["status"] in OVER and not branch:
            return state, []  # there is nothing to do in it, and that is no fault
        refuse_standing(state)
        turn_ends.refuse_pending(space, state)
        state = standing.unlimited(state)
        ended, said = turn_ends.close(space, run, state, happened, found)
        if ended is not None:
            state = ended.state
            closed.append(ended)
            notes.append(said)
        result = settle.rest_here(space, run, lines.answered(space, state, happened))
        settled.append(result)
        return leases.note_activity(space, result.state), happened + result.happened

    run = settle.update(space, run, change)
    if not settled:
        return Driven(run, route.Move(run.state["status"]), notes=notes)
    notes += settle.begun(space, run, settled[0])
    notes += leases.noted_stage(space, run.state)
    come = run_commands.carried(space, run, settled[0], tell)
    made = None if branch else settle.told_of(space, come.run, come.settled)
    notes += [*come.notes, *(leases.noted_stage(space, come.run.state) if come.ran else ())]
    driven = Driven(come.run, come.settled.move, slip=made, notes=notes, ran=come.ran, pending=come.pending)
    driven = driven._replace(untold=bool(come.ran) or _is_untold(binding, come.run.state))
    if not closed:
        return driven
    return driven._replace(ended=closed[0].entry, reading=closed[0].reading, repair=closed[0].repair)


def done(
    space: Workspace,
    run_id: str,
    *,
    response: str | None,
    outcome: str | None = None,
    note: str = "",
    artifacts: Mapping[str, str] | None = None,
    branch: str | None = None,
    stage: str | None = None,
    ask: Callable[[str], str | None] | None = None,
    ask_file: Callable[[str, str], str] | None = None,
) -> Driven:
    """End a step, with a response or with the conversation's next final message (D27, D67).

    stage: its number or name, which implies its branch; None: the stage that the session was told of, else the one
    that is open as this is called. One that has ended, or ends meanwhile, stays as it is, and so does what follows it.
    response: None marks the step as closing in a host's session; a person in a terminal is asked for a line (`ask`),
    and for each file that the step leaves and that is missing (`ask_file`, of step and name; gives a portable path).
    outcome: one of D32's words; None: what the response says, else `succeeded`. A response that does not hold what the
    step's schema asks for ends nothing: `Driven.repair` asks for another, as often as the step says (D36).
    artifacts: `{name: portable path}` to register. What is given for a step that is closing is that step's own, and
    comes before what was given when it was marked. branch: of the open parallel step; its own step is ended, by a
    response or by an outcome, for its conversation is none that Loom sees to its end (D43).
    """
    given = Given(response, "done", outcome, note, artifacts or {})
    told = {} if branch or stage else _told_of(space, run_id)
    notes = recording.noted(space)
    run = space.store.read(run_id)
    if stage is not None:
        told, branch = _named(run, stage, branch)
    if told and (before := _had_ended(run, told, notes, branch)):
        if stage is None:  # whose result it would have been drives no more, and keeps it
            space.store.refuse_held(run_id, before.run.state)
        return before
    try:
        return _done(space, run, given, branch, told, ask, ask_file, notes, named=stage is not None)
    except LoomError as error:
        # Somebody else ended it, and with it its branch or the parallel step, since it was looked at.
        if error.code not in _OVER_BY_NOW or not told:
            raise
        before = _had_ended(space.store.read(run_id), told, notes)
        if before is None:
            raise
        return before


def _done(
    space: Workspace,
    run: Run,
    given: Given,
    branch: str | None,
    told: Mapping[str, Any],
    ask: Callable[[str], str | None] | None,
    ask_file: Callable[[str, str], str] | None,
    notes: list[str],
    *,
    named: bool,
) -> Driven:
    from loomctl.flow import finish  # nothing else has a use for what it stands on

    if branch:
        run = _begun_to_be_ended(space, lines.seen(run, branch), given.outcome)
        if not told:
            branches.refuse_ended(run.state)
    begun = visits.open_visit(run.state)
    is_meant = not named or (begun is not None and told["stage"] == begun.get("stage"))
    by_hand = is_meant and _taken_over(space, run, begun, given.outcome)
    space = leases.deciding(space) if by_hand else space  # their decision, beside whoever drives
    if begun is not None and (by_hand or not told):
        told = {"stage": begun["stage"], "step": begun["step_id"]}
    ends = given.response is not None or by_hand or branch is not None or space.caller.host == TERMINAL
    if ends and not by_hand:
        given = _with_a_result(run, begun, given, ask)
    goes_on = run.state["status"] not in OVER
    known = finish.gather(space, run, begun, with_mark(begun, given)) if ends and begun and goes_on else None
    given, known = _with_files(space, run, begun, given, known, ask_file)
    found = None if ends else turn_ends.ready(space, run, run.state)
    if ends and given.response is None:
        given = given._replace(source="none")
    ended, settled = list[Ended](), list[settle.Settled]()
    before: list[Mapping[str, Any]] = []

    def change(state: State) -> tuple[State, list[Event]]:
        happened: list[Event] = []
        entry = _ended_since(state, told)
        if entry is not None:
            before.append(entry)
            return state, []
        entry = open_for(run, state, told)
        now = with_mark(entry, given)
        if ends:
            ended.append(finish.end(space, run, state, happened, now, known or finish.gather(space, run, entry, now)))
        else:
            ended.extend(_closed(space, run, state, happened, entry, now, found, notes))
        if not ended:
            return (leases.note_activity(space, _marked(space, state, now)), happened) if happened else (state, [])
        state = ended[0].state if ended[0].waits else lines.answered(space, ended[0].state, happened)
        settled.append(settle.rest_here(space, run, state))
        return leases.note_activity(space, settled[0].state), happened + settled[0].happened

    run = settle.update(space, run, change, may_end=True)
    if before:
        return Driven(run, settle.rest(run.state).move, before[0], notes=notes, had_ended=True)
    if not ended:
        marked = visits.open_visit(run.state) or {}
        return Driven(run, route.Move("step", step=marked["step_id"]), closing=marked, notes=notes)
    return _gone_on(space, run, settled[0], ended[0], notes, in_a_branch=branch is not None)


def _taken_over(space: Workspace, run: Run, begun: Mapping[str, Any] | None, outcome: str | None) -> bool:
    """Let a person end a command step, whose command may end in this moment, and the run go on (D30)."""
    if begun is None or not settle.is_command(run, begun):
        return False
    from loomctl.flow.commands import command_steps

    return command_steps.take_over(space, run, outcome)


def _gone_on(
    space: Workspace, run: Run, settled: settle.Settled, ended: Ended, notes: list[str], *, in_a_branch: bool
) -> Driven:
    notes += settle.begun(space, run, settled)
    made = None if in_a_branch else settle.told_of(space, run, settled)
    notes += leases.noted_stage(space, run.state)
    return Driven(run, settled.move, ended.entry, made, None, notes, ended.reading, ended.repair)


def _closed(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    entry: Mapping[str, Any],
    now: Given,
    found: turn_ends.Ready | None,
    notes: list[str],
) -> list[Ended]:
    """Close a step whose response is there already; else, in `happened`, that it is marked anew, if it is."""
    turn_ends.refuse_pending(space, state)
    is_own = turn_ends.is_of(space, entry)
    if found is not None and not is_own and is_result(now._replace(response=found.given.response)):
        closed, said = turn_ends.close(space, run, _marked(space, state, now), happened, found)
        notes.append(said)
        return [closed] if closed is not None else []
    if not is_own or now != with_mark(entry, Given(None, "done")):  # else it is the same call again
        refuse_unheard(run, entry, now)
        happened.append(Event("stage.closing", {"stage": entry["stage"]}, space.caller.session_id, entry["step_id"]))
    return []


def _named(run: Run, stage: str, branch: str | None) -> tuple[Mapping[str, Any], str | None]:
    """Give the stage that is meant, as `_told_of` does, and its branch. Raises NO_SUCH_STAGE."""
    found = visits.named(run.state, stage)
    if found is None or (branch and branch != found[1]):
        where = f"branch {branch}" if branch else "this run"
        known = [entry["stage"] for entry in visits.every(run.state) if entry.get("stage")]
        what = f"there is no step {stage!r:.80} in {where}"
        why = f"the steps are: {', '.join(known[-20:]) or 'none'}. Somebody may have undone yours"
        raise LoomError("NO_SUCH_STAGE", what, why=why, hint=f"loomctl next {run.handle}", exit_code=EXIT_NO_RUN)
    return {"stage": found[0]["stage"], "step": found[0]["step_id"]}, found[1] or None


def _had_ended(run: Run, told: Mapping[str, Any], notes: list[str], branch: str | None = None) -> Driven | None:
    entry = _ended_since(run.state, told)
    if entry is None:
        return None
    fan = branches.fan(run.state) if branch else None
    if branch and fan is not None and any(one is entry for one in visits.within(fan)):
        run = lines.seen(run, branch)
    return Driven(run, settle.rest(run.state).move, entry, notes=notes, had_ended=True)


def _ended_since(state: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any] | None:
    found = visits.named(state, str(told.get("stage")))
    return found[0] if found is not None and found[0]["status"] not in visits.OPEN else None


def _with_a_result(
    run: Run, entry: Mapping[str, Any] | None, given: Given, ask: Callable[[str], str | None] | None
) -> Given:
    """Give what a step is ended with, once it is a result: without one nothing succeeds (D67).

    Raises NO_RESPONSE, and NO_OPEN_STEP of a branch that nobody has begun.
    """
    branch = visits.seen_from(run.state).name
    if (entry is None and not branch) or run.state["status"] in OVER:
        return given
    if is_result(with_mark(entry or {}, given)):
        return given
    if entry is None:
        raise _nothing_open(run, run.state)
    open_for(run, run.state, {})  # a person decides it, or its branches end it
    line = None
    if ask is not None and given.response is None:
        line = given.note if given.note.strip() else ask(visits.with_task(entry))
    if line and line.strip():
        return given._replace(response=line)
    why = "give it on standard input, in a file, or as --outcome with --note"
    hint = f"{visits.done_command(entry)} {run.handle} --response-file result.md"
    what = f"the result of {entry['step_id']} is missing"
    raise LoomError("NO_RESPONSE", what, why=why, hint=hint, exit_code=EXIT_USAGE)


def _with_files(
    space: Workspace,
    run: Run,
    entry: Mapping[str, Any] | None,
    given: Given,
    known: Gathered | None,
    ask_file: Callable[[str, str], str] | None,
) -> tuple[Given, Gathered | None]:
    """Ask for each file that a step leaves and that nobody has registered; no command is run before they are there."""
    if entry is None or known is None or known.evidence is None or ask_file is None:
        return given, known
    from loomctl.flow import finish

    had = {**run.state["artifacts"], **with_mark(entry, given).artifacts}
    names = [name for name in known.evidence.not_produced if name not in had]
    paths = {name: path for name in names if (path := ask_file(str(entry["step_id"]), name))}
    if not paths:
        return given, known
    given = given._replace(artifacts={**given.artifacts, **paths})
    return given, finish.gather(space, run, entry, with_mark(entry, given))


def _marked(space: Workspace, state: State, given: Given) -> State:
    return visits.mark_closing(
        state,
        outcome=given.outcome,
        note=given.note,
        artifacts=given.artifacts,
        at=clock.now(),
        session_id=space.caller.session_id,
    )


def _told_of(space: Workspace, run_id: str) -> Mapping[str, Any]:
    """Give the binding that names the stage which a session was told of; empty where it names none of this run.

    It is read before the lock is waited for: a `done` that waits for another was not called for what follows that one.
    """
    binding = space.local.binding(space.caller.session_id) or {}
    return binding if binding.get("run_id") == run_id and isinstance(binding.get("stage"), str) else {}


def _is_untold(binding: Mapping[str, Any] | None, state: State) -> bool:
    entry = visits.open_visit(state)
    if entry is None or binding is None or binding.get("run_id") != state["run_id"]:
        return False
    return bool(binding.get("stage") != entry.get("stage"))


def _begun_to_be_ended(space: Workspace, run: Run, outcome: str | None) -> Run:
    """Open the first step of a branch that nobody has begun, and that is ended by hand without work (D43)."""
    begun = bool(run.state["steps"]) or visits.seen_from(run.state).outcome is not None
    if begun or outcome not in WITHOUT_RESULT or not standing.goes_on(run.state):
        return run

    def change(state: State) -> tuple[State, list[Event]]:
        settled = settle.rest_here(space, run, state)
        return settled.state, settled.happened

    return settle.update(space, run, change)


def refuse_over(state: Mapping[str, Any]) -> None:
    """Refuse what is to be done in a run that is completed or cancelled, or in a branch that has ended (D4, D43).

    Raises BAD_STATUS and BRANCH_ENDED.
    """
    branches.refuse_ended(state)
    if state["status"] in OVER:
        hint = f"loomctl resume {handle(state)} --reopen"
        raise LoomError("BAD_STATUS", f"the run is {state['status']}", hint=hint, exit_code=EXIT_USAGE)


def refuse_standing(state: Mapping[str, Any]) -> None:
    """Refuse to go on in a run that is paused, failed or over. Raises BAD_STATUS and BRANCH_ENDED."""
    branches.refuse_ended(state)
    status = state["status"]
    if status in ("paused", "failed"):
        why, hint = "resume it first", f"loomctl resume {handle(state)}"
        raise LoomError("BAD_STATUS", f"the run is {status}", why=why, hint=hint, exit_code=EXIT_USAGE)
    refuse_over(state)


def open_for(run: Run, state: State, told: Mapping[str, Any]) -> dict[str, Any]:
    """Give the visit that a `done` may end; a paused run keeps the result, and goes no further."""
    refuse_over(state)
    entry = visits.open_visit(state)
    if entry is None:
        raise _nothing_open(run, state)
    _refuse_moved(run.handle, entry, told)
    _refuse_human(run, state)
    if "branches" in entry:
        raise _has_branches(run, entry)
    return entry


def refuse_unheard(run: Run, entry: Mapping[str, Any], given: Given) -> None:
    """Refuse to wait for the final message of a step that has a command to pass: no hook runs one (D23).

    Raises NO_RESPONSE.
    """
    place = frozen_plan.place_of(run.plan, entry["step_id"])
    wanted = (place.step.get("evidence") or ()) if place else ()
    if given.outcome in WITHOUT_RESULT or all(one["kind"] != "command" for one in wanted):
        return
    what = f"{masked_line(entry['step_id'], 120)} needs its result on standard input"
    why = "a command has to pass before the step is done, and only `loomctl done` runs it"
    hint = f"{visits.done_command(entry)} {run.handle} --response-file result.md"
    raise LoomError("NO_RESPONSE", what, why=why, hint=hint, exit_code=EXIT_USAGE)


def _refuse_human(run: Run, state: State) -> None:
    """Refuse to end a step that a person decides: the assistant's word is not theirs. Raises HUMAN_STEP."""
    found = gates.open_human(state, run.plan)
    if found is None:
        return
    offered = gates.choices(found[1].step)
    what = f"a person decides {found[1].key}; a result does not end it"
    why = f"the choices are: {', '.join(masked_line(one, 60) for one in offered)}" if offered else ""
    raise LoomError("HUMAN_STEP", what, why=why, hint=gates.shows(state), exit_code=EXIT_USAGE)


def _refuse_moved(handle: str, entry: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Refuse a `done` that was meant for another visit than the open one: the caller was not told of this one."""
    if not told or told["stage"] == entry.get("stage"):
        return
    what = f"the run has moved from {told.get('step')} to {entry['step_id']} since you got your step"
    why = "you can only end the step that you worked on"
    raise LoomError("STAGE_MOVED", what, why=why, hint=f"loomctl next {handle}", exit_code=EXIT_USAGE)


def _nothing_open(run: Run, state: Mapping[str, Any]) -> LoomError:
    waits = bool(state["pending_approvals"])
    branch = "" if state["status"] in _AFTER else visits.seen_from(state).name
    after = _AFTER.get(state["status"], "next")
    unbegun = "" if not branch or state["steps"] else "nobody has begun it: show its first step and do what it says"
    return LoomError(
        "NO_OPEN_STEP",
        f"{f'branch {masked_line(branch, 80)}' if branch else 'this run'} has no open step (status {state['status']})",
        where=run.state_path,
        why="the run waits for the user's approval" if waits else unbegun,
        hint=gates.shows(state) if waits else standing.command(after, run.handle, "", branch),
        exit_code=EXIT_USAGE,
    )


def _has_branches(run: Run, entry: Mapping[str, Any]) -> LoomError:
    left = [
        str(record["id"]) for record in entry["branches"] if record["status"] not in (*visits.OUTCOMES, "cancelled")
    ]
    what = f"{entry['step_id']} is a parallel step: it ends when its branches end"
    why = f"open: {', '.join(left)}. To give one up: loomctl done --branch NAME --outcome failed"
    hint = f"loomctl next --branch {left[0] if left else 'NAME'}"
    return LoomError("PARALLEL_STEP", what, where=run.state_path, why=why, hint=hint, exit_code=EXIT_USAGE)
