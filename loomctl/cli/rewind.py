"""`loomctl rewind` and `fork`: a run taken back to one of its stages, and a new one that goes on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import answer, caller, output
from loomctl.cli.arguments import complete_stages, json_option, run_argument
from loomctl.flow import drive
from loomctl.flow import fork as forking
from loomctl.flow import rewind as rewinding
from loomctl.kit.errors import EXIT_OK
from loomctl.kit.text.counts import counted
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.flow.fork import Forked
    from loomctl.flow.rewind import Rewound

_LISTED = 5  # names in a line; --json has all


@click.command(options_metavar="--to STAGE")
@run_argument
@click.option(
    "--to",
    "stage",
    required=True,
    metavar="STAGE",
    shell_complete=complete_stages,
    help="The stage to go back to: its rank, its name or the beginning of it, its step's id, or step@visit.",
)
@json_option
def rewind(run: str | None, stage: str, as_json: bool) -> int:
    """Take the run back to a STAGE: it is open again, with the context as it was, and what came after it is undone.

    It is `loomctl undo`, as often as it takes, in one change. The results of the stages that are undone are kept aside
    in their folders. No file of the project is touched: what the stages changed stays, and is named.

    \b
    Examples:
      loomctl rewind --to implement
      loomctl rewind shop-258 --to 002
      loomctl rewind --to review@1
    """
    space = caller.space()
    rewound = rewinding.rewind(space, find.to_drive(space, run), stage)
    if as_json:
        output.document(
            {
                "run_id": rewound.run.run_id,
                "status": rewound.run.state["status"],
                "stage": rewound.stage,
                "changed": rewound.changed,
                "undone": list(rewound.undone),
                "gone": list(rewound.gone),
                "files": list(rewound.files),
                "patches": list(rewound.patches),
                "next": answer.step_document(space, rewound.run),
                "notes": list(rewound.notes),
            }
        )
        return EXIT_OK
    lines = [*_rewound(rewound), *(f"  ! {masked_line(note, 300)}" for note in rewound.notes)]
    lines.append(drive.say_move(drive.Driven(rewound.run, rewound.move)))
    output.text(answer.whole(space, rewound.run, lines, None))
    return EXIT_OK


def _rewound(rewound: Rewound) -> list[str]:
    if not rewound.changed:
        return [f"{rewound.stage} is open already; nothing was changed."]
    lines = [f"Loom: run {rewound.run.run_id} is back at {rewound.stage}"]
    if rewound.gone:
        lines.append(f"  gone      {counted(len(rewound.gone), 'stage')}: {_listed(rewound.gone)}")
    if rewound.undone:
        lines.append("  results   kept aside in the stages' folders, as *.undone-N")
    lines.append("  files     the project's are untouched" + _what_stays(rewound.files))
    return [*lines, *(f"  patch     {masked_line(path, 400)}" for path in rewound.patches)]


def _what_stays(files: Sequence[str]) -> str:
    if not files:
        return "; these stages changed none that is known"
    return f"; what these stages changed stays, in {counted(len(files), 'file')}: {_listed(files)}"


@click.command(options_metavar="--at STAGE")
@run_argument
@click.option(
    "--at",
    "stage",
    required=True,
    metavar="STAGE",
    shell_complete=complete_stages,
    help="The stage after which the new run goes on; it has ended. Named as for `loomctl rewind --to STAGE`.",
)
@json_option
def fork(run: str | None, stage: str, as_json: bool) -> int:
    """Make a new run that goes on from a STAGE of this one: it is as this one was when the stage had ended.

    Plan, context, the stages until then, what they left and their tool steps come along; sessions and the log begin
    anew. This run is not changed and stays with its session; `loomctl resume RUN` takes the new one up. No file of the
    project is touched: both runs work in the same checkout, as it is now.

    \b
    Examples:
      loomctl fork --at architect
      loomctl fork shop-258 --at 003
      loomctl fork --at review@1 --json
    """
    space = caller.space()
    run_id = find.to_read(space, run).run_id
    assert run_id is not None  # to_read raises instead
    forked = forking.fork(space, run_id, stage)
    if as_json:
        state = forked.run.state
        output.document(
            {
                "run_id": forked.run.run_id,
                "run_dir": forked.run.folder,
                "status": state["status"],
                "forked_from": state["forked_from"],
                "stages": list(forked.stages),
                "way": state["steps"][-1].get("next"),
                "tool_steps": forked.tool_steps,
                "files_copied": forked.copied,
                "files": list(forked.changed),
                "patches": list(forked.patches),
                "notes": list(forked.notes),
            }
        )
        return EXIT_OK
    output.text("\n".join(_forked(forked)))
    return EXIT_OK


def _forked(forked: Forked) -> list[str]:
    brought = f"{counted(len(forked.stages), 'stage')}, {counted(forked.tool_steps, 'tool step')}"
    return [
        f"Loom: run {forked.run.run_id} is as {forked.origin} was when {forked.stage} had ended",
        f"  brought   {brought}, the context of then",
        "  files     the project's are untouched" + _what_later_stages_changed(forked.changed),
        *(f"  patch     {masked_line(path, 400)}" for path in forked.patches),
        *(f"  ! {masked_line(note, 300)}" for note in forked.notes),
        f"{forked.origin} is as it was. To take up the new run: loomctl resume {forked.run.run_id}",
    ]


def _what_later_stages_changed(files: Sequence[str]) -> str:
    if not files:
        return "; the stages after it changed none that is known"
    return f", and as the stages after it left them: {counted(len(files), 'file')} ({_listed(files)})"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(masked_line(name, 120) for name in names[:_LISTED]) + more
