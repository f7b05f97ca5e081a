"""Tokens are estimated closely where it informs, and never too low where a budget is held by it (D51)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loomctl.reduction import tokens
from loomctl.reduction.tokens import at_most, closely, common, estimate
from tests.docs.tokens import count
from tests.helpers.tables import each

ROOT = Path(__file__).resolve().parents[2]
READ = sorted(set(re.findall(r"[A-Za-z]+", (ROOT / "README.md").read_text(encoding="utf-8"))))
READABLE = [
    "docs/explanation/how-it-works.md", "docs/explanation/why.md", "README.md",
    "loomctl/runs/store/store.py", "config/state.schema.json", "bin/loomctl",
]  # fmt: skip


@each("name", READABLE)
def test_prose_code_and_json_are_estimated_within_a_tenth(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert abs(estimate(text) - count(text)) < 0.1 * count(text)
    assert count(text) <= at_most(text) < 2 * count(text)


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
LIKE_CODE = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0189 _-./\\:;(){}[]\"'=<>|\n\t\r#@!?*+,&%$~^`•→…", max_size=300)
WORDS_OF = st.lists(st.sampled_from(READ) | st.text("aeioustrnlmdcbpqxzgkvwyhjf", min_size=9), max_size=40).map(
    " ".join
)


@pytest.mark.slow
@settings(max_examples=400)
@given(ANY | LIKE_CODE | WORDS_OF)
@example("a b 1 22 333 4444\n\n\n   x\t\t}")
@example("   102→\t}")
@example(" ")
@example("\n \n \n")
@example("\u1680")
@example("geminicli carol qqqq zxzx AAAAbbb")
@example("x" * 5000)
@example("é" * 50 + "漢字" * 20 + "😀" * 9)
def test_no_text_has_more_tokens_than_is_said(text: str) -> None:
    """Whatever stands in it: noise, other scripts, white space, words that nobody knows."""
    assert count(text) <= at_most(text)


BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))
CONTROLS = "".join(map(chr, [*range(9), *range(14, 28), 127]))
SIGNED = "".join(one for one in map(chr, range(33, 127)) if not one.isalnum())
MEASURES = [at_most, closely]


@each("measure", MEASURES)
@each("around", ["{}", " {}", "{} ", " {} ", "\n{}", "{}\n", "a{}", "{}a", "de{}ab", "{0}{0}", " {0}{0}"])
def test_no_character_has_more_tokens_than_is_said(around: str, measure: Callable[[str], int]) -> None:
    for one in (*BLANKS, *CONTROLS, *SIGNED, *tokens._SINGLE):
        for text in (around.format(one), around.format(one) * 40):
            assert count(text) <= measure(text), repr(text)


@settings(max_examples=300)
@given(st.text(BLANKS + CONTROLS + SIGNED + "0123456789é漢ß•", max_size=30), st.sampled_from(MEASURES))
@example("\\*^$?;:!^!#'`$\"@+|)@=,?*|%`<@]", at_most)
@example(" \x00", closely)
def test_what_is_no_word_is_held_however_long_it_is(text: str, measure: Callable[[str], int]) -> None:
    """What is told too low by little adds up: the same forty times over is not more than is said either."""
    assert count(text * 40) <= measure(text * 40)


def test_looms_own_and_common_words_and_signs_are_one_token_each() -> None:
    assert [word for word in tokens._OWN if count(word) != 1 or count(f" {word}") != 1] == []
    assert at_most("20 more steps") <= 5
    spelt = [*SMALL, *map(str.capitalize, WORDS), *SIGNS]
    assert [word for word in spelt if count(word) != 1 or count(f" {word}") != 1] == []
    assert [word for word in JOINED if count(f"_{word}") != 1 or count(f".{word}") != 1] == []
    assert JOINED < SMALL


@pytest.mark.parametrize("name", READABLE[:2])
def test_prose_is_measured_within_a_quarter_by_who_knows_its_words(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert count(text) <= closely(text) < 1.25 * count(text) < at_most(text)


JOINED, WORDS, SMALL_JOINED, SMALL, SIGNS = common()
JOINED, WORDS, SMALL = JOINED | SMALL_JOINED, JOINED | WORDS, JOINED | WORDS | SMALL_JOINED | SMALL
KNOWN = st.sampled_from(sorted(SMALL)) | st.sampled_from(sorted(WORDS)).map(str.capitalize)
BETWEEN = st.sampled_from(["", " ", "\n", "    ", "_", ".", "__", "/", "-", *sorted(SIGNS)])


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(ANY | LIKE_CODE | WORDS_OF | st.lists(st.tuples(KNOWN, BETWEEN).map("".join), max_size=60).map("".join))
@example("x" * 5000)
@example("\n" * 40 + " " * 40 + "é" * 50)
def test_no_text_has_more_tokens_than_a_close_measure_says(text: str) -> None:
    assert count(text) <= closely(text)
