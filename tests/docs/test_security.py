"""Each claim of the page on security stands beside the test that shows it."""

import pytest

from tests.docs.claims import PAGE, Shown, linked, plain, shown, unshown
from tests.docs.pages import WRITE, built


def test_each_claim_has_a_test_that_shows_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert plain(text) == text
    made = linked(text, shown())
    assert unshown(made) == []
    if WRITE:
        built(PAGE).write_text(made, encoding="utf-8")


def test_a_claim_that_nothing_shows_is_found() -> None:
    text = "# Page\n\n## Reads\n\nOne. Two.\n\n- Three: four.\n- Five.\n\n## What is not claimed\n\nSix.\n"
    made = linked(text, [Shown("tests/test_a.py", "test_one", "One"), Shown("tests/test_a.py", "test_five", "Five")])
    assert 'One. [✓](../../../tests/test_a.py "test_one") Two.' in made
    assert unshown(made) == ["- Three: four."]
    assert plain(made) == text
    with pytest.raises(AssertionError, match="does not say"):
        linked(text, [Shown("tests/test_a.py", "test_seven", "Seven")])
