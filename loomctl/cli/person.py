"""Whether a person decides: what an assistant calls by itself is refused where a decision is carried out (D68)."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from loomctl.cli import command_line
from loomctl.hosts import shells, table, tool_calls
from loomctl.kit import processes
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs import project
from loomctl.runs.machine import drivers, launcher_files
from loomctl.runs.store import write_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.kit.processes import Process
    from loomctl.runs.project import Workspace

# A process's start and a file's time are taken from clocks that tick a hundred times a second.
_TICK = 0.015
_IN_A_TERMINAL = "the user types the command in a terminal"
_NOBODY = f"`loomctl drive` started this, and nobody is there to be asked; {_IN_A_TERMINAL}"
_OR_BEHIND = ", or after a ! at the assistant's prompt"


def must_decide(space: Workspace, verb: str, *words: str) -> None:
    """Refuse a decision of which nothing shows that it is a person's. Raises ASK_FIRST.

    words: of the command line that a person types, behind the verb.
    """
    doubt = _doubt(space, verb)
    if doubt is not None:
        launcher_files.make_room_for_calls(space.store.local)  # from now on hooks leave their marks here
        raise _ask_first(doubt, verb, words)


def refuse_driven(space: Workspace, verb: str, *words: str) -> None:
    """Refuse what ends a drive to whatever one has started: its driver watches it, and not the other way round.

    Raises ASK_FIRST.
    """
    if _is_driven(space.store.local, processes.line()):
        raise _ask_first(_NOBODY, verb, words)


def must_decide_anywhere(verb: str, *words: str) -> None:
    """As `must_decide`, for what touches the user's own folders, where no project may be. Raises ASK_FIRST."""
    found = project.find((os.getcwd(), *table.started_in(os.environ)))
    if found is not None and os.path.isdir(found.store):
        must_decide(command_line.space(writes=False), verb, *words)
    elif (doubt := _doubt_by_words()) is not None:
        raise _ask_first(doubt, verb, words)


def _ask_first(doubt: str, verb: str, words: Sequence[str]) -> LoomError:
    what = f"only the user decides loomctl {verb}, and nobody has asked them"
    hint = shlex.join(["loomctl", *verb.split(), *words])
    return LoomError("ASK_FIRST", what, why=doubt, hint=hint, exit_code=EXIT_USAGE)


def decides(space: Workspace, verb: str) -> bool:
    """Tell whether it is a person who decides."""
    return _doubt(space, verb) is None


def _doubt(space: Workspace, verb: str) -> str | None:
    """Say why an assistant may be deciding by itself, and how its user decides; None: a person does."""
    line = processes.line()
    if _is_driven(space.store.local, line):
        return _NOBODY
    if launcher_files.marks_lead_away(space.store.local):
        return f"{launcher_files.HOSTS} in {space.store.local} is no folder, so no hook can mark an assistant's calls"
    at = _host(space, line)
    if at == 0:
        return _doubt_by_words()
    # What the host itself started: a shell for one call of the assistant's, or for one line of its user's. Whatever
    # that shell starts, and leaves behind when the call is over, began with it.
    shell, marks = line[at - 1], launcher_files.marks(space.store.local, line[at].pid)
    # A call that follows within one tick of the file system's clock is no call that was asked about.
    is_newest = marks.asked > max(marks.called, marks.rested)
    asked = is_newest and shell.started >= marks.asked - _TICK and _is_of(marks.words)
    if asked and launcher_files.use_up_asked(space.store.local, line[at].pid):
        return None
    rested = max(marks.rested, space.caller.conversation.interrupted_at())
    if rested > max(marks.called, space.caller.conversation.called_at()):
        inner = shells.sessions(shells.inherited(line[1:at], os.environ))[:1]
        if inner and marks.host not in ("", inner[0].host.name):
            return f"{inner[0].host.title} started this, and no hook of its told Loom about it; {_IN_A_TERMINAL}"
        if shell.started >= rested - _TICK:
            return None
        return f"an assistant started this during its turn; {_IN_A_TERMINAL}{_OR_BEHIND}"
    return f"an assistant started this. {_asking(space, verb)}Otherwise {_IN_A_TERMINAL}{_OR_BEHIND} between two turns"


def _is_driven(local: str, line: Sequence[Process]) -> bool:
    return bool(write_rules.started_for()[0]) or drivers.is_below_one(local, [process.pid for process in line[1:]])


def refuse_beyond(target: str) -> None:
    """Refuse what is driven a file that its edits may not reach: beyond the project, or settings. Raises ASK_FIRST.

    Whoever drives allows every `loomctl`; one that writes where it is told to would write a host's settings.
    """
    found = project.find((os.getcwd(), *table.started_in(os.environ)))
    if not _is_driven(os.path.join(found.store, "local") if found is not None else os.curdir, processes.line()):
        return
    root = os.path.realpath(found.root if found is not None else os.curdir)
    below = os.path.relpath(os.path.realpath(target), root)
    if any(part.startswith(".") for part in below.split(os.sep)):
        what = "an assistant that is driven may not write there"
        why = "it writes below the project alone, and nothing whose name begins with a dot"
        raise LoomError("ASK_FIRST", what, where=target, why=why, hint="loomctl show", exit_code=EXIT_USAGE)


def _doubt_by_words() -> str | None:
    """Say why an assistant may have started this, by what it says of itself; None where nothing does."""
    first = os.path.basename((processes.arguments(1) or [""])[0])
    if first in {host.sandbox for host in table.HOSTS.values() if host.sandbox}:
        return f"an assistant's sandbox started this ({first}); {_IN_A_TERMINAL}"
    told = [name for name in table.MARKS if os.environ.get(name)]
    if not told:
        return None
    return (
        f"an assistant seems to have started this ({' '.join(told)} is set), and no hook told Loom about it; "
        f"{_IN_A_TERMINAL} where that is not set"
    )


def _asking(space: Workspace, verb: str) -> str:
    """Say that the host asks its user about a call of the assistant's, where it does."""
    host = table.HOSTS.get(space.caller.host)
    return f"If it calls loomctl {verb} by itself, {host.title} asks the user. " if host and host.asks else ""


def _is_of(words: frozenset[str]) -> bool:
    """Tell whether this very command stands in the call that the user was asked about."""
    return tool_calls.words_of(" ".join(sys.argv[1:])) <= words


def _host(space: Workspace, line: list[Process]) -> int:
    """Find the assistant's process that this one descends from, by its place in the line; 0: there is none.

    The innermost counts. Marks that are older than the process are of another one, which had its number before.
    """
    known = launcher_files.marked_processes(space.store.local)
    if processes.first_is_the_systems():  # who has marks of that number is an assistant in a container
        known -= {1}
    for at, process in enumerate(line[1:], start=1):
        last = launcher_files.marks(space.store.local, process.pid).last if process.pid in known else None
        if last is not None and last >= process.started - _TICK:
            return at
    return 0
