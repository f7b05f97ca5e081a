"""Asking for trust in a run's commands where somebody can answer, as a run begins, is taken up or driven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.flow.commands import command_steps
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import counted
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


def ask_trust(space: Workspace, run: Run, *, as_json: bool, may_break: bool = False) -> list[str]:
    """Ask for trust in a run's commands and allowances where somebody can answer; gives lines that say what became.

    may_break: Ctrl-C at the question raises KeyboardInterrupt, and is not taken for a no.
    """
    try:
        commands, allowed = command_steps.untrusted(space, run), command_steps.untrusted_allowances(space, run)
    except LoomError as error:  # of a run that was made elsewhere: what cannot be filled in here is not run
        return [f"This run's commands cannot run here: {error.what}"]
    if not (commands or allowed):
        return []
    from loomctl.cli import answer, ask, output, person  # most runs have nothing that is not trusted

    later = f"See and allow {'it' if len(commands) + len(allowed) == 1 else 'them'}: loomctl trust {run.handle}"
    if not ask.may_ask(space, as_json=as_json) or not person.decides(space, "trust"):
        tests = command_steps.test_command(space, run)
        if tests and not allowed and {one["run"] for one in commands} == {tests}:
            return [f"This run wants to execute `{masked_line(tests, 300)}`. Allow it: loomctl trust {run.handle}"]
        wants = [f"execute {counted(len(commands), 'command')}"] if commands else []
        wants += [f"let the assistant use {counted(len(allowed), 'thing')} without asking"] if allowed else []
        return [f"This run wants to {' and to '.join(wants)}. {later}"]
    shown = ["This run wants to execute these commands:", *answer.command_lines(commands)] if commands else []
    if allowed:
        shown += ["This run wants to let the assistant use, without asking:", *answer.allowed_lines(allowed)]
    output.unmasked("\n".join(shown), err=True)
    what = "these commands" if not allowed else "this"
    if not output.is_agreed(f"Allow {what} on this machine?", may_break=may_break):
        refused = "Loom allows nothing of this" if allowed else "Loom will not run this run's commands"
        return [f"{refused}. {later}"]
    trouble = command_steps.trust(space, run, commands)
    if trouble:
        return [f"{trouble}; Loom will not run its commands"]
    return ["Loom allows this on this machine." if allowed else "Loom may run these commands on this machine."]
