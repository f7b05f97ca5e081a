"""What whoever looks on is shown of a drive, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.drive.account import Sum
    from loomctl.drive.rules import Stand
    from loomctl.drive.watch import Limits, Watch
    from loomctl.runs.store.store import Run


class Seen(NamedTuple):
    """What whoever looks on is shown: how the run stands, and the turn as far as it has come.

    seconds: since the driver began; asked: to end, `turn`, `step` or `now`; what: `turn.started`, `turn.ended` or
    `waiting` has just come, and told says more of it; else empty.
    """

    run: Run
    stand: Stand
    turn: int
    watch: Watch | None
    spent: Sum
    limits: Limits
    seconds: float = 0.0
    asked: str = ""
    what: str = ""
    told: Mapping[str, Any] = {}


class Ended(NamedTuple):
    """How a drive ended: the exit code, of what kind, why, and the run; rules: what must be allowed for it to go on.

    notes: lines for its user; until: when it may go on, where it waits for a time, else empty; unsent: why its end
    could not be sent to the remote that it is shared by.
    """

    code: int
    kind: str
    why: str
    run: Run
    rules: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    until: str = ""
    unsent: str = ""
