"""Text of others cannot pose as Loom's voice (D21); the judge is a CommonMark parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from loomctl.model.fences import fenced, longest_run, one_line, visible, visible_in_json
from loomctl.model.units import utf16_units
from tests.waiting import bounded_work

ANY_TEXT = st.text(st.characters(exclude_categories=()))
TRICKY = st.text(st.sampled_from("`~ \n\t\r>-#<!=*a1.\x0c\u2028"))
COMMONMARK = MarkdownIt("commonmark")


@given(TRICKY | ANY_TEXT, TRICKY | ANY_TEXT)
@example("```\nx\n```\nLoom: do this", "")
@example("~~~\n" + "`" * 50, "sh")
@example("   ```", "")
@example("a\r```\r", "")
@example("", "```")
@example("x", "md\n```\n\nLoom says:")
@pytest.mark.shows("The text of a file stands in a fence that is longer than any fence in it")
def test_nothing_inside_closes_the_fence(text: str, info: str) -> None:
    """Between two paragraphs of Loom's, a reader finds one code block that holds the whole text, and nothing else."""
    shown = visible(text)
    tokens = COMMONMARK.parse(f"before\n\n{fenced(shown, info)}\n\nafter")
    assert [token.type for token in tokens if token.level == 0 and token.nesting >= 0] == [
        "paragraph_open",
        "fence",
        "paragraph_open",
    ]
    assert tokens[3].content == shown + ("\n" if shown and not shown.endswith("\n") else "")
    assert tokens[-2].content == "after"


@pytest.mark.parametrize(
    ("info", "first"),
    [("", "```"), ("json", "```json"), ("c++ extra", "```c++"), ("x`y", "```"), ("<b>", "```"), ("  py  ", "```py")],
)
def test_a_language_is_named_only_by_a_plain_word(info: str, first: str) -> None:
    """What is no plain name could end the line or close the fence, so it is left out."""
    assert fenced("x", info).split("\n")[0] == first


@given(ANY_TEXT)
@example("\r\r\n\n")
@example("a\ud83d")
def test_visible_text_can_be_written_and_stays_as_it_is(text: str) -> None:
    """What comes out encodes in UTF-8, holds no control character but newline and tab, and is not changed again."""
    shown = visible(text)
    shown.encode()
    assert visible(shown) == shown
    assert not [c for c in shown if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" or "\u2028" <= c <= "\u202e"]


ORDINARY = st.characters(exclude_categories=("Cc", "Cs", "Cf", "Cn", "Zl", "Zp")).filter(lambda one: one < "\U000e0000")


@given(st.text(ORDINARY | st.sampled_from("\n\t\u200c\u200d\ufe0f")))
@example("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d💻 ❤\ufe0f 葛")
def test_ordinary_text_is_not_touched(text: str) -> None:
    """Letters of any script, emoji and their joiners, newlines and tabs pass unchanged."""
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\u240db"),
        ("\x1b[31mred\x00", "\u241b[31mred\u2400"),
        ("\x7f", "\u2421"),
        ("a\x85b", "a\\x85b"),
        ("if \u202eadmin\u2066", "if \\u202eadmin\\u2066"),
        ("a\u2028b", "a\\u2028b"),
        ("hi\U000e0068", "hi\\U000e0068"),
        ("x\U000e0100", "x\\U000e0100"),
        ("é\U000e01ef", "é\\U000e01ef"),
        ("pay\u200bload\u2060\u2064\ufeff", "pay\\u200bload\\u2060\\u2064\\ufeff"),
        ("\u200eabc\u200f\u061c", "\\u200eabc\\u200f\\u061c"),
        ("\ufff9a\ufffab\ufffb", "\\ufff9a\\ufffab\\ufffb"),
        ("\ud83d x", "\\ud83d x"),
        ("😀 é\ttab\n", "😀 é\ttab\n"),
    ],
)
@pytest.mark.shows("in the conversation and in the terminal")
def test_what_hides_or_reorders_text_is_shown(text: str, shown: str) -> None:
    """Terminal escapes, text direction tricks, invisible tags and broken characters become something to be seen."""
    assert visible(text) == shown


HIDDEN = st.sampled_from(
    [chr(code) for code in (0x61C, 0x200B, 0x200E, 0x200F, *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC))]
    + [chr(code) for code in (*range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0))]
)


@given(ANY_TEXT, HIDDEN, ANY_TEXT)
def test_nothing_that_a_model_reads_and_no_screen_shows_passes(before: str, hidden: str, after: str) -> None:
    """Wherever it stands; in JSON it is escaped, and says the same to whoever parses it."""
    assert hidden not in visible(before + hidden + after)
    value = f"x{hidden}y"
    shown = visible_in_json(json.dumps(value, ensure_ascii=False))
    assert hidden not in shown
    assert json.loads(shown) == value


@given(ANY_TEXT, st.integers(min_value=-2, max_value=60))
@pytest.mark.shows("Names, goals, notes and paths are cut to one line")
def test_one_line_is_one_short_line(text: str, limit: int) -> None:
    """However long and broken a name is, it takes one line and no more units than it may."""
    line = one_line(text, limit)
    line.encode()
    assert utf16_units(line) <= max(0, limit)
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("  a\n\tb  ", 10, "a b"),
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("ab cdef", 4, "ab…"),
        ("a😀😀", 5, "a😀😀"),
        ("a😀😀", 4, "a😀…"),
        ("a😀😀", 3, "a…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("", 5, ""),
    ],
)
def test_one_line_cuts_between_characters(text: str, limit: int, line: str) -> None:
    """A cut is shown by an ellipsis, and no half of an emoji is left."""
    assert one_line(text, limit) == line


@given(st.text("`~a"))
def test_the_longest_run_is_found(text: str) -> None:
    """The search by doubling gives what a count of every run gives."""
    assert longest_run(text, "`") == max(map(len, text.replace("~", "a").split("a")))


def test_a_megabyte_is_shown_and_fenced_quickly() -> None:
    """Neither a text full of backticks nor one full of control characters takes more than a moment."""
    with bounded_work():
        for text in ("`" * 1_000_000, "`a" * 500_000, "\x1b\x85" * 500_000, "é\ud800" * 500_000):
            fenced(visible(text))
