"""Command steps: run by `loomctl next` alone, once they are trusted, and awaited for a while (D23, D30).

A hook never comes here. What a command step does: its visit is open in the state; its command is started once,
detached; whoever calls `next` waits for it, and the first who sees its end ends the visit.
"""

from __future__ import annotations

import os
import time

from loomctl.flow import finish, finish_records, lines, route, settle
from loomctl.flow.commands import command_steps
from loomctl.flow.commands.command_steps import environment, open_work, patience, workdir
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, ON_INTERRUPT, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import command_runs, stages
from loomctl.runs.model import sessions, standing, visits
from loomctl.runs.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from loomctl.flow.commands.command_steps import Work
    from loomctl.flow.settle import Settled
    from loomctl.runs.command_runs import Standing
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Run

"""Seconds that `next` waits; a host ends a shell call after 120."""
RUNNING, STOPPED, NOT_TRUSTED, NOT_BEGUN = "running", "stopped", "not_trusted", "not_begun"


class Ran(NamedTuple):
    """A command step that ended: its visit's status; reason: why it failed, or empty; log: the file with its output."""

    step_id: str
    stage: str
    status: str
    reason: str
    command: Mapping[str, Any]
    log: str
    tail: str


class Pending(NamedTuple):
    """A command step that the run stands at.

    kind: RUNNING; STOPPED: while it was waited for; NOT_TRUSTED: nothing was run; NOT_BEGUN: commands before it, or its
    own back-off, took all the time that `next` waits. not_before: the time until which it backs off, UTC.
    commands: what the run would run here, as `command_steps.listed` gives it; bytes, seconds, tail: of one that runs.
    """

    kind: str
    step_id: str
    stage: str
    log: str
    commands: Sequence[Mapping[str, str]] = ()
    seconds: float = 0.0
    bytes: int = 0
    tail: str = ""
    not_before: str = ""


class Carried(NamedTuple):
    """How far a run came: what ran, in order; pending: the command step that it stands at, if it stands at one."""

    run: Run
    settled: Settled
    ran: Sequence[Ran] = ()
    pending: Pending | None = None
    notes: Sequence[str] = ()


def carried(space: Workspace, run: Run, settled: Settled, tell: Callable[[Pending], None] | None = None) -> Carried:
    """Run the command steps that a run has come to, one after the other, until it stands at something else.

    Waits for `patience()` seconds in all; what runs then goes on by itself. tell: is given about twice a second what
    runs. Without trust nothing is run. Raises PATH_ESCAPE, NOT_STARTED, WITHIN_COMMAND, and INTERRUPTED where its user
    stopped waiting.
    """
    come = Carried(run, settled)
    if space.caller.on_hook_path:  # hooks never execute (D23)
        return come
    until = time.monotonic() + patience()
    while come.pending is None and (work := _work(come.run)) is not None:
        come = _one(space, come, work, until, tell)
    return come


def waiting_for_trust(space: Workspace, run: Run) -> Pending | None:
    """Give the command step at which a run waits for trust that it was not given on this machine; else None."""
    work = open_work(run) if standing.waits_for_trust(run.state) else None
    commands = command_steps.untrusted(space, run) if work is not None else []
    return _pending(NOT_TRUSTED, work, commands=commands) if work is not None and commands else None


def _one(space: Workspace, come: Carried, work: Work, until: float, tell: Callable[[Pending], None] | None) -> Carried:
    run = come.run
    _refuse_within(work, run)
    commands = command_steps.untrusted(space, run)
    if commands:
        run = command_steps.wait(space, run, commands)
        return come._replace(run=run, pending=_pending(NOT_TRUSTED, work, commands=commands))
    standing = _standing(space, run, work)
    held = _held_back(space, come, work, until) if standing.kind == command_runs.NONE else None
    if held is not None:
        return held
    try:
        if standing.kind == command_runs.NONE:
            run, standing = begun(space, run, work)
        elif standing.kind == command_runs.RUNNING:  # who started it may have been killed before it told so
            run = command_steps.tell_start(space, run, work, standing)
        if standing.kind in (command_runs.NONE, command_runs.RUNNING):
            told = None if tell is None else lambda now: tell(_running(work, now))
            standing = command_runs.wait(work.folder, until, told, seen=standing)
    except KeyboardInterrupt:
        if command_runs.look(work.folder).kind != command_runs.RUNNING:
            raise
        raise _interrupted(run, work) from None
    come = come._replace(run=run)
    if standing.kind == command_runs.RUNNING:
        return come._replace(pending=_running(work, standing))
    if standing.kind == command_runs.NONE or standing.result.get("stopped"):
        return _looked_again(space, come, work, standing)
    run, settled, one = _taken(space, run, come.settled, work, standing)
    if one is None:
        return come._replace(run=run, settled=settled)
    lost = [f"{one.step_id}: {said}" for _, said in command_steps.losses(work.folder, standing.result)]
    return Carried(run, settled, [*come.ran, one], None, [*come.notes, *lost])


def _held_back(space: Workspace, come: Carried, work: Work, until: float) -> Carried | None:
    """Wait for the time before which a command is not to be tried again; None where it may begin (D45).

    Where that is later than `next` waits, the run stands there; where somebody went on meanwhile, at what is open now.
    """
    not_before = str(route.way_to(come.run.state, work.step_id).get("not_before") or "")
    left = clock.seconds_of(not_before) - time.time()
    if left > 0:
        time.sleep(max(0.0, min(left, until - time.monotonic())))
        run = lines.again(space, come.run)
        now = _work(run)
        if now is None or now.stage != work.stage:
            return come._replace(run=run, settled=_as_it_stands(come.settled, run.state))
        if time.time() < clock.seconds_of(not_before):
            return come._replace(pending=_pending(NOT_BEGUN, work)._replace(not_before=not_before))
    if come.ran and time.monotonic() >= until:
        return come._replace(pending=_pending(NOT_BEGUN, work))
    return None


def _standing(space: Workspace, run: Run, work: Work) -> Standing:
    standing = command_runs.look(work.folder)
    if standing.kind == command_runs.ENDED and standing.result.get("stopped"):
        standing = _cleared(space, run, work)
    if standing.kind == command_runs.NONE and command_steps.is_running_by_the_log(run, work.stage):
        return standing._replace(kind=command_runs.LOST)
    return standing


def _looked_again(space: Workspace, come: Carried, work: Work, standing: Standing) -> Carried:
    """Look where the run is by now: somebody stopped or undid its command while it was waited for.

    Who stopped a command says what becomes of its step. Where nobody did (a shutdown), it is not started again here.
    """
    run = lines.again(space, come.run)
    now = _work(run)
    if now is not None and now.stage == work.stage and standing.kind == command_runs.ENDED:
        run = command_steps.tell_end(space, run, work, standing)
        return come._replace(run=run, pending=_pending(STOPPED, work))
    return come._replace(run=run, settled=_as_it_stands(come.settled, run.state))


def _work(run: Run) -> Work | None:
    return open_work(run) if standing.goes_on(run.state) else None


def _refuse_within(work: Work, run: Run) -> None:
    if os.environ.get("LOOM_STAGE_DIR") == work.folder:
        what = f"the command of {work.step_id} cannot wait for its own end"
        why = "that command itself called loomctl next"
        raise LoomError("WITHIN_COMMAND", what, why=why, hint=f"loomctl show {run.handle}", exit_code=EXIT_USAGE)


def _cleared(space: Workspace, run: Run, work: Work) -> Standing:
    def change(state: State) -> tuple[State, list[Event]]:
        standing = command_runs.look(work.folder)
        if standing.kind != command_runs.ENDED or not standing.result.get("stopped"):
            return state, []
        happened = command_steps.end(space, run, work, standing)
        stages.set_aside(run.folder, work.stage)
        return state, happened

    lines.update(space, run, change)
    return command_runs.look(work.folder)


def _interrupted(run: Run, work: Work) -> LoomError:
    what = f"stopped waiting; the command of {work.step_id} keeps running"
    why = "loomctl next waits for it again; loomctl cancel stops it and the run"
    hint = f"loomctl next {run.handle}"
    return LoomError("INTERRUPTED", what, where=work.log, why=why, hint=hint, exit_code=ON_INTERRUPT)


def _running(work: Work, standing: Standing) -> Pending:
    pending = _pending(RUNNING, work, tail=command_steps.tail_of(work.folder, 2000))
    return pending._replace(seconds=_seconds(standing.record), bytes=standing.bytes)


def _seconds(record: Mapping[str, Any]) -> float:
    began = clock.seconds_of(str(record.get("started_at")))
    return max(0.0, time.time() - began) if began else 0.0


def _pending(kind: str, work: Work, *, commands: Sequence[Mapping[str, str]] = (), tail: str = "") -> Pending:
    return Pending(kind, work.step_id, work.stage, work.log, commands=commands, tail=tail)


def begun(space: Workspace, run: Run, work: Work) -> tuple[Run, Standing]:
    """Start a command, unless another process does; gives the run with the event of it, and how the command stood.

    What the project is as it begins is noted by who starts it, before it does (D40). Raises PATH_ESCAPE, NOT_STARTED.
    """
    order = _order(space, run, work)
    # A lock beside the run's own, which nobody is to wait for while git is asked.
    with space.store.lock(f"{run.run_id}.command") as lock:
        if command_runs.look(work.folder).kind == command_runs.NONE:
            settle.note_visit(space, run, work.entry)
            command_runs.start(order, environment(run.run_id, work.step_id, work.folder))
        lock.remove()
    standing = command_runs.look(work.folder)
    run = command_steps.tell_start(space, run, work, standing)
    if run.state["status"] in OVER:  # somebody cancelled it in this moment
        command_steps.stop_open(space, run)
    return run, standing


def _order(space: Workspace, run: Run, work: Work) -> command_runs.Order:
    command = command_steps.expanded(space, run, work.step)
    cwd = workdir(space, run, command.get("workdir"))
    timeout = work.step.get("timeout")
    seconds = float(timeout) if isinstance(timeout, (int, float)) else None
    return command_runs.Order(
        work.folder, run.run_id, work.step_id, work.stage, command["run"], cwd, seconds, run.handle
    )


def _taken(
    space: Workspace, run: Run, settled: Settled, work: Work, standing: Standing
) -> tuple[Run, Settled, Ran | None]:
    if standing.kind == command_runs.LOST:
        command_runs.end_orphan(standing)
    given = _given(space, work, standing)
    known = finish.gather(space, run, work.entry, given)
    held: list[tuple[Settled, Mapping[str, Any] | None]] = []

    def change(state: State) -> tuple[State, list[Event]]:
        entry = visits.open_visit(state)
        if entry is None or entry["stage"] != work.stage:
            held[:] = [(_as_it_stands(settled, state), None)]
            return state, []
        happened = command_steps.end(space, run, work, standing)
        if state["status"] in OVER:
            held[:] = [(_as_it_stands(settled, state), None)]
            return state, happened
        ended = finish.end(space, run, state, happened, given, known)
        now = settle.rest_here(space, run, ended.state)
        held[:] = [(now._replace(facts=settle.together(settled.facts, now.facts)), ended.entry)]
        return sessions.active(now.state, space.caller.session_id, at=clock.now()), happened + now.happened

    run = settle.update(space, run, change, may_end=True)
    now, ended = held[0]
    settle.begun(space, run, now)
    if ended is None:
        return run, now, None
    tail = command_steps.tail_of(work.folder, 4000 if given.note else 1000)
    ran = Ran(ended["step_id"], ended["stage"], ended["status"], given.note, given.command or {}, work.log, tail)
    return run, now, ran


def _as_it_stands(before: Settled, state: State) -> Settled:
    entry = visits.open_visit(state)
    if entry is not None and standing.goes_on(state):
        move = route.Move("step", step=entry["step_id"])
        return settle.Settled(state, [], move, before.facts)
    return settle.rest(state)._replace(facts=before.facts)


def _given(space: Workspace, work: Work, standing: Standing) -> finish_records.Given:
    """Say what a command's end means, and put its output away: outside of the state's lock, for it may be large."""
    told = standing.result
    exit_code = told.get("exit_code") if type(told.get("exit_code")) is int else None
    reason = _reason(work, standing, exit_code)
    output, warnings = command_steps.stored(space, work.folder)
    for name, message in command_steps.losses(work.folder, told):
        warnings.append({"code": name, "where": command_steps.KEY, "message": message})
    command = {
        "script": work.step["run"],
        "exit_code": exit_code,
        "signal": told.get("signal"),
        "duration_ms": told.get("duration_ms"),
        "timed_out": bool(told.get("timed_out")),
        "output": output,
        "bytes": told.get("bytes", command_runs.size_of(work.folder)),
    }
    context = {command_steps.KEY: output, "command.exit_code": exit_code}
    outcome = "failed" if reason else "succeeded"
    return finish_records.Given(None, "command", outcome, reason, command=command, context=context, warnings=warnings)


def _reason(work: Work, standing: Standing, exit_code: int | None) -> str:
    told = standing.result
    if standing.kind == command_runs.LOST:
        return "lost: a kill or a restart ended Loom's watcher, and nobody saw how the command ended"
    if told.get("error"):
        return masked_line(str(told["error"]), 300)
    if told.get("timed_out"):
        return f"timed out after {float(work.step.get('timeout') or 0):g} s"
    if told.get("stopped"):
        return "stopped"
    if exit_code is None:
        return f"ended by {masked_line(str(told.get('signal') or 'a signal'), 40)}"
    return f"exit code {exit_code}" if exit_code else ""
