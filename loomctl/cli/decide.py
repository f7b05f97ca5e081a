"""`loomctl approve`: what a run's user decides where it waits for them."""

from __future__ import annotations

import click

from loomctl.cli import asking, printing, step
from loomctl.cli.options import json_option, run_argument
from loomctl.disk.local import TERMINAL
from loomctl.engine import deciding, driving, finding
from loomctl.model.errors import EXIT_OK


@click.command()
@run_argument
@json_option
def approve(run: str | None, as_json: bool) -> int:
    """Grant what the run waits for, and go on. For its user, not for the assistant.

    \b
    Example:
      loomctl approve shop-258
    """
    space = asking.space()
    driven = deciding.approve(space, finding.to_drive(space, run, verb="approve"))
    if as_json or space.caller.host != TERMINAL:
        return step.told(space, driven, as_json=as_json)
    printing.text(
        f"Loom: approved. {driving.say_move(driven)}\nIn the session that drives the run, say that it may go on."
    )
    return EXIT_OK
