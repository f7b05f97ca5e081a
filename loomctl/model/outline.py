"""What a text that is too long to be given still shows of itself: its headings, its keys or its first lines (D20)."""

from __future__ import annotations

import json
from itertools import islice

from loomctl.model.fences import one_line, visible
from loomctl.model.units import utf16_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_LONGEST_VALUE = 80
_ITEMS_SHOWN = 3
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def outline(text: str, kind: str, limit_units: int, measure: Callable[[str], int] = utf16_units) -> str:
    """Outline the text in whole lines that measure at most `limit_units`; "" where not one line of it would fit.

    kind: "markdown" (the headings with their line numbers, then the first lines), "digest" (the same for a text that
    is in no file, so without line numbers), "json" (keys and sizes, two levels) or anything else (the first lines).
    A text that is not what its kind says is outlined by its first lines.
    What is left out is counted. Control characters come out visible. measure: additive, as for `packing.pack`.
    """
    text = visible(text)
    room = _Room(limit_units, measure)
    if kind == "json":
        try:
            return "\n".join(_json_outline(json.loads(text), room))
        except (ValueError, RecursionError):
            pass
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    size = f"{_count(len(lines), 'line')}, {_count(len(text), 'character')}"
    headings = list(_headings(lines)) if kind in ("markdown", "digest") else []
    title = f"{size}; the headings, with their line numbers:"
    if kind == "digest":
        title = "Its headings:"
        headings = [(level, line.partition(": ")[2]) for level, line in headings]
    chosen = room.choose(title, headings, len(headings), "heading")
    if not chosen:
        chosen = room.begin(f"{size}; the first lines:", lines)
    elif len(chosen) > len(headings) and kind != "digest":
        chosen += room.begin("The first lines:", lines)
    return "\n".join(chosen)


class _Room:
    """What is left of a limit, while lines are put one below the other."""

    def __init__(self, limit: int, measure: Callable[[str], int]) -> None:
        self.left, self.measure = limit + measure("\n"), measure

    def choose(self, title: str, ranked: list[tuple[int, str]], total: int, noun: str) -> list[str]:
        """Give the title, as many of the ranked lines as fit, lower ranks first, and how many of the total are not.

        They come in their own order. Nothing is given, and no room used, where none of them fits.
        """
        left = self.left - self._cost(title) - self._cost(_more(total, noun))
        taken = []
        for index in sorted(range(len(ranked)), key=lambda index: ranked[index][0]):
            cost = self._cost(ranked[index][1])
            if cost <= left:
                left -= cost
                taken.append(index)
        return self._used(left, [title, *(ranked[index][1] for index in sorted(taken))], total, noun)

    def begin(self, title: str, lines: list[str]) -> list[str]:
        """Give the title, the first lines until one does not fit, and how many follow; nothing, if all are blank."""
        left = self.left - self._cost(title) - self._cost(_more(len(lines), "line"))
        shown = 0
        while shown < len(lines) and self._cost(lines[shown]) <= left:
            left -= self._cost(lines[shown])
            shown += 1
        if not any(map(str.strip, lines[:shown])):
            shown = 0
        return self._used(left, [title, *lines[:shown]], len(lines), "line")

    def _used(self, left: int, chosen: list[str], total: int, noun: str) -> list[str]:
        if len(chosen) == 1:
            return []
        self.left = left
        return [*chosen, _more(total + 1 - len(chosen), noun)] if len(chosen) <= total else chosen

    def _cost(self, line: str) -> int:
        return self.measure(line) + self.measure("\n")


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Give the level of each heading and its line with its number, those in code blocks and front matter left out."""
    fence = paragraph = ""
    start = 0
    if lines[:1] == ["---"] and "---" in lines[1:]:
        start = lines.index("---", 1) + 1
    for number, line in enumerate(lines[start:], start + 1):
        if line[:1].isalpha() and not fence:  # as most lines are: prose, which the rest would find too, at some length
            paragraph = line
            continue
        bare = line.strip(" \t")
        indented = line.startswith(("    ", "\t", " \t", "  \t", "   \t"))
        mark = bare[:1] if not indented else ""
        level = len(bare) - len(bare.lstrip("#"))
        before, paragraph = paragraph, ""
        if fence:
            if mark == fence[0] and bare.startswith(fence) and not bare.strip(mark):
                fence = ""
        elif mark and mark in "`~" and bare.startswith(mark * 3) and not (mark == "`" and "`" in bare.lstrip("`")):
            fence = mark * (len(bare) - len(bare.lstrip(mark)))
        elif mark == "#" and level <= 6 and bare[level : level + 1] in ("", " ", "\t"):
            yield level, f"{number}: {line}"
        elif before and mark and mark in "=-" and not bare.strip(mark):
            yield 1 if mark == "=" else 2, f"{number - 1}: {before}"
        elif mark and mark not in ">-*+|<" and not mark.isdigit():
            paragraph = line


def _json_outline(value: Any, room: _Room) -> list[str]:
    if not isinstance(value, (dict, list)):
        return []
    children = value.values() if isinstance(value, dict) else value
    total = len(value) + sum(len(child) for child in children if isinstance(child, (dict, list)))
    ranked = list(_ranked_members(value, most=room.left // 4))
    return room.choose(f"{_described(value)}; what is in it, two levels deep:", ranked, total, "value")


def _ranked_members(value: Any, most: int) -> Iterator[tuple[int, str]]:
    """Give the lines of both levels with their level, and of each no more than can ever fit."""
    deeper = most
    for name, child in _members(value, most):
        yield 1, f"{name}: {_described(child)}"
        for inner_name, grandchild in _members(child, deeper if isinstance(child, dict) else min(deeper, _ITEMS_SHOWN)):
            deeper -= 1
            yield 2, f"  {inner_name}: {_described(grandchild)}"


def _members(value: Any, most: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, child in islice(value.items(), max(0, most)):
            yield one_line(name, _LONGEST_VALUE), child
    elif isinstance(value, list):
        for index, child in enumerate(value[: max(0, most)]):
            yield f"[{index}]", child


def _described(value: Any) -> str:
    if isinstance(value, dict):
        return f"object, {_count(len(value), 'key')}"
    if isinstance(value, list):
        return f"list, {_count(len(value), 'item')}"
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return f"string, {_count(len(value), 'character')}"
    return visible(_ENCODER.encode(value))


def _more(count: int, noun: str) -> str:
    return f"… {_count(count, f'more {noun}')}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
