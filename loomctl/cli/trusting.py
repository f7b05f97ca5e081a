"""Asking a person whether this machine may run a run's commands, where one sits at the terminal (D23)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loomctl.cli import person, printing, telling
from loomctl.flow.commands import command_trust
from loomctl.kit.errors import LoomError
from loomctl.runs.machine.local import TERMINAL

if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


def asked(space: Workspace, run: Run, *, may_ask: bool) -> list[str]:
    """Show the commands of a run that this machine does not trust yet, and ask; gives what its user must know."""
    try:
        commands = command_trust.untrusted(space, run)
    except LoomError as error:  # of a run that was made elsewhere: what cannot be filled in here is not run
        return [f"Its commands cannot be run here: {error.what}"]
    if not commands:
        return []
    later = f"To see and trust its commands: loomctl trust {run.run_id}"
    has_terminal = may_ask and sys.stdin.isatty() and sys.stderr.isatty()
    if not has_terminal or space.caller.host != TERMINAL or not person.decides(space, "trust"):
        count = "1 command step" if len(commands) == 1 else f"{len(commands)} command steps"
        return [f"This run has {count}, which this machine does not trust yet. {later}"]
    printing.unmasked("\n".join(["This run runs, in a shell:", *telling.command_lines(commands)]), err=True)
    if not printing.confirmed("Trust these commands on this machine?"):
        return [f"Its commands are not trusted, and none of them is run. {later}"]
    trouble = command_trust.trust(space, run, commands)
    return [f"{trouble}; its commands are not trusted"] if trouble else ["Its commands are trusted on this machine."]
