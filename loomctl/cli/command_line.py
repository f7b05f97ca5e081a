"""Who is at this command line, in which project (D24), what stands on it, and whether a person decides there (D68).

What an assistant may do is judged command line by command line before it does it (D29); `must_decide` is behind that
judgement, where the decision is carried out, and holds for a command line that nobody could read.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from loomctl.cli import output
from loomctl.cli.verbs import Group
from loomctl.flow.open_project import workspace
from loomctl.hosts import asking, shells, table
from loomctl.kit import files, trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.package import __version__
from loomctl.kit.text.fences import one_line
from loomctl.runs import config, find, project
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.local import TERMINAL, Local, terminal_session
from loomctl.runs.project import Caller, Conversation, Workspace
from loomctl.runs.store import run_index
from loomctl.runs.store.match import handles
from loomctl.runs.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from click.shell_completion import CompletionItem

    from loomctl.runs.project import Project, Workspace

QUEUE = "LOOM_QUEUE"
"""In the environment: the queue that machines share. No assistant gets it, for a password stands in it."""


def reader_is_an_assistant() -> bool:
    """Tell whether an assistant reads what is printed: a host's session, or no terminal to read it on."""
    return bool(shells.sessions(os.environ)) or not sys.stdout.isatty()


def in_a_body() -> bool:
    """Tell whether what is printed becomes the body of a slash command, which a host's session keeps (D79)."""
    return click.get_current_context().find_root().obj is True and bool(shells.sessions(os.environ))


def space(*, make: bool = False, writes: bool = True) -> Workspace:
    """Give the workspace of the current directory.

    make: a project without a store gets the place where its store will be; else that raises NO_ACTIVE_RUN. What stands
    in the place of a store is named either way. writes: keep the compiled settings, and that a skew was told.
    """
    cwd = _here()
    found = project.find((cwd, *table.started_in(os.environ)))
    if found is None:
        found = project.new(cwd)
        if not make:
            raise find.no_active_run()
    made = workspace(found, config.load(found.store, with_yaml=True, keep=writes), _caller(found, cwd))
    _say_silence(made)
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
        output.note(f"loomctl: could not update .loom/{memory.NOW}: {trouble.said(error)}")


def of_the_host() -> Conversation:
    """Give what other sessions' conversations are found by, whoever asks."""
    return asking.conversation(table.CLAUDE, None)


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        why = "somebody moved or removed it; go to your project and run the command there"
        what = "the current folder no longer exists"
        where = os.environ.get("PWD", "")
        raise LoomError("NO_FOLDER", what, where=where, why=why, hint="cd", exit_code=EXIT_USAGE) from None


def _say_silence(made: Workspace) -> None:
    """Say, once in a command, that this session's assistant has called none of Loom's hooks here (D72)."""
    from loomctl.hosts import signs

    host = signs.silent_host(made.store.local, os.environ)
    if host is not None:
        output.note(signs.said(host))


def _say_skew(made: Workspace) -> None:
    """Say once in a session that its hooks are another version's than this command, on standard error."""
    session_id = made.caller.session_id or ""
    hooks = launcher_files.version_in(made.store.local, session_id) if made.caller.host in table.HOSTS else ""
    if hooks in ("", __version__):
        return
    if launcher_files.is_first_telling(made.store.local, f"{session_id} {hooks} {__version__}"):
        said = f"loomctl: this is version {__version__}; this session's hooks are version {one_line(hooks, 40)}"
        output.note(f"{said}\n  hint: loomctl doctor")


def _caller(found: Project, cwd: str) -> Caller:
    inner = shells.innermost(os.environ)
    if inner is not None:
        host, named, pid = inner.host, inner.id, inner.pid
        _check_session(named, host.session or host.mark)
        local = Local(Store(found.store).local)
        session_id = named
        if host.names_subagents:
            from loomctl.hosts import subagents  # few hosts do

            session_id = subagents.main_session(host, named, local)
        known = (local.binding(session_id) or {}).get("transcript_path")
        seen = asking.conversation(host, None)
        path = known if isinstance(known, str) and os.path.isfile(known) else seen.kept_at(session_id)
        return Caller(
            session_id,
            host.name,
            pid,
            cwd,
            seen.another(path),
            parts=host.parts,
            beside=host.beside,
            printed=host.printed,
            shut_in=bool(host.sandbox),
            shared=host.shared,
            memory=asking.MEMORY_LINES,
            rereads=asking.rereads(host),
        )
    name, leader = terminal_session(found.store)
    return Caller(name, TERMINAL, leader, cwd, Conversation(), memory=asking.MEMORY_LINES)


def _check_session(session_id: str, variable: str) -> None:
    """Refuse an id that no file can be named after, before a run begins that could not be bound to it."""
    try:
        checked_id(session_id, what="session id")
    except LoomError as error:
        error.where = f"the environment variable {variable}"
        error.hint = f"unset {variable}"
        raise


Command = TypeVar("Command", bound=Callable[..., Any])

STDIN = "-"
LARGEST = 16 << 20

_LONGEST_LINE = 600  # characters of a line that is worth a paste
_RUNS = ("run", "run_id", "resumed", "target")  # what commands call the parameter that names a run


# ---- Options, and what completes their values.


class Listing(Group):
    """A group that is a listing by itself: `loomctl steps [RUN]` beside `loomctl steps show ID`."""

    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words for the sub-command's, which comes first then, or for the listing's."""
        at = self._at(args)
        if at is None:
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = False
        ctx.meta[__name__] = args[at]
        return super().parse_args(ctx, [args[at], *args[:at], *args[at + 1 :]])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Give the listing's own, which a sub-command's words are not read by."""
        params = super().get_params(ctx)
        return [param for param in params if param.name == "help"] if __name__ in ctx.meta else params

    def _at(self, args: list[str]) -> int | None:
        valued = {name for one in self.params if isinstance(one, click.Option) and not one.is_flag for name in one.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            at += 2 if args[at] in valued else 1
        return at if at < len(args) and args[at] in self.commands else None


Completion: TypeAlias = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completion(names: Callable[[Workspace, click.Context, str], Iterable[str]]) -> Completion:
    """Make a completion of what gives all names; it never fails: what cannot be read completes to nothing."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            every = names(space(make=True), context, incomplete)
            return [CompletionItem(name) for name in every if name.startswith(incomplete)]
        except (LoomError, OSError, ValueError, KeyError, TypeError):
            return []

    return complete


@completion
def complete_runs(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    """Complete the handles of runs; ids for who begins one."""
    called = handles(space.store, run_index.summaries(space.store))
    return [name for name in called.values() if name.startswith(incomplete)] or list(called)


@completion
def complete_stages(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    """Complete the stages of the run that is named, else of the current one."""
    from loomctl.runs import stages

    run = stages.read_current(space, context.params.get("run"))
    return [str(entry["stage"]) for entry in stages.entries(run)]


@completion
def complete_workflows(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    """Complete workflow ids: the project's and the bundle's."""
    from loomctl.workflows import workflow_files

    return workflow_files.available(workflow_files.places_of(space.project))


@completion
def complete_artifacts(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    """Complete artifact ids of the project's newest run, after the last comma."""
    folders = [space.store.run_dir(run_id) for run_id in space.store.run_ids()]
    newest = max(folders, key=lambda folder: os.path.getmtime(os.path.join(folder, "state.json")))
    before = incomplete.rpartition(",")[0]
    artifacts = files.read_json(os.path.join(newest, "plan.json"))["artifacts"]
    return [f"{before},{one['id']}" if before else one["id"] for one in artifacts]


def json_option(command: Command) -> Command:
    """Add `--json`: one document, errors included."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def yes_option(command: Command) -> Command:
    """Add `--yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def run_argument(command: Command) -> Command:
    """Add the optional RUN: a handle, an id, or the unique beginning of either."""
    return click.argument("run", required=False, shell_complete=complete_runs)(command)


def branch_option(command: Command) -> Command:
    """Add `--branch NAME`: a branch of the parallel step that is open (D43)."""
    meant = "The branch of the open parallel step."
    return click.option("--branch", metavar="NAME", help=meant)(command)


# ---- Files that are named on the line, or standard input, where `-` is named (D52).


def read(source: str, *, hint: str, largest: int = LARGEST, why: str = "") -> bytes:
    """Give the bytes of a named file, or of standard input where `source` is `-`.

    hint: a line that can be pasted where standard input has more than `largest` bytes; why: said with it. Raises
    UNREADABLE for a file that is not there, is none or is forbidden, and TOO_LARGE; both exit 2, for it was typed.
    """
    if source == STDIN:
        data = sys.stdin.buffer.read(largest + 1)
        if len(data) > largest:
            what = f"standard input has more than {largest:,} bytes"
            raise LoomError("TOO_LARGE", what, where=source_name(source), why=why, hint=hint, exit_code=EXIT_USAGE)
        return data
    try:
        return files.read_bytes(source, limit=largest)
    except LoomError as error:
        error.exit_code, error.why = EXIT_USAGE, why or error.why
        raise
    except OSError as error:
        said, hint = error.strerror or str(error), trouble.look(source)
        what = "Loom cannot read the file"
        raise LoomError("UNREADABLE", what, where=source, why=said, hint=hint, exit_code=EXIT_USAGE) from None


def read_text(source: str, *, hint: str, largest: int = LARGEST, why: str = "") -> str:
    """Give the same as text; bytes that are no UTF-8 are replaced, so that they hide nothing."""
    return files.text_of(read(source, hint=hint, largest=largest, why=why), "replace")


def source_name(source: str) -> str:
    """Name a source in a message."""
    return "standard input" if source == STDIN else source


def only_one_from_stdin(*sources: str | None, hint: str) -> None:
    """Raise USAGE where more than one of a command's sources is standard input, which can be read but once."""
    if sources.count(STDIN) > 1:
        raise LoomError("USAGE", "two options cannot both read standard input", hint=hint, exit_code=EXIT_USAGE)


# ---- The line once more, which is what a hint is made of.


def again(without: Collection[str] = (), /, **changed: str) -> str:
    """Give the command line as it was typed but for `changed`, by the names of its parameters; "" where there is none.

    without: options that are left out. Where an option has several names the first is written. Empty, too, for a line
    that is too long to be pasted, and for one in which a word would stand in another's place, for one before it is not
    said.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    words: list[str] = []
    options: list[str] = []
    has_gap = False
    for param in context.command.get_params(context):
        name = param.name or ""
        is_said = name in changed or context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        value = changed.get(name, context.params.get(name))
        if isinstance(param, click.Option):  # a hint is the same in both forms of an error
            options += _option(param, value) if is_said and name not in ("as_json", *without) else ()
        elif is_said and has_gap:
            return ""
        elif is_said:
            words += [str(one) for one in (value if isinstance(value, tuple) else (value,))]
        else:
            has_gap = True
    mark = ["--"] if any(word.startswith("-") for word in words) else []
    line = shlex.join([*_path(context), *(options if mark else ()), *mark, *words, *(() if mark else options)])
    return line if len(line) <= _LONGEST_LINE else ""


@contextmanager
def offered_again() -> Iterator[None]:
    """Let an error that knows which run may be meant offer the caller's own line with that run named.

    For what reads and what takes up: nothing that ends or removes a run is offered with one that was guessed (D1).
    """
    try:
        yield
    except LoomError as error:
        context = click.get_current_context(silent=True)
        params = [param.name for param in context.command.get_params(context)] if context is not None else []
        named = next((name for name in _RUNS if name in params), None)
        if error.meant and named:
            words = {(named if name == "run" else name): value for name, value in error.meant.items()}
            error.hint = again(**words) or error.hint
        raise


def run_id(space: Workspace, named: str | None) -> str:
    """Find a run for a command that only looks. Raises as `find.to_read`, with the caller's line in the hint."""
    with offered_again():
        return find.run_to_read(space, named)


def shown_run_id(space: Workspace, named: str | None) -> str:
    """Find a run that is only shown, and say where it is the last one. Raises as `find.to_show`."""
    with offered_again():
        found = find.to_show(space, named)
    assert found.run_id is not None  # to_show raises instead
    if found.how == "last":
        say_last(space, found.run_id)
    return found.run_id


def say_last(space: Workspace, run_id: str) -> None:
    """Say on standard error that no run is under way, and which is shown in its place."""
    output.note(f"loomctl: no run is under way. This is the last one: {space.store.handle(run_id)}")


def _path(context: click.Context) -> list[str]:
    """Give the names of the command and its groups; a path of click's own names the groups' arguments, too."""
    above = _path(context.parent) if context.parent is not None else []
    return [*above, *(context.info_name or "").split()]


def _option(param: click.Option, value: object) -> Iterator[str]:
    if param.is_flag:
        yield param.opts[0] if value or not param.secondary_opts else param.secondary_opts[0]
        return
    for one in value if isinstance(value, tuple) else (value,):
        name, text = param.opts[0], str(one)
        if not text and param.flag_value == "":  # it was typed without a value
            yield name
        elif name.startswith("--") and text.startswith("-"):
            yield f"{name}={text}"
        else:
            yield from (name, text)


@contextmanager
def ended_by_signals(interrupt: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    """Let a person's Ctrl-C call `interrupt`, and other ways to end a process `end`, while something long goes on.

    What is ignored, as under `nohup` or behind a script's `&`, stays so.
    """
    ways = {signal.SIGINT: interrupt, signal.SIGTERM: end, signal.SIGHUP: end}
    before = {number: signal.getsignal(number) for number in ways}
    for number, way in ways.items():
        if before[number] != signal.SIG_IGN:
            signal.signal(number, lambda *_, way=way: way())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
