"""Settings with comments, whatever a repository's file of them holds."""

from __future__ import annotations

import time

import pytest

from loomctl.kit import commented_json

FEW, TIMES = 4_000, 4


def seconds(text: str) -> float:
    begun = time.perf_counter()
    assert commented_json.settings(text.encode()) == {}
    return time.perf_counter() - begun


@pytest.mark.parametrize("unit", ["/* ", '\\"', "// \n", '"', ", ", "/*/"])
def test_what_is_never_closed_is_looked_at_once(unit: str) -> None:
    """Four times as much takes about four times as long, not sixteen times."""
    for begins in ("{", '{"'):
        small, large = (min(seconds(begins + unit * count) for _ in range(3)) for count in (FEW, FEW * TIMES))
        assert large < small * TIMES * 2 + 0.01


def test_a_comment_without_its_end_goes_to_the_texts() -> None:
    assert commented_json.read('{"a": 1} /* and so on') == {"a": 1}
    assert commented_json.settings(b'{"a": "never closed') == {}
