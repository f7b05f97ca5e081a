"""A decision about a run that machines share: taken of its newest state, and sent to where it is driven."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loomctl.cli import output
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.runs.project import Workspace


@contextmanager
def carried(space: Workspace, named: str | None) -> Iterator[None]:
    """Have a run here as its remote has it, and send it there afterwards, if a fleet of several machines has it."""
    run_id = _shared(space, named)
    if run_id is None:
        yield
        return
    from loomctl.handoff import share

    share.bring(space, run_id, code=False)
    yield
    try:
        share.send(space, run_id)
    except LoomError as error:
        handle = space.store.handle(run_id)
        output.note(f"Loom: {handle} could not be sent to its remote: {error.what}\n  loomctl push {handle}")


def _shared(space: Workspace, named: str | None) -> str | None:
    """Give the run that is named, if its state says that machines share it."""
    if named is None:
        return None
    for run_id in space.store.run_ids():
        if named in (run_id, space.store.handle(run_id)):
            try:
                known = as_object(space.store.read_state(run_id).get("fleet"))
            except LoomError:
                return None
            return run_id if known.get("shared") is True else None
    return None
