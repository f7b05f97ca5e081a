r"""What changed in a text, as a unified diff that leads from the old one to the new one exactly. Pure.

Lines end at `\n` alone. `difflib` is imported only where there is something to compare (design §3).
"""

from __future__ import annotations

from loomctl.kit.text.fences import utf16_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Pairs of lines that are compared at most, for that takes time that grows with their product; beyond, what differs is
# one change.
MOST_PAIRS = 250_000
_FEW = 4  # pairs that are one change too: most edits are of a line, and comparing takes a module more
NO_END = "\\ No newline at end of file"


def unified(old: str, new: str, *, context: int = 3) -> str:
    """Give the hunks that lead from one text to the other, without headers; empty where they are equal.

    context: lines around a change.
    As `diff -U3` writes them: `@@ -start,count +start,count @@`, then lines that begin with a space, `-` or `+`.
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    groups = _groups(list(_changes(before, after)), context)
    hunks = [line for group in groups for line in _hunk(group, before, after, context)]
    return "\n".join(hunks) + "\n"


def within(old: str, new: str, limit: int) -> str:
    """Give the diff with context if that has fewer than `limit` UTF-16 units, else without: lines may be long."""
    diff = unified(old, new)
    return diff if utf16_units(diff) < limit else unified(old, new, context=0)


def _lines(text: str) -> list[str]:
    """Give the lines, each with its end; only the last may lack one."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Give what differs as ranges of lines, of the old and of the new text; what begins and ends alike comes off."""
    top = 0
    while top < min(len(before), len(after)) and before[top] == after[top]:
        top += 1
    tail = 0
    while tail < min(len(before), len(after)) - top and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[top : len(before) - tail], after[top : len(after) - tail]
    if not old or not new or not _FEW < len(old) * len(new) <= MOST_PAIRS:
        yield top, top + len(old), top, top + len(new)
        return
    from difflib import SequenceMatcher

    for tag, a1, a2, b1, b2 in SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            yield top + a1, top + a2, top + b1, top + b2


def _groups(changes: Sequence[tuple[int, int, int, int]], context: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Put changes together whose context meets."""
    group: list[tuple[int, int, int, int]] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(
    group: Sequence[tuple[int, int, int, int]], before: Sequence[str], after: Sequence[str], context: int
) -> Iterator[str]:
    above = min(context, group[0][0], group[0][2])
    a1, b1 = group[0][0] - above, group[0][2] - above
    below = min(context, len(before) - group[-1][1])
    a2, b2 = group[-1][1] + below, group[-1][3] + below
    yield f"@@ -{_range(a1, a2)} +{_range(b1, b2)} @@"
    at = a1
    for old_from, old_to, new_from, new_to in group:
        for line in before[at:old_from]:
            yield from _told(" ", line)
        for line in before[old_from:old_to]:
            yield from _told("-", line)
        for line in after[new_from:new_to]:
            yield from _told("+", line)
        at = old_to
    for line in before[at:a2]:
        yield from _told(" ", line)


def _range(start: int, end: int) -> str:
    """Give a range of lines as a diff writes it: an empty one names the line before it."""
    count = end - start
    return f"{start + 1 if count else start},{count}"


def _told(sign: str, line: str) -> Iterator[str]:
    yield sign + line.removesuffix("\n")
    if not line.endswith("\n"):
        yield NO_END
