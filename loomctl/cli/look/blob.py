"""`loomctl blob`: the large values that a run refers to by their hash."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import caller, output
from loomctl.cli.arguments import json_option
from loomctl.kit import files
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.counts import counted
from loomctl.runs import not_here
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs

if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace


@click.group()
def blob() -> int:
    """Large values of a run's context, stored once by their SHA-256 and named blob://sha256/….

    \b
    Example:
      loomctl blob get blob://sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
    """
    return EXIT_OK


@blob.command()
@click.argument("ref")
@click.option("--out", type=click.Path(), metavar="FILE", help="Into a file that is not there yet.")
@click.option("--text", "as_text", is_flag=True, help="The text itself, where the value is one.")
@json_option
def get(ref: str, out: str | None, as_text: bool, as_json: bool) -> int:
    """Print what a blob holds, byte for byte, after its bytes were held against its hash.

    It is a value's compact JSON; with --text a text comes with its lines. Nothing is added and nothing masked. With
    --json: what is known of it.

    \b
    Examples:
      loomctl blob get blob://sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
      loomctl blob get blob://sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 --out value.json
    """
    space = caller.space()
    try:
        data = Blobs(space.store.folder).get(ref)
    except LoomError as error:
        raise not_here.of_blob(error, space.store.folder, ref) from None
    kind = _kind(data)
    told: dict[str, Any] = {"ref": ref, "sha256": blobs.sha256_of(ref), "bytes": len(data), "value": kind}
    told["path"] = _path(space, ref)
    if as_text:
        data = _text(data, kind, ref)
    if out is not None:
        told["out"] = os.path.abspath(out)
        _write(told["out"], data, ref)
    if as_json:
        output.document(told)
    elif out is not None:
        output.text(f"Loom: {counted(len(data), 'byte')} written to {told['out']}")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return EXIT_OK


def _path(space: Workspace, ref: str) -> str:
    return Blobs(space.store.folder).path(ref)


def _kind(data: bytes) -> str:
    """Name what JSON a blob holds: text, object, array, number, boolean, null; bytes where it is none."""
    try:
        value = files.parse_json(data, where="")
    except LoomError:
        return "bytes"
    names = {str: "text", dict: "object", list: "array", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _text(data: bytes, kind: str, ref: str) -> bytes:
    if kind != "text":
        raise LoomError(
            "NO_TEXT",
            f"the blob holds no text, but {kind}",
            where=ref,
            why="without --text it is printed as it is stored",
            hint=f"loomctl blob get {ref}",
            exit_code=EXIT_USAGE,
        )
    text: str = files.parse_json(data, where=ref)
    return text.encode("utf-8", "surrogatepass")


def _write(path: str, data: bytes, ref: str) -> None:
    if os.path.lexists(path):
        raise LoomError(
            "FILE_EXISTS",
            "there is a file of that name already",
            where=path,
            hint=f"loomctl blob get {ref} --out {quoted(path + '.new')}",
            exit_code=EXIT_USAGE,
        )
    files.write_atomically(path, data)
