"""What stands on a command line: options and their completions, files to read, the line once more."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from loomctl.cli import caller
from loomctl.kit import files, trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs import find

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from click.shell_completion import CompletionItem

    from loomctl.runs.project import Workspace

Command = TypeVar("Command", bound=Callable[..., Any])

STDIN = "-"
LARGEST = 16 << 20

_LONGEST_LINE = 600  # characters of a line that is worth a paste
_RUNS = ("run", "run_id", "resumed", "target")  # what commands call the parameter that names a run


# ---- Options, and what completes their values.


class Listing(click.Group):
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
            every = names(caller.space(make=True), context, incomplete)
            return [CompletionItem(name) for name in every if name.startswith(incomplete)]
        except (LoomError, OSError, ValueError, KeyError, TypeError):
            return []

    return complete


@completion
def complete_runs(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    """Complete run ids."""
    return list(space.store.run_ids())


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

    project = space.project
    return workflow_files.available(
        project_dir=os.path.dirname(project.store), store=project.store, bundle=project.plugin_root
    )


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
    """Add the optional RUN: an id or its unique beginning."""
    return click.argument("run", required=False, shell_complete=complete_runs)(command)


def branch_option(command: Command) -> Command:
    """Add `--branch NAME`: a branch of the parallel step that is open (D43)."""
    return click.option("--branch", metavar="NAME", help="Of the open parallel step: the branch that is meant.")(
        command
    )


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
        raise LoomError(
            "UNREADABLE",
            "the file cannot be read",
            where=source,
            why=error.strerror or str(error),
            hint=trouble.look(source),
            exit_code=EXIT_USAGE,
        ) from None


def read_text(source: str, *, hint: str, largest: int = LARGEST, why: str = "") -> str:
    """Give the same as text; bytes that are no UTF-8 are replaced, so that they hide nothing."""
    return files.text_of(read(source, hint=hint, largest=largest, why=why), "replace")


def source_name(source: str) -> str:
    """Name a source in a message."""
    return "standard input" if source == STDIN else source


def only_one_from_stdin(*sources: str | None, hint: str) -> None:
    """Raise USAGE where more than one of a command's sources is standard input, which can be read but once."""
    if sources.count(STDIN) > 1:
        raise LoomError("USAGE", "two things are asked of standard input", hint=hint, exit_code=EXIT_USAGE)


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


def _path(context: click.Context) -> list[str]:
    """Give the names of the command and its groups; a path of click's own names the groups' arguments, too."""
    above = _path(context.parent) if context.parent is not None else []
    return [*above, context.info_name or ""]


def _option(param: click.Option, value: object) -> Iterator[str]:
    if param.is_flag:
        yield param.opts[0] if value or not param.secondary_opts else param.secondary_opts[0]
        return
    for one in value if isinstance(value, tuple) else (value,):
        name, text = param.opts[0], str(one)
        if name.startswith("--") and text.startswith("-"):
            yield f"{name}={text}"
        else:
            yield from (name, text)
