"""A command is started: once, in its folder, with its environment, from a moment that is noted (D10, D30, D40)."""

from __future__ import annotations

from loomctl.flow import visit_notes
from loomctl.flow.commands import command_ends, command_events, command_trust
from loomctl.flow.commands.surroundings import environment, workdir
from loomctl.runs.commands import command_runs
from loomctl.runs.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.flow.commands.work import Work
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


def begun(space: Workspace, run: Run, work: Work) -> Run:
    """Start a command, unless another process does; gives the run with the event of it.

    What the project is as it begins is noted by who starts it, before it does (D40). Raises PATH_ESCAPE, NOT_STARTED.
    """
    order = _order(space, run, work)
    # A lock beside the run's own, which nobody is to wait for while git is asked.
    with space.store.lock(f"{run.run_id}.command") as lock:
        if command_runs.look(work.folder).kind == command_runs.NONE:
            visit_notes.begin(space, run, work.entry)
            command_runs.start(order, environment(run.run_id, work.step_id, work.folder))
        lock.remove()
    run = command_events.tell_start(space, run, work, command_runs.look(work.folder))
    if run.state["status"] in OVER:  # somebody cancelled it in this moment
        command_ends.stop_open(space, run)
    return run


def _order(space: Workspace, run: Run, work: Work) -> command_runs.Order:
    command = command_trust.expanded(space, run, work.step)
    cwd = workdir(space, run, command.get("workdir"))
    timeout = work.step.get("timeout")
    seconds = float(timeout) if isinstance(timeout, (int, float)) else None
    return command_runs.Order(work.folder, run.run_id, work.step_id, work.stage, command["run"], cwd, seconds)
