"""`loomctl graph`: a workflow, or a run's way through one, as a drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import complete_runs, complete_workflows, json_option
from loomctl.kit import files, targets
from loomctl.kit.errors import EXIT_OK
from loomctl.kit.text.secrets import mask
from loomctl.workflows.draw import draw

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [*complete_workflows(ctx, param, incomplete), *complete_runs(ctx, param, incomplete)]


@click.command()
@click.argument("target", required=False, metavar="WORKFLOW|RUN", shell_complete=_complete)
@click.option(
    "--format",
    "form",
    type=click.Choice(draw.FORMATS),
    default="mermaid",
    show_default=True,
    help="Mermaid for Markdown; DOT, which Loom reads as a workflow too; SVG, drawn by Graphviz.",
)
@click.option("--output", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Write it there instead.")
@json_option
def graph(target: str | None, form: str, path: str | None, as_json: bool) -> int:
    """Draw a WORKFLOW, or a RUN with what was done, what failed and where it stands.

    Phases and branches are boxes; agents, prompts, commands, people and parallel steps have shapes of their own; a way
    that only a failure takes is dashed. Without a target: the current run. A workflow goes before a run whose id begins
    like it.

    \b
    Examples:
      loomctl graph core
      loomctl graph review.fabro --format svg --output review.svg
      loomctl graph shop-258 --format dot
    """
    if path is not None:
        targets.check(path, arguments.again(("path",)))
    with arguments.offered_again():
        found = draw.drawn(caller.space(make=True), target, form)
    if path is not None:
        files.write_atomically(path, mask(found.text)[0].encode(), mode=0o644)
    if as_json:
        output.document(
            {
                "workflow_id": found.workflow_id,
                "run_id": found.run_id,
                "format": form,
                "output": path,
                "text": None if path is not None else found.text,
            }
        )
    elif path is None:
        output.text(found.text.removesuffix("\n"))
    return EXIT_OK
