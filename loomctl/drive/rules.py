"""What a driver decides before and after each turn: go on, wait until, or end, with the reason (D73). Pure.

It believes the run's state before and after, and of the process what it was made to end for; never its exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.errors import EXIT_FINDINGS, EXIT_HELD, EXIT_LIMIT, EXIT_OK, EXIT_WAITS
from loomctl.kit.quick_json import as_object
from loomctl.runs.model import visits
from loomctl.runs.model.standing import DENIED, TRUST

if TYPE_CHECKING:
    from collections.abc import Mapping

DONE, FAILED, HELD, WAITS, LIMIT = EXIT_OK, EXIT_FINDINGS, EXIT_HELD, EXIT_WAITS, EXIT_LIMIT

# Why a turn ended.
FINE = "done"  # the assistant stopped by itself
INFRA = "infra"  # its API, its process or its host failed, or nothing was heard of it: it is tried again
QUOTA = "limit"  # a plan's or an account's, which lifts at a time
REFUSED = "refused"  # the API will not take the request, however often
STUCK = "stuck"  # the same again and again
SPENT = "spent"  # one of the driver's own limits
STOPPED = "stopped"  # by its user

TRIES = 5
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0  # seconds before the next try
IDLE_TURNS = 2  # without progress, one after the other


class Stand(NamedTuple):
    """How a run stands, as far as a driver looks.

    over: how many visits began; task: of the open step's list; repairs: how often its answer was asked for again;
    capped: it is paused because the host would not let its assistant be sent on any more, and not by a person.
    """

    status: str
    step: str = ""
    visit: int = 0
    stage: str = ""
    over: int = 0
    task: str = ""
    not_before: float = 0.0
    waits: str = ""
    why: str = ""
    capped: bool = False
    repairs: int = 0

    @property
    def place(self) -> tuple[str, int, int, str, int]:
        """What changes as the run makes progress; an answer is asked for again so often and no more (D36)."""
        return self.step, self.visit, self.over, self.task, self.repairs


class Turn(NamedTuple):
    """How an assistant's process ended.

    end: one of the words above; why: in words; until: since 1970, of a QUOTA; said: the assistant's last words;
    denied: what its host refused it; allowed_by: the settings that allow that, as far as any does; crashed: it ended
    without a word.
    """

    end: str
    why: str = ""
    until: float = 0.0
    said: str = ""
    denied: tuple[str, ...] = ()
    allowed_by: tuple[str, ...] = ()
    crashed: bool = False


class Tries(NamedTuple):
    """What came of the turns before. failed: in a row, by the API or the process; idle: without progress."""

    failed: int = 0
    idle: int = 0

    @classmethod
    def told(cls, ended: Mapping[str, Any]) -> Tries:
        """Read those of the drive before, which ended to wait for a time; none where it ended for anything else."""
        known = as_object(ended.get("tries"))
        return cls(*(one if type(one) is int and 0 <= one <= TRIES else 0 for one in map(known.get, cls._fields)))


class Verdict(NamedTuple):
    """What is done now.

    code: None to go on, else the exit code; why: a sentence; until: wait for this time before it, since 1970, or for
    so many seconds where it is less than 0; anew: in a new conversation; asks: the run is to wait for its user; cause:
    of the wait for a time at which a drive ends, in a word.
    """

    code: int | None
    why: str
    kind: str = ""
    until: float = 0.0
    anew: bool = False
    asks: bool = False
    tries: Tries = Tries()
    cause: str = ""


def stand(state: Mapping[str, Any], not_before: float = 0.0, *, capped: bool = False) -> Stand:
    """Read how a run stands. not_before: when its open step may be tried again, in seconds since 1970."""
    entry = visits.open_visit(state) or {}
    task, visit = as_object(entry.get("task")), entry.get("visit")
    return Stand(
        status=str(state.get("status")),
        step=str(entry.get("step_id") or state.get("current_step") or ""),
        visit=visit if type(visit) is int else 0,
        stage=str(entry.get("stage") or ""),
        over=sum(visits.counts(state).values()),
        task=str(task.get("number") or ""),
        not_before=not_before,
        waits=_waits(state),
        why=str(as_object(state.get("feedback")).get("message") or ""),
        capped=capped and state.get("status") == "paused",
        repairs=visits.repairs_of(entry),
    )


def _waits(state: Mapping[str, Any]) -> str:
    if state.get("status") != "awaiting_feedback":
        return ""
    if state.get("pending_approvals"):
        return "approval"
    kind = as_object(state.get("feedback")).get("kind")
    return kind if kind in (TRUST, DENIED) else "question"


def before(now: Stand, *, told: bool = False, first: bool = False) -> Verdict:
    """Decide before a turn. told: its user has said something that waits to be read; first: the driver was just called.

    Who calls the driver means a paused or failed run to go on, and one that lacked a permission, which it may have now.
    One that a person answers is none that the driver can.
    """
    if now.status == "completed":
        return Verdict(DONE, "the run is completed", "completed")
    if now.status == "cancelled":
        return Verdict(FAILED, "the run is cancelled", "cancelled")
    if now.status == "failed" and not first:
        return Verdict(FAILED, now.why or "a step failed for good", "failed")
    if now.status == "paused" and not now.capped and not first:
        return Verdict(WAITS, "the run is paused", "paused")
    if now.waits and not (now.waits == "question" and told) and not (now.waits == DENIED and first):
        why = f": {now.why}" if now.why and now.waits in ("question", DENIED) else ""
        return Verdict(WAITS, _WAITS[now.waits] + why, now.waits)
    return Verdict(None, "", until=now.not_before)


_WAITS = {
    "approval": "the run waits for your decision",
    "trust": "the run waits for your trust in its commands",
    "question": "the run waits for your answer",
    DENIED: "the run waits for a permission",
}


def after(was: Stand, now: Stand, turn: Turn, tries: Tries, *, told: bool = False) -> Verdict:
    """Decide after a turn. was, now: how the run stood before and stands; tries: before this turn."""
    moved = now.place != was.place
    idle = 0 if moved else tries.idle + 1
    ended = before(now, told=told)
    if turn.denied and (ended.kind in ("question", DENIED) or (ended.code is None and not moved and turn.end == FINE)):
        return Verdict(WAITS, f"the assistant was refused {_few(turn.denied)}", "denied")
    if ended.code is not None:
        return ended
    if turn.end == STOPPED:
        return Verdict(WAITS, turn.why, "stopped")
    if turn.end == SPENT:
        return Verdict(LIMIT, turn.why, "limit")
    if turn.end == REFUSED:
        return Verdict(FAILED, turn.why, "refused")
    if turn.end == QUOTA:
        return Verdict(None, turn.why, "limit", until=turn.until, tries=Tries(0, tries.idle))
    if turn.end == INFRA:
        failed = tries.failed + 1 if not moved else 1
        if failed > TRIES:
            return Verdict(FAILED, f"{turn.why}, {TRIES + 1} times in a row", "infra")
        pause = 0.0 if turn.crashed and failed == 1 else pause_after(failed)
        return Verdict(None, turn.why, "infra", until=-pause, anew=True, tries=Tries(failed, tries.idle))
    if idle >= IDLE_TURNS:
        return Verdict(WAITS, f"{IDLE_TURNS} turns in a row led nowhere", "stuck", asks=True)
    return Verdict(None, turn.why, until=ended.until, anew=turn.end == STUCK or idle > 0, tries=Tries(0, idle))


def pause_after(failed: int) -> float:
    """Give how long to wait after so many failures in a row, in seconds."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failed - 1, 20)))


def _few(words: tuple[str, ...]) -> str:
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def span(seconds: float) -> str:
    """Say a length of time."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:g} s"
