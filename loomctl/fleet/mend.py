"""A queue and its runs held together: looked at again while they wait, compared, and the queue made anew (D78)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.fleet import here, runs, steer
from loomctl.fleet.model import AFTER, FAILED, HELD_BACK, OVER, PAUSED, STATES, WAITS
from loomctl.handoff import share
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object
from loomctl.runs.machine import run_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.fleet.model import Row
    from loomctl.fleet.port import Queue
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace


class Look:
    """What waits outside of the queue, looked at again and again: whoever answers a run tells no queue of it.

    travels: other machines have newer states; one that stands here since before the run came to wait tells nothing.
    """

    def __init__(self, space: Workspace, queue: Queue, *, travels: bool = False) -> None:
        self._space, self._queue, self._travels = space, queue, travels
        self._seen: dict[str, int] = {}  # when a state's file was written, as it was read last

    def again(self) -> int:
        """Offer those whose state was written since; gives how many are news. Raises QUEUE_GONE."""
        every = self._queue.rows(HELD_BACK)
        return self._queue.offer([row for one in every if (row := self._changed(one)) is not None])

    def _changed(self, row: Row) -> Row | None:
        try:
            if row.asked:
                if not self._travels:
                    steer.carry_out(self._space, self._queue, row)
                return None
            stamp = os.stat(self._space.store.home(row.run_id).state).st_mtime_ns
            if row.state != AFTER and self._seen.get(row.run_id) == stamp:
                return None
            if self._travels and stamp < row.since * 1e9:
                return None
            state = self._space.store.read_state(row.run_id)
        except (OSError, LoomError):
            return None
        self._seen[row.run_id] = stamp
        return row_here(self._space, state, row.lane.repository) if runs.is_in(state) else None


def look_there(space: Workspace, queue: Queue) -> int:
    """Offer those that changed on the remote since they were read; gives how many are news.

    One that cannot be brought keeps no other from it. Raises QUEUE_GONE, and as listing a remote does.
    """
    every = queue.rows(HELD_BACK)
    there = share.listed(space) if every else {}
    found = []
    for row in every:
        commit = there.get(row.run_id, row.commit)
        with contextlib.suppress(OSError, LoomError):  # one that cannot be read keeps no other from going on
            if row.asked:
                steer.carry_out(space, queue, row, travels=True)
            elif commit != row.commit:
                share.bring(space, row.run_id, theirs=commit, code=False)
                state = space.store.read_state(row.run_id)
                found.append(row_here(space, state, row.lane.repository)._replace(commit=commit))
    return queue.offer(found)


def row_here(space: Workspace, state: State, repository: str) -> Row:
    """Read how a run stands, without those before it that are done."""
    row = runs.row_of(state, repository)
    return row._replace(after=tuple(one for one in row.after if not _is_done(space, one)))


def _is_done(space: Workspace, run_id: str) -> bool:
    try:
        return bool(space.store.read_state(run_id)["status"] == "completed")
    except (OSError, LoomError):
        return False


class Difference(NamedTuple):
    """A run that its state and its queue tell of differently. queue, state: of STATES; empty where it is not there."""

    run_id: str
    handle: str
    queue: str
    state: str


def compare(
    space: Workspace, queue: Queue, repository: str, *, travels: bool = False
) -> tuple[list[Difference], list[Row]]:
    """Compare the queue with the runs, both ways; gives what differs, and the rows that mend it.

    What is driven just now counts as it stands in the queue. travels: the remote's states are brought before, which
    count. Raises as a remote does.
    """
    if travels:
        _bring(space)
    known = {row.run_id: row for row in queue.rows(STATES)}
    found: list[Difference] = []
    rows: list[Row] = []
    for state in runs.of_store(space, travels=travels):
        row = row_here(space, state, repository)
        there = known.pop(row.run_id, None)
        if there is None and row.state in OVER:  # it was cleaned away
            continue
        if there is None or not _agree(there, row):
            found.append(Difference(row.run_id, row.handle, there.state if there else "", row.state))
            rows.append(row)
    found += [Difference(row.run_id, row.handle, row.state, "") for row in known.values() if row.state != "driven"]
    return found, rows


def _agree(there: Row, row: Row) -> bool:
    waits = (WAITS, PAUSED, FAILED)
    if there.state in waits or row.state in waits or row.state in ("done", "cancelled"):
        return there.state in (row.state, "driven")
    return there.state not in ("done", "cancelled")


def mend(
    space: Workspace, queue: Queue, found: Sequence[Difference], rows: Sequence[Row], *, travels: bool = False
) -> None:
    """Make the queue tell what the runs do. travels: as of `rebuild`."""
    queue.offer(_sent(space, rows) if travels else rows)
    if travels:
        _forget_here(space, rows)
    queue.drop([one.run_id for one in found if not one.state])


def rebuild(space: Workspace, queue: Queue, repository: str, *, travels: bool = False) -> int:
    """Make the queue anew from the runs; gives how many are in it. Those that are over count with what they cost.

    travels: those of the remote, too, and it gets those that were this machine's alone. Raises as a remote does.
    """
    if travels:
        _bring(space)
    rows = [row_here(space, state, repository) for state in runs.of_store(space, travels=travels)]
    rows = _sent(space, rows) if travels else rows
    queue.clear()
    queue.offer(rows)
    if travels:
        _forget_here(space, rows)
    return len(rows)


def _forget_here(space: Workspace, rows: Sequence[Row]) -> None:
    """Take what machines share now out of the queue of this one, which would drive it a second time."""
    if os.path.exists(os.path.join(space.store.local, here.NAME)):
        here.Here(space, runs.repository_of(space)).drop([row.run_id for row in rows])


def _bring(space: Workspace) -> None:
    for run_id, commit in share.listed(space).items():
        with contextlib.suppress(OSError, LoomError):  # one that cannot be read keeps no other away
            share.bring(space, run_id, theirs=commit, code=False)


def _sent(space: Workspace, rows: Sequence[Row]) -> list[Row]:
    """Send what is this machine's alone, which no other could drive; gives the rows as they are then."""
    found = []
    for row in rows:
        if as_object(space.store.read_state(row.run_id)[runs.KEY]).get("shared"):
            found.append(row)
            continue
        if not run_notes.is_known(row.run_id, space.store.folder):  # it came with the project, and is nobody's here
            continue
        if row.state in OVER:
            found.append(row)
            continue
        state = runs.mark(space, row.run_id, shared=True)
        commit = share.send(space, row.run_id)
        found.append(row_here(space, state, row.lane.repository)._replace(commit=commit))
    return found
