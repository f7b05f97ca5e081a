"""What a stop means: the message ends the step, is asked for again, or is only talk (D27, D28, D36)."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

from loomctl.flow import turn_ends
from loomctl.flow.outcomes.directives import ABSENT, FITS, UNFIT
from loomctl.flow.turn_ends import (
    ASK,
    END,
    EXHAUSTED,
    HAND,
    KEEP,
    NOTHING,
    PAUSE,
    REPAIR,
    WAIT,
    Stop,
    decide,
    hands_on,
    questions,
)
from tests.helpers.tables import each

TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("a directive ends the step, in whosever turn", {"found": FITS}, END),
    ("a directive ends the step in a turn that Loom drives", {"found": FITS, "driven": True}, END),
    ("words to the user are only kept", {}, KEEP),
    ("nothing at all is nothing", {"spoken": False}, NOTHING),
    ("an assisted run is ended by its user's word alone", {"level": "assist", "found": FITS}, KEEP),
    ("in plan mode nothing is done", {"found": FITS, "planning": True, "driven": True}, KEEP),
    ("a run that stands still", {"open": False, "found": FITS}, KEEP),
    ("a result that comes as the run is paused", {"open": False, "paused": True, "found": FITS}, END),
    ("a paused run of an assisted level", {"open": False, "paused": True, "found": FITS, "level": "assist"}, KEEP),
    ("a paused run's bad object", {"open": False, "paused": True, "found": UNFIT, "driven": True}, KEEP),
    ("a question in a paused run", {"open": False, "paused": True, "found": FITS, "questions": True}, KEEP),
    (
        "a paused run's step of another session",
        {"open": False, "paused": True, "found": FITS, "spoken": False},
        NOTHING,
    ),
    ("a run that stands still, without words", {"open": False, "spoken": False}, NOTHING),
    ("a step that was handed on and not taken up", {"untold": True, "driven": True, "found": FITS}, HAND),
    ("it is not handed on for ever", {"untold": True, "driven": True, "blocks_left": 0}, PAUSE),
    ("a step of another session's", {"untold": True, "found": FITS}, NOTHING),
    ("a step of an assisted run", {"untold": True, "driven": True, "level": "assist"}, NOTHING),
    ("a step to come, and a plan in the making", {"untold": True, "driven": True, "planning": True}, NOTHING),
    ("a bad directive to the user is only kept", {"found": UNFIT, "schema": True, "repairs_left": 2}, KEEP),
    ("a bad directive is repaired", {"found": UNFIT, "driven": True, "repairs_left": 2}, REPAIR),
    ("often enough", {"found": UNFIT, "driven": True, "repairs_left": 0}, EXHAUSTED),
    ("no block is left for it", {"found": UNFIT, "driven": True, "repairs_left": 1, "blocks_left": 0}, PAUSE),
    ("a guarded run is not asked", {"driven": True}, KEEP),
    ("an autonomous run is asked once", {"level": "autonomous", "driven": True}, ASK),
    ("asked, though it says nothing", {"level": "autonomous", "driven": True, "spoken": False}, ASK),
    ("a second stop waits for the user", {"level": "autonomous", "driven": True, "asked": True}, WAIT),
    ("a question in another turn", {"level": "autonomous"}, KEEP),
    ("asked again and again, whatever it called", {"level": "autonomous", "driven": True, "nudges_left": 0}, WAIT),
    ("sent on again and again, whatever it called", {"untold": True, "driven": True, "nudges_left": 0}, PAUSE),
    ("a question behind a directive ends nothing", {"found": FITS, "questions": True}, KEEP),
    ("nor in a turn that Loom drives", {"found": FITS, "questions": True, "driven": True}, KEEP),
    ("a question behind a bad directive", {"found": UNFIT, "questions": True, "driven": True, "repairs_left": 2}, KEEP),
    (
        "an autonomous run is asked what the question means",
        {"level": "autonomous", "found": FITS, "questions": True, "driven": True},
        ASK,
    ),
    ("a closing step's message may have a question", {"closing": True, "found": FITS, "questions": True}, END),
    ("work in the background may bring it", {"level": "autonomous", "driven": True, "busy": True}, KEEP),
    ("work in the background does not undo a result", {"driven": True, "busy": True, "found": FITS}, END),
    ("no block is left to ask with", {"level": "autonomous", "driven": True, "blocks_left": 0}, PAUSE),
    ("a closing step ends with the message", {"closing": True}, END),
    ("a closing step ends under any autonomy", {"closing": True, "level": "assist"}, END),
    ("a plan is no closing step's result", {"closing": True, "planning": True, "found": FITS, "schema": True}, KEEP),
    ("nor is one in a driven turn", {"closing": True, "planning": True, "driven": True}, KEEP),
    ("nor silence in plan mode", {"closing": True, "planning": True, "spoken": False}, NOTHING),
    ("a paused run's closing step keeps its result", {"closing": True, "open": False}, END),
    ("one that fits its schema, too", {"closing": True, "open": False, "schema": True, "found": FITS}, END),
    ("a paused run's is not asked", {"closing": True, "open": False, "schema": True, "repairs_left": 2}, KEEP),
    (
        "nor for a bad object, in a driven turn",
        {"closing": True, "open": False, "schema": True, "found": UNFIT, "driven": True, "repairs_left": 2},
        KEEP,
    ),
    ("nor does it fail", {"closing": True, "open": False, "schema": True, "found": UNFIT}, KEEP),
    ("nor by silence", {"closing": True, "open": False, "schema": True, "spoken": False}, NOTHING),
    ("a closing step ends without words", {"closing": True, "spoken": False}, END),
    ("a closing step without its object", {"closing": True, "schema": True, "repairs_left": 2}, REPAIR),
    ("a closing step with a bad object", {"closing": True, "schema": True, "found": UNFIT, "repairs_left": 1}, REPAIR),
    ("a closing step that was repaired often", {"closing": True, "schema": True, "found": UNFIT}, EXHAUSTED),
    ("a closing step that failed needs no object", {"closing": True, "schema": True, "settled": True}, END),
    ("a closing step with a loose bad directive", {"closing": True, "found": UNFIT}, END),
]


@pytest.mark.parametrize(("known", "expected"), [pytest.param(known, to, id=name) for name, known, to in TABLE])
def test_a_stop_means_what_the_table_says(known: dict[str, Any], expected: str) -> None:
    assert decide(Stop(**{"level": "guarded", **known})) == expected


@functools.cache
def every() -> list[tuple[Stop, str]]:
    known: dict[str, tuple[Any, ...]] = dict.fromkeys(Stop._fields, (False, True))
    known |= {"level": ("assist", "guarded", "autonomous"), "found": (ABSENT, FITS, UNFIT)}
    known |= {"repairs_left": (0, 1), "blocks_left": (0, 1), "nudges_left": (0, 1)}
    return [(stop, decide(stop)) for stop in (Stop(*values) for values in itertools.product(*known.values()))]


@pytest.mark.slow
def test_nothing_blocks_a_turn_that_loom_does_not_drive_or_the_host_does_not_honour() -> None:
    """Over every stop there is: a block needs a driven turn or a closing step, and a block that is left (D28)."""
    blocks = [stop for stop, verdict in every() if verdict in (REPAIR, ASK, HAND)]
    assert blocks
    assert all(stop.driven or stop.closing for stop in blocks)
    assert all(stop.blocks_left > 0 for stop in blocks)
    assert all(stop.open or stop.untold for stop in blocks)
    assert not any(stop.planning for stop in blocks)
    assert all(stop.closing or stop.level in turn_ends.GOING_ON for stop in blocks)


def test_a_run_that_stands_still_is_neither_asked_nor_failed() -> None:
    """Over every stop there is: what ends in a paused run is a result that fits, and no plan (D27)."""
    still = [(stop, verdict) for stop, verdict in every() if not stop.open and not stop.untold]
    assert {verdict for _, verdict in still} == {END, KEEP, NOTHING}
    ends = [stop for stop, verdict in still if verdict == END]
    assert all((stop.closing or (stop.paused and stop.has == FITS)) and not stop.planning for stop in ends)


def test_no_verdict_is_given_for_ever() -> None:
    for stop, verdict in every():
        if verdict == REPAIR:
            assert stop.repairs_left > 0
        if verdict in (HAND, ASK):
            assert stop.nudges_left > 0


def test_a_question_is_never_taken_for_an_end() -> None:
    """Without an object that routes or fits, or with a question behind it, only a step marked as closing ends."""
    ended = [stop for stop, verdict in every() if verdict in (END, EXHAUSTED)]
    ended = [stop for stop in ended if stop.found == ABSENT or stop.questions]
    assert ended
    assert all(stop.closing for stop in ended)


OBJECT = '{"outcome": "failed", "failure_reason": "why?"}'


@each(
    ("message", "asks"),
    [
        (OBJECT, False),
        (f"Should I go on? {OBJECT}", False),
        (f"Shall I end the step with `{OBJECT}`?", True),
        (f"```json\n{OBJECT}\n```\n\nShall I end the step with that?", True),
        (f"{OBJECT}\n\n**Which one?** Say A or B.", True),
        (f'{OBJECT}\n\n(Or "why not?")', True),
        (f"{OBJECT}\n\nSee https://example.org/find?q=a&b=1.", False),
        (f"{OBJECT} 先看看吗？", True),  # noqa: RUF001
        (f"{OBJECT} هل أستمر؟", True),
        (f"{OBJECT} Να συνεχίσω\u037e", True),  # noqa: RUF001
        (f"{OBJECT} 先看看吗？我可以再试。", True),  # noqa: RUF001
        (f"{OBJECT} Is it done; it is.", False),
        (f"{OBJECT} ?", True),
        (f"{OBJECT} )*_ ** `", False),
        ("Which colour?", True),
        ("", False),
    ],
)
def test_a_question_behind_the_last_object_is_seen(message: str, asks: bool) -> None:
    assert questions(message) is asks


@each(
    ("known", "expected"),
    [
        ({}, True),
        ({"level": "autonomous"}, True),
        ({"level": "assist"}, False),
        ({"driven": False}, False),
        ({"planning": True}, False),
        ({"goes_on": False}, False),
    ],
)
def test_the_next_step_is_handed_on_in_a_turn_that_loom_drives(known: dict[str, Any], expected: bool) -> None:
    assert hands_on(**{"level": "guarded", "driven": True, "planning": False, "goes_on": True, **known}) is expected


def test_the_levels_are_those_of_workflows() -> None:
    from loomctl.workflows.workflow import LEVELS

    assert set(turn_ends.GOING_ON) <= set(LEVELS)
    assert turn_ends.ASKING in turn_ends.GOING_ON
