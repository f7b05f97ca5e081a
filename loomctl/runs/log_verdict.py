"""Whether a run's log is the one that was written: what `verify`, `check` and the doctor say of it (D54).

It proves that no line before the checkpoint was changed, dropped, added or moved since the state was written. It does
not prove who wrote them: whoever writes the log and the state anew writes a whole chain.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit.errors import EXIT_INVALID, LoomError, quoted
from loomctl.kit.text.fences import counted
from loomctl.runs.store import event_log, events, log_chain
from loomctl.runs.store.events import Event
from loomctl.runs.store.log_chain import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from loomctl.runs.store.event_log import Line
    from loomctl.runs.store.events import Head
    from loomctl.runs.store.log_chain import Place
    from loomctl.runs.store.store import Store

LOG_GONE = "LOG_GONE"
_COPY = "Loom has no other copy of it; look in your own backups"


class Verdict(NamedTuple):
    """What is proven of a run's log, and what is not.

    path: the log's; entries: how many it holds; checkpoint: the number of the last entry that the state remembers, None
    where it remembers none; proven: whether all entries up to it are those that were written. unproven: how many stand
    behind it, the first at `beyond`; torn: bytes at the end that are no entry, from `torn_at`: the next write closes
    them. told_torn: lines that a kill tore off, and that the log tells of. faults: the first of `total`, in the file's
    order.
    """

    run_id: str
    path: str
    entries: int
    checkpoint: int | None
    proven: bool
    unproven: int
    beyond: Place | None
    torn: int
    torn_at: Place | None
    told_torn: int
    faults: Sequence[Fault]
    total: int

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the log; what is unproven does not."""
        return not self.faults

    @property
    def fault(self) -> Fault | None:
        """The first place that does not fit."""
        return self.faults[0] if self.faults else None

    @property
    def summary(self) -> str:
        """Say how much of the log is proven, or the first thing that does not fit."""
        if self.fault is not None:
            return self.fault.what
        if self.checkpoint is None:
            return f"{counted(self.entries, 'event')} fit together, but the state names none of them"
        return f"{counted(self.entries - self.unproven, 'event')} proven, up to the last checkpoint"

    def to_dict(self) -> dict[str, Any]:
        """Give the verdict as `--json` prints it."""
        return {
            "run_id": self.run_id,
            "path": self.path,
            "ok": self.ok,
            "entries": self.entries,
            "checkpoint": self.checkpoint,
            "proven": self.proven,
            "unproven": {"entries": self.unproven, "first": self.beyond and self.beyond._asdict()},
            "torn": {"bytes": self.torn, "at": self.torn_at and self.torn_at._asdict()},
            "told_torn": self.told_torn,
            "fault": self.fault and self.fault._asdict(),
            "faults": [fault._asdict() for fault in self.faults],
            "faults_count": self.total,
        }


def verify(store: Store, run_id: str) -> Verdict:
    """Read a run's state, then its log from the beginning: what comes meanwhile is unproven, and no fault.

    Raises what reading the state does, UNSAFE_LINK, and UNREADABLE where the log is there and cannot be read.
    """
    state = store.read_state(run_id)
    folder = store.run_dir(run_id)
    return of_log(os.path.join(folder, events.FILE), run_id, state, event_log.every(folder))


def of_log(path: str, run_id: str, state: Mapping[str, Any] | None, lines: Iterable[Line]) -> Verdict:
    """Judge the lines of a log by what a state remembers of it; without a state they are judged by themselves.

    Raises UNREADABLE.
    """
    head = events.head_of((state or {}).get("ledger_head"))
    try:
        found = log_chain.walked(lines, head)
    except FileNotFoundError:
        return _gone(path, run_id, head)
    except OSError as error:
        what, why = "the run's log cannot be read", str(error.strerror or error)
        hint = f"ls -l {quoted(path)}"
        raise LoomError("UNREADABLE", what, where=path, why=why, hint=hint, exit_code=EXIT_INVALID) from None
    beyond = found.beyond
    return Verdict(
        run_id=run_id,
        path=path,
        entries=found.entries,
        checkpoint=head.seq if head else None,
        proven=head is not None and found.met and all(beyond and fault.at >= beyond.at for fault in found.faults),
        unproven=found.unproven,
        beyond=beyond,
        torn=found.torn,
        torn_at=found.torn_at,
        told_torn=found.told_torn,
        faults=found.faults,
        total=found.total,
    )


def handed_on(found: Verdict) -> Event | None:
    """Give what a copy whose chain is made anew says of its origin's log; None where that copy shows it itself."""
    if all(fault.code == log_chain.TOLD_DAMAGE for fault in found.faults) and found.total == len(found.faults):
        return None
    first = next((fault for fault in found.faults if fault.code != log_chain.TOLD_DAMAGE), found.faults[0])
    told = {"of": found.run_id, "line": first.line, "code": first.code, "what": first.what, "faults": found.total}
    return Event("ledger.damaged", told)


def warning(store: Store, run_id: str) -> str:
    """Say in one line that a run's log is not the one that was written; empty where it is, or cannot be judged."""
    try:
        fault = verify(store, run_id).fault
    except (OSError, LoomError):
        return ""
    where = f" at line {fault.line}" if fault is not None else ""
    return f"its log is damaged{where}; loomctl prove --log {store.handle(run_id)}" if fault is not None else ""


def _gone(path: str, run_id: str, head: Head | None) -> Verdict:
    seq = head.seq if head else 0
    what = f"the log is missing, but the state counts {seq:,} entries" if seq > 0 else "there is no log"
    faults = (Fault(LOG_GONE, 1, 0, None, what, _COPY),) if seq else ()
    return Verdict(
        run_id=run_id,
        path=path,
        entries=0,
        checkpoint=head.seq if head else None,
        proven=not faults and head is not None,
        unproven=0,
        beyond=None,
        torn=0,
        torn_at=None,
        told_torn=0,
        faults=faults,
        total=len(faults),
    )
