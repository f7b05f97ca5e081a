"""`loomctl status --watch`: the screen that follows a run."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from loomctl.cli import output
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text import fences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomctl.runs.project import Workspace

_SECONDS, _SHORTEST, _LONGEST = 2.0, 0.1, 3600  # between two looks at a run
_CLEAR = "\033[2J"


def meant(run: str | None, given: str, *, as_json: bool) -> tuple[str | None, float]:
    """Give the run and the seconds between two looks; `--watch RUN` means a run. Raises USAGE."""
    if as_json or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        what, why = "--watch needs a terminal that it can draw on", "a script reads status --json, or loomctl events -f"
        raise LoomError("USAGE", what, why=why, hint="loomctl status", exit_code=EXIT_USAGE)
    try:
        seconds = float(given or _SECONDS)
    except ValueError:
        if run is None:
            return given, _SECONDS
        seconds = 0.0
    if _SHORTEST <= seconds <= _LONGEST:
        return run, seconds
    what, hint = f"--watch takes {_SHORTEST} to {_LONGEST:,} seconds, not {given!r:.40}", "loomctl status --watch"
    raise LoomError("USAGE", what, hint=hint, exit_code=EXIT_USAGE)


def follow(
    space: Workspace, run_id: str, seconds: float, screen: Callable[[Workspace, str, float], Sequence[tuple[str, str]]]
) -> int:
    """Draw a run's screen anew where the state's file or the terminal has changed, or a minute has passed.

    screen: gives the lines with their colours.
    """
    seen: tuple[object, ...] = ()
    size: tuple[int, int] = (0, 0)
    try:
        while True:
            now, was = time.time(), size
            size = (output.columns(), os.get_terminal_size(sys.stdout.fileno()).lines or 25)
            looked = (_stamp(space, run_id), int(now // 60), size)
            if looked != seen:
                _draw(screen(space, run_id, now), *size, is_new=size != was)
                seen = looked
            time.sleep(seconds)
    except KeyboardInterrupt:
        click.echo()
        return EXIT_OK


def _stamp(space: Workspace, run_id: str) -> tuple[int, ...]:
    """Give what differs once a state was written; nothing where it is gone, which whoever reads it says."""
    try:
        status = os.stat(space.store.home(run_id).state)
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _draw(lines: Sequence[tuple[str, str]], wide: int, high: int, *, is_new: bool) -> None:
    """Write a screen over the one before: as many lines as there is room for, and how it is ended."""
    room, shown = high - 3, []
    for line, colour in lines:
        room -= max(1, -(-fences.width(line) // wide))
        if room < 0:
            break
        shown.append(output.shown(line, colour))
    drawn = "".join(f"\033[K{line}\n" for line in [*shown, "", "Ctrl-C ends this."])
    click.echo(f"\033[H{_CLEAR if is_new else ''}{drawn}\033[J", nl=False)
