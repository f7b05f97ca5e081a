"""`loomctl clean`: show what was left behind on this machine and which blobs no run refers to, and remove both."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from loomctl.care import clean as machine
from loomctl.cli import caller, output
from loomctl.cli.arguments import json_option
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.runs import blob_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.blob_collection import Blob


@click.command()
@click.option("--dry-run", is_flag=True, help="List what would go, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def clean(dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove what was left behind on this machine, and the blobs that no run refers to. A terminal asks first.

    Left behind: by killed processes, dead sessions, runs that are gone, older versions of Loom. Blobs are large values
    of runs that were removed, archived or overwritten; an archive has its own copies. What was stored within the last
    hour stays, and where a run cannot be read, all blobs do. Runs themselves stay whole, unless retention.outputs_days
    in config.yaml says how many days the outputs of runs that are over are kept. Nothing of a live session is touched.
    Exit code 1 if something could not be read or removed.

    \b
    Examples:
      loomctl clean --dry-run
      loomctl clean
    """
    space = caller.space()
    now = time.time()
    left, blobs = machine.look(space, now=now), blob_collection.look(space, now=now)
    is_asked = not (dry_run or yes or as_json) and sys.stdin.isatty() and sys.stderr.isatty()
    if is_asked and (left.items or (blobs.going and not blobs.unsure)):
        output.note("\n".join([*_machine_lines(left, None), *_blob_lines(blobs, None)]))
        if not output.is_agreed("Remove them?"):
            hint = "loomctl clean --yes"
            raise LoomError("NOT_CONFIRMED", "nothing was removed", hint=hint, exit_code=EXIT_USAGE)
    removal = None if dry_run else machine.clean(space, left)
    collected = None if dry_run else blob_collection.collect(space, blobs, now=now)
    if as_json:
        parts = {"machine": _machine_document(left, removal), "blobs": _blob_document(blobs, collected)}
        output.document({"dry_run": dry_run, **parts})
    else:
        output.text("\n".join([*_machine_lines(left, removal), *_blob_lines(blobs, collected)]))
    has_failed = bool((removal and removal.failed) or (collected and collected.failed))
    return EXIT_FINDINGS if blobs.unsure or has_failed else EXIT_OK


def _machine_document(look: machine.Look, removal: machine.Removal | None) -> dict[str, Any]:
    items = look.items if removal is None else removal.removed
    return {
        "items": [item._asdict() for item in items],
        "bytes": sum(item.bytes for item in items),
        "failed": [{**item._asdict(), "reason": reason} for item, reason in (removal.failed if removal else ())],
        "outputs_kept_bytes": look.outputs_kept,
    }


def _machine_lines(look: machine.Look, removal: machine.Removal | None) -> list[str]:
    items, failed = (look.items, ()) if removal is None else removal
    rows = [[item.kind, f"{item.bytes:,}", item.path, item.why] for item in items]
    lines = [output.table(["KIND", "BYTES", "PATH", "WHY"], rows)] if rows else []
    lines += [f"not removed: {one_line(item.path, 300)}: {one_line(reason, 200)}" for item, reason in failed]
    if look.outputs_kept:
        lines.append(f"outputs of runs that are over: {look.outputs_kept:,} bytes stay (retention.outputs_days)")
    size = f"{sum(item.bytes for item in items):,} bytes"
    if not items:
        return [*lines, "Loom: nothing was removed" if failed else "Loom: nothing is to be removed"]
    if removal is None:
        return [*lines, f"Loom: {len(items)} would go, {size}; nothing was removed"]
    return [*lines, f"Loom: {len(items)} removed, {size}"]


def _blob_document(look: blob_collection.Look, collected: blob_collection.Collected | None) -> dict[str, Any]:
    going, failed = (look.going, ()) if collected is None else collected
    return {
        "blobs": [_blob(blob) for blob in going],
        "bytes": _size(going),
        "kept": {"blobs": len(look.kept), "bytes": _size(look.kept)},
        "young": {"blobs": len(look.young), "bytes": _size(look.young)},
        "unsure": [{"where": where, "reason": reason} for where, reason in look.unsure],
        "failed": [{**_blob(blob), "reason": reason} for blob, reason in failed],
    }


def _blob(blob: Blob) -> dict[str, Any]:
    return {"ref": blob.ref, "path": blob.path, "bytes": blob.bytes, "put_at": clock.stamp(blob.put)}


def _blob_lines(look: blob_collection.Look, collected: blob_collection.Collected | None) -> list[str]:
    going, failed = (look.going, ()) if collected is None else collected
    rows = [[f"{blob.bytes:,}", clock.stamp(blob.put), blob.ref] for blob in going]
    lines = [output.table(["BYTES", "STORED", "BLOB"], rows)] if rows else []
    lines += [f"not removed: {blob.path}: {one_line(reason, 200)}" for blob, reason in failed]
    lines += [f"cannot be read: {one_line(where, 300)}: {one_line(reason, 200)}" for where, reason in look.unsure]
    staying = [("there" if look.unsure else "in use", look.kept), ("of the last hour", look.young)]
    told = "; ".join(f"{why}: {_count(blobs)}" for why, blobs in staying if blobs)
    stays = f" ({told})" if told else ""
    if look.unsure:
        return [*lines, f"Loom: all blobs stay, for what cannot be read may refer to them{stays}"]
    if not going:
        return [*lines, f"Loom: no blob is to be removed{stays}"]
    if collected is None:
        return [*lines, f"Loom: {_count(going)}, would go; nothing was removed{stays}"]
    return [*lines, f"Loom: removed {_count(going)}{stays}"]


def _size(blobs: Sequence[Blob]) -> int:
    return sum(blob.bytes for blob in blobs)


def _count(blobs: Sequence[Blob]) -> str:
    return f"{counted(len(blobs), 'blob')}, {counted(_size(blobs), 'byte')}"
