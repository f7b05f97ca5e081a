"""`loomctl tidy`: show what was left behind on this machine, and remove it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from loomctl.care import tidy as tidying
from loomctl.cli.shell import asking, printing
from loomctl.cli.shell.options import json_option
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.kit.text.fences import one_line

if TYPE_CHECKING:
    from loomctl.care.tidy import Item, Look, Tidied


@click.command()
@click.option("--dry-run", is_flag=True, help="List what would go, and remove nothing.")
@json_option
def tidy(dry_run: bool, as_json: bool) -> int:
    """Remove what was left behind: by killed processes, dead sessions, runs that are gone, older versions of Loom.

    Runs themselves stay whole, unless retention.outputs_days in config.yaml says how many days the outputs of runs
    that are over are kept. Nothing of a live session is touched. Exit code 1 if something could not be removed.

    \b
    Examples:
      loomctl tidy --dry-run
      loomctl tidy
    """
    space = asking.space()
    found = tidying.look(space, now=time.time())
    done = None if dry_run else tidying.tidy(space, found)
    if as_json:
        printing.document(_document(found, done))
    else:
        printing.text("\n".join(_lines(found, done)))
    return EXIT_FINDINGS if done is not None and done.failed else EXIT_OK


def _document(found: Look, done: Tidied | None) -> dict[str, Any]:
    items = found.items if done is None else done.removed
    failed = [] if done is None else done.failed
    return {
        "dry_run": done is None,
        "items": [item._asdict() for item in items],
        "bytes": sum(item.bytes for item in items),
        "failed": [{**item._asdict(), "reason": reason} for item, reason in failed],
        "outputs_kept_bytes": found.outputs_kept,
    }


def _lines(found: Look, done: Tidied | None) -> list[str]:
    items = found.items if done is None else done.removed
    lines = [printing.table(["KIND", "BYTES", "PATH", "WHY"], [_row(item) for item in items])] if items else []
    for item, reason in () if done is None else done.failed:
        lines.append(f"not removed: {one_line(item.path, 300)}: {one_line(reason, 200)}")
    if found.outputs_kept:
        lines.append(f"outputs of runs that are over: {found.outputs_kept:,} bytes stay (retention.outputs_days)")
    size = f"{sum(item.bytes for item in items):,} bytes"
    if not items:
        lines.append(
            "Loom: nothing is to be removed" if done is None or not done.failed else "Loom: nothing was removed"
        )
    elif done is None:
        lines.append(f"Loom: {len(items)} would go, {size}; nothing was removed")
    else:
        lines.append(f"Loom: {len(items)} removed, {size}")
    return lines


def _row(item: Item) -> list[str]:
    return [item.kind, f"{item.bytes:,}", item.path, item.why]
