"""Who is at this command line: a host's session or a person's terminal, in which project (D24)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli.shell import printing, retyped
from loomctl.flow.open_project import workspace
from loomctl.hosts.claude import events, transcript
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.text.fences import one_line
from loomctl.kit.version import __version__
from loomctl.runs import find, project
from loomctl.runs.caller import Caller, Conversation, Workspace
from loomctl.runs.machine import heartbeats, terminals
from loomctl.runs.machine.local import TERMINAL, Local
from loomctl.runs.settings import config
from loomctl.runs.store.store import Store

if TYPE_CHECKING:
    from loomctl.runs.project import Project


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
        printing.note(f"loomctl: .loom/{memory.NOW} could not be kept current: {trouble.said(error)}")


def run_to_show(space: Workspace, named: str | None) -> str:
    """Find a run for a command that only looks: the hints repeat its line with the run. Raises as `find.to_read`."""
    run_id = find.to_read(space, named, way=retyped.naming).run_id
    assert run_id is not None  # to_read raises instead
    return run_id


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


def any_space() -> Workspace:
    """Give the workspace, whether or not there is a store yet."""
    return space(make=True)


def _say_skew(made: Workspace) -> None:
    """Say once in a session that its hooks are another version's than this command, on standard error."""
    session_id = os.environ.get("CLAUDE_CODE_SESSION_ID", "")
    hooks = heartbeats.version_in(made.store.local, session_id) if session_id else ""
    if hooks in ("", __version__):
        return
    if heartbeats.is_first_telling(made.store.local, f"{session_id} {hooks} {__version__}"):
        said = f"loomctl: this is loomctl {__version__}, the hooks of this session are {one_line(hooks, 40)}"
        printing.note(f"{said}\n  hint: loomctl doctor")


def _caller(found: Project, cwd: str) -> Caller:
    session_id = os.environ.get("CLAUDE_CODE_SESSION_ID")
    if session_id:
        _check_session(session_id)
        local = Local(Store(found.store).local)
        known = (local.binding(session_id) or {}).get("transcript_path")
        path = known if isinstance(known, str) and os.path.isfile(known) else transcript.find(session_id)
        conversation: Conversation = transcript.Transcript(path)
        return Caller(session_id, events.HOST, events.host_pid(), cwd, conversation)
    name, leader = terminals.session(found.store)
    return Caller(name, TERMINAL, leader, cwd, Conversation())


def _check_session(session_id: str) -> None:
    """Refuse an id that no file can be named after, before a run begins that could not be bound to it."""
    try:
        checked_id(session_id, what="session id")
    except LoomError as error:
        error.where = "the environment variable CLAUDE_CODE_SESSION_ID"
        error.hint = "unset CLAUDE_CODE_SESSION_ID"
        raise
