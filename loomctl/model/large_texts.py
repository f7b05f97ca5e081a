"""What is looked at of a text too large to be looked at whole: its ends, and the lines between that tell of trouble.

Looking costs seconds a megabyte, and a hook has few; what stands nowhere in the part is still behind the step (D47).
"""

from __future__ import annotations

from loomctl.model.live_text import TROUBLES

WHOLE = 200_000  # characters of a text that is looked at whole
HEAD, TAIL = 40_000, 60_000
_HITS = 200  # lines that are taken for each word of trouble
_WIDEST = 1000  # characters of such a line, and of the lines below it that may explain it
_BELOW = 3


def looked_at(text: str) -> str:
    """Give a text, or of a large one its ends and between them, in their order, lines that tell of trouble.

    At most `WHOLE` characters; nothing in it is changed but lines that are cut.
    """
    if len(text) <= WHOLE:
        return text
    first = text.rfind("\n", 0, HEAD) + 1 or HEAD
    last = text.find("\n", len(text) - TAIL) + 1 or len(text) - TAIL
    room = WHOLE - first - (len(text) - last) - 2
    parts: list[str] = []
    end = first
    for place in _troubled(text, first, last):
        if place < end:
            continue
        start = max(text.rfind("\n", end, place) + 1, end, place - _WIDEST // 2)
        end = start
        for _ in range(1 + _BELOW):
            at = text.find("\n", end, last)
            end = at + 1 if at >= 0 else last
        part = text[start : min(end, start + _WIDEST)].rstrip("\n") + "\n"
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
