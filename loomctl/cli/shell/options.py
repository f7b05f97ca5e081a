"""Options, completions and the kind of group that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loomctl.cli.shell import asking
from loomctl.kit.errors import LoomError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


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
        found = super().get_params(ctx)
        return [one for one in found if one.name == "help"] if __name__ in ctx.meta else found

    def _at(self, args: list[str]) -> int | None:
        valued = {name for one in self.params if isinstance(one, click.Option) and not one.is_flag for name in one.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            at += 2 if args[at] in valued else 1
        return at if at < len(args) and args[at] in self.commands else None


def json_option(command: Command) -> Command:
    """Add `--json`: one document, errors included."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def run_argument(command: Command) -> Command:
    """Add the optional RUN: an id or its unique beginning."""
    return click.argument("run", required=False, shell_complete=complete_runs)(command)


def branch_option(command: Command) -> Command:
    """Add `--branch NAME`: a branch of the parallel step that is open (D43)."""
    return click.option("--branch", metavar="NAME", help="Of the open parallel step: the branch that is meant.")(
        command
    )


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete run ids."""
    return _items(lambda: list(asking.any_space().store.run_ids()), incomplete)


def complete_stages(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the stages of the run that is named, else of the current one."""

    def names() -> list[str]:
        from loomctl.runs import stage_records, words

        run = words.current(asking.any_space(), context.params.get("run"))
        return [str(entry["stage"]) for entry in stage_records.entries(run)]

    return _items(names, incomplete)


def complete_workflows(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete workflow ids: the project's and the bundle's."""

    def names() -> list[str]:
        from loomctl.workflows import workflow_files

        project = asking.any_space().project
        return workflow_files.available(
            project_dir=os.path.dirname(project.store), store=project.store, bundle=project.plugin_root
        )

    return _items(names, incomplete)


def complete_artifacts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete artifact ids of the project's newest run, after the last comma."""

    def names() -> list[str]:
        from loomctl.kit import files

        store = asking.any_space().store
        newest = max(
            store.run_ids(), key=lambda run_id: os.path.getmtime(os.path.join(store.run_dir(run_id), "state.json"))
        )
        plan = files.read_json(os.path.join(store.run_dir(newest), "plan.json"))
        before = incomplete.rpartition(",")[0]
        return [f"{before},{one['id']}" if before else one["id"] for one in plan["artifacts"]]

    return _items(names, incomplete)


def _items(names: Callable[[], list[str]], incomplete: str) -> list[CompletionItem]:
    """Completion never fails: what cannot be read completes to nothing."""
    from click.shell_completion import CompletionItem

    try:
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
    except (LoomError, OSError, ValueError, KeyError, TypeError):
        return []
