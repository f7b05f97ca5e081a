"""Each claim of the page on security stands beside the test that shows it."""

from __future__ import annotations

import pytest

from tests.docs.claims import PAGE, Shown, linked, plain, shown, unshown
from tests.docs.pages import WRITE, name


def test_each_claim_has_the_test_that_shows_it_beside_it() -> None:
    """The links are those of the tests' marks, and no paragraph of a claiming section is without one."""
    text = PAGE.read_text(encoding="utf-8")
    made = linked(plain(text), shown())
    if WRITE and made != text:
        PAGE.write_text(made, encoding="utf-8")
        text = made
    assert text == made, f"{name(PAGE)}: run scripts/docs"
    assert unshown(text) == []


def test_a_claim_that_nothing_shows_is_found() -> None:
    """A paragraph without a link is named; what a mark says and the page does not, as well."""
    text = "# Page\n\n## Reads\n\nOne. Two.\n\n- Three: four.\n- Five.\n\n## What is not claimed\n\nSix.\n"
    made = linked(text, [Shown("tests/test_a.py", "test_one", "One"), Shown("tests/test_a.py", "test_five", "Five")])
    assert 'One. [✓](../../tests/test_a.py "test_one") Two.' in made
    assert unshown(made) == ["- Three: four."]
    assert plain(made) == text
    with pytest.raises(AssertionError, match="does not say"):
        linked(text, [Shown("tests/test_a.py", "test_seven", "Seven")])
