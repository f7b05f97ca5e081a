"""`loomctl approve`, `reject` and `choose`: what a run's user decides where it waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import caller, output, step
from loomctl.cli.arguments import branch_option, json_option, run_argument
from loomctl.flow import decide, drive
from loomctl.kit.errors import EXIT_OK
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import find
from loomctl.runs.machine.local import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomctl.cli.arguments import Command
    from loomctl.flow.drive import Driven
    from loomctl.runs.caller import Workspace


def _by_option(command: Command) -> Command:
    help_text = "Who decides (default: git's user.name, else the login name)."
    return click.option("--by", default="", metavar="NAME", help=help_text)(command)


def _note_option(*names: str) -> Callable[[Command], Command]:
    def added(command: Command) -> Command:
        return click.option(*names, "note", default="", metavar="TEXT", help="Why, for the run's later steps.")(command)

    return added


@click.command()
@run_argument
@_by_option
@_note_option("--note")
@branch_option
@json_option
def approve(run: str | None, by: str, note: str, branch: str | None, as_json: bool) -> int:
    """Grant what the run waits for, and go on. For its user, not for the assistant.

    At a step that a person decides it is the choice that means a yes (approve, yes, accept, ok), or the only one.

    \b
    Examples:
      loomctl approve shop-258
      loomctl approve --by Ada --note "the figures are right"
    """
    space = caller.space()
    run_id = find.to_drive(space, run, verb="approve")
    caller.must_decide(space, "approve", run_id)
    driven = decide.approve(space, run_id, by=by, note=note, branch=branch)
    return _told(space, driven, "approved", as_json=as_json)


@click.command()
@run_argument
@_by_option
@_note_option("--note", "--reason")
@branch_option
@json_option
def reject(run: str | None, by: str, note: str, branch: str | None, as_json: bool) -> int:
    """Refuse what the run waits for. For its user, not for the assistant.

    At a step that a person decides it is the choice that means a no (reject, no, decline); where there is none the
    step fails, and its transitions for failure lead on. At every other gate the run is paused; `loomctl resume` asks
    again.

    \b
    Examples:
      loomctl reject shop-258
      loomctl reject --reason "the migration cannot be undone"
    """
    space = caller.space()
    run_id = find.to_drive(space, run, verb="reject")
    caller.must_decide(space, "reject", run_id)
    driven = decide.reject(space, run_id, by=by, note=note, branch=branch)
    return _told(space, driven, "rejected", as_json=as_json)


@click.command()
@click.argument("label", metavar="LABEL")
@run_argument
@_by_option
@_note_option("--note")
@branch_option
@json_option
def choose(label: str, run: str | None, by: str, note: str, branch: str | None, as_json: bool) -> int:
    """Choose one of the ways that the run's step offers to a person. For its user, not for the assistant.

    LABEL is its words in any case, or its accelerator alone: `fix`, `f` and `[F] Fix` are the same.

    \b
    Examples:
      loomctl choose fix
      loomctl choose "[A] Approve" shop-258 --note "ship it on Monday"
    """
    space = caller.space()
    run_id = find.to_drive(space, run, verb="choose LABEL")
    caller.must_decide(space, "choose", label, run_id)
    driven = decide.choose(space, run_id, label, by=by, note=note, branch=branch)
    return _told(space, driven, "", as_json=as_json)


def _told(space: Workspace, driven: Driven, what: str, *, as_json: bool) -> int:
    """Print what became of a decision; to a person in a terminal without the next step, which is the assistant's."""
    if as_json or space.caller.host != TERMINAL:
        return step.told(space, driven, as_json=as_json)
    lines = [f"Loom: {_decided(driven.ended, what)}. {drive.say_move(driven)}", *driven.notes]
    if driven.move.kind == "step":
        lines.append("In the session that drives the run, say that it may go on.")
    output.text("\n".join(lines))
    return EXIT_OK


def _decided(ended: Any, what: str) -> str:
    if ended is None:
        return what
    return f"{masked_line(str(ended['step_id']), 120)}: {masked_line(str(ended.get('note') or what), 300)}"
