"""`loomctl doctor`: what is well and what is not, with the command that mends it."""

from __future__ import annotations

import click

from loomctl.cli.shell import diagnosis
from loomctl.cli.shell.options import json_option


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Examine this installation: PASS, WARN or FAIL for each check, with what mends it. Changes nothing.

    Exit code 1 if anything fails; a warning alone is 0. docs/reference/doctor.md says what each check means.

    \b
    Examples:
      loomctl doctor
      loomctl doctor --json
    """
    return diagnosis.tell(as_json=as_json)
