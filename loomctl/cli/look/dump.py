"""`loomctl dump`: a whole run as files to read, in a folder of the user's own."""

from __future__ import annotations

import click

from loomctl.cli.shell import asking, printing
from loomctl.cli.shell.options import complete_runs, json_option
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.views import dump


@click.command("dump")
@click.argument("run", shell_complete=complete_runs)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a dump that stands there.")
@json_option
def dump_command(run: str, folder: str, force: bool, as_json: bool) -> int:
    """Write a whole RUN into the folder DIR, to be read, kept or sent on; the run stays as it is.

    It holds state.json, plan.json, events.jsonl, the stages with their prompts, responses and statuses, assets, tool
    steps and outputs as they are; context.json, the context with every large value and response in it; blobs/ with
    every blob that is referred to, at the place that its reference names; and dump.json, which lists all of it with
    sizes and hashes. DIR is made, or must be empty. It is written beside and renamed. Your own files only: nothing in
    it is masked. Exit code 1 if something could not be brought along, such as a damaged blob; dump.json names it.

    \b
    Examples:
      loomctl dump shop-258 ./shop-258
      loomctl dump shop-258 ./shop-258 --force
    """
    space = asking.space()
    made = dump.dump(space, asking.run_to_show(space, run), folder, force=force)
    if as_json:
        told = made._asdict() | {"troubles": [one.to_dict() for one in made.troubles]}
        printing.document({"run_id": space.store.match(run), **told})
    else:
        lines = [f"! {one.code}: {one_line(one.what, 300)}" for one in made.troubles]
        counts = f"{counted(made.stages, 'stage')}, {counted(made.events, 'event')}, {counted(made.blobs, 'blob')}"
        size = f"{counted(made.files, 'file')}, {counted(made.bytes, 'byte')}"
        lines.append(f"Loom: {space.store.match(run)} written to {one_line(made.path, 300)}: {counts}; {size}")
        printing.text("\n".join(lines))
    return EXIT_FINDINGS if made.troubles else EXIT_OK
