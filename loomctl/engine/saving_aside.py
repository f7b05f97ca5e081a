"""One of two states of a run, made into a run of its own: whole, with its log and what was wrong with that (D53)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.disk import arrivals, clock, event_log, events, renaming
from loomctl.disk.events import Event
from loomctl.engine import verifying
from loomctl.model import ids
from loomctl.model.errors import LoomError
from loomctl.model.state import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.engine.caller import Workspace
    from loomctl.model.state import State

MINE, THEIRS = "mine", "theirs"
"""Whose state was saved: the one that was here, or the remote's."""


class Origin(NamedTuple):
    """Where a state comes from. run_id: of what run it is one; whose: MINE or THEIRS; remote: as people are shown it.

    told: of theirs: the machine and the person that pushed it.
    """

    run_id: str
    whose: str
    remote: str
    told: Mapping[str, str]


def save(space: Workspace, folder: str, state: State, origin: Origin) -> str:
    """Make what stands in a folder of one's own a run of its own, among the others; gives its id.

    state: as it is in the folder. Raises OSError, and what renaming a run raises.
    """
    store = space.store
    damage = _damage(folder, state, origin.run_id)
    told = {"from": origin.run_id, "whose": origin.whose, "remote": origin.remote, **origin.told}
    happened = [*damage, Event("run.saved_aside", told, space.caller.session_id)]
    saved = {"run_id": origin.run_id, "whose": origin.whose, "at": clock.now()}
    status = "pending" if state["status"] in ACTIVE else state["status"]
    changes: dict[str, Any] = {"status": status, "saved_from": saved}
    while True:
        new = ids.make_run_id(
            str(state["plan_id"]), clock.run_stamp(), lambda name: os.path.lexists(store.run_dir(name))
        )
        renaming.rename(folder, new, happened, changes)
        try:
            arrivals.sync(folder)
            arrivals.into_place(store, folder, new)
        except LoomError as error:
            if error.code != "RUN_EXISTS":
                raise
            continue
        return new


def _damage(folder: str, state: State, run_id: str) -> list[Event]:
    """Give what the copy's log tells of faults that its new chain would hide (D54)."""
    try:
        found = verifying.of_log(os.path.join(folder, events.FILE), run_id, state, event_log.every(folder))
    except LoomError:  # what cannot be read is not copied either
        return []
    told = verifying.handed_on(found)
    return [told] if told is not None else []
