"""Prose fits a screen, and what is pasted is never broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.text.fences import width
from loomctl.kit.text.prose import fitted

CASES = {
    "a sentence": (
        "No session of this run was compacted, so nothing had to survive.",
        "No session of this run was compacted, so\nnothing had to survive.",
    ),
    "a command at the end": (
        "Loom runs none of its commands. To allow them: loomctl trust add-dark-mode-k3f9 --yes",
        "Loom runs none of its commands. To allow\nthem:\nloomctl trust add-dark-mode-k3f9 --yes",
    ),
    "commands within": (
        'why: loomctl run "what to do" starts one, loomctl resume RUN continues it',
        'why: loomctl run "what to do" starts\none, loomctl resume RUN continues it',
    ),
    "a command in brackets": (
        "log: 18 events proven, up to the last (loomctl prove --log).",
        "log: 18 events proven, up to the last\n(loomctl prove --log).",
    ),
    "a path": (
        "Loom keeps this project's runs in /home/ada/work/a/very/long/path/of/hers/.loom now",
        "Loom keeps this project's runs in\n/home/ada/work/a/very/long/path/of/hers/.loom\nnow",
    ),
    "code in quotes": (
        "If you cannot do it, add `--outcome failed`. `--artifact NAME=PATH` registers it.",
        "If you cannot do it, add\n`--outcome failed`.\n`--artifact NAME=PATH` registers it.",
    ),
    "an item": (
        "- one that is too long for a line of forty columns",
        "- one that is too long for a line of\n  forty columns",
    ),
    "a label": (
        "  why: it is too long for a line of forty columns",
        "  why: it is too long for a line of\n       forty columns",
    ),
    "a row with a label": (
        "files     Loom changed none of yours but task boxes",
        "files     Loom changed none of yours but\n          task boxes",
    ),
    "a command with a point at the end": (
        "To go on with it: loomctl done shop-k3f9 --for 003 --response-file '/tmp/my dir/result.md'",
        "To go on with it:\nloomctl done shop-k3f9 --for 003 --response-file '/tmp/my dir/result.md'",
    ),
    "a command with a sentence in quotes": (
        "To choose it: loomctl choose '[Y] Yes, do it. Now' shop-k3f9",
        "To choose it:\nloomctl choose '[Y] Yes, do it. Now' shop-k3f9",
    ),
    "a numbered item": (
        "12. one that is too long for a line of forty",
        "12. one that is too long for a line of\n    forty",
    ),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES)
def test_prose_is_broken_between_words(text: str, wanted: str) -> None:
    assert fitted(text, 40) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "    loomctl done add-dark-mode-k3f9 --for 002 --response-file result.md",
        "  hint: loomctl done add-dark-mode-k3f9 --for 002 --response-file x",
        "| a row of a table | that is wider than the screen is | and stays |",
        "run  a row of a table  that is wider than the screen, and stays",
        "````text\na line of a file, wider than the screen is\n```\nand another, wider than the screen is\n````",
    ],
)
def test_what_is_no_prose_stays_as_it_is(text: str) -> None:
    assert fitted(text, 40) == text


def test_behind_a_fence_there_is_prose_again() -> None:
    assert fitted("```\nx\n```\na line of prose that is wider than the screen", 40).endswith("than the\nscreen")


@given(st.text(st.sampled_from("ab `\"'-:.日 \n"), max_size=200), st.integers(12, 80))
def test_no_word_is_lost_and_no_line_that_can_be_broken_is_too_wide(text: str, limit: int) -> None:
    made = fitted(text, limit)
    assert made.split() == text.split()
    if not set(text) & set("`\"'"):
        wide = [line for line in made.split("\n") if width(line) > limit and not line.startswith("    ")]
        assert all("  " in line.strip() or len(line.strip().strip("- ").split()) <= 1 for line in wide)
