"""`loomctl prime-context`: put a run's critical artifacts back into this conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import answer, arguments, caller, output
from loomctl.cli.arguments import complete_artifacts, complete_runs, json_option
from loomctl.kit.errors import EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.priming import catch_up, memory_of_session, prime_run
from loomctl.runs import find
from loomctl.runs.machine import known
from loomctl.runs.model import frozen_plan, sessions
from loomctl.workflows.model import triggers

if TYPE_CHECKING:
    from loomctl.priming.primed import Slip
    from loomctl.runs.caller import Workspace


@click.command("prime-context")
@click.option(
    "--run-id",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run (default: this session's, or the only active one).",
)
@click.option("--artifacts", metavar="A,B", shell_complete=complete_artifacts, help="Only these artifacts.")
@click.option("--force", is_flag=True, help="Give what this conversation has already, too.")
@click.option(
    "--trigger", "word", metavar="T", help="Load what this trigger names, e.g. phase_transition:architect->build."
)
@click.option("--dry-run", is_flag=True, help="Show the packing slip; load and record nothing.")
@click.option("--text", "as_text", is_flag=True, help="Print the text that an assistant gets, also in a terminal.")
@json_option
def prime_context(
    run_id: str | None,
    artifacts: str | None,
    force: bool,
    word: str | None,
    dry_run: bool,
    as_text: bool,
    as_json: bool,
) -> int:
    """Reload the critical artifacts of a run into this conversation.

    \b
    Examples:
      loomctl prime-context
      loomctl prime-context --artifacts specification,workflow-plan --force
      loomctl prime-context --trigger "phase_transition:architect->build" --dry-run --json
    """
    event = triggers.from_word(word) if word is not None else triggers.manual()
    if event is None:
        raise LoomError(
            "UNKNOWN_TRIGGER",
            f"{word!r:.80} is no trigger that names one event",
            why="there are session_start, compaction_detected, manual, phase_start:build, "
            "phase_transition:architect->build",
            hint="loomctl prime-context --trigger manual --dry-run",
            exit_code=EXIT_USAGE,
        )
    space = caller.space()
    with arguments.offered_again():
        found = find.to_read(space, run_id)
    assert found.run_id is not None  # to_read raises instead
    is_known = known.is_known(found.run_id, space.store.folder)
    if found.how == "only" and not dry_run:
        find.must_be_known(space, found.run_id)
    run = space.store.read(found.run_id, to_show=True)
    may_write = found.may_write and not frozen_plan.steps_unknown(run.plan)
    only = [name.strip() for name in artifacts.split(",") if name.strip()] if artifacts is not None else None
    if only == []:
        raise LoomError(
            "USAGE",
            "--artifacts names none",
            why="it takes ids with commas between them: --artifacts specification,workflow-plan",
            hint="loomctl prime-context --help",
            exit_code=EXIT_USAGE,
        )
    budget = (
        catch_up.budget(space) if caller.reader_is_an_assistant() and not as_json else prime_run.command_budget(space)
    )
    made = prime_run.prime(space, run, event, budget, may_write=may_write, only=only, force=force)
    if not dry_run:
        made = memory_of_session.record(space, found.run_id, made, may_write=may_write and is_known)
    if as_json:
        output.document(made.to_dict() if dry_run else made.with_text())
    else:
        output.text(
            _text(
                space,
                made,
                sessions.summary(run.state),
                dry_run=dry_run,
                as_text=as_text or caller.reader_is_an_assistant(),
            )
        )
    if any(entry.reason == "unknown_artifact" for entry in made.entries):
        return EXIT_USAGE
    return EXIT_MISSING if made.failed else EXIT_OK


def _text(space: Workspace, made: Slip, history: str, *, dry_run: bool, as_text: bool) -> str:
    count = len(made.loaded) + len(made.fresh)
    lines = [
        f"Loom: run {made.run_id}" + (" (dry run)" if dry_run else ""),
        *answer.slip_lines(made, done=not dry_run),
    ]
    if not made.entries:
        lines.append("  0 declared: this workflow names no critical artifacts")
    elif not count and not made.failed:
        lines.append("  nothing is due")
    lines.append(f"Session history: {history}")
    if as_text and not dry_run and made.text:
        return answer.with_slip(space, lines, made)
    return "\n".join(lines)
