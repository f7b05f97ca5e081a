"""An outline shows what a text is made of, in whole lines and within a limit (D20)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from loomctl.model.fences import visible
from loomctl.model.outline import outline
from loomctl.model.units import utf8_bytes, utf16_units

if TYPE_CHECKING:
    from collections.abc import Callable

ANY_TEXT = st.text(st.characters(exclude_categories=()))
LINES = st.lists(st.sampled_from(["# One", "## Two é", "text", "", "```", "~~~", "---", "😀 " * 30])).map("\n".join)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
)
KINDS = ["markdown", "digest", "json", "text"]


@pytest.mark.parametrize("measure", [utf16_units, utf8_bytes])
@pytest.mark.parametrize("kind", KINDS)
@given(text=ANY_TEXT | LINES | JSON_VALUES.map(json.dumps), limit=st.integers(min_value=-5, max_value=600))
def test_an_outline_never_exceeds_its_limit(kind: str, measure: Callable[[str], int], text: str, limit: int) -> None:
    """For any text, kind and limit, in either measure; and what comes out can be written."""
    shown = outline(text, kind, limit, measure)
    shown.encode()
    assert measure(shown) <= max(0, limit)


@given(text=ANY_TEXT | LINES, limit=st.integers(min_value=0, max_value=400), kind=st.sampled_from(["markdown", "text"]))
@example("# A\n" + "x" * 1000, 100, "markdown")
def test_no_line_of_the_text_is_cut(text: str, limit: int, kind: str) -> None:
    """Each line that is shown is one of Loom's own or a whole line of the text, a heading's with its number."""
    whole = visible(text).split("\n")
    for line in outline(text, kind, limit).split("\n")[:-1]:
        number, _, heading = line.partition(": ")
        own = "first lines:" in line or "the headings, with their line numbers:" in line or line.startswith("… ")
        assert own or line in whole or heading == whole[int(number) - 1]


SPEC = """---
title: x
# not a heading
---
# Auth

Why.

## Goals
```sh
# not a heading either
```
Not #one, nor
    # this
###   Deep ###
Setext
------
- item
---
"""


def test_headings_of_markdown_come_with_their_lines() -> None:
    """Code blocks, front matter, rules and hashtags are no headings; both forms of heading are."""
    shown = outline(SPEC, "markdown", 2000)
    assert shown.startswith(
        "19 lines, 154 characters; the headings, with their line numbers:\n"
        "5: # Auth\n9: ## Goals\n15: ###   Deep ###\n16: Setext\nThe first lines:\n---\ntitle: x\n"
    )
    assert shown.endswith("- item\n---")


def test_a_digest_has_no_line_numbers() -> None:
    """A text that is in no file has no lines to go to; its headings say it all."""
    assert outline("# A\nx\n## B\n", "digest", 200) == "Its headings:\n# A\n## B"


def test_higher_headings_go_first_where_room_is_short() -> None:
    """All of level one, then of level two, in the order of the text, and a count of what is missing."""
    text = "".join(f"# Part {part}\n" + "".join(f"## Detail {part}.{n}\ntext\n" for n in range(9)) for part in range(4))
    shown = outline(text, "markdown", 180).split("\n")[1:]
    assert [line for line in shown if ": # " in line] == ["1: # Part 0", "20: # Part 1", "39: # Part 2", "58: # Part 3"]
    assert shown[1] == "2: ## Detail 0.0"
    assert shown[-1] == f"… {40 - len(shown) + 1} more headings"


BLOCKS = st.lists(
    st.sampled_from(["# A", "## B *b*", "###### Six", "Some text\nand more", "Title\n=====", "Sub\n---", "- a\n- b"])
    | st.sampled_from(["```py\n# comment\n```", "~~~\n## no\n~~~", "> quote", "    # code", "#tag", "1. one", "***"]),
    max_size=12,
)


@given(BLOCKS)
def test_headings_are_those_of_commonmark(blocks: list[str]) -> None:
    """For blocks with a blank line between, the headings and their lines are those that a CommonMark parser finds."""
    text = "\n\n".join(blocks)
    tokens = MarkdownIt("commonmark").parse(text)
    expected = [token.map[0] + 1 for token in tokens if token.type == "heading_open" and token.map and not token.level]
    shown = outline(text, "markdown", 100_000).partition("The first lines:")[0]
    found = [int(line.partition(":")[0]) for line in shown.split("\n") if re.match(r"\d+: ", line)]
    assert found == expected


def test_json_shows_keys_and_sizes_on_two_levels() -> None:
    """Containers with how much is in them, short values as they are, long ones by their size."""
    value = {
        "status": "active",
        "steps": [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}],
        "log": "x" * 2000,
        "phases": {"build": {"a": 1}, "esc": "\u001b"},
        "none": None,
    }
    assert outline(json.dumps(value), "json", 1000).split("\n") == [
        "object, 5 keys; what is in it, two levels deep:",
        'status: "active"',
        "steps: list, 4 items",
        "  [0]: object, 1 key",
        "  [1]: object, 1 key",
        "  [2]: object, 1 key",
        "log: string, 2,000 characters",
        "phases: object, 2 keys",
        "  build: object, 1 key",
        '  esc: "\\u001b"',
        "none: null",
        "… 1 more value",
    ]


def test_the_first_level_of_json_goes_before_the_second() -> None:
    """A big first member does not hide that there are others."""
    value = {"big": {f"key{n}": n for n in range(1000)}, "small": 1, "last": True}
    shown = outline(json.dumps(value), "json", 200).split("\n")
    assert "small: 1" in shown
    assert "last: true" in shown
    assert shown[2] == "  key0: 0"
    assert shown[-1].endswith(" more values")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("not json\nat all", "json"),
        ("[[\n" * 50_000, "json"),
        ('{"a": 1}\n{"a": 2}', "json"),
        ("[\n" + "9" * 5000 + "]", "json"),
        ("no heading\nhere", "markdown"),
        ("just text\nmore", "log"),
    ],
)
def test_what_is_not_of_its_kind_shows_its_first_lines(text: str, kind: str) -> None:
    """Broken, endlessly nested or many-lined JSON and markdown without a heading are outlined like any text."""
    assert f"the first lines:\n{text.partition(chr(10))[0]}\n" in outline(text, kind, 500)


@pytest.mark.parametrize(
    "text", ["", "\n", "\n \n", "x" * 5000, '"' + "x" * 5000 + '"', "12", "{}", "[]"], ids=lambda text: text[:4]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_nothing_to_show_has_no_outline(text: str, kind: str) -> None:
    """An empty text, one huge line or a bare value gives nothing, so that a pointer is shown instead."""
    shown = outline(text, kind, 300)
    assert not shown or (len(text) < 20 and text in shown)


def test_a_text_head_is_counted() -> None:
    """The first lines that fit, then how many follow."""
    text = "".join(f"line {n}\n" for n in range(1, 101))
    shown = outline(text, "text", 100).split("\n")
    assert shown[0] == "100 lines, 792 characters; the first lines:"
    assert shown[1:-1] == [f"line {n}" for n in range(1, len(shown) - 1)]
    assert shown[-1] == f"… {100 - len(shown) + 2} more lines"


def test_a_large_json_costs_no_more_lines_than_can_fit() -> None:
    """A hundred thousand keys are counted, not described one by one."""
    measured = 0

    def measure(text: str) -> int:
        nonlocal measured
        measured += 1
        return len(text)

    shown = outline(json.dumps({str(n): {"a": n} for n in range(100_000)}), "json", 400, measure)
    assert shown.startswith("object, 100,000 keys")
    assert measured < 2000
