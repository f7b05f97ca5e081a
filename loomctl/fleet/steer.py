"""What people do with runs of a fleet: cancel, pause, let go on, try again."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil

from loomctl.drive.process import GRACE
from loomctl.fleet import runs
from loomctl.fleet.model import CANCEL, OVER
from loomctl.flow import stop as flow
from loomctl.kit.errors import EXIT_FINDINGS, LoomError
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.store.write_rules import STARTED_FOR

if TYPE_CHECKING:
    from loomctl.fleet.model import Row
    from loomctl.fleet.port import Queue
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace

CANCELLABLE = (*ACTIVE, "pending", "failed")
MARK = "LOOM_FLEET"  # in the environment of a drive: the run and the attempt for which it was started


def stop(space: Workspace, queue: Queue, row: Row, what: str) -> bool:
    """Cancel or pause a run; False where the worker that drives it does so. Raises RUN_OVER."""
    if row.state in OVER:
        why = "what is over cannot be changed"
        raise LoomError(
            "RUN_OVER", f"the run {row.handle} is {row.state}", why=why, hint="loomctl fleet", exit_code=EXIT_FINDINGS
        )
    if queue.ask(row.run_id, what):
        return False
    queue.offer([runs.row_of(carry_out(space, row.run_id, what), row.lane.repository)])
    return True


def carry_out(space: Workspace, run_id: str, what: str) -> State:
    """Cancel a run, or pause it for the fleet alone, in its state; gives that."""
    if what == CANCEL:
        return flow.set_standing(space, run_id, "cancelled", "run.cancelled", allowed=CANCELLABLE).state
    return runs.mark(space, run_id, paused=True, again=None)


def let_go(space: Workspace, queue: Queue, row: Row) -> Row:
    """Let a run go on that is paused, failed or at a limit, as its user means it to; gives how it stands then."""
    state = runs.mark(space, row.run_id, paused=None, failed=None, again=True)
    made = runs.row_of(state, row.lane.repository)
    queue.offer([made])
    return made


def end_earlier(run_id: str, attempt: int) -> int:
    """End drives of earlier attempts that still stand here: a stopped one cannot end itself; gives how many.

    Their keepers end what they started.
    """
    found: dict[int, psutil.Process] = {}
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environ = one.environ() if one.pid != os.getpid() else {}
            name, _, number = environ.get(MARK, "").partition(" ")
            if name == run_id and number != str(attempt) and STARTED_FOR not in environ:
                found[one.pid] = one
    roots = []
    for one in found.values():
        with contextlib.suppress(psutil.Error):
            if one.ppid() not in found:
                roots.append(one)
                one.kill()
    psutil.wait_procs(found.values(), timeout=GRACE)
    return len(roots)
