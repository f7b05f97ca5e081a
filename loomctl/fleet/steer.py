"""What people do with runs of a fleet: cancel, pause, let go on, try again."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import psutil

from loomctl.drive.process import is_keeper
from loomctl.fleet import runs
from loomctl.fleet.model import CANCEL, OVER
from loomctl.flow import stop as flow
from loomctl.handoff import share
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.store.write_rules import STARTED_FOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomctl.fleet.model import Row
    from loomctl.fleet.port import Queue
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace

CANCELLABLE = (*ACTIVE, "pending", "failed")
_DYING = 1.0  # seconds that what was killed may take
_CARRIED_OUT = 20.0  # seconds that who drove a run may take to write down what was asked
MARK = "LOOM_FLEET"  # in the environment of a drive: the run and the attempt for which it was started


def stop(space: Workspace, queue: Queue, row: Row, what: str, *, travels: bool = False) -> bool:
    """Cancel or pause a run; False where the worker that drives it sees to it. Raises BAD_STATUS.

    travels: the run is taken from its remote before, and sent there again; raises as these do.
    """
    if row.state in OVER:
        said, why = f"the run {row.handle} is {row.state}", "it is over, so nothing of it is left to be changed"
        raise LoomError("BAD_STATUS", said, why=why, hint="loomctl fleet", exit_code=EXIT_USAGE)
    if queue.ask(row.run_id, what):
        return False

    def change() -> State:
        if what == CANCEL:
            return flow.set_standing(space, row.run_id, "cancelled", "run.cancelled", allowed=CANCELLABLE).state
        return runs.mark(space, row.run_id, paused=True, again=None)

    _changed(space, queue, row, change, travels=travels)
    return True


def carry_out(space: Workspace, queue: Queue, row: Row, *, travels: bool = False) -> None:
    """Do what was asked of who drove a run, if they have not in time: they died, or their remote was away.

    Raises as `stop`.
    """
    if queue.clock() - row.since > _CARRIED_OUT:
        stop(space, queue, row, row.asked, travels=travels)


def let_go(space: Workspace, queue: Queue, row: Row, *, travels: bool = False) -> Row:
    """Let a run go on that is paused, failed or at a limit, as its user means it to; gives how it stands then."""
    if queue.ask(row.run_id, ""):  # it is driven, and what was asked of its worker is not any more
        return next(iter(queue.find(row.run_id)), row)
    until = time.monotonic() + _CARRIED_OUT
    while travels and row.asked and time.monotonic() < until:  # who drove it writes that down just now
        time.sleep(0.2)
        row = next(iter(queue.find(row.run_id)), row)

    def change() -> State:
        return runs.mark(space, row.run_id, paused=None, failed=None, again=True)

    return _changed(space, queue, row, change, travels=travels)


def _changed(space: Workspace, queue: Queue, row: Row, change: Callable[[], State], *, travels: bool) -> Row:
    commit = row.commit
    if travels:
        share.bring(space, row.run_id, code=False)
    made = runs.row_of(change(), row.lane.repository)
    if travels:
        commit = share.send(space, row.run_id)
    made = made._replace(commit=commit)
    queue.offer([made])
    return next(iter(queue.find(made.run_id)), made)


def mark_of(row: Row) -> str:
    """Give what marks a drive in its environment: its run, in this repository, and its attempt."""
    return f"{row.lane.repository}/{row.run_id} {row.attempt}"


def end_earlier(row: Row) -> int:
    """End drives of earlier attempts that still stand here: a stopped one cannot end itself; gives how many.

    Their keepers live on, and end what the drives started. That takes a while, for which nobody has to wait here.
    """
    ended = []
    name, _, number = mark_of(row).partition(" ")
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environ = one.environ() if one.pid != os.getpid() else {}
            known, _, attempt = environ.get(MARK, "").partition(" ")
            if known != name or attempt == number or STARTED_FOR in environ:
                continue
            if is_keeper(one):
                one.resume()
            else:
                one.kill()
                ended.append(one)
    psutil.wait_procs(ended, timeout=_DYING)
    return len(ended)
