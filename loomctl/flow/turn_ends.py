"""The end of a turn: what a stop means for the step that is worked on, and what ends one that is closing (D27-D36)."""

from __future__ import annotations

from loomctl.flow.outcomes.directives import ABSENT, FITS, UNFIT
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.runs import stages
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import lease, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from loomctl.flow.finish_records import Ended, Gathered, Given
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Conversation, Workspace
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Run

# Levels of autonomy under which a turn's end may end a step, and the one that asks for a result that is missing.
GOING_ON = ("guarded", "autonomous")
ASKING = "autonomous"

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


# ---- A step that is closing waits for its response: the final message of who marked it (D27).


_WORDS = {
    "conversation": "with your final message as its result",
    "transcript": "with the messages since its start as its result",
    "candidate": "with the last message that Loom kept as its result",
    "none": "without a result: Loom could read no message since its start",
}


class Ready(NamedTuple):
    """What a closing visit is to be ended with, and what was found out about its end."""

    given: Given
    known: Gathered


def ready(space: Workspace, run: Run, state: Mapping[str, Any]) -> Ready | None:
    """Find the response of the visit that is closing; None where none is, or the run is over (D4). Takes no lock.

    It is the transcript's text since the step began, else the last candidate, else none.
    """
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing" or state["status"] in OVER:
        return None
    from loomctl.changes import track
    from loomctl.flow import finish  # of most visits none is closing
    from loomctl.flow.finish_records import Given, with_mark

    began = clock.exact_stamp(track.began_at(space, run, entry))
    response, source = _conversation_of(space, as_object(entry.get("closing"))).said_since(began), "transcript"
    if response is None:
        response, source = stages.read_text(run.folder, entry["stage"], stages.CANDIDATE), "candidate"
    given = Given(response, "none" if response is None else source)
    return Ready(given, finish.gather(space, run, entry, with_mark(entry, given)))


def is_of(space: Workspace, entry: Mapping[str, Any]) -> bool:
    """Tell whether the caller's own session marked a visit as closing."""
    owner = as_object(entry.get("closing")).get("session_id")
    return owner is not None and owner == space.caller.session_id


def close(
    space: Workspace, run: Run, state: State, happened: list[Event], found: Ready | None
) -> tuple[Ended | None, str]:
    """End the visit that is closing; gives what came of it, None if none is, and a line that says so.

    found: what was made ready before the lock was taken. A step whose answer has to be repaired is open again; what is
    to be given is in `Ended.repair`.
    """
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing" or state["status"] in OVER:
        return None, ""
    if found is None or found.known.for_stage != entry["stage"]:
        found = ready(space, run, state)
        assert found is not None  # it is closing
    from loomctl.flow import finish
    from loomctl.flow.finish_records import Ended, is_result, with_mark

    given = with_mark(entry, found.given)  # as it is marked by now
    if not is_result(given):
        said = f"{entry['step_id']} has no result yet. Give one: {visits.done_command(entry)} --response-file result.md"
        return Ended(visits.without_closing(state), None, found.known.reading), said
    ended = finish.end(space, run, state, happened, given, found.known)
    if ended.entry is None:
        said = f"{entry['step_id']} is open again: its result needs a correction."
        return ended._replace(state=visits.without_closing(ended.state)), said
    return ended, f"Ended {entry['step_id']} {_WORDS[found.given.source]}."


def is_closing_here(space: Workspace, state: Mapping[str, Any], *, with_a_message: bool = False) -> bool:
    """Tell whether a closing step may be closed for this session: its own, or of one that lives or drives no more.

    with_a_message: it would be closed with this session's final message; then it must be its own, for what another
    session says is no result of it.
    """
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing":
        return False
    owner = as_object(entry.get("closing")).get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return True
    if with_a_message:
        return False
    driver = lease.holder(state)
    if driver is not None and driver.session_id != owner:  # it was taken over, so its final message ends nothing
        return True
    binding = space.local.binding(owner)
    return binding is None or binding.get("host") == TERMINAL or not space.local.is_alive(binding)


def refuse_pending(space: Workspace, state: Mapping[str, Any]) -> None:
    """Refuse to close a step whose own session is alive and about to give its result. Raises HELD."""
    entry = visits.open_visit(state)
    if entry is None or entry["status"] != "closing" or is_closing_here(space, state):
        return
    owner = as_object(entry.get("closing")).get("session_id")
    what = f"session {str(owner)[:60]}, which is alive, is ending {entry['step_id']}"
    why = "Loom takes that session's final message as the result; with --response-file you end the step yourself"
    raise LoomError("HELD", what, why=why, hint=f"loomctl show {handle(state)}", exit_code=EXIT_HELD)


def _conversation_of(space: Workspace, closing: Mapping[str, Any]) -> Conversation:
    owner = closing.get("session_id")
    if not isinstance(owner, str) or owner == space.caller.session_id:
        return space.caller.conversation
    binding = space.local.binding(owner) or {}
    path = binding.get("transcript_path")
    return space.caller.conversation.another(path if isinstance(path, str) else None, str(binding.get("host") or ""))
