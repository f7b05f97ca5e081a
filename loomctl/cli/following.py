"""A screen that follows what it shows: drawn over the one before until a person ends it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli import output
from loomctl.kit.text import fences

if TYPE_CHECKING:
    from collections.abc import Iterable

_CLEAR = "\033[2J"
_HIGH = 25  # rows of a terminal that does not say how many it has


def may_draw() -> bool:
    """Tell whether standard output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def size() -> tuple[int, int]:
    """Give how many columns and rows there are to draw on."""
    return output.columns(), os.get_terminal_size(sys.stdout.fileno()).lines or _HIGH


def draw(lines: Iterable[tuple[str, str]], wide: int, high: int, *, is_new: bool) -> None:
    """Write a screen over the one before: as many lines as there is room for, and how it is ended.

    lines: with the style of each; is_new: what stands there is no screen of this size.
    """
    room, shown = high - 3, []
    for line, colour in lines:
        room -= max(1, -(-fences.width(line) // wide))
        if room < 0:
            break
        shown.append(output.shown(line, colour))
    drawn = "".join(f"\033[K{line}\n" for line in [*shown, "", "Ctrl-C ends this."])
    click.echo(f"\033[H{_CLEAR if is_new else ''}{drawn}\033[J", nl=False)
