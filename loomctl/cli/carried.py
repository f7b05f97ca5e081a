"""A decision about a run that machines share: taken of its newest state, and sent to where it is driven."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loomctl.cli import output
from loomctl.cli.command_line import QUEUE
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object
from loomctl.runs import find
from loomctl.runs.machine import run_notes
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import driving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.runs.project import Workspace


@contextmanager
def carried(space: Workspace, named: str | None) -> Iterator[bool]:
    """Have a run here as its remote has it, and send it there afterwards, if a fleet of several machines has it.

    Gives whether one has. To decide of such a run takes it up nowhere: hooks load nothing of it (D23).
    """
    run_id = _shared(space, named)
    if run_id is None:
        yield False
        return
    from loomctl.handoff import share

    yield share.bring(space, run_id, code=False).commit != ""  # else its state alone says that machines share it
    try:
        share.send(space, run_id)
    except LoomError as error:
        handle = space.store.handle(run_id)
        output.note(f"Loom: {handle} could not be sent to its remote: {error.what}\n  loomctl push {handle}")


def brought(space: Workspace, named: str | None) -> bool:
    """Have a run here that other machines of its fleet have alone, for a person who names it; tells whether one has."""
    run_id = _shared(space, named) if named and space.caller.host == TERMINAL else None
    if run_id is not None and not run_notes.is_known(run_id, space.store.folder):
        from loomctl.handoff import share

        return share.bring(space, run_id, code=False).commit != ""
    return run_id is not None


def _shared(space: Workspace, named: str | None) -> str | None:
    """Give the run that is named, if its state says that machines share it; one that never was here, by their queue.

    One that is not named is only meant where this machine took it up.
    """
    try:
        run_id = find.find(space, named).run_id
        state = {} if run_id is None else space.store.read_state(run_id)
    except LoomError as error:
        if error.code == "NO_SUCH_RUN" and named is not None and os.environ.get(QUEUE):
            from loomctl.cli.fleet import commands

            found = commands.opened(os.environ[QUEUE]).queue.find(named)
            return found[0].run_id if len(found) == 1 else None
        return None
    if named is None and run_id is not None and not run_notes.is_known(run_id, space.store.folder):
        return None
    is_shared = as_object(state.get(driving.FLEET)).get("shared") is True and not state.get("saved_from")
    return run_id if is_shared else None
