"""What is looked at for the object in a text that is very long: its end, for there an answer has its result (D33).

Looking costs microseconds a character, and a Stop has a minute for all that it does.
"""

from __future__ import annotations

from itertools import pairwise

from loomctl.flow.outcomes import json_objects
from loomctl.flow.outcomes.directives import Fault
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST = 1 << 19  # characters; no model writes as many in one message


class Part(NamedTuple):
    """What is looked at of a text. left: the characters before it; alone: the object, where the text is just one."""

    text: str
    left: int = 0
    alone: dict[str, Any] | None = None


def part(text: str) -> Part:
    """Give a text of up to LONGEST characters, and one of any length that is an object alone, fenced or not.

    Of every other its end, from behind the last closing brace that closes no object there: an object that stands before
    such a brace may be a part of one that begins before the end, and would not be looked at in the whole text.
    """
    if len(text) <= LONGEST:
        return Part(text)
    alone = json_objects.alone(_unfenced(text))
    if alone is not None:
        return Part(text, 0, alone)
    end = text[-LONGEST:]
    spans = [(found.start, found.end) for found in json_objects.objects(end)]
    begins = 0
    for (_, before), (after, _) in pairwise([(0, 0), *spans, (len(end), 0)]):
        begins = max(begins, end.rfind("}", before, after) + 1)
    return Part(end[begins:], len(text) - len(end) + begins)


def passed_over(name: str, text: str, looked: Part) -> list[Fault]:
    """Say what was not looked at. name: where the text stands."""
    if not looked.left:
        return []
    seen = f"{name}: of {len(text):,} characters the last {len(looked.text):,} were looked at for a result"
    return [Fault("PARTLY_READ", "", seen)]


def _unfenced(text: str) -> str:
    """Take a fence off that holds all of a text."""
    bare = text.strip()
    if not (bare.startswith("```") and bare.endswith("```")):
        return bare
    return bare[bare.find("\n") + 1 : -3].strip()
