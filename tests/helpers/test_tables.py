"""A table of rows in one test fails where one of its rows does, and says which."""

import pytest

from tests.helpers.tables import each
from tests.helpers.texts import holds


def test_every_row_is_tried_and_each_that_fails_is_told() -> None:
    """With its values and its own words; the others are tried all the same."""
    seen: list[tuple[int, str]] = []

    @each("number", [1, 2, pytest.param(3, id="three")])
    @each("word, length", [("a", 1), ("bb", 2)])
    def check(number: int, word: str, length: int) -> None:
        seen.append((number, word))
        assert number != length, f"{word} is as long"

    with pytest.raises(AssertionError) as caught:
        check()
    assert seen == [(number, word) for number in (1, 2, 3) for word in ("a", "bb")]
    holds(str(caught.value), "2 of 6 rows fail", "a is as long", "'number': 2, 'word': 'bb'")


def test_a_table_without_rows_is_no_proof() -> None:
    """A test that tries nothing fails."""

    @each("number", [])
    def check(number: int) -> None:
        assert number

    with pytest.raises(AssertionError, match="no rows"):
        check()
