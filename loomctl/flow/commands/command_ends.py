"""How a command step ends: its visit by its command's end, by a person's word, or stopped with its run (D30)."""

from __future__ import annotations

from loomctl.flow import lines
from loomctl.flow.commands import command_events
from loomctl.flow.commands.work import Work, open_work
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs import leases
from loomctl.runs.commands import command_runs
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


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
