"""What a fleet knows of a run, and what is decided from it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import clock, digests
from loomctl.kit.text.fences import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

# How a run stands in a queue.
QUEUED = "queued"  # a worker may take it
LATER = "later"  # queued before a time
AFTER = "after"  # other runs come first
DRIVEN = "driven"  # a worker has it
WAITS = "waits"  # for a person
PAUSED = "paused"
FAILED = "failed"
DONE = "done"
CANCELLED = "cancelled"
STATES = (DRIVEN, QUEUED, LATER, AFTER, WAITS, PAUSED, FAILED, DONE, CANCELLED)
OVER = (DONE, CANCELLED)
HELD_BACK = (AFTER, WAITS, PAUSED, FAILED)  # something outside of the queue lets it go on

PRIORITIES = range(1, 10)  # 1 comes first
MIDDLE = 5
IN_A_ROW = 3  # failures that are alike, one after the other, pause a workflow
LIMIT = 60.0  # seconds without a sign after which a worker counts as dead
OF_LIMIT = 0.7  # of it, after which a worker without a sign that arrived ends what it drives

CANCEL, PAUSE = "cancel", "pause"  # what is asked of the worker that drives a run


class Lane(NamedTuple):
    """What is paused, held and counted together: the runs of one workflow, with one assistant, in one repository."""

    repository: str
    host: str
    workflow: str

    @property
    def name(self) -> str:
        """Name it in 32 characters."""
        return digests.of_text("\0".join(self))[:32]


class Row(NamedTuple):
    """A run as its queue knows it. Texts are one line each, masked, and empty where nothing is known.

    revision: of its state, by which a later offer is told from an earlier one; state: of STATES; not_before, since,
    times: seconds since 1970, since: it stands so; after: run ids that come first; kind: what it waits for or why it
    failed, in a word; command: the one by which it goes on; cost: USD so far; commit: of the run on the remote, as this
    was read; worker, machine, attempt: who has it, for which time.
    """

    run_id: str
    handle: str
    goal: str
    lane: Lane
    revision: int
    state: str
    priority: int = MIDDLE
    not_before: float = 0.0
    after: tuple[str, ...] = ()
    kind: str = ""
    why: str = ""
    command: str = ""
    since: float = 0.0
    step: str = ""
    cost: float = 0.0
    commit: str = ""
    asked: str = ""
    worker: str = ""
    machine: str = ""
    attempt: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give it for documents."""
        told = {key: value for key, value in self._asdict().items() if key not in ("lane", "commit")}
        for key in ("since", "not_before"):
            told[key] = clock.stamp(told[key]) if told[key] else None
        return {**told, **self.lane._asdict(), "after": [*self.after], "signature": self.signature or None}

    @property
    def signature(self) -> str:
        """What failures that are alike have in common; empty for what has not failed."""
        return f"{self.kind}: {signature(self.why)}" if self.state == FAILED else ""


class Limits(NamedTuple):
    """How many runs may be driven at once, None for any number. per_host: by an assistant's name; each: of the others.

    fleet: in the whole queue; here: in this repository; cost: USD of this repository's runs together; hosts: the
    assistants that this machine has, None for any.
    """

    fleet: int | None = None
    here: int | None = None
    per_host: Mapping[str, int] = {}
    each: int | None = None
    cost: float | None = None
    hosts: frozenset[str] | None = None

    def of_host(self, host: str) -> int | None:
        """Give how many of an assistant may run at once."""
        if self.hosts is not None and host not in self.hosts:
            return 0
        return self.per_host.get(host, self.each)


class Progress(NamedTuple):
    """What a worker tells of a run that it drives."""

    run_id: str
    attempt: int
    cost: float
    step: str


class Signed(NamedTuple):
    """What a worker hears as it signs. lost: runs that it has no more; asked: what is asked, by run; spent: USD."""

    lost: frozenset[str]
    asked: Mapping[str, str]
    spent: float


_LONG = 300
_VARYING = re.compile(
    r"(?:/[\w.@+-]+)+/?"  # paths
    r"|\b[0-9a-f]{7,}\b"  # hashes
    r"|\d+(?:[.:,T-]\d+)*Z?",  # numbers and times
)


def signature(why: str) -> str:
    """Give what failures of one cause have in common: the words, without paths, numbers and hashes."""
    return _VARYING.sub("…", one_line(why, _LONG).lower())
