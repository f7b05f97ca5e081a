"""`loomctl run` and `loomctl resume`: a run begins, or is taken up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli import answer, arguments, caller, output
from loomctl.cli.arguments import complete_runs, complete_workflows, json_option, run_argument
from loomctl.flow import command_trust, start
from loomctl.flow import resume as resuming
from loomctl.kit.errors import EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.counts import counted
from loomctl.priming import catch_up
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import sessions

if TYPE_CHECKING:
    from loomctl.flow.resume import Resumed
    from loomctl.flow.start import Started
    from loomctl.priming.primed import Slip
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

LEVELS = ("dry-run", "assist", "guarded", "autonomous")


@click.command()
@click.argument("work", nargs=-1)
@click.option(
    "--workflow",
    "-w",
    metavar="ID|PATH",
    shell_complete=complete_workflows,
    help="The workflow to follow (default: default).",
)
@click.option("--autonomy", type=click.Choice(LEVELS), help="Override the workflow's autonomy.")
@click.option("--dry-run", is_flag=True, help="Resolve, check and show the plan; write nothing.")
@click.option(
    "--resume", "resumed", metavar="RUN", shell_complete=complete_runs, help="Take up a run instead of starting one."
)
@click.option("--must-survive", metavar="ITEM", multiple=True, help="What a compaction must not lose; see prove.")
@click.option("--reopen", is_flag=True, help="With --resume: take up a completed or cancelled run.")
@click.option("--take-over", is_flag=True, help="With --resume: take the run from a session that drives it.")
@json_option
def run(
    work: tuple[str, ...],
    workflow: str | None,
    autonomy: str | None,
    dry_run: bool,
    resumed: str | None,
    must_survive: tuple[str, ...],
    reopen: bool,
    take_over: bool,
    as_json: bool,
) -> int:
    """Start a run on WORK: a tracker's id or a goal in words.

    \b
    Examples:
      loomctl run 258
      loomctl run "add dark mode" --workflow core
      loomctl run --resume shop-258
    """
    if resumed is not None:
        if work or workflow or autonomy or dry_run or must_survive:
            hint = f"loomctl run --resume {quoted(resumed)}"
            raise LoomError("USAGE", "--resume takes up a run as it is", hint=hint, exit_code=EXIT_USAGE)
        return tell_resumed(resumed, reopen=reopen, take_over=take_over, as_json=as_json)
    if take_over:
        raise LoomError(
            "USAGE", "--take-over is for a run that there is", hint="loomctl run --help", exit_code=EXIT_USAGE
        )
    space = caller.space(make=True)
    later = caller.in_a_body() and not as_json
    begun = start.start(
        space,
        " ".join(work),
        workflow=workflow,
        autonomy=autonomy,
        dry_run=dry_run,
        must_survive=must_survive,
        later=later,
    )
    if begun.slip is not None:
        begun = begun._replace(notes=[*begun.notes, *_ask_trust(space, begun.run, may_ask=not as_json)])
    if later and begun.slip is not None:
        catch_up.tell(space, [*_warned(begun), *begun.notes])
        output.text(_body(begun.run))
    elif as_json:
        output.document(_started_document(space, begun))
    else:
        output.text(_started_text(space, begun))
    return EXIT_MISSING if begun.slip is not None and begun.slip.failed else EXIT_OK


def _run_document(space: Workspace, run: Run, made: Slip | None) -> dict[str, object]:
    """Give what starting and taking up a run both tell."""
    state = run.state
    return {
        "run_id": run.run_id,
        "run_dir": run.folder,
        "plan_id": state["plan_id"],
        "workflow_id": state["workflow_id"],
        "work_id": state["work_id"],
        "goal": state["goal"],
        "status": state["status"],
        "step": answer.step_document(space, run),
        "slip": made.with_text() if made is not None else None,
    }


def _started_document(space: Workspace, begun: Started) -> dict[str, object]:
    return {
        **_run_document(space, begun.run, begun.slip),
        "dry_run": begun.slip is None,
        "commands": command_trust.listed(space, begun.run),
        "notes": begun.notes,
        "warnings": [{"code": one.code, "where": one.where, "message": one.message} for one in begun.warnings],
    }


def _started_text(space: Workspace, begun: Started) -> str:
    state = begun.run.state
    count = sum(1 for phase in begun.run.plan["phases"] for step in phase["steps"] if not step.get("engine"))
    verb = "would start" if begun.slip is None else "started"
    lines = [f"Loom: run {begun.run.run_id} {verb} (workflow {state['workflow_id']}, {counted(count, 'step')})"]
    lines += answer.plan_lines(begun.run)
    if begun.slip is None and (commands := command_trust.listed(space, begun.run)):
        lines += ["It would run, in a shell:", *answer.command_lines(commands)]
    lines += [*_warned(begun), *begun.notes]
    if begun.slip is None:
        return "\n".join(lines)
    lines += answer.of_slip(begun.slip)
    return answer.whole(space, begun.run, lines, begun.slip)


def _warned(begun: Started) -> list[str]:
    """Give what is doubtful about the workflow, a line each, and how to mend it."""
    lines = []
    for one in begun.warnings:
        lines.append(f"  ! {one.where}: {one.message}")
        lines += [f"    {one.hint}"] if begun.slip is not None and one.hint.startswith("loomctl ") else []
    return lines


def _body(run: Run) -> str:
    """Say what stays true, for the host gives a slash command's body again after each compaction (D79)."""
    return (
        f"Loom: this conversation works on the run {run.run_id}.\n"
        "Where it stands, its files and its step come from Loom's hooks and from `loomctl next`; the newest counts."
    )


@click.command()
@run_argument
@click.option("--reopen", is_flag=True, help="Take up a completed or cancelled run too.")
@click.option("--take-over", is_flag=True, help="Take it from a session that drives it, whose writes are refused then.")
@json_option
def resume(run: str | None, reopen: bool, take_over: bool, as_json: bool) -> int:
    """Take up RUN in this session, also after a move to another machine.

    Without RUN: the run that this session is bound to, or the only one that can be taken up. One session drives a run
    at a time: while another does, this ends with exit code 6, and says who that is.

    \b
    Examples:
      loomctl resume
      loomctl resume shop-258
      loomctl resume shop-258 --take-over
    """
    return tell_resumed(run, reopen=reopen, take_over=take_over, as_json=as_json)


def tell_resumed(named: str | None, *, reopen: bool, take_over: bool, as_json: bool) -> int:
    """Resume and print what was restored."""
    space = caller.space()
    later = caller.in_a_body() and not as_json
    with arguments.offered_again():
        taken = resuming.resume(space, named, reopen=reopen, take_over=take_over, later=later)
    taken = taken._replace(notes=[*taken.notes, *_ask_trust(space, taken.run, may_ask=not as_json)])
    if as_json:
        output.document(_resumed_document(space, taken))
    elif later:
        catch_up.tell(space, [*taken.differences, *taken.notes])
        output.text(_body(taken.run))
    else:
        lines = [f"Loom: run {taken.run.run_id} resumed"]
        lines.append(f"Session history: {sessions.summary(taken.run.state)}")
        lines += [*taken.differences, *taken.notes, *answer.of_slip(taken.slip)]
        output.text(answer.whole(space, taken.run, lines, taken.slip))
    return EXIT_MISSING if taken.slip.failed else EXIT_OK


def _resumed_document(space: Workspace, taken: Resumed) -> dict[str, object]:
    return {
        **_run_document(space, taken.run, taken.slip),
        "sessions": sessions.summary(taken.run.state),
        "differences": taken.differences,
        "notes": taken.notes,
    }


def _ask_trust(space: Workspace, run: Run, *, may_ask: bool) -> list[str]:
    """Show the commands that this machine does not trust yet and ask (D23); gives what the user must know."""
    try:
        commands = command_trust.untrusted(space, run)
    except LoomError as error:  # of a run that was made elsewhere: what cannot be filled in here is not run
        return [f"Its commands cannot be run here: {error.what}"]
    if not commands:
        return []
    later = f"To see and trust its commands: loomctl trust {run.run_id}"
    has_terminal = may_ask and sys.stdin.isatty() and sys.stderr.isatty()
    if not has_terminal or space.caller.host != TERMINAL or not caller.decides(space, "trust"):
        count = "1 command step" if len(commands) == 1 else f"{len(commands)} command steps"
        return [f"This run has {count}, which this machine does not trust yet. {later}"]
    output.unmasked("\n".join(["This run runs, in a shell:", *answer.command_lines(commands)]), err=True)
    if not output.is_agreed("Trust these commands on this machine?"):
        return [f"Its commands are not trusted, and none of them is run. {later}"]
    trouble = command_trust.trust(space, run, commands)
    return [f"{trouble}; its commands are not trusted"] if trouble else ["Its commands are trusted on this machine."]
