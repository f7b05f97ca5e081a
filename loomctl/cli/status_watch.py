"""`loomctl status --watch`: the screen that follows a run."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from loomctl.cli import following
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomctl.runs.project import Workspace

_SECONDS, _SHORTEST, _LONGEST = 2.0, 0.1, 3600  # between two looks at a run


def meant(run: str | None, given: str, *, as_json: bool) -> tuple[str | None, float]:
    """Give the run and the seconds between two looks; `--watch RUN` means a run. Raises USAGE."""
    if as_json or not following.may_draw():
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
            size = following.size()
            looked = (_stamp(space, run_id), int(now // 60), size)
            if looked != seen:
                following.draw(screen(space, run_id, now), *size, is_new=size != was)
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
