"""One of two states of a run, made into a run of its own: whole, with its log and what was wrong with that (D53)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit import clock, ids
from loomctl.kit.errors import LoomError
from loomctl.runs import log_verdict
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.store import arrivals, event_log, events
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State


class Origin(NamedTuple):
    """Where a state comes from. run_id: of what run it is one; whose: MINE or THEIRS; remote: as people are shown it.

    machine: where it was, or from where theirs was pushed; by: who pushed theirs, empty of mine.
    """

    run_id: str
    whose: str
    remote: str
    machine: str
    by: str

    def to_dict(self) -> dict[str, str]:
        """Give all but the run, what is empty left out."""
        return {key: value for key, value in self._asdict().items() if key != "run_id" and value}


def save(space: Workspace, folder: str, state: State, origin: Origin) -> str:
    """Make what stands in a folder of one's own a run of its own, among the others; gives its id.

    state: as it is in the folder. Raises OSError, and what renaming a run raises.
    """
    store = space.store
    damage = _damage(folder, state, origin.run_id)
    happened = [
        *damage,
        Event("run.saved_aside", {"from": origin.run_id, **origin.to_dict()}, space.caller.session_id),
    ]
    saved = {"run_id": origin.run_id, "at": clock.now(), **origin.to_dict()}
    status = "pending" if state["status"] in ACTIVE else state["status"]
    changes: dict[str, Any] = {"status": status, "saved_from": saved}
    while True:
        new = ids.make_run_id(
            str(state["plan_id"]), clock.run_stamp(), lambda name: os.path.lexists(store.run_dir(name))
        )
        arrivals.rename(folder, new, happened, changes)
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
        found = log_verdict.of_log(os.path.join(folder, events.FILE), run_id, state, event_log.every(folder))
    except LoomError:  # what cannot be read is not copied either
        return []
    told = log_verdict.handed_on(found)
    return [told] if told is not None else []
