"""A stop of the assistant: its message ends the step, is asked for anew, or is kept; what comes next (D27, D28)."""

from __future__ import annotations

from loomctl.flow import lines, turn_ends
from loomctl.flow.outcomes import answers, directives
from loomctl.flow.outcomes.directives import Reading
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.processes import HOOK_PATIENCE
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.runs import leases, stages
from loomctl.runs.model import frozen_plan, standing, visits
from loomctl.runs.model.standing import is_under_way
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import handle
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow import finish_records
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

CAP = "stop_block_cap"  # why a run is paused that the host lets nobody send on
_LAST_WORDS = 200  # characters of what an assistant said last that the state keeps, where its user is to answer
_LOOKED_AT = 50_000  # characters of them in which secrets are looked for
_ENDS = (turn_ends.END, turn_ends.EXHAUSTED, turn_ends.REPAIR)  # verdicts by which a message is taken for an answer
_NUDGES = 20  # how often in a turn an assistant is asked or sent on at one visit, though it calls tools in between
_RESTS = ("completed", "failed", "paused")
_IN_VAIN = 2  # blocks in a row that send an assistant to `loomctl done`; then its user is told instead
_DIGESTS = 15.0  # seconds that a stop which ends a step may digest for
ASKED = (
    "Step {step} is open, and your message does not end it. If it is done, end it with `{done}` and "
    "its result. If not, continue it. If the user has to decide something, ask and stop."
)
BRANCHES_LEFT = (
    "The parallel step {step} is open, and so are its branches {branches}. Let subagents continue them: "
    "`loomctl next` shows where they are. If the user has to decide something, ask and stop."
)
NEXT = "The next step is {step}: run `loomctl next` and work on it."


class Turn(NamedTuple):
    """What the host tells of a turn.

    told: the stage that the session was told of; nudged: (a stage, how often the assistant was sent on or asked at it
    in this turn); idle: blocks in a row since the assistant called a tool; the rest as in `turn_ends.Stop`.
    """

    told: str | None
    driven: bool = False
    planning: bool = False
    busy: bool = False
    asked: bool = False
    nudged: tuple[str, int] = ("", 0)
    idle: int = 0
    blocks_left: int = 0


class Stopped(NamedTuple):
    """What a stop led to.

    block: what the assistant is told instead of stopping; asked: it is asked for a result; line: what the user is told;
    waits: the run waits for the user's answer; stage: at which the assistant is asked, or on which it is sent, or whose
    evidence only `loomctl done` can look at; rests: the key of the end or pause that the line tells, told once each.
    """

    block: str = ""
    line: str = ""
    asked: bool = False
    waits: bool = False
    stage: str = ""
    rests: str = ""


def stopped(space: Workspace, run: Run, turn: Turn, message: str) -> Stopped:
    """Act on a stop of a session that drives a run. message: the assistant's last one, whole; may be empty."""
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or run.state["status"] in OVER:
        return _tell_rest(run) if entry is None and turn.driven else Stopped()
    step = place.step
    if frozen_plan.is_human(step):
        from loomctl.flow import gate_texts  # they are told at the end of every turn of Loom's

        waits_here = run.state["status"] == "awaiting_feedback" and turn.driven
        return Stopped(line=f"Loom: {gate_texts.line(run, to_user=True)}" if waits_here else "", waits=waits_here)
    waits = _at_untrusted(space, run, turn)
    if waits is not None:
        return waits
    here = turn_ends.is_closing_here(space, run.state, with_a_message=True)
    if entry["status"] == "closing" and not here:
        return Stopped()
    response = message if message.strip() else None
    fan = "branches" in entry  # its branches end it, and no message does
    reading = Reading() if fan else answers.read(space, run, entry, step, response, alone=not here)
    stop = turn_ends.Stop(
        level=str((run.plan.get("autonomy") or {}).get("level") or ""),
        open=is_under_way(run.state) and step.get("kind") != "command",
        untold=is_under_way(run.state) and turn.told != entry["stage"],
        paused=run.state["status"] == "paused",
        closing=here,
        settled=as_object(entry.get("closing")).get("outcome") in directives.WITHOUT_RESULT,
        driven=turn.driven,
        planning=turn.planning,
        busy=turn.busy,
        spoken=bool(message.strip()) and turn.told == entry["stage"] and step.get("kind") != "command" and not fan,
        questions=reading.found and turn_ends.questions(message),
        found=directives.ABSENT if fan else answers.how(step, reading),
        schema=bool(step.get("output_schema")),
        repairs_left=answers.retries(step) - visits.repairs_of(entry),
        asked=turn.asked,
        nudges_left=_NUDGES - (turn.nudged[1] if turn.nudged[0] == entry["stage"] else 0),
        blocks_left=turn.blocks_left,
    )
    verdict = turn_ends.decide(stop)
    if verdict in _ENDS and here and response is None:  # it ended without a word: the transcript may hold some
        return Stopped(line=closed_without_message(space, run))
    if verdict in _ENDS:
        return _answered(space, run, entry, turn, message, reading, stop)
    if message.strip() and verdict != turn_ends.NOTHING:
        stages.write_candidate(run.folder, turn.told or entry["stage"], message)
    return _left_open(space, run, entry, verdict, message, reading)


def _tell_rest(run: Run) -> Stopped:
    """Tell the user that the run waits for a decision, or how it ended or was paused."""
    from loomctl.flow import gate_texts, route  # most stops leave a step open

    status = run.state["status"]
    if status == "awaiting_feedback" and run.state["pending_approvals"]:
        return Stopped(line=f"Loom: {gate_texts.line(run, to_user=True)}")
    if status not in _RESTS or (status == "failed" and not run.state["steps"]):
        return Stopped()
    said = gate_texts.say_move(run, route.Move(status), is_new=False)
    return Stopped(line=f"Loom: {said}", rests=_rest_key(run.state, said))


def _rest_key(state: State, said: str) -> str:
    """Return what tells one end or pause of a run from another; empty while the run goes on."""
    last = state["steps"][-1] if state["steps"] else {}
    return f"{said} {last.get('completed_at')}" if state["status"] in _RESTS else ""


def _answered(
    space: Workspace,
    run: Run,
    entry: Mapping[str, Any],
    turn: Turn,
    message: str,
    reading: Reading,
    stop: turn_ends.Stop,
) -> Stopped:
    from loomctl.flow import finish, finish_records  # most stops end nothing
    from loomctl.runs.tools import recording

    found = finish_records.with_mark(entry, finish_records.Given(message if message.strip() else None, "conversation"))
    recording.digest(space, _DIGESTS)  # what is not digested now would be told of the next step (D59)
    known = finish.gather(space, run, entry, found, reading)
    if _is_sent_in_vain(turn, entry, known) and stop.open and finish.asks_for_evidence(run, run.state, known):
        stages.write_candidate(run.folder, entry["stage"], message)
        return Stopped(line=_unjudged(run, entry, known))
    if turn.blocks_left <= 0 and stop.open and finish.asks_for_evidence(run, run.state, known):
        stages.write_candidate(run.folder, entry["stage"], message)
        return Stopped(line=pause_at_cap(space, run))
    ended = _ended(space, run, turn, found, known, stop)
    if ended.block or not any(one.step.get("kind") == "command" for one in frozen_plan.places(run.plan)):
        return ended
    waits = _at_untrusted(space, space.store.read(run.run_id), turn)
    return ended if waits is None else waits._replace(line=f"{ended.line}\n{waits.line}")


def _is_sent_in_vain(turn: Turn, entry: Mapping[str, Any], known: finish_records.Gathered) -> bool:
    """Tell whether another block would say what was said: nobody here can judge the evidence, which is for `done`."""
    if known.evidence is None or not known.evidence.pending:
        return False
    sent = turn.nudged[1] if turn.nudged[0] == entry["stage"] else 0
    return min(sent, turn.idle) >= _IN_VAIN or sent >= _NUDGES or turn.blocks_left <= 0


def _unjudged(run: Run, entry: Mapping[str, Any], known: finish_records.Gathered) -> str:
    from loomctl.flow.outcomes import evidence

    assert known.evidence is not None  # the caller looked
    return (
        f"Loom: {entry['step_id']} is not done: {evidence.missing(known.evidence)}. "
        f"To end it: {evidence.again(run, entry, None)}"
    )


def _left_open(
    space: Workspace, run: Run, entry: Mapping[str, Any], verdict: str, message: str, reading: Reading
) -> Stopped:
    if verdict == turn_ends.HAND:
        if not _noted(space, run, _handed_on(space, entry)):
            return Stopped()
        return Stopped(block="Loom: " + NEXT.format(step=entry["step_id"]), stage=entry["stage"])
    if verdict == turn_ends.ASK:
        asked = Event("stage.asked", {"stage": entry["stage"]}, space.caller.session_id, entry["step_id"])
        if not _noted(space, run, asked):
            return Stopped()
        why = _unchecked(reading, entry)
        words = f"Step {entry['step_id']} is open. {why}" if why else _asked(entry)
        return Stopped(block=f"Loom: {words}", asked=True, stage=entry["stage"])
    if verdict == turn_ends.WAIT:
        asks = wait_for_answer(space, run, entry, message)
        return Stopped(line=" ".join(filter(None, (asks, _unchecked(reading, entry)))), waits=True)
    if verdict == turn_ends.PAUSE:
        return Stopped(line=pause_at_cap(space, run))
    if verdict == turn_ends.KEEP and run.state["status"] == "paused" and reading.found and reading.errors:
        return Stopped(line=_kept(run, entry, reading))
    return Stopped(line=_not_seen(entry, reading) if verdict == turn_ends.KEEP else "")


def _kept(run: Run, entry: Mapping[str, Any], reading: Reading, known: finish_records.Gathered | None = None) -> str:
    from loomctl.flow.outcomes import evidence

    lacking = known.evidence if known is not None and not reading.errors else None
    why = evidence.missing(lacking) if lacking is not None else answers.first_errors(reading)
    if not why:
        return ""
    told = f"Loom: {entry['step_id']} is not done: the run is paused, and {why}"
    return f"{told}. Loom kept the message. To give it again: {evidence.again(run, entry, None)}"


def _asked(entry: Mapping[str, Any]) -> str:
    if "branches" not in entry:
        return ASKED.format(step=entry["step_id"], done=visits.done_command(entry))
    from loomctl.kit.text.secrets import masked_line
    from loomctl.workflows import branches  # most steps have none

    left = ", ".join(masked_line(str(record["id"]), 60) for record in branches.open_records(entry))
    return BRANCHES_LEFT.format(step=entry["step_id"], branches=left)


def _not_seen(entry: Mapping[str, Any], reading: Reading) -> str:
    why = _unchecked(reading, entry)
    if why:
        return f"Loom: {entry['step_id']} is not done. Loom kept the message. {why}"
    said = [one.message for one in (*reading.errors, *reading.warnings) if one.code == "PARTLY_READ"]
    return f"Loom: {entry['step_id']} is not done: {said[0]}. Loom kept the message." if said else ""


def _at_untrusted(space: Workspace, run: Run, turn: Turn) -> Stopped | None:
    """Let a run wait for trust that stands at a command step which lacks it; None where it stands elsewhere.

    Its user is told when it begins to wait, and at the end of every turn that Loom drives (D23).
    """
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if place is None or place.step.get("kind") != "command" or not is_under_way(run.state):
        return None
    from loomctl.flow.commands import command_steps  # most stops are at no command
    from loomctl.runs.model import standing

    try:
        commands = command_steps.untrusted(space, run)
    except LoomError:  # of a run that was made elsewhere: `next` says what cannot be filled in here
        return None
    if not commands:
        return None
    was_told = standing.waits_for_trust(run.state) and not turn.driven
    command_steps.wait(space, run, commands)
    return Stopped(line="" if was_told else f"Loom: {standing.trust_line(run.handle, commands)}", waits=turn.driven)


def closed_without_message(space: Workspace, run: Run) -> str:
    """Complete a closing step at a session's start, or at a stop without words; gives the line for the user (D27).

    In a run that stands still it is left as it is where its answer does not fit: nothing is asked for there.
    """
    from loomctl.flow import finish, gate_texts, settle

    found = turn_ends.ready(space, run, run.state)
    said: list[str] = []
    opened: list[settle.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        said.clear()
        opened.clear()
        happened: list[Event] = []
        if found is not None and not is_under_way(state) and finish.would_ask(run, state, found.given, found.known):
            return state, []
        ended, how = turn_ends.close(space, run, state, happened, found)
        if ended is None:
            return state, []
        result = settle.rest_here(space, run, ended.state)
        opened.append(result)
        there = run._replace(state=result.state)
        now = gate_texts.say_move(there, result.move, is_new=ended.entry is not None, to_user=True)
        said.append(f"Loom: {how} {now}")
        return leases.note_activity(space, result.state), happened + result.happened

    state = space.store.update(run.run_id, change, patience=HOOK_PATIENCE)
    if opened:
        said += settle.begun(space, run._replace(state=state), opened[0])
    return " ".join(said)


def _handed_on(space: Workspace, entry: Mapping[str, Any] | None) -> Event:
    stage, step_id = (entry["stage"], entry["step_id"]) if entry else (None, None)
    return Event("stage.handed_on", {"stage": stage}, space.caller.session_id, step_id)


def _noted(space: Workspace, run: Run, happened: Event) -> bool:
    """Write into the run's log what a stop leads to; False where the run was paused in this moment, and it must not.

    The stop is answered all the same where it cannot be written.
    """

    def change(state: State) -> tuple[State, list[Event]]:
        return state, [happened] if is_under_way(state) else []

    try:
        return is_under_way(space.store.update(run.run_id, change, durable=False, patience=HOOK_PATIENCE))
    except (OSError, LoomError) as error:
        if isinstance(error, LoomError) and error.code == leases.HELD_BY_ANOTHER:
            raise  # who drives no more sends nobody on
        return True


def _unchecked(reading: Reading, entry: Mapping[str, Any]) -> str:
    if not reading.errors:
        return ""
    from loomctl.flow import finish

    return finish.unchecked(reading, entry)


def _ended(
    space: Workspace,
    run: Run,
    turn: Turn,
    given: finish_records.Given,
    known: finish_records.Gathered,
    stop: turn_ends.Stop,
) -> Stopped:
    from loomctl.flow import finish, gate_texts, settle  # most stops end nothing

    held: list[Stopped] = []
    opened: list[settle.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        held[:], opened[:] = [Stopped()], []
        entry = visits.open_visit(state)
        if entry is None or entry["stage"] != known.for_stage or state["status"] in OVER:  # somebody else was first
            return state, []
        now_open, paused_now = stop.open and is_under_way(state), state["status"] == "paused"
        verdict = turn_ends.decide(stop._replace(open=now_open, paused=paused_now))
        asks = not is_under_way(state) and finish.would_ask(run, state, given, known)
        if verdict not in _ENDS or asks:  # somebody paused it, and nothing is asked for there
            stages.write_candidate(run.folder, entry["stage"], given.response or "")
            held[:] = [Stopped(line=_kept(run, entry, known.reading, known) if paused_now else "")]
            return state, []
        happened: list[Event] = []
        ended = finish.end(space, run, state, happened, given, known)
        if ended.waits:
            held[:] = [Stopped(line=f"Loom: {ended.repair}", waits=True)]
            return leases.note_activity(space, ended.state), happened
        state = lines.answered(space, ended.state, happened)
        if ended.entry is None:
            unjudged = entry["stage"] if known.evidence is not None and known.evidence.pending else ""
            held[:] = [Stopped(block=f"Loom: {ended.repair}", stage=unjudged)]
            return leases.note_activity(space, state), happened
        result = settle.rest_here(space, run, state)
        opened[:] = [result]
        goes_on = result.move.kind == "step"
        handed = turn_ends.hands_on(level=stop.level, driven=turn.driven, planning=turn.planning, goes_on=goes_on)
        state, said = result.state, _said(ended.entry, ended.reading)
        if handed and turn.blocks_left > 0:
            held[:] = [Stopped(block=f"Loom: {said}. {NEXT.format(step=result.move.step)}")]
            result.happened.append(_handed_on(space, visits.open_visit(state)))
        else:
            from loomctl.workflows import gates  # most stops end nothing

            asks = turn.driven and gates.open_human(state, run.plan) is not None
            now = gate_texts.say_move(run._replace(state=state), result.move, is_new=True, to_user=True)
            held[:] = [Stopped(line=f"Loom: {said}. {now}", waits=asks, rests=_rest_key(state, now))]
        happened += result.happened
        if handed and turn.blocks_left <= 0:
            state, paused = paused_at_cap(state, space.caller.session_id)
            happened += paused
            held[:] = [Stopped(line=say_paused(run.handle, f"{said}. "))]
        return leases.note_activity(space, state), happened

    state = space.store.update(run.run_id, change, patience=HOOK_PATIENCE)
    stopped = settle.begun(space, run._replace(state=state), opened[0]) if opened else []
    return held[0]._replace(line=" ".join([held[0].line, *stopped])) if held[0].line else held[0]


def _said(entry: Mapping[str, Any], reading: Reading) -> str:
    from loomctl.flow import finish_records

    why, by = finish_records.why(entry, reading, _LAST_WORDS), finish_records.by_file(reading)
    told = f"{entry['step_id']} {entry['status']}" + (f" ({by})" if by else "")
    return f"{told}: {why.removesuffix('.')}" if why else told


def set_standing(space: Workspace, run_id: str, status: str, event: str, *, allowed: Sequence[str]) -> Run:
    """Pause or cancel a run. allowed: the statuses from which that can be done; raises BAD_STATUS from others.

    A cancelled run is cancelled again without a change: the first cancel may have been killed before it was through.
    """
    space = leases.deciding(space)
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
        if state["status"] == status == "cancelled":
            return state, []
        _refuse_status(run, state, status, allowed)
        stands = standing.pause_no_more({**state, "status": status})
        return stands, [Event(event, {"before": state["status"]}, space.caller.session_id)]

    return run._replace(state=space.store.update(run_id, change))


def _refuse_status(run: Run, state: State, status: str, allowed: Sequence[str]) -> None:
    if state["status"] in allowed:
        return
    what = f"the run is {state['status']} and cannot become {status}"
    why = f"that takes a run that is {', '.join(allowed[:-1])} or {allowed[-1]}"
    hint = f"loomctl show {handle(state)}"
    raise LoomError("BAD_STATUS", what, where=run.state_path, why=why, hint=hint, exit_code=EXIT_USAGE)


def pause_after_step(space: Workspace, run_id: str, *, allowed: Sequence[str], wanted: bool = True) -> Run:
    """Let a run pause once its open step has ended; one without an open step pauses at once. Raises BAD_STATUS.

    allowed: as for `set_standing`; wanted: False takes that back.
    """
    space = leases.deciding(space)
    run = space.store.read(run_id)

    def change(state: State) -> tuple[State, list[Event]]:
        session_id, entry = space.caller.session_id, visits.open_visit(state)
        if not wanted:
            none = Event("run.pause_asked", {"stage": None}, session_id)
            return (standing.pause_no_more(state), [none]) if standing.PAUSE_AFTER in state else (state, [])
        _refuse_status(run, state, "paused", allowed)
        if entry is None:
            now = Event("run.paused", {"before": state["status"], "reason": "after_step"}, session_id)
            return standing.pause_no_more({**state, "status": "paused"}), [now]
        if standing.pauses_after(state):
            return state, []
        asked = Event("run.pause_asked", {"stage": entry["stage"]}, session_id, entry["step_id"])
        return standing.pause_later(state, entry, at=clock.now()), [asked]

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
    return f"Loom: {entry['step_id']} waits for your answer. Answer, and the run goes on."


def pause_at_cap(space: Workspace, run: Run) -> str:
    """Pause a run whose assistant the host lets stop now, whatever a hook says; gives the line for its user."""

    def change(state: State) -> tuple[State, list[Event]]:
        return paused_at_cap(state, space.caller.session_id) if standing.is_under_way(state) else (state, [])

    space.store.update(run.run_id, change, patience=HOOK_PATIENCE)
    return say_paused(run.handle)


def paused_at_cap(state: State, session_id: str | None) -> tuple[State, list[Event]]:
    """Give the state of such a run, and the event."""
    happened = Event("run.paused", {"before": state["status"], "reason": CAP}, session_id)
    return {**standing.answered(state), "status": "paused"}, [happened]


def say_paused(handle: str, before: str = "") -> str:
    """Say that a run is paused so, and how it goes on."""
    return (
        f"Loom: {before}The run is paused, because the assistant stopped too often. "
        f"To continue: loomctl resume {handle}"
    )
