"""Lists told in little room: what differs in a running number is one range, and files are told by their folders."""

from __future__ import annotations

import re

from loomctl.reduction.tokens import estimate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_NUMBER = re.compile(r"\d+")
_NUMBERED = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_RANGE, _FOLDER = 5, 3  # the fewest that are told as one


def within(items: Iterable[str], budget: float, *, known: str = "") -> Iterator[str]:
    """Give the items for which there is room, in estimated tokens; what `known` already says is left out."""
    for item in items:
        if item in known:
            continue
        budget -= estimate(item) + 1
        if budget < 0:
            return
        yield item


def cost(items: Iterable[str], most: float) -> float:
    """Say what items cost, in estimated tokens; of what costs more than `most` no more is looked at."""
    spent = 0.0
    for item in items:
        spent += estimate(item) + 1
        if spent > most:
            break
    return spent


def ranges(items: Sequence[str], most: int = 0) -> list[str]:
    """Give the items, of which those that differ in one running number stand as one: `part_{001..120}.py`.

    most: how many are given of others that differ in numbers alone, 0 for all.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for item in items:
        groups.setdefault(tuple(_NUMBER.split(item)), []).append(item)
    found: list[str] = []
    for texts, alike in groups.items():
        found += _ranges(texts, alike) if len(texts) > 1 and len(alike) >= _RANGE else alike
    return _few(found, most) if most else found


def _few(items: Iterable[str], most: int) -> list[str]:
    """Give the items, of those that differ in numbers or hashes alone the first ones."""
    counts: dict[str, int] = {}
    told: list[str] = []
    for item in items:
        shape = _NUMBERED.sub("#", item)
        counts[shape] = counts.get(shape, 0) + ("#" in shape)
        if counts[shape] <= most:
            told.append(item)
    return told


def _ranges(texts: tuple[str, ...], alike: list[str]) -> list[str]:
    rows = [_NUMBER.findall(item) for item in alike]
    varying = [at for at in range(len(texts) - 1) if len({row[at] for row in rows}) > 1]
    if len(varying) != 1:
        return alike
    at = varying[0]
    numbers = [row[at] for row in rows]
    values = sorted(map(int, numbers))
    width = len(min(numbers, key=int)), len(max(numbers, key=int))
    if values != list(range(values[0], values[0] + len(values))) or (width[0] > 1 and width[0] != width[1]):
        return alike
    first, last = min(numbers, key=int), max(numbers, key=int)
    parts = [text + number for text, number in zip(texts, rows[0], strict=False)]
    parts[at] = f"{texts[at]}{{{first}..{last}}}"
    return ["".join((*parts, texts[-1]))]


def by_folder(paths: Iterable[str]) -> list[str]:
    """Give paths with each folder told once: `src/shop/{cart.py,tax.py}`."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, slash, name = path.rstrip("/").rpartition("/")
        folders.setdefault(folder + slash, []).append(name + "/" * path.endswith("/"))
    found: list[str] = []
    for folder, names in folders.items():
        if folder and len(names) >= _FOLDER:
            found.append(f"{folder}{{{','.join(ranges(names))}}}")
        else:
            found += [folder + name for name in names]
    return found


def files(paths: Sequence[str], room: float, more: float, *, known: str = "") -> list[str]:
    """Give paths whole while there is room, and the others by their folders in what more room there is."""
    new = [path for path in paths if path not in known]
    folded = ranges(new)
    whole = list(within(folded, room))
    if len(whole) == len(folded):
        return whole
    left = [path for path in new if path not in set(whole)]
    return whole + list(_cut_to(by_folder(left), more))


def _cut_to(items: Iterable[str], room: float) -> Iterator[str]:
    """Give items while there is room, the last one with as many of its names as fit."""
    for item in items:
        cost = estimate(item) + 1
        if cost > room:
            head, brace, names = item.rpartition("{")
            inner = list(within(names.rstrip("}").split(","), room - estimate(head) - 2)) if brace else []
            if inner:
                yield f"{head}{{{','.join(inner)},…}}"
            return
        room -= cost
        yield item
