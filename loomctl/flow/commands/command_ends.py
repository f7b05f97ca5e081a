"""How a command step ends: its visit by its command's end, by a person's word, or stopped with its run (D30)."""

from __future__ import annotations

from loomctl.flow import lines, settle
from loomctl.flow.commands import command_events, command_output
from loomctl.flow.commands.work import Work, open_work
from loomctl.flow.end import end, results
from loomctl.flow.route import run_life
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import leases
from loomctl.runs.commands import command_runs
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import sessions, standing, visits
from loomctl.runs.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.settle import Settled
    from loomctl.runs.caller import Workspace
    from loomctl.runs.commands.command_runs import Standing
    from loomctl.runs.model.state import State
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Run


class Ran(NamedTuple):
    """A command step that ended: its visit's status; reason: why it failed, or empty; log: the file with its output."""

    step_id: str
    stage: str
    status: str
    reason: str
    command: Mapping[str, Any]
    log: str
    tail: str


def taken(
    space: Workspace, run: Run, settled: Settled, work: Work, standing: Standing
) -> tuple[Run, Settled, Ran | None]:
    """End the visit by how its command ended, unless somebody else did, and go on to where the run rests then."""
    if standing.kind == command_runs.LOST:
        command_runs.end_orphan(standing)
    given = _given(space, work, standing)
    known = end.gather(space, run, work.entry, given)
    held: list[tuple[Settled, Mapping[str, Any] | None]] = []

    def change(state: State) -> tuple[State, list[Event]]:
        entry = visits.open_visit(state)
        if entry is None or entry["stage"] != work.stage:
            held[:] = [(as_it_stands(settled, state), None)]
            return state, []
        happened = command_events.end(space, run, work, standing)
        if state["status"] in OVER:
            held[:] = [(as_it_stands(settled, state), None)]
            return state, happened
        ended = end.end(space, run, state, happened, given, known)
        now = settle.rest_here(space, run, ended.state)
        held[:] = [(_following(settled, now), ended.entry)]
        return sessions.active(now.state, space.caller.session_id, at=clock.now()), happened + now.happened

    run = lines.update(space, run, change, may_end=True)
    now, ended = held[0]
    settle.begun(space, run, now)
    if ended is None:
        return run, now, None
    tail = command_output.tail_of(work.folder, 4000 if given.note else 1000)
    ran = Ran(ended["step_id"], ended["stage"], ended["status"], given.note, given.command or {}, work.log, tail)
    return run, now, ran


def as_it_stands(before: Settled, state: State) -> Settled:
    """Say where a run rests that somebody else changed. before: where it rested until then."""
    entry = visits.open_visit(state)
    if entry is not None and standing.goes_on(state):
        move = run_life.Move("step", step=entry["step_id"])
        return _following(before, settle.Settled(state, [], [], False, move))
    return _following(before, settle.rest(state))


def _following(before: Settled, now: Settled) -> Settled:
    """Keep of where a run rested before what its next priming tells."""
    return now._replace(
        entered=[*before.entered, *now.entered], engine_primed=before.engine_primed or now.engine_primed
    )


def _given(space: Workspace, work: Work, standing: Standing) -> results.Given:
    """Say what a command's end means, and put its output away: outside of the state's lock, for it may be large."""
    told = standing.result
    exit_code = told.get("exit_code") if type(told.get("exit_code")) is int else None
    reason = _reason(work, standing, exit_code)
    output, warnings = command_output.stored(space, work.folder)
    for name, message in command_output.losses(work.folder, told):
        warnings.append({"code": name, "where": command_output.KEY, "message": message})
    command = {
        "script": work.step["run"],
        "exit_code": exit_code,
        "signal": told.get("signal"),
        "duration_ms": told.get("duration_ms"),
        "timed_out": bool(told.get("timed_out")),
        "output": output,
        "bytes": told.get("bytes", command_output.size_of(work.folder)),
    }
    context = {command_output.KEY: output, "command.exit_code": exit_code}
    outcome = "failed" if reason else "succeeded"
    return results.Given(None, "command", outcome, reason, command=command, context=context, warnings=warnings)


def _reason(work: Work, standing: Standing, exit_code: int | None) -> str:
    """Say why a command step failed; an empty string if it did not."""
    told = standing.result
    if standing.kind == command_runs.LOST:
        return "lost: what watched the command was ended (a kill, a restart), and how the command ended is not known"
    if told.get("error"):
        return masked_line(str(told["error"]), 300)
    if told.get("timed_out"):
        return f"timed out after {float(work.step.get('timeout') or 0):g} s"
    if told.get("stopped"):
        return "stopped"
    if exit_code is None:
        return f"ended by {masked_line(str(told.get('signal') or 'a signal'), 40)}"
    return f"exit code {exit_code}" if exit_code else ""


# ---- What a person decides about a command that runs.


def stop_open(space: Workspace, run: Run) -> str:
    """Stop the command of the run's open visit, if one runs; gives a line that says so, or an empty string.

    How it ended is told, also of one that ended by itself and was not looked at since.
    """
    work = open_work(run)
    before = command_runs.look(work.folder) if work is not None else None
    if work is None or before is None or before.kind == command_runs.NONE:
        return ""
    standing = command_runs.stop(work.folder)
    if standing.kind == command_runs.RUNNING:
        return f"The command of {work.step_id} could not be stopped; its processes are named in command.json."
    command_events.tell_end(space, run, work, standing)
    return f"The command of {work.step_id} was stopped." if before.kind == command_runs.RUNNING else ""


def runs_now(space: Workspace, run: Run) -> bool:
    """Tell whether a command of a run's open visits, or of its branches', runs on this machine; or one as evidence."""
    from loomctl.flow.evidence import evidence_commands

    works = [open_work(line) for line in lines.every(run)]
    return evidence_commands.runs_now(space, run) or any(
        work is not None and command_runs.look(work.folder).kind == command_runs.RUNNING for work in works
    )


def stop_all(space: Workspace, run: Run) -> list[str]:
    """Stop the commands of a run and of its branches, and those that are evidence.

    Gives a line for each that ran, or could not be stopped.
    """
    from loomctl.flow.evidence import evidence_commands

    steps = [said for line in lines.every(run) if (said := stop_open(space, line))]
    return [*steps, *evidence_commands.stop(space, run)]


def stop_evidence(space: Workspace, line: Run) -> list[str]:
    """Stop what runs as evidence of a line's open visit; gives a line for each that ran, or could not be stopped."""
    from loomctl.flow.evidence import evidence_commands

    entry = visits.open_visit(line.state)
    return evidence_commands.stop(space, line, [entry["stage"]]) if entry is not None else []


def stop_left(space: Workspace, line: Run) -> None:
    """Stop the command of a branch that its parallel step went on without; its end is told in the run's log."""
    stop_evidence(space, line)
    work = open_work(line)
    if work is None or command_runs.look(work.folder).kind == command_runs.NONE:
        return
    standing = command_runs.stop(work.folder)
    space.store.tell(line.run_id, lambda _: command_events.end(space, line, work, standing))


def take_over(space: Workspace, run: Run, outcome: str | None) -> Work | None:
    """Let a person end a command step by hand; gives it if the open step is one. Raises COMMAND_STEP otherwise.

    It takes an outcome, and a terminal: what an assistant says is no result of a command. A running one is stopped.
    """
    work = open_work(run)
    if work is None:
        return None
    if space.caller.host != TERMINAL or outcome is None:
        raise LoomError(
            "COMMAND_STEP",
            f"{work.step_id} is a command step: its exit code is its result",
            why="loomctl next runs it, or waits for it; a person may overrule it in a terminal, with --outcome",
            hint=f"loomctl next {run.run_id}",
            exit_code=EXIT_USAGE,
        )
    stop_open(leases.deciding(space), run)
    return work
