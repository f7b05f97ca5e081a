"""What is looked at of a text or value too large to be looked at whole; the rest is still behind the step (D47, D59).

Looking costs seconds a megabyte, and a hook has few. Of what is larger than `CLEANED` only the two ends are cleaned and
masked; of what comes of that, `looked_at` gives the ends and the lines between that tell of trouble.
"""

from __future__ import annotations

from loomctl.kit.text.secrets import mask
from loomctl.reduction.live_text import TROUBLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CLEANED = 2_000_000  # characters of a text that is cleaned and masked whole
FIRST, LAST = 800_000, 1_200_000  # of a larger one
MARGIN = 16_384  # characters beyond a cut that are masked with it: a secret that the cut parts is no shorter than half
MOST_VALUES = 10_000  # texts, numbers and the like that are looked at in one value
_DEEPEST = 12

WHOLE = 200_000  # characters of a text that is looked at whole
HEAD, TAIL = 40_000, 60_000
_HITS = 200  # lines that are taken for each word of trouble
_WIDEST = 1000  # characters of such a line, and of the lines below it that may explain it
_BELOW = 3
_MARGINS = 2  # times what is looked at: so much of a text is masked


def cleaned(text: str, clean: Callable[[str], str]) -> str:
    """Give a text cleaned, with its secrets masked: of a large one what `looked_at` may take of it, and a margin.

    Masking costs up to two seconds a megabyte. What stands beside a cut is masked with a margin, which then goes or
    lies outside of what is looked at: no half of a secret is left.
    """
    if len(text) <= CLEANED:
        return mask(looked_at(clean(text), _MARGINS))[0]
    head = mask(looked_at(clean(text[: FIRST + MARGIN]), 1))[0][:-MARGIN]
    return f"{head}\n{mask(looked_at(clean(text[-LAST - MARGIN :]), 1))[0][MARGIN:]}"


def masked_head(text: str, limit: int) -> str:
    """Give the beginning of a text, `limit` characters and more, its secrets masked."""
    if len(text) <= limit + MARGIN:
        return mask(text)[0]
    return mask(text[: limit + MARGIN])[0][:-MARGIN]


def bounded(value: Any) -> Any:
    """Give a copy of a JSON value with at most `MOST_VALUES` entries, each list's from both of its ends."""
    return _bounded(value, [MOST_VALUES], _DEEPEST)


def _bounded(value: Any, room: list[int], depth: int) -> Any:
    room[0] -= 1
    if isinstance(value, str):
        return value if len(value) <= CLEANED else f"{value[:FIRST]}\n{value[-LAST:]}"
    if not isinstance(value, (dict, list)) or not depth:
        return value if not isinstance(value, (dict, list)) else None
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    half = max(0, room[0]) // 2
    if len(items) > 2 * half:
        items = [*items[:half], *items[len(items) - half :]]
    found = [(key, _bounded(one, room, depth - 1)) for key, one in items if room[0] > 0]
    return dict(found) if isinstance(value, dict) else [one for _, one in found]


def looked_at(text: str, times: int = 1) -> str:
    """Give a text, or of a large one its ends and between them, in their order, lines that tell of trouble.

    At most `WHOLE` characters; nothing in it is changed but lines that are cut. times: so much larger is everything.
    """
    whole, head, tail, widest = (times * size for size in (WHOLE, HEAD, TAIL, _WIDEST))
    if len(text) <= whole:
        return text
    first = text.rfind("\n", 0, head) + 1 or head
    last = text.find("\n", len(text) - tail) + 1 or len(text) - tail
    room = whole - first - (len(text) - last) - 2
    parts: list[str] = []
    end = first
    for place in _troubled(text, first, last):
        if place < end:
            continue
        start = max(text.rfind("\n", end, place) + 1, end, place - widest // 2)
        end = start
        for _ in range(1 + _BELOW):
            at = text.find("\n", end, last)
            end = at + 1 if at >= 0 else last
        part = text[start : min(end, start + widest)].rstrip("\n") + "\n"
        room -= len(part)
        if room < 0:
            break
        parts.append(part)
    return f"{text[:first]}\n{''.join(parts)}\n{text[last:]}"


def _troubled(text: str, first: int, last: int) -> list[int]:
    """Give places of words that tell of trouble, in their order; of a line one for each word at most."""
    places: list[int] = []
    for word in TROUBLES:
        for form in dict.fromkeys((word, word.capitalize(), word.upper())):
            at = text.find(form, first, last)
            for _ in range(_HITS):
                if at < 0:
                    break
                places.append(at + (form[0] == "\n"))
                at = text.find("\n", at + 1, last)
                at = text.find(form, at, last) if at >= 0 else -1
    return sorted(places)
