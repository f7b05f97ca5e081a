"""Names of plans, runs, steps and stages; no name reaches a file system unchecked (D10)."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit import ids
from loomctl.kit.errors import EXIT_USAGE, LoomError
from tests.helpers.errors import refused
from tests.helpers.tables import each

STAMP = "2026-01-02T03-04-05Z"


@each(
    ("text", "expected"),
    [
        ("Add dark mode!", "add-dark-mode"),
        ("  --  ", "work"),
        ("", "work"),
        ("日本語", "work"),
        ("Größe ändern", "grosse-andern"),
        ("a/../../b", "a-b"),
        ("x" * 60, "x" * 48),
        ("one two three " * 9, "one-two-three-one-two-three-one-two-three-one"),
    ],
)
def test_a_slug_is_made_of_words(text: str, expected: str) -> None:
    """A slug keeps whole words of plain letters, and has something to say where there are none."""
    assert ids.slug(text) == expected


@given(st.text(), st.integers(min_value=4, max_value=60))
def test_a_slug_is_fit_for_a_file_name(text: str, limit: int) -> None:
    made = ids.slug(text, limit=limit)
    assert len(made) <= limit
    assert ids.checked_id(made) == made


@each(
    "text",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-rf",
        "a/b",
        "a\\b",
        "a..b",
        "a\0b",
        "a\n",
        " a",
        "a b",
        "ä",
        "C:x",
        "a*",
        "x" * 201,
        "~",
    ],
)
@pytest.mark.shows("Run ids, session ids and stage names are checked before they become paths")
def test_what_could_lead_elsewhere_is_no_id(text: str) -> None:
    """Separators, dots that climb, options, control characters and endless names are refused as bad usage."""
    with refused("BAD_ID", exit_code=EXIT_USAGE):
        ids.checked_id(text)


@given(st.text(alphabet=st.sampled_from("abAZ09._-/\\\0\n~é ")))
def test_an_accepted_id_stays_in_its_folder(text: str) -> None:
    try:
        ids.checked_id(text)
    except LoomError:
        return
    joined = os.path.normpath(os.path.join("/store/runs", text))
    assert os.path.dirname(joined) == "/store/runs"
    assert joined != "/store/runs"


@given(st.text(), st.text())
def test_a_run_id_splits_into_what_it_was_made_of(project: str, work: str) -> None:
    """Split on the last `-run-`, a run's name gives plan and time back, whatever project and work are called."""
    plan_id = ids.make_plan_id(project, work)
    run_id = ids.make_run_id(plan_id, STAMP, lambda _: False)
    assert ids.checked_id(run_id) == run_id
    assert ids.split_run_id(run_id) == (plan_id, STAMP)


def test_a_project_may_be_called_run() -> None:
    plan_id = ids.make_plan_id("dry-run-tool", "fix run-run-run")
    assert ids.split_run_id(f"{plan_id}-run-{STAMP}-2") == (plan_id, f"{STAMP}-2")
    assert ids.split_run_id("handmade") == ("handmade", "")


def test_a_taken_name_is_counted_up() -> None:
    taken: set[str] = set()
    for _ in range(3):
        taken.add(ids.make_run_id("p", STAMP, taken.__contains__))
    assert taken == {f"p-run-{STAMP}", f"p-run-{STAMP}-2", f"p-run-{STAMP}-3"}


def test_a_stage_of_the_longest_names_is_a_file_name() -> None:
    """Phase and step ids have 80 characters at most; their stage still is one path component that passes the check."""
    name = ids.stage_name(1234, "p" * 80 + "/" + "s" * 80, 99)
    assert name == f"1234-{'p' * 80}.{'s' * 80}@99"
    ids.checked_id(name.replace("@", "."), what="stage")


@each("work", ["258", "#258", "ABC-12", "A1-7"])
def test_a_tracker_id_is_told(work: str) -> None:
    assert ids.is_work_id(work)


@each("work", ["", "#", "-", "-12", "abc-12", "add dark mode", "ABC-", "ABC-1x", "1A-2", "٣", "ÄB-1", "A_B-1"])
def test_a_goal_is_no_tracker_id(work: str) -> None:
    assert not ids.is_work_id(work)
