"""Length in the units that hosts limit text by (D19)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.text.units import utf8_bytes, utf16_units
from tests.helpers.tables import each

if TYPE_CHECKING:
    from collections.abc import Callable

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@each(
    ("text", "units", "size"),
    [
        ("", 0, 0),
        ("abc\n", 4, 4),
        ("é", 1, 2),
        ("漢", 1, 3),
        ("😀", 2, 4),
        ("👩‍🚀", 5, 11),
        ("e\u0301", 2, 3),
        ("\x00", 1, 1),
        ("\ud800", 1, 3),
        ("\udc00\ud800", 2, 6),
    ],
)
def test_lengths_are_what_the_hosts_count(text: str, units: int, size: int) -> None:
    """An emoji is two units and four bytes, an accented letter one unit and two bytes, a lone surrogate one unit."""
    assert (utf16_units(text), utf8_bytes(text)) == (units, size)


@given(ANY_TEXT)
def test_units_are_those_of_javascript(text: str) -> None:
    r"""JSON with everything escaped has one \uXXXX for each unit beyond ASCII, which is how JavaScript counts."""
    escaped = json.dumps(text.replace("\\", "x").replace('"', "x"))
    wide = escaped.count("\\u")
    narrow = len(escaped) - 2 - 6 * wide - escaped.count("\\") + wide
    assert utf16_units(text) == wide + narrow


@pytest.mark.parametrize("measure", [utf16_units, utf8_bytes])
@given(left=ANY_TEXT, right=ANY_TEXT)
def test_lengths_add_up(measure: Callable[[str], int], left: str, right: str) -> None:
    """Packing counts parts one by one, which is right only if what two measure is what they measure joined."""
    assert measure(left + right) == measure(left) + measure(right)
