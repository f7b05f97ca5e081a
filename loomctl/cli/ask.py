"""What `loomctl done` asks a person at a terminal for: a step's result, and the files that it leaves."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli import output
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.machine.local import TERMINAL

if TYPE_CHECKING:
    from loomctl.runs.project import Workspace

_BROKEN_OFF = "\nNothing was ended; {} is still open."


def may_ask(space: Workspace, *, as_json: bool) -> bool:
    """Tell whether a person types the command, and no script and no assistant."""
    return space.caller.host == TERMINAL and output.may_ask(as_json=as_json)


def _is_beside() -> bool:
    """Make ready to ask for a line; tells whether the question goes to standard error.

    Where both ends are the terminal, and Python has readline, its keys move in the line; it takes standard output.
    """
    if not sys.stdout.isatty():
        return True
    try:
        import readline
    except ImportError:
        return True
    readline.parse_and_bind("set enable-bracketed-paste off")
    return False


def result(step: str) -> str:
    """Ask a person for a result: in a line, else in their editor; empty where they give none.

    step: with its task.
    """
    name, has_editor = masked_line(step, 200), bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))
    otherwise = "opens your editor" if has_editor else "ends nothing"
    output.note(f"What was the result of {name}? One line; an empty line {otherwise}.")
    try:
        said = str(click.prompt("", prompt_suffix="> ", default="", show_default=False, err=_is_beside()))
        return said if said.strip() or not has_editor else str(click.edit("") or "")
    except (click.Abort, KeyboardInterrupt):
        output.note(_BROKEN_OFF.format(name))
        raise
    except click.ClickException as error:  # there is no such editor, or it failed
        what, hint = "your editor gave no result", "loomctl done --response-file result.md"
        raise LoomError("NO_RESPONSE", what, why=error.message, hint=hint, exit_code=EXIT_USAGE) from None


def file(space: Workspace, run_id: str, step_id: str, name: str) -> str:
    """Ask a person for a file that a step leaves; gives its portable path, empty where they name none."""
    from loomctl.flow import finish  # a step that leaves nothing has no use for it

    def meant(said: str) -> str:
        try:
            return finish.portable(space, run_id, said.strip()) if said.strip() else ""
        except LoomError as error:
            raise click.UsageError(error.what) from None

    step = masked_line(step_id, 120)
    output.note(f"{step} has to leave {masked_line(name, 80)}. Which file is it? A path; an empty line for none.")
    try:
        said: str = click.prompt(
            "", prompt_suffix="> ", default="", show_default=False, value_proc=meant, err=_is_beside()
        )
    except (click.Abort, KeyboardInterrupt):
        output.note(_BROKEN_OFF.format(step))
        raise
    return said
