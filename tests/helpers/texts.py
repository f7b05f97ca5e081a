"""What a text has to hold, and what it must not, in one line of a test."""

from collections.abc import Container
from typing import Any


def holds(text: Container[Any], *words: Any, but: tuple[Any, ...] = ()) -> None:
    """Assert that a text, or another container, holds each of the words and none of those in `but`."""
    __tracebackhide__ = True
    missing = [one for one in words if one not in text]
    unwanted = [one for one in but if one in text]
    assert not missing, f"{missing!r} not in {text!r}"
    assert not unwanted, f"{unwanted!r} in {text!r}"
