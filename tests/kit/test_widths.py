"""How wide a text is on a terminal, and what is left of it in less room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.text import units
from tests.helpers.tables import each

TEXTS = st.text(st.sampled_from("ab é世🙂́\u200b -"), max_size=60)


@each(
    ("text", "expected"),
    [("", 0), ("loom", 4), ("é", 1), ("e\u0301", 1), ("世界", 4), ("🙂", 2), ("a\u200bb", 2), ("\uff57", 2), ("·", 1)],
)
def test_the_columns_of_a_text(text: str, expected: int) -> None:
    """Wide characters take two, marks above others none."""
    assert units.width(text) == expected


@given(TEXTS, st.integers(0, 30))
def test_what_is_cut_fits(text: str, limit: int) -> None:
    """Nothing that fits is touched; what does not ends with an ellipsis, within the room."""
    cut = units.cut(text, limit)
    assert units.width(cut) <= limit
    assert cut == text or not limit or cut.endswith("…")
    if units.width(text) <= limit:
        assert cut == text


@given(TEXTS, st.integers(2, 30), st.integers(1, 5))
def test_what_is_wrapped_fits(text: str, limit: int, most: int) -> None:
    """No line is too wide, there are no more than asked for, and in enough of them nothing is lost."""
    lines = units.wrapped(text, limit, most)
    assert len(lines) <= most
    assert all(units.width(line) <= limit for line in lines)
    whole = units.wrapped(text, limit, 1000)
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert len(whole) <= most or lines[-1].endswith("…")


def test_words_stay_whole_where_they_can() -> None:
    """A word that is longer than a line is broken, and no other."""
    assert units.wrapped("a bb ccc dddd", 4, 9) == ["a bb", "ccc", "dddd"]
    assert units.wrapped("ab abcdefgh x", 4, 9) == ["ab", "abcd", "efgh", "x"]
    assert units.wrapped("世界世界", 3, 9) == ["世", "界", "世", "界"]
    assert units.wrapped("one two three", 9, 1) == ["one two…"]
    assert units.wrapped("\u0301 a世", 2, 1) == ["\u0301…"]
