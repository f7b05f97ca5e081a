"""Who is at this command line, in which project (D24), and whether it is a person who decides there (D68).

What an assistant may do is judged command line by command line before it does it (D29); `must_decide` is behind that
judgement, where the decision is carried out, and holds for a command line that nobody could read.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli import output
from loomctl.flow.open_project import workspace
from loomctl.hosts import tool_calls
from loomctl.hosts.claude import events, installation, transcript
from loomctl.kit import processes, trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.package import __version__
from loomctl.kit.text.fences import one_line
from loomctl.runs import config, find, project
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.local import TERMINAL, Local, terminal_session
from loomctl.runs.project import Caller, Conversation, Workspace
from loomctl.runs.store.store import Store

if TYPE_CHECKING:
    from loomctl.kit.processes import Process
    from loomctl.runs.project import Project

# What assistants say of themselves in the environment of what they start.
_MARKS = (
    "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_SESSION_ID", "CODEX_THREAD_ID", "COPILOT_CLI", "CURSOR_AGENT",
    "GEMINI_CLI", "OPENCODE", "QWEN_CODE",
)  # fmt: skip
# A process's start and a file's time are taken from clocks that tick a hundred times a second.
_TICK = 0.015
_IN_A_TERMINAL = "its user types it in a terminal of their own"
_OR_BEHIND = ", or behind a ! at its prompt"


def reader_is_an_assistant() -> bool:
    """Tell whether an assistant reads what is printed: a host's session, or no terminal to read it on."""
    return bool(os.environ.get("CLAUDE_CODE_SESSION_ID")) or not sys.stdout.isatty()


def in_a_body() -> bool:
    """Tell whether what is printed becomes the body of a slash command, which a host's session keeps (D79)."""
    return click.get_current_context().find_root().obj is True and bool(os.environ.get("CLAUDE_CODE_SESSION_ID"))


def space(*, make: bool = False, writes: bool = True) -> Workspace:
    """Give the workspace of the current directory.

    make: a project without a store gets the place where its store will be; else that raises NO_ACTIVE_RUN. What stands
    in the place of a store is named either way. writes: keep the compiled settings, and that a skew was told.
    """
    cwd = _here()
    found = project.find((cwd, os.environ.get("CLAUDE_PROJECT_DIR", "")))
    if found is None:
        found = project.new(cwd)
        if not make:
            raise find.no_active_run()
    made = workspace(found, config.load(found.store, with_yaml=True, keep=writes), _caller(found, cwd))
    if writes:
        _say_skew(made)
        _keep_memory_at_the_end(made)
    return made


def _keep_memory_at_the_end(made: Workspace) -> None:
    """Let `.loom/now.md` say at the command's end what became of its run, where memory is on (D62)."""
    context = click.get_current_context(silent=True)
    if context is not None and os.path.lexists(os.path.join(made.store.local, "memory.json")):
        context.find_root().call_on_close(lambda: _keep_memory(made))


def _keep_memory(made: Workspace) -> None:
    from loomctl.priming import memory

    try:
        memory.keep(made)
    except (OSError, LoomError) as error:
        output.note(f"loomctl: .loom/{memory.NOW} could not be kept current: {trouble.said(error)}")


def of_the_host() -> Conversation:
    """Give what other sessions' conversations are found by, whoever asks: hooks are Claude Code's."""
    return transcript.Transcript(None)


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise LoomError(
            "NO_FOLDER",
            "the folder that this command was started in is gone",
            where=os.environ.get("PWD", ""),
            why="it was moved or removed meanwhile; go into your project, and start it there",
            hint="cd",
            exit_code=EXIT_USAGE,
        ) from None


def _say_skew(made: Workspace) -> None:
    """Say once in a session that its hooks are another version's than this command, on standard error."""
    session_id = os.environ.get("CLAUDE_CODE_SESSION_ID", "")
    hooks = launcher_files.version_in(made.store.local, session_id) if session_id else ""
    if hooks in ("", __version__):
        return
    if launcher_files.is_first_telling(made.store.local, f"{session_id} {hooks} {__version__}"):
        said = f"loomctl: this is loomctl {__version__}, the hooks of this session are {one_line(hooks, 40)}"
        output.note(f"{said}\n  hint: loomctl doctor")


def _caller(found: Project, cwd: str) -> Caller:
    session_id = os.environ.get("CLAUDE_CODE_SESSION_ID")
    if session_id:
        _check_session(session_id)
        local = Local(Store(found.store).local)
        known = (local.binding(session_id) or {}).get("transcript_path")
        path = known if isinstance(known, str) and os.path.isfile(known) else installation.transcript_of(session_id)
        conversation: Conversation = transcript.Transcript(path)
        return Caller(session_id, events.HOST, events.host_pid(), cwd, conversation)
    name, leader = terminal_session(found.store)
    return Caller(name, TERMINAL, leader, cwd, Conversation())


def _check_session(session_id: str) -> None:
    """Refuse an id that no file can be named after, before a run begins that could not be bound to it."""
    try:
        checked_id(session_id, what="session id")
    except LoomError as error:
        error.where = "the environment variable CLAUDE_CODE_SESSION_ID"
        error.hint = "unset CLAUDE_CODE_SESSION_ID"
        raise


# ---- Whether a person decides.


def must_decide(space: Workspace, verb: str, *words: str) -> None:
    """Refuse a decision of which nothing shows that it is a person's. Raises ASK_FIRST.

    words: of the command line that a person types, behind the verb.
    """
    doubt = _doubt(space, verb)
    if doubt is None:
        return
    launcher_files.make_room_for_calls(space.store.local)  # from now on hooks leave their marks here
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
    line = processes.line()
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
    shell, marks = line[at - 1], launcher_files.marks(space.store.local, line[at].pid)
    # A call that follows within one tick of the file system's clock is no call that was asked about.
    is_newest = marks.asked > max(marks.called, marks.rested)
    asked = is_newest and shell.started >= marks.asked - _TICK and _is_of(marks.words)
    if asked and launcher_files.use_up_asked(space.store.local, line[at].pid):
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
    return tool_calls.words_of(" ".join(sys.argv[1:])) <= words


def _host(space: Workspace, line: list[Process]) -> int:
    """Find the assistant's process that this one descends from, by its place in the line; 0: there is none.

    The innermost counts. Marks that are older than the process are of another one, which had its number before.
    """
    known = launcher_files.marked_processes(space.store.local)
    if processes.first_is_the_systems():  # who has marks of that number is an assistant in a container
        known -= {1}
    for at, process in enumerate(line[1:], start=1):
        if (
            process.pid in known
            and launcher_files.marks(space.store.local, process.pid).last >= process.started - _TICK
        ):
            return at
    return 0
