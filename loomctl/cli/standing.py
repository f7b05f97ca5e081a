"""`loomctl pause`, `cancel` and `trust`: what a user decides about a run as a whole."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli import answer, caller, output
from loomctl.cli.arguments import json_option, run_argument
from loomctl.flow import close, command_events, command_trust
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_OK, EXIT_SETUP, EXIT_USAGE, LoomError
from loomctl.kit.text.secrets import mask
from loomctl.runs import find
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model.state import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@run_argument
@json_option
def pause(run: str | None, as_json: bool) -> int:
    """Pause a run: nothing goes on in it until it is resumed. A command that runs just now is let run to its end.

    \b
    Example:
      loomctl pause
    """
    return _set(run, "paused", "run.paused", ("in_progress", "awaiting_feedback"), as_json=as_json)


@click.command()
@run_argument
@json_option
def cancel(run: str | None, as_json: bool) -> int:
    """Cancel a run: it ends here, its files stay. `loomctl resume RUN --reopen` takes it up again.

    A command that runs just now is stopped, and so is all that it started. To cancel it again does no harm: it
    finishes what a first cancel that was killed has left.

    \b
    Example:
      loomctl cancel shop-258
    """
    return _set(run, "cancelled", "run.cancelled", (*ACTIVE, "pending", "failed"), as_json=as_json)


def _set(named: str | None, status: str, event: str, allowed: tuple[str, ...], *, as_json: bool) -> int:
    verb = "pause" if status == "paused" else "cancel"
    space = caller.space()
    run_id = find.to_drive(space, named, verb=verb)
    if verb == "cancel":
        caller.must_decide(space, verb, run_id)
    changed = close.set_standing(space, run_id, status, event, allowed=allowed)
    said = command_events.stop_all(space, changed) if status == "cancelled" else []
    if as_json:
        output.document({"run_id": changed.run_id, "status": status, "notes": said})
    else:
        again = " --reopen" if status == "cancelled" else ""
        output.text(f"Loom: run {changed.run_id} is {status}. To go on: loomctl resume {changed.run_id}{again}")
        for one in said:
            output.text(one)
    return EXIT_OK


@click.command()
@run_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def trust(run: str | None, yes: bool, as_json: bool) -> int:
    """Trust a run on this machine: show what it loads and runs, then let its sessions be primed by themselves.

    On a terminal it asks before it trusts; elsewhere a run with commands is shown, and trusted with --yes. Priming
    needs no more than that the run was started or resumed here; what its command steps run needs trust of its own,
    given for exactly the commands that are shown.

    \b
    Example:
      loomctl trust shop-258
    """
    space = caller.space()
    found = find.to_read(space, run)
    assert found.run_id is not None  # to_read raises instead
    if space.caller.host != TERMINAL and not find.is_bound(space, found.run_id):
        raise LoomError(
            "NOT_BOUND",
            "trust is given by a person, or in the session that drives the run",
            why=f"a person types loomctl trust {found.run_id} in a terminal",
            hint=find.way_in(space, found.run_id),
            exit_code=EXIT_NO_RUN,
        )
    run_read = space.store.read(found.run_id)
    commands = command_trust.listed(space, run_read)
    digest = command_trust.digest_of(commands)
    loads = {
        artifact["id"]: str(artifact.get("path") or artifact.get("path_from_state") or artifact.get("command") or "")
        for artifact in run_read.plan["artifacts"]
    }
    lines = ["It loads:", *(f"  {name}: {path}" for name, path in loads.items())] if loads else ["It loads nothing."]
    lines += ["It runs, in a shell:", *answer.command_lines(commands)] if commands else ["It runs no commands."]
    shown = "\n".join([f"The run {found.run_id}:", *lines])
    if as_json or space.caller.host != TERMINAL:
        _refuse_hidden(shown, found.run_id)
    if not as_json:
        output.unmasked(shown)
    if not yes and not _agreed(commands):
        hint = f"loomctl trust {found.run_id} --yes"
        raise LoomError("NOT_CONFIRMED", "the run is not trusted", hint=hint, exit_code=EXIT_USAGE)
    caller.must_decide(space, "trust", found.run_id)
    trouble = command_trust.trust(space, run_read, commands)
    if trouble:
        raise LoomError(
            "NOT_REMEMBERED", trouble, exit_code=EXIT_SETUP, hint='export LOOM_STATE_HOME="$HOME/.loom-state"'
        )
    waited = command_trust.answer(space, run_read)
    if as_json:
        output.document({"run_id": found.run_id, "trusted": digest, "commands": commands, "artifacts": loads})
        return EXIT_OK
    again = f" It waited for that; to go on: loomctl next {found.run_id}" if waited else ""
    output.text(f"Loom: it is trusted on this machine.{again}")
    return EXIT_OK


def _agreed(commands: Sequence[object]) -> bool:
    """Ask at a terminal. Elsewhere nobody can be asked: what runs commands is shown first, and trusted with --yes."""
    return click.confirm("Trust it on this machine?", err=True) if sys.stdin.isatty() else not commands


def _refuse_hidden(shown: str, run_id: str) -> None:
    """Refuse trust where a part of what is to be trusted would be masked: it is judged where all of it can be seen."""
    if mask(shown)[0] != shown:
        raise LoomError(
            "NOT_CONFIRMED",
            "the run is not trusted: what it loads and runs holds what looks like a secret, and is not shown here",
            why="in a terminal it is shown in full",
            hint=f"loomctl trust {run_id}",
            exit_code=EXIT_USAGE,
        )
