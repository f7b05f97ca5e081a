"""What a stop of the assistant means for the step that it works on: a table of decisions, pure (D27, D28, D36)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Levels of autonomy under which a turn's end may end a step, and the one that asks for a result that is missing.
GOING_ON = ("guarded", "autonomous")
ASKING = "autonomous"

# What a message holds of what the step is to answer with.
ABSENT, FITS, UNFIT = "absent", "fits", "unfit"

# Outcomes that a person or the assistant gives, and that need no result to be believed (D36).
WITHOUT_RESULT = ("failed", "skipped")

# What a stop leads to.
KEEP = "keep"  # the message is kept as a candidate; nothing is blocked
END = "end"  # the message is the step's response
REPAIR = "repair"  # the assistant is asked for a result that fits
EXHAUSTED = "exhausted"  # it was asked often enough: the step fails
HAND = "hand"  # the next step was handed on, and not taken up: it is handed on again
ASK = "ask"  # the assistant is asked once how the step stands
WAIT = "wait"  # the run waits for its user's answer
PAUSE = "pause"  # a block is needed that the host would not honour, or that led to nothing too often
NOTHING = "nothing"


BLOCKS = (REPAIR, HAND, ASK)  # the verdicts that keep an assistant from stopping

# Question marks of scripts that set no blank behind them, or use no other; and what may stand behind the common one.
_QUESTION_MARKS = "\uff1f\u061f\u037e\u055e\u2047\u2048\u2049"
_CLOSING = "\"'`)]*_\u201d\u2019\u00bb"


class Stop(NamedTuple):
    """What is known at a stop of a session that is bound to a run.

    open: a visit that an assistant may end is open in a run that goes on; untold: it is another one than the session
    was told of. paused: its user has paused the run. closing: it is this session's to be closed by this message (D27).
    settled: an outcome was given that needs no result. driven: Loom drives the turn. planning: the host's plan mode;
    busy: work goes on in the background. spoken: the message has words for the step that the session was told of;
    questions: behind its last object it asks something. found: ABSENT, FITS or UNFIT; schema: the step asks for a
    result. repairs_left: corrective turns; asked: the assistant was asked in this turn, and has called no tool since;
    nudges_left: how often it may still be sent on or asked at this visit in this turn, whatever it calls; blocks_left:
    that the host would still honour.
    """

    level: str
    open: bool = True
    untold: bool = False
    paused: bool = False
    closing: bool = False
    settled: bool = False
    driven: bool = False
    planning: bool = False
    busy: bool = False
    spoken: bool = True
    questions: bool = False
    found: str = ABSENT
    schema: bool = False
    repairs_left: int = 0
    asked: bool = False
    nudges_left: int = 1
    blocks_left: int = 1

    @property
    def goes_on(self) -> bool:
        """Whether a turn's end may end a step at all."""
        return self.level in GOING_ON and not self.planning

    @property
    def has(self) -> str:
        """What the message has of a result; a question to the user is none, whatever stands before it (D27)."""
        return ABSENT if self.questions else self.found


# The first row that holds decides.
_TABLE: tuple[tuple[Callable[[Stop], bool], str], ...] = (
    # A plan in the making is no result, whatever is closing.
    (lambda stop: stop.closing and stop.planning, KEEP),
    # A step that was marked as closing ends with this message, whoever drives the turn; also in a run that its user
    # has paused, which goes no further by it, and in which nothing is asked for.
    (lambda stop: stop.closing and (stop.settled or not stop.schema or stop.found == FITS), END),
    (lambda stop: stop.closing and not stop.open, KEEP),
    (lambda stop: stop.closing, REPAIR),
    # The session was not told of the step that is open.
    (lambda stop: stop.untold and stop.driven and stop.goes_on and not stop.busy, HAND),
    (lambda stop: stop.untold, NOTHING),
    # A result that comes as the run is paused ends its step, as `done` would; the run goes no further by it.
    (lambda stop: stop.paused and stop.spoken and stop.goes_on and stop.has == FITS, END),
    # The run stands still otherwise, or only its user ends its steps.
    (lambda stop: not stop.open or not stop.goes_on, KEEP),
    (lambda stop: stop.has == FITS, END),
    (lambda stop: not stop.driven, KEEP),
    (lambda stop: stop.has == UNFIT, REPAIR),
    (lambda stop: stop.level != ASKING or stop.busy, KEEP),
    (lambda stop: stop.asked or stop.nudges_left <= 0, WAIT),
    (lambda _: True, ASK),
)


def decide(stop: Stop) -> str:
    """Decide on one stop: by the table, then by what is left of what its verdict takes."""
    verdict = next(verdict for holds, verdict in _TABLE if holds(stop))
    if verdict == KEEP and not stop.spoken:
        return NOTHING
    if verdict == REPAIR and stop.repairs_left <= 0:
        return EXHAUSTED
    if verdict == HAND and stop.nudges_left <= 0:
        return PAUSE
    return PAUSE if verdict in BLOCKS and stop.blocks_left <= 0 else verdict


def hands_on(*, level: str, driven: bool, planning: bool, goes_on: bool) -> bool:
    """Tell whether the assistant is handed the next step in the same turn, after one has ended by its stop (D27)."""
    return goes_on and driven and not planning and level in GOING_ON


def questions(message: str) -> bool:
    """Tell whether a message asks something behind its last object: by a question mark ("?" at a word's end)."""
    words = message[message.rfind("}") + 1 :]
    if any(mark in words for mark in _QUESTION_MARKS):
        return True
    return "?" in words and any(word.rstrip(_CLOSING).endswith("?") for word in words.split())
