"""`loomctl gc`: remove the blobs that no run refers to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli.shell import asking, printing
from loomctl.cli.shell.options import json_option
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.runs import blob_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.blob_collection import Blob, Collected, Look


@click.command()
@click.option("--dry-run", is_flag=True, help="List what would go, and remove nothing.")
@json_option
def gc(dry_run: bool, as_json: bool) -> int:
    """Remove the blobs that no run refers to: large values of runs that were removed, archived or overwritten.

    An archive has its own copies. What was stored within the last hour stays, and where a run cannot be read, all of
    them do. Exit code 1 if something could not be read or removed.

    \b
    Examples:
      loomctl gc --dry-run
      loomctl gc
    """
    space = asking.space()
    now = time.time()
    found = blob_collection.look(space, now=now)
    done = None if dry_run else blob_collection.collect(space, found, now=now)
    if as_json:
        printing.document(_document(found, done))
    else:
        printing.text("\n".join(_lines(found, done)))
    return EXIT_FINDINGS if found.unsure or (done is not None and done.failed) else EXIT_OK


def _document(found: Look, done: Collected | None) -> dict[str, Any]:
    going = found.going if done is None else done.removed
    return {
        "dry_run": done is None,
        "blobs": [_shown(blob) for blob in going],
        "bytes": _size(going),
        "kept": {"blobs": len(found.kept), "bytes": _size(found.kept)},
        "young": {"blobs": len(found.young), "bytes": _size(found.young)},
        "unsure": [{"where": where, "reason": reason} for where, reason in found.unsure],
        "failed": [{**_shown(blob), "reason": reason} for blob, reason in ([] if done is None else done.failed)],
    }


def _shown(blob: Blob) -> dict[str, Any]:
    return {"ref": blob.ref, "path": blob.path, "bytes": blob.bytes, "put_at": clock.stamp(blob.put)}


def _size(blobs: Sequence[Blob]) -> int:
    return sum(blob.bytes for blob in blobs)


def _lines(found: Look, done: Collected | None) -> list[str]:
    going = found.going if done is None else done.removed
    rows = [[f"{blob.bytes:,}", clock.stamp(blob.put), blob.ref] for blob in going]
    lines = [printing.table(["BYTES", "STORED", "BLOB"], rows)] if rows else []
    for blob, reason in () if done is None else done.failed:
        lines.append(f"not removed: {blob.path}: {one_line(reason, 200)}")
    for where, reason in found.unsure:
        lines.append(f"cannot be read: {one_line(where, 300)}: {one_line(reason, 200)}")
    if found.unsure:
        lines.append("Loom: all blobs stay, for what cannot be read may refer to them" + _staying("there", found))
    elif not going:
        lines.append("Loom: no blob is to be removed" + _staying("in use", found))
    elif done is None:
        lines.append(f"Loom: {_told(going)}, would go; nothing was removed" + _staying("in use", found))
    else:
        lines.append(f"Loom: removed {_told(going)}" + _staying("in use", found))
    return lines


def _staying(kept: str, found: Look) -> str:
    """Tell of the blobs that stay, by what keeps them; nothing where there are none."""
    parts = [(kept, found.kept), ("of the last hour", found.young)]
    told = "; ".join(f"{why}: {_told(blobs)}" for why, blobs in parts if blobs)
    return f" ({told})" if told else ""


def _told(blobs: Sequence[Blob]) -> str:
    return f"{counted(len(blobs), 'blob')}, {counted(_size(blobs), 'byte')}"
