"""How results reach people and scripts: text, or one JSON document with a schema version (D52)."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from loomctl.cli.shell import output
from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import mask


def document(value: dict[str, Any]) -> None:
    """Print one JSON document, its schema version first."""
    click.echo(output.rendered(value))


def plain(value: Any) -> None:
    """Print a JSON value, its secrets masked (D21) and nothing in it raw."""
    click.echo(output.plain(value))


def text(value: str = "", **style: Any) -> None:
    """Print text, its secrets masked (D21); what a terminal would obey instead of show is made visible.

    style: click's, such as bold=True; only on a terminal, and not under NO_COLOR.
    """
    bare = not style or os.environ.get("NO_COLOR") or not sys.stdout.isatty()
    shown = visible(mask(value)[0])
    click.echo(shown if bare else click.style(shown, **style))


def unmasked(value: str, *, err: bool = False) -> None:
    """Print text as it is but for what a terminal would obey: for whoever is to judge the whole of it."""
    click.echo(visible(value), err=err)


def note(value: str) -> None:
    """Print a line beside the result, on standard error."""
    click.echo(visible(mask(value)[0]), err=True)


def confirmed(question: str) -> bool:
    """Ask a person at a terminal, on standard error; who breaks off, or has nothing more to say, does not agree."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False


def table(header: list[str], rows: list[list[str]]) -> str:
    """Set rows under a header, columns aligned, two spaces between."""
    cells = [header, *[[visible(cell).replace("\n", " ") for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)
