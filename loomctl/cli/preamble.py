"""`loomctl preamble`: what opens a step, as its fidelity asks (D46)."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import branch_option, json_option, run_argument
from loomctl.flow import lines, preambles
from loomctl.kit.errors import EXIT_OK, LoomError
from loomctl.runs import find
from loomctl.runs.model import places
from loomctl.workflows.model.fidelity import FIDELITIES


def _complete_steps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        space = caller.space()
        run_id = find.to_read(space, ctx.params.get("run")).run_id
        every = places.places(space.store.read(str(run_id), to_show=True).plan)
    except (LoomError, OSError):
        return []
    return [CompletionItem(place.key) for place in every if place.key.startswith(incomplete)]


@click.command()
@run_argument
@click.option(
    "--step",
    metavar="STEP",
    shell_complete=_complete_steps,
    help="The step that it is for, e.g. build/review (default: the one that is open, or comes next).",
)
@click.option(
    "--fidelity", type=click.Choice(FIDELITIES), help="How much of the past it carries, whatever the plan says."
)
@branch_option
@json_option
def preamble(run: str | None, step: str | None, fidelity: str | None, branch: str | None, as_json: bool) -> int:
    """Print what opens a step: the goal, what the stages before it did and said, the run's context.

    These are the bytes that a step's prompt.md begins with; `loomctl next` tells a conversation only what is new to it.

    \b
    Examples:
      loomctl preamble
      loomctl preamble --step build/review --fidelity summary:high
    """
    space = caller.space()
    found = space.store.read(arguments.run_id(space, run), to_show=True)
    found = found if branch is None else lines.seen(found, branch)
    made = preambles.of(space, found, step, fidelity)
    if as_json:
        output.document(made.to_dict())
        return EXIT_OK
    for warning in made.warnings:
        output.note(f"loomctl: {warning}")
    output.text(made.text)
    return EXIT_OK
