"""What a stop of the assistant means for the step that it works on: a table of decisions, pure (D27, D28, D36)."""

from __future__ import annotations

from loomctl.model.records import NamedTuple

# Levels of autonomy under which a turn's end may end a step, and the one that asks for a result that is missing.
GOING_ON = ("guarded", "autonomous")
ASKING = "autonomous"

# What a message holds of what the step is to answer with.
ABSENT, FITS, UNFIT = "absent", "fits", "unfit"

# What a stop leads to.
KEEP = "keep"  # the message is kept as a candidate; nothing is blocked
END = "end"  # the message is the step's response
REPAIR = "repair"  # the assistant is asked for a result that fits
EXHAUSTED = "exhausted"  # it was asked often enough: the step fails
HAND = "hand"  # the next step was handed on, and not taken up: it is handed on again
ASK = "ask"  # the assistant is asked once how the step stands
WAIT = "wait"  # the run waits for its user's answer
PAUSE = "pause"  # a block is needed that the host would not honour
NOTHING = "nothing"


class Stop(NamedTuple):
    """What is known at a stop of a session that is bound to a run.

    open: a visit that an assistant may end is open in a run that goes on; untold: it is another one than the session
    was told of. closing: it is this session's to be closed by this message (D27). settled: an outcome was given that
    needs no result. driven: Loom drives the turn. planning: the host's plan mode; busy: work goes on in the background.
    spoken: the message has words. found: ABSENT, FITS or UNFIT; schema: the step asks for a result. repairs_left:
    corrective turns; asked: the assistant was asked in this turn, and has called no tool since; blocks_left: that the
    host would still honour.
    """

    level: str
    open: bool = True
    untold: bool = False
    closing: bool = False
    settled: bool = False
    driven: bool = False
    planning: bool = False
    busy: bool = False
    spoken: bool = True
    found: str = ABSENT
    schema: bool = False
    repairs_left: int = 0
    asked: bool = False
    blocks_left: int = 1


def decide(stop: Stop) -> str:
    """Decide on one stop."""
    if stop.closing:
        return _closing(stop)
    if stop.untold and stop.driven and not stop.planning and not stop.busy and stop.level in GOING_ON:
        return HAND if stop.blocks_left > 0 else PAUSE
    if stop.untold:
        return NOTHING
    if not stop.open:  # the run stands still: the message may be the step's when it goes on
        return KEEP if stop.spoken else NOTHING
    if stop.planning or stop.level not in GOING_ON:
        return KEEP if stop.spoken else NOTHING
    if stop.found == FITS:
        return END
    if not stop.driven:
        return KEEP if stop.spoken else NOTHING
    if stop.found == UNFIT:
        return _repair(stop)
    if stop.level != ASKING or stop.busy:
        return KEEP if stop.spoken else NOTHING
    if stop.asked:
        return WAIT
    return ASK if stop.blocks_left > 0 else PAUSE


def _closing(stop: Stop) -> str:
    """A step that was marked as closing ends with this message, whoever drives the turn."""
    if stop.settled or not stop.schema or stop.found == FITS:
        return END
    return _repair(stop)


def _repair(stop: Stop) -> str:
    if stop.repairs_left <= 0:
        return EXHAUSTED
    return REPAIR if stop.blocks_left > 0 else PAUSE


def hands_on(*, level: str, driven: bool, planning: bool, goes_on: bool) -> bool:
    """Tell whether the assistant is handed the next step in the same turn, after one has ended by its stop (D27)."""
    return goes_on and driven and not planning and level in GOING_ON
