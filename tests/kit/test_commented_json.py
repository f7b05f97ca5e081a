"""Settings with comments, whatever a repository's file of them holds."""

from __future__ import annotations

import pytest

from loomctl.kit import commented_json
from tests.helpers.waiting import bounded_work

MANY = 200_000


@pytest.mark.parametrize("unit", ["/* ", '\\"', "// \n", '"', ", ", "/*/"])
@pytest.mark.parametrize("begins", ["{", '{"'])
def test_what_is_never_closed_is_looked_at_once(begins: str, unit: str) -> None:
    """The work grows with a text's length, not with its square."""
    text = (begins + unit * MANY).encode()
    with bounded_work():
        assert commented_json.settings(text) == {}


def test_a_comment_without_its_end_goes_to_the_texts() -> None:
    assert commented_json.read('{"a": 1} /* and so on') == {"a": 1}
    assert commented_json.settings(b'{"a": "never closed') == {}
