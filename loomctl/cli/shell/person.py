"""Whether it is a person who decides: their terminal, their own line in an assistant, or their yes to its host (D68).

What an assistant may do is judged command line by command line before it does it (D29); this is behind that judgement,
where the decision is carried out, and holds for a command line that nobody could read.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from loomctl.hosts import loom_commands
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.process import ancestry
from loomctl.runs.machine import call_marks

if TYPE_CHECKING:
    from loomctl.kit.process.ancestry import Process
    from loomctl.runs.caller import Workspace

# What assistants say of themselves in the environment of what they start.
_MARKS = (
    "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_SESSION_ID", "CODEX_THREAD_ID", "COPILOT_CLI", "CURSOR_AGENT",
    "GEMINI_CLI", "OPENCODE", "QWEN_CODE",
)  # fmt: skip
# A process's start and a file's time are taken from clocks that tick a hundred times a second.
_TICK = 0.015
_IN_A_TERMINAL = "its user types it in a terminal of their own"
_OR_BEHIND = ", or behind a ! at its prompt"


def must_decide(space: Workspace, verb: str, *words: str) -> None:
    """Refuse a decision of which nothing shows that it is a person's. Raises ASK_FIRST.

    words: of the command line that a person types, behind the verb.
    """
    doubt = _doubt(space, verb)
    if doubt is None:
        return
    call_marks.make_room(space.store.local)  # from now on hooks leave their marks here
    raise LoomError(
        "ASK_FIRST",
        f"loomctl {verb} is decided by the run's user, and nobody has asked them",
        why=doubt,
        hint=shlex.join(["loomctl", *verb.split(), *words]),
        exit_code=EXIT_USAGE,
    )


def decides(space: Workspace, verb: str) -> bool:
    """Tell whether it is a person who decides."""
    return _doubt(space, verb) is None


def _doubt(space: Workspace, verb: str) -> str | None:
    """Say why an assistant may be deciding by itself, and how its user decides; None: a person does."""
    line = ancestry.line()
    at = _host(space, line)
    if at == 0:
        told = [name for name in _MARKS if os.environ.get(name)]
        if not told:
            return None
        return (
            f"an assistant started this ({' '.join(told)} in the environment), and no hook of Loom's has seen it in "
            f"this project; {_IN_A_TERMINAL}, where that is not set"
        )
    # What the host itself started: a shell for one call of the assistant's, or for one line of its user's. Whatever
    # that shell starts, and leaves behind when the call is over, began with it.
    shell, marks = line[at - 1], call_marks.read(space.store.local, line[at].pid)
    # A call that follows within one tick of the file system's clock is no call that was asked about.
    is_newest = marks.asked > max(marks.called, marks.rested)
    asked = is_newest and shell.started >= marks.asked - _TICK and _is_of(marks.words)
    if asked and call_marks.use_up(space.store.local, line[at].pid):
        return None
    rested = max(marks.rested, space.caller.conversation.interrupted_at())
    if rested > max(marks.called, space.caller.conversation.called_at()):
        if shell.started >= rested - _TICK:
            return None
        return f"an assistant started this before its turn ended; {_IN_A_TERMINAL}{_OR_BEHIND}"
    return (
        f"an assistant started this; where it calls loomctl {verb} as such, its host asks its user; "
        f"{_IN_A_TERMINAL}{_OR_BEHIND} while it rests"
    )


def _is_of(words: frozenset[str]) -> bool:
    """Tell whether this very command stands in the call that the user was asked about."""
    return loom_commands.words_of(" ".join(sys.argv[1:])) <= words


def _host(space: Workspace, line: list[Process]) -> int:
    """Find the assistant's process that this one descends from, by its place in the line; 0: there is none.

    The innermost counts. Marks that are older than the process are of another one, which had its number before.
    """
    known = call_marks.pids(space.store.local)
    if ancestry.first_is_the_systems():  # who has marks of that number is an assistant in a container
        known -= {1}
    for at, process in enumerate(line[1:], start=1):
        if process.pid in known and call_marks.read(space.store.local, process.pid).last >= process.started - _TICK:
            return at
    return 0
