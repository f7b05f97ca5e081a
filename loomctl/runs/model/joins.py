"""How the branches of a parallel step come together: when they do, and what the step's outcome is then (D43)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_ALL, FIRST_SUCCESS, ANY = "wait_all", "first_success", "any"
JOINS = (WAIT_ALL, FIRST_SUCCESS, ANY)
SUCCEEDED, FAILED, PARTIAL, SKIPPED = "succeeded", "failed", "partially_succeeded", "skipped"
# A branch's: before its first step, and of one that a join went on without; and all that there are.
PENDING, CANCELLED = "pending", "cancelled"
ENDED = (SUCCEEDED, FAILED, PARTIAL, SKIPPED, CANCELLED)
STATUSES = (PENDING, "in_progress", "awaiting_feedback", *ENDED)


class Joined(NamedTuple):
    """outcome: of the parallel step; merged: the places of the branches whose contexts it takes over, as declared."""

    outcome: str
    merged: Sequence[int]


def joined(join: str, outcomes: Sequence[str | None]) -> Joined | None:
    """Say what a join comes to; None: it is waited for.

    outcomes: of each branch as declared, None of one that has not ended. It is asked whenever a branch ends, so what is
    the first to end, or to succeed, is the only one; of several the one that was declared first counts.

    `wait_all` waits for all: succeeded if all are, failed if all did, skipped if all were, else partially_succeeded
    where one failed or is partial. `first_success` goes on with the first that succeeded, and with it alone; where none
    did it is as `wait_all`. `any` goes on with the first that ended, however it did.
    """
    for index, outcome in enumerate(outcomes):
        if (join == ANY and outcome is not None) or (join == FIRST_SUCCESS and outcome == SUCCEEDED):
            return Joined(str(outcome), (index,))
    if any(outcome is None for outcome in outcomes):
        return None
    return Joined(_of_all({str(outcome) for outcome in outcomes}), tuple(range(len(outcomes))))


def _of_all(outcomes: set[str]) -> str:
    if len(outcomes) == 1:
        return outcomes.pop()
    return PARTIAL if outcomes & {FAILED, PARTIAL} else SUCCEEDED
