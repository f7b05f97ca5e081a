"""How results reach people and scripts: text, or one JSON document with a schema version (D52)."""

from __future__ import annotations

import codecs
import json
import os
import sys
from typing import Any

import click

from loomctl.model.fences import visible, visible_in_json
from loomctl.model.secrets import mask, masked

SCHEMA_VERSION = 1


def document(value: dict[str, Any]) -> None:
    """Print one JSON document in UTF-8.

    All beyond ASCII is escaped where the stream speaks something else, or where half a character stands in it, as in
    the name of a folder that is no UTF-8: a reader gets back what was meant, never a `?`.
    """
    plain({"schema_version": SCHEMA_VERSION, **value})


def plain(value: Any) -> None:
    """Print a JSON value, its secrets masked (D21) and nothing in it raw."""
    shown = masked(value)
    printed = visible_in_json(json.dumps(shown, ensure_ascii=False, indent=1))
    click.echo(printed if _goes_out_whole(printed) else json.dumps(shown, indent=1))


def _goes_out_whole(printed: str) -> bool:
    try:
        printed.encode()
        return codecs.lookup(sys.stdout.encoding).name == "utf-8"
    except (UnicodeEncodeError, LookupError):
        return False


def text(value: str = "", **style: Any) -> None:
    """Print text, its secrets masked (D21); what a terminal would obey instead of show is made visible.

    style: click's, such as bold=True; only on a terminal, and not under NO_COLOR.
    """
    bare = not style or os.environ.get("NO_COLOR") or not sys.stdout.isatty()
    shown = visible(mask(value)[0])
    click.echo(shown if bare else click.style(shown, **style))


def note(value: str) -> None:
    """Print a line beside the result, on standard error."""
    click.echo(visible(mask(value)[0]), err=True)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Set rows under a header, columns aligned, two spaces between."""
    cells = [header, *[[visible(cell).replace("\n", " ") for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)
