"""Which events make an artifact due (D13)."""

from __future__ import annotations

from loomctl.workflows import triggers
from loomctl.workflows.triggers import Event
from tests.helpers.tables import each

START = triggers.session_start("resume")
COMPACT = triggers.session_start("compact")
ENTER = triggers.phase_transition("architect", "build")
FIRST = triggers.phase_transition(None, "frame")
TAKEN_UP = triggers.run_start("build")
MANUAL = triggers.manual()


@each(
    ("word", "event", "fired"),
    [
        ("session_start", START, True), ("session_start", COMPACT, True), ("session_start", TAKEN_UP, True),
        ("session_start", ENTER, False), ("compaction_detected", COMPACT, True),
        ("compaction_detected", START, False), ("phase_transition", ENTER, True),
        ("phase_transition:architect->build", ENTER, True),
        ("phase_transition: architect → build ", ENTER, True), ("phase_transition:*->build", ENTER, True),
        ("phase_transition:architect->*", ENTER, True), ("phase_transition:*->*", ENTER, True),
        ("phase_transition:frame->build", ENTER, False), ("phase_transition:build->architect", ENTER, False),
        ("phase_transition", FIRST, False), ("phase_start", ENTER, True), ("phase_start:build", ENTER, True),
        ("phase_start:*", ENTER, True), ("phase_start:frame", ENTER, False), ("phase_start:frame", FIRST, True),
        ("phase_start:build", TAKEN_UP, True), ("phase_start", START, False), ("manual", MANUAL, True),
        ("manual", START, False), ("phase_start:b", ENTER, False), ("nonsense", ENTER, False),
    ],
)  # fmt: skip
def test_a_trigger_fires_for_what_it_names(word: str, event: Event, fired: bool) -> None:
    assert triggers.fires(["other", word], event) == (word if fired else None)


@each(
    "word",
    [
        "", "session_start:x", "manual:", "phase_start:", "phase_start: ", "phase_start:a->b",
        "phase_transition:", "phase_transition:a", "phase_transition:a->", "phase_transition:->b",
        "phase_transition:a->b->c", "phase", "Session_start",
    ],
)  # fmt: skip
def test_half_a_trigger_is_none(word: str) -> None:
    assert not triggers.is_trigger(word)
    assert triggers.from_word(word) is None
    assert triggers.fires([word], MANUAL) is None


@each("event", [triggers.session_start(), COMPACT, ENTER, triggers.phase_transition(None, "build"), MANUAL])
def test_an_event_can_be_asked_for_by_its_name(event: Event) -> None:
    assert triggers.from_word(event.name) == event


@each("word", ["phase_start", "phase_transition", "phase_start:*", "phase_transition:a->*"])
def test_a_pattern_is_not_one_event(word: str) -> None:
    assert triggers.is_trigger(word)
    assert triggers.from_word(word) is None


def test_blanks_in_a_word_do_not_matter() -> None:
    assert triggers.from_word(" phase_start: build ") == triggers.phase_transition(None, "build")
    assert triggers.from_word("phase_transition: a → b") == triggers.phase_transition("a", "b")


def test_only_a_manual_event_wants_everything_and_a_run_without_a_phase_starts_a_session() -> None:
    assert MANUAL.is_manual
    assert not any(event.is_manual for event in (START, COMPACT, ENTER, FIRST, TAKEN_UP))
    assert triggers.run_start(None) == triggers.session_start()
