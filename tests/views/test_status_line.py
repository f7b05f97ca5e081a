"""What a status line tells, and what it leaves out first where there is less room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.text import fences
from loomctl.views import overview
from loomctl.views.overview import Line
from tests.helpers.tables import each

FULL = Line("fix-123", "build/review@2", "in_progress", 7, 12, 5, 84.4, "approve", "")


def test_the_forms_of_a_line_and_that_an_alarm_stands_first_and_stays() -> None:
    """It is in every form, for it is what the line is looked at for."""
    assert FULL.forms() == [
        "loom fix-123 · build/review@2 · 7/12 · 5 artifacts · saved 84% · next: approve",
        "loom fix-123 · build/review@2 · 7/12 · 5 artifacts · next: approve",
        "loom fix-123 · build/review@2 · 7/12 · next: approve", "loom fix-123 · build/review@2 · next: approve",
        "loom fix-123 · build/review@2", "loom build/review@2", "loom build/…", "loom…",
    ]  # fmt: skip
    forms = FULL._replace(alarm="hook stop silent").forms()
    assert all(form.startswith("! ho") for form in forms)
    assert forms[0].startswith("! hook stop silent · loom fix-123 · build/review@2")


@each(
    ("told", "line"),
    [
        (Line("x", "", "completed", 4, 4), "loom x · completed · 4/4"),
        (Line("x", "a/b@1", "paused", 1, 4, word="resume"), "loom x · paused at a/b@1 · 1/4 · next: resume"),
        (Line("x", "a/b@1", "awaiting_feedback", 1, 4), "loom x · awaiting feedback at a/b@1 · 1/4"),
        (Line("x", "", "in_progress", 0, 0), "loom x · in progress"),
        (Line("x", "a/b@1", "in_progress", 0, 1, 1), "loom x · a/b@1 · 0/1 · 1 artifact"),
        (Line("x", "a/b@1", "in_progress", 0, 1, 0, -3.0), "loom x · a/b@1 · 0/1"),
    ],
)
def test_what_is_told(told: Line, line: str) -> None:
    """Only what there is: no zero artifacts, no saving that is none."""
    assert told.forms()[0] == line


WORDS = st.text(st.characters(), max_size=80)


@given(
    st.builds(
        Line,
        label=WORDS,
        step=WORDS,
        status=st.sampled_from(["in_progress", "paused", "failed", "completed"]),
        done=st.integers(0, 999),
        total=st.integers(0, 999),
        artifacts=st.integers(0, 99),
        saved=st.none() | st.floats(-100, 100),
        word=st.sampled_from(["", "approve"]),
        alarm=WORDS,
    ),
    st.integers(1, 100),
)
def test_whatever_it_tells_it_is_one_safe_line_that_fits(told: Line, room: int) -> None:
    forms = told.forms()
    for form in forms:
        assert fences.width(form) <= overview.WIDEST
        assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 or one in "\u2028\u2029\u202e\u2066" for one in form)
    line = overview.fit(forms, str(room))
    assert fences.width(line) <= room
    assert line or room < 6 or all(fences.width(form) > room for form in forms)
