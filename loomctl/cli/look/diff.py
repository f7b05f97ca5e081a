"""`loomctl diff`: what the stages of a run changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.changes import stage_changes
from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import json_option, run_argument
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line, visible
from loomctl.runs import stage_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.changes.stage_changes import StageChanges


@click.command()
@run_argument
@click.argument("stage", required=False)
@click.option("--stat", is_flag=True, help="Each file with what became of it and how many lines.")
@click.option("--names", is_flag=True, help="The files' names alone, each once.")
@json_option
def diff(run: str | None, stage: str | None, stat: bool, names: bool, as_json: bool) -> int:
    """Show what a STAGE changed, as a patch; without STAGE what each stage of the run did, one after another.

    A patch is as git gave it when the stage ended: nothing is masked, and `git apply` takes it. It tells by content
    what differed between the stage's start and end, commits in between included. Files of a file tool's calls are
    named in --stat and --names, too. A STAGE is meant as by `loomctl show`: by its rank, its name or the beginning of
    it, its step's id; without a RUN before it, it is one of the current run.

    \b
    Examples:
      loomctl diff shop-258 --stat
      loomctl diff implement
      loomctl diff shop-258 002 --names
    """
    if stat and names:
        raise LoomError(
            "USAGE", "--stat and --names exclude each other", hint="loomctl diff --help", exit_code=EXIT_USAGE
        )
    with arguments.offered_again():
        read, meant = stage_records.find_with_run(caller.space(), run, stage)
    run_id, told = read.run_id, stage_changes.of_run(read, meant)
    if as_json:
        output.document({"run_id": run_id, "stages": [_document(one) for one in told]})
    elif names:
        found = sorted({one["path"] for stage_told in told for one in stage_told.files})
        output.text("\n".join(found)) if found else None
        _say(told)
    elif stat:
        lines = [line for one in told for line in _stat(one)]
        output.text("\n".join(lines) if lines else f"{run_id}: no stage has begun yet")
    else:
        _patches(run_id, told, alone=meant is not None)
        _say(told)
        if not told:
            output.note(f"{run_id}: no stage has begun yet")
    return EXIT_OK


def _document(one: StageChanges) -> dict[str, Any]:
    return {
        "stage": one.stage,
        "step_id": one.step_id,
        "status": one.status,
        "told": one.told,
        "files": list(one.files),
        "count": one.total,
        "files_unknown": one.unknown,
        "patch": one.patch_path if one.patch() is not None else None,
        "warnings": list(one.warnings),
    }


def _patches(run_id: str, told: Sequence[StageChanges], *, alone: bool) -> None:
    """Print the patches byte for byte; of several, each under a line that git passes over."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    for one in told:
        if not alone:
            out.write(f"# {run_id} {one.stage}: {_counted(one)}\n".encode())
        out.write(one.patch() or b"")
    out.flush()


def _counted(one: StageChanges) -> str:
    if not one.told:
        return "nothing was written down" if one.ended else "not ended yet"
    return counted(one.total, "file")


def _say(told: Sequence[StageChanges]) -> None:
    """Say beside the result what it does not hold, on standard error."""
    for one in told:
        for said in _notes(one):
            output.note(f"{one.stage}: {said}")


def _notes(one: StageChanges) -> list[str]:
    if not one.told:
        return [_counted(one)]
    unknown = [f"only what tools were called for is known: {one.unknown}"] if one.unknown else []
    return [*unknown, *(one_line(said, 500) for said in one.warnings)]


def _stat(one: StageChanges) -> list[str]:
    lines = [f"{one.stage}  {_counted(one)}"]
    rows = [
        [visible(str(file["path"])).replace("\n", "␤"), str(file.get("change") or "by a tool"), _lines(file)]
        for file in one.files
    ]
    lines += [f"  {line}" for line in output.table(["FILE", "CHANGE", "LINES"], rows).splitlines()] if rows else []
    lines += [f"  ! {said}" for said in _notes(one)] if one.told else []
    return [*lines, ""]


def _lines(file: dict[str, Any]) -> str:
    added, removed = file.get("added"), file.get("removed")
    return f"+{added:,} -{removed:,}" if type(added) is int and type(removed) is int else ""
