"""Command steps: run by `loomctl next` alone, once they are trusted, and awaited for a while (D23, D30).

A hook never comes here. What a command step does: its visit is open in the state; its command is started once,
detached; whoever calls `next` waits for it, and the first who sees its end ends the visit.
"""

from __future__ import annotations

import calendar
import os
import time

from loomctl.disk import artifact_paths, command_runs
from loomctl.disk.events import Event
from loomctl.engine import command_ends, command_output, command_trust, stages
from loomctl.model import run_life
from loomctl.model.errors import EXIT_USAGE, ON_INTERRUPT, LoomError
from loomctl.model.records import NamedTuple
from loomctl.model.secrets import masked_line
from loomctl.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from loomctl.disk.command_runs import Standing
    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.engine.command_ends import Ran, Work
    from loomctl.engine.settling import Settled
    from loomctl.model.state import State

PATIENCE = 90.0
"""Seconds that `next` waits; a host ends a shell call after 120."""
RUNNING, NOT_TRUSTED, NOT_BEGUN = "running", "not_trusted", "not_begun"


class Pending(NamedTuple):
    """A command step that the run stands at.

    kind: RUNNING; NOT_TRUSTED: nothing was run; NOT_BEGUN: commands before it took all the time that `next` waits.
    commands: what the run would run here, as `command_trust.listed` gives it; bytes, seconds, tail: of one that runs.
    """

    kind: str
    step_id: str
    stage: str
    log: str
    commands: Sequence[Mapping[str, str]] = ()
    seconds: float = 0.0
    bytes: int = 0
    tail: str = ""


class Carried(NamedTuple):
    """How far a run came: what ran, in order; pending: the command step that it stands at, if it stands at one."""

    run: Run
    settled: Settled
    ran: Sequence[Ran] = ()
    pending: Pending | None = None
    notes: Sequence[str] = ()


def patience() -> float:
    """Give the seconds that `next` waits: `$LOOM_COMMAND_WAIT`, else PATIENCE."""
    try:
        seconds = float(os.environ.get("LOOM_COMMAND_WAIT", ""))
    except ValueError:
        return PATIENCE
    return seconds if 0 <= seconds < float("inf") else PATIENCE


def carried(space: Workspace, run: Run, settled: Settled, tell: Callable[[Pending], None] | None = None) -> Carried:
    """Run the command steps that a run has come to, one after the other, until it stands at something else.

    Waits for `patience()` seconds in all; what runs then goes on by itself. tell: is given about twice a second what
    runs. Without trust nothing is run. Raises PATH_ESCAPE, NOT_STARTED, WITHIN_COMMAND, and INTERRUPTED where its user
    stopped waiting.
    """
    if space.caller.on_hook_path:  # hooks never execute (D23)
        return Carried(run, settled)
    until = time.monotonic() + patience()
    ran: list[Ran] = []
    notes: list[str] = []
    while (work := _work(run)) is not None:
        _refuse_within(work, run)
        commands = command_trust.untrusted(space, run)
        if commands:
            return Carried(run, settled, ran, _pending(NOT_TRUSTED, work, commands=commands), notes)
        standing = command_runs.look(work.folder)
        if standing.kind == command_runs.ENDED and standing.result.get("stopped"):
            standing = _cleared(space, run, work)
        if standing.kind == command_runs.NONE and ran and time.monotonic() >= until:
            return Carried(run, settled, ran, _pending(NOT_BEGUN, work), notes)
        try:
            if standing.kind == command_runs.NONE:
                run = _begun(space, run, work)
            standing = _awaited(work, until, tell)
        except KeyboardInterrupt:
            if command_runs.look(work.folder).kind != command_runs.RUNNING:
                raise
            raise _interrupted(run, work) from None
        if standing.kind == command_runs.RUNNING:
            return Carried(run, settled, ran, _running(work, standing), notes)
        if standing.kind == command_runs.NONE:  # somebody undid or stopped it meanwhile
            continue
        run, settled, one = command_ends.taken(space, run, settled, work, standing)
        if one is not None:
            ran.append(one)
            notes += [f"{one.step_id}: {said}" for _, said in command_output.losses(standing.result)]
    return Carried(run, settled, ran, None, notes)


def _work(run: Run) -> Work | None:
    """Give the command step that the run is at and may go on with; None where it is at something else."""
    return command_ends.open_work(run) if run_life.goes_on(run.state) else None


def _refuse_within(work: Work, run: Run) -> None:
    if os.environ.get("LOOM_STAGE_DIR") == work.folder:
        raise LoomError(
            "WITHIN_COMMAND",
            f"the command of {work.entry['step_id']} cannot wait for its own end",
            why="loomctl next was called by the command that it would wait for",
            hint=f"loomctl show {run.run_id}",
            exit_code=EXIT_USAGE,
        )


def _cleared(space: Workspace, run: Run, work: Work) -> Standing:
    """Put aside what is left of a command that was stopped with its run, so that its step can be done again."""

    def change(state: State) -> tuple[State, list[Event]]:
        standing = command_runs.look(work.folder)
        if standing.kind == command_runs.ENDED and standing.result.get("stopped"):
            stages.set_aside(run.folder, work.entry["stage"])
        return state, []

    space.store.update(run.run_id, change)
    return command_runs.look(work.folder)


def _begun(space: Workspace, run: Run, work: Work) -> Run:
    """Start the command, unless another process does; gives the run with the event of it."""
    command = command_trust.expanded(space, run, work.step)
    cwd = _workdir(space, run, command.get("workdir"))
    timeout = work.step.get("timeout")
    stage, key = str(work.entry["stage"]), str(work.entry["step_id"])
    seconds = float(timeout) if isinstance(timeout, (int, float)) else None
    order = command_runs.Order(work.folder, run.run_id, key, stage, command["run"], cwd, seconds)
    if not command_runs.start(order, environment(run.run_id, key, work.folder)):
        return run
    event = Event("command.started", {"stage": stage, "timeout": timeout}, space.caller.session_id, key)
    run = run._replace(state=space.store.update(run.run_id, lambda state: (state, [event])))
    if run.state["status"] in OVER:  # somebody cancelled it in this moment
        command_runs.stop(work.folder)
    return run


def _workdir(space: Workspace, run: Run, declared: str | None) -> str:
    """Give the absolute folder a command works in: the project's root, or one below it (D10). Raises PATH_ESCAPE."""
    root = space.project.root
    path = os.path.realpath(os.path.join(root, declared or ""))
    allowed = (root, run.folder, *space.settings.extra_roots)
    if "\0" in path or not any(artifact_paths.is_inside(path, artifact_paths.real(one)) for one in allowed):
        raise LoomError(
            "PATH_ESCAPE",
            "the step's workdir leads out of the project",
            where=masked_line(declared or "", 300),
            why="links are followed first; a folder elsewhere is allowed under extra_roots in your own config.yaml",
            hint="loomctl paths",
        )
    return path if declared else root


def environment(run_id: str, step_id: str, stage_dir: str) -> dict[str, str]:
    """Give a command's environment: the caller's, without what the launcher of Loom set for Loom, and who it is for."""
    found = dict(os.environ)
    python = found.pop("LOOM_ENV_PYTHON", "")
    found.pop("LOOM_PLUGIN_ROOT", None)
    if os.path.isabs(python):
        own = os.path.dirname(python)
        if found.get("VIRTUAL_ENV") == os.path.dirname(own):
            del found["VIRTUAL_ENV"]
        folders = found.get("PATH", "").split(os.pathsep)
        found["PATH"] = os.pathsep.join(folder for folder in folders if folder.rstrip(os.sep) != own)
    return {**found, "LOOM_RUN_ID": run_id, "LOOM_STEP_ID": step_id, "LOOM_STAGE_DIR": stage_dir}


def _awaited(work: Work, until: float, tell: Callable[[Pending], None] | None) -> Standing:
    if tell is None:
        return command_runs.wait(work.folder, until)
    return command_runs.wait(work.folder, until, lambda standing: tell(_running(work, standing)))


def _interrupted(run: Run, work: Work) -> LoomError:
    return LoomError(
        "INTERRUPTED",
        f"the command of {work.entry['step_id']} goes on; only the waiting for it was interrupted",
        where=work.log,
        why="loomctl next waits for it again; loomctl cancel stops it with its run",
        hint=f"loomctl next {run.run_id}",
        exit_code=ON_INTERRUPT,
    )


def _running(work: Work, standing: Standing) -> Pending:
    pending = _pending(RUNNING, work, tail=command_output.tail_of(work.folder, 2000))
    return pending._replace(seconds=_seconds(standing.record), bytes=standing.bytes)


def _seconds(record: Mapping[str, Any]) -> float:
    """Give how long a command has run, by the wall clock; 0 where its start is not known."""
    try:
        began = calendar.timegm(time.strptime(str(record.get("started_at")), "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return 0.0
    return max(0.0, time.time() - began)


def _pending(kind: str, work: Work, *, commands: Sequence[Mapping[str, str]] = (), tail: str = "") -> Pending:
    entry = work.entry
    return Pending(kind, entry["step_id"], entry["stage"], work.log, commands=commands, tail=tail)
