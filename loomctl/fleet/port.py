"""What a fleet asks of a queue: four verbs, and what people see of it.

Every queue passes the same suite, `tests/fleet/test_conformance.py`. A queue holds nothing that the runs do not: it can
be made anew from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.fleet.model import Lane, Limits, Progress, Row, Signed


class Worker(NamedTuple):
    """Who drives. id: unique for each start; slots: how many runs it drives at once; signed: seconds since 1970."""

    id: str
    machine: str
    slots: int
    signed: float = 0.0


class Standing(NamedTuple):
    """A lane as it stands. counts: by state; spent: USD; paused: why no run of it is given out, empty where one is."""

    lane: Lane
    counts: Mapping[str, int]
    spent: float
    paused: str = ""


class Hold(NamedTuple):
    """Until when no run is given out to an assistant, and why. until: seconds since 1970."""

    host: str
    until: float
    why: str


class Alike(NamedTuple):
    """Failures of one cause. handles: of a few of them, the newest first."""

    workflow: str
    signature: str
    number: int
    why: str
    handles: Sequence[str]


class Queue(Protocol):
    """Who may drive which run. Every call may raise QUEUE_GONE: nothing is lost then, and it can be tried again."""

    def offer(self, rows: Sequence[Row]) -> int:
        """Put runs in, or tell how they stand now; gives how many of them are news.

        A run that is driven stays as it is until it is settled, and so does one of which a later revision is known.
        Runs that wait for others (`after`) are let go as the last of these is done.
        """
        ...

    def claim(self, worker: Worker, limits: Limits) -> Row | None:
        """Take the run that is to be driven next: by priority, then in the order of their offers. None: there is none.

        None, too, where a limit is reached, or every lane that has some is paused or held.
        """
        ...

    def sign(self, worker: Worker, progress: Sequence[Progress]) -> Signed:
        """Say that a worker lives, and how far it has come."""
        ...

    def settle(self, worker: Worker, row: Row) -> bool:
        """Give a run back, as it stands now; False, and nothing is done, where another has it since.

        What the row says was asked stays until the run is offered as that left it.
        """
        ...

    def reap(self, limit: float) -> list[Row]:
        """Offer again what is driven by whoever has not signed for so many seconds; gives those runs."""
        ...

    def leave(self, worker: Worker) -> None:
        """Forget a worker that has settled all it had."""
        ...

    def may_look(self, every: float) -> bool:
        """Tell whether the caller is to look at what all share: of however many, one in so many seconds."""
        ...

    # ---- What people steer.

    def ask(self, run_id: str, what: str) -> bool:
        """Ask the worker that drives a run to CANCEL or PAUSE it, neither if empty; False where nobody drives it."""
        ...

    def hold(self, host: str, until: float, why: str) -> None:
        """Give out nothing to an assistant before a time: its account has met a limit that all share."""
        ...

    def pause(self, workflow: str, why: str) -> int:
        """Give out no run of a workflow; gives how many lanes that are. An empty why lets them go on."""
        ...

    def drop(self, run_ids: Sequence[str]) -> int:
        """Forget runs that nobody drives; gives how many."""
        ...

    def clear(self) -> None:
        """Forget every run of this repository, as if the queue were new."""
        ...

    # ---- What people see.

    def find(self, name: str) -> list[Row]:
        """Find runs by handle, id, or the beginning of either; a whole name is found alone."""
        ...

    def rows(self, states: Sequence[str], most: int | None = None) -> list[Row]:
        """Give runs in these states: what is to be done first comes first, of the others what changed last."""
        ...

    def standings(self) -> list[Standing]:
        """Give the lanes of this repository, at a cost that does not grow with their runs."""
        ...

    def holds(self) -> list[Hold]:
        """Give what is held back now."""
        ...

    def workers(self) -> list[Worker]:
        """Give the workers of this repository, the last that signed first."""
        ...

    def alike(self, most: int) -> list[Alike]:
        """Give failures, grouped by what they have in common, the most frequent first."""
        ...

    def clock(self) -> float:
        """Give the queue's own time, in seconds since 1970: those of machines differ."""
        ...
