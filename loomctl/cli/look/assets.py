"""`loomctl assets`: the screenshots, reports and traces that a run's commands left, and copies of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from loomctl.changes import stage_changes
from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import Listing, complete_runs, json_option
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line, visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from loomctl.changes.stage_changes import Asset
    from loomctl.runs.store.store import Run


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    words = [CompletionItem(name) for name in assets.commands if name.startswith(incomplete)]
    return [*words, *complete_runs(ctx, param, incomplete)]


def _read(named: str | None) -> Run:
    space = caller.space()
    return space.store.read(arguments.run_id(space, named), to_show=True)


def _assets(run: Run, stage: str | None = None) -> list[Asset]:
    return [asset for one in stage_changes.of_run(run, stage) for asset in one.assets]


def _size(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _path(path: str) -> str:
    return visible(path).replace("\n", "␤")


@click.group(cls=Listing, invoke_without_command=True)
@click.argument("run", required=False, shell_complete=_complete)
@json_option
@click.pass_context
def assets(context: click.Context, *, run: str | None = None, as_json: bool = False) -> int:
    """List the assets that a run's commands left: stage, path, size; then those that were not captured, and why.

    Screenshots, reports and traces below playwright-report, test-results, cypress/videos and cypress/screenshots, and
    files named junit*.xml or *.trace.zip, as far as they were new or changed when their stage ended.

    \b
    Examples:
      loomctl assets
      loomctl assets shop-258
      loomctl assets cp shop-258 ./reports
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    found = _read(run)
    changes = stage_changes.of_run(found)
    held = [one for stage in changes for one in stage.assets]
    over = [one for stage in changes for one in stage.passed_over]
    if as_json:
        told = {"assets": [one._asdict() for one in held], "bytes": sum(one.bytes for one in held)}
        output.document({"run_id": found.run_id, **told, "passed_over": [one._asdict() for one in over]})
        return EXIT_OK
    lines = []
    if held:
        rows = [[one.stage, _path(one.path), f"{one.bytes:,}" + ("" if one.there else " (gone)")] for one in held]
        lines += [output.table(["STAGE", "PATH", "BYTES"], rows), ""]
    if over:
        left = [[one.stage, _path(one.path), _size(one.bytes), one_line(one.reason, 200)] for one in over]
        lines += [output.table(["STAGE", "NOT CAPTURED", "BYTES", "REASON"], left), ""]
    size = f"{counted(len(held), 'asset')}, {counted(sum(one.bytes for one in held), 'byte')}"
    passed = f"; {len(over):,} not captured" if over else ""
    lines.append(f"{found.run_id}: {size if held else 'no assets'}{passed}")
    output.text("\n".join(lines))
    return EXIT_OK


@assets.command("cp")
@click.argument("words", nargs=-1, metavar="[RUN] DEST", shell_complete=complete_runs)
@click.option("--stage", metavar="STAGE", help="Only this stage's; the beginning of its name is enough.")
@click.option("--force", is_flag=True, help="Replace files that stand there with other content.")
@json_option
def copy(words: tuple[str, ...], stage: str | None, force: bool, as_json: bool) -> int:
    """Copy a run's assets below the folder DEST, as `{step}/retry_{visit}/{path}`.

    Each is checked against the hash that it was captured with. Nothing is written over without --force: where other
    content stands in the way, nothing is copied at all. Exit code 1 if an asset is gone or was changed.

    \b
    Examples:
      loomctl assets cp ./reports
      loomctl assets cp shop-258 ./reports --stage 003
    """
    if not 1 <= len(words) <= 2:
        what = f"a folder, and a run before it if you like, are copied to; {len(words)} words are given"
        raise LoomError("USAGE", what, hint="loomctl assets cp --help", exit_code=EXIT_USAGE)
    found = _read(words[0] if len(words) == 2 else None)
    target = os.path.abspath(words[-1])
    held = _assets(found, stage)
    again = stage_changes.listed_command(found.run_id, words[-1], stage)
    done = stage_changes.copy(found, held, target, force=force, again=again)
    if as_json:
        failed = [{**asset._asdict(), "reason": reason} for asset, reason in done.failed]
        told = {"dest": target, "written": list(done.written), "there_already": done.there, "failed": failed}
        output.document({"run_id": found.run_id, **told})
    else:
        lines = [f"not copied: {one_line(asset.path, 300)}: {one_line(why, 200)}" for asset, why in done.failed]
        there = f", {done.there:,} stood there already" if done.there else ""
        copied = f"{len(done.written):,} of {counted(len(held), 'asset')} copied to {one_line(target, 300)}"
        lines.append(f"Loom: {copied}{there}")
        output.text("\n".join(lines))
    return EXIT_FINDINGS if done.failed else EXIT_OK
