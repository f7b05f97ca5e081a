"""How results reach people and scripts: text, or one JSON document with a schema version (D52)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from loomctl.model.fences import visible

SCHEMA_VERSION = 1


def document(value: dict[str, Any]) -> None:
    """Print one JSON document."""
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **value}, ensure_ascii=False, indent=1))


def text(value: str = "", **style: Any) -> None:
    """Print text; what a terminal would obey instead of show is made visible.

    style: click's, such as bold=True; only on a terminal, and not under NO_COLOR.
    """
    plain = not style or os.environ.get("NO_COLOR") or not sys.stdout.isatty()
    click.echo(visible(value) if plain else click.style(visible(value), **style))


def note(value: str) -> None:
    """Print a line beside the result, on standard error."""
    click.echo(visible(value), err=True)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Set rows under a header, columns aligned, two spaces between."""
    cells = [header, *[[visible(cell).replace("\n", " ") for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)
