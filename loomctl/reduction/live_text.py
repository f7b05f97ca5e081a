"""What the model sees instead of a large output: one line of observation, an excerpt, and where the whole stands (D48).

It is on the way of a hook that must not be noticed: nothing is imported, and the text is searched, not parsed.
"""

from __future__ import annotations

HEAD, TROUBLE, TAIL = 800, 1100, 900  # characters of the excerpt's parts
_WIDEST = 300  # characters of a line
_WIDEST_ALONE = 1200  # of each end of a line that has the excerpt for itself
_HITS = 400  # places of trouble that are looked at
_MOST = (
    2_000_000  # characters of a text of many lines that is looked at whole; of a larger one half as many of each end
)
# What a line that tells of trouble holds, in lower case.
TROUBLES = (
    "error", "fail", "fatal", "panic", "exception", "traceback", "denied", "refused", "abort", "not found", "no such",
    "cannot", "can't", "could not", "couldn't", "unable to", "undefined", "unresolved", "unexpected", "invalid",
    "missing", "timed out", "timeout", "killed", "conflict", "assert", "segmentation", "warning", "not ok", "\ne   ",
    "✗", "✕", "❌",
)  # fmt: skip


def shortened(program: str, text: str, size: int, path: str) -> str:
    """Give what stands for a text. program: what made it; size: its bytes; path: where it is kept whole."""
    count = text.count("\n") + (not text.endswith("\n"))
    first = f"{program}: {count:,} line{'' if count == 1 else 's'}, {size:,} bytes; shortened by Loom"
    return f"{first}\n{excerpt(text)}\nThe whole output: {path}"


def excerpt(text: str) -> str:
    """Give the first lines, the last ones, and between them lines that tell of trouble; the gaps are named."""
    text = text.rstrip("\n")
    first, between = -1, 0  # the number of the line behind which lines are not looked at, and how many these are
    if len(text) > _MOST and text.find("\n", text.find("\n") + 1) >= 0:
        head, tail = text[: _MOST // 2], text[-(_MOST // 2) :]
        first, between = head.count("\n"), text.count("\n") - head.count("\n") - tail.count("\n") - 1
        text = f"{head}\n{tail}"
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    wide = _WIDEST_ALONE if len(lines) < 3 else _WIDEST
    shown: dict[int, str] = {}
    _take(shown, lines, range(len(lines)), HEAD, wide)
    _take(shown, lines, range(len(lines) - 1, -1, -1), TAIL, wide)
    if len(shown) < len(lines):
        _take(shown, lines, _troubled(text, len(lines)), TROUBLE, wide)
    parts: list[str] = []
    before = -1
    for number in sorted(shown):
        if number > before + 1:
            parts.append(_gap(number - before - 1 + (max(0, between) if before <= first < number else 0)))
        parts.append(shown[number])
        before = number
    if before + 1 < len(lines):
        parts.append(_gap(len(lines) - before - 1))
    return "\n".join(parts)


def _gap(count: int) -> str:
    return f"[… {count:,} line{'' if count == 1 else 's'} left out …]"


def _take(shown: dict[int, str], lines: list[str], numbers: range | list[int], budget: int, wide: int) -> None:
    """Add lines while they fit. A line that has the excerpt for itself may be wider than the budget."""
    for number in numbers:
        if number in shown:
            continue
        line = _cut(_left(lines[number]), wide)
        budget -= len(line) + 1
        if budget < 0 and (wide == _WIDEST or shown):
            return
        shown[number] = line


def _troubled(text: str, count: int) -> list[int]:
    """Give the numbers of lines that tell of trouble, each once, in their order."""
    low = text.lower()
    if len(low) != len(text):  # a letter whose small form is two: positions would not fit
        low = text.replace("\u0130", "i").lower()
    places: list[int] = []
    for word in TROUBLES:
        at = low.find(word)
        while at >= 0 and len(places) < _HITS:
            places.append(at + (word[0] == "\n"))
            at = low.find("\n", at + 1)  # one in a line is enough
            at = low.find(word, at) if at >= 0 else -1
    found: list[int] = []
    seen: set[str] = set()
    number = before = 0
    for place in sorted(places):
        number += text.count("\n", before, place)
        before = place
        if (found and number == found[-1]) or number >= count:
            continue
        start = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place)
        line = text[start : end if end >= 0 else len(text)][:_WIDEST].strip()
        if line not in seen:
            seen.add(line)
            found.append(number)
    return found


def _left(line: str) -> str:
    """Give what a line that was written over with carriage returns shows at its end."""
    if "\r" not in line:
        return line
    for part in reversed(line.split("\r")):
        if part.strip():
            return part
    return ""


def _cut(line: str, wide: int) -> str:
    """Cut a long line in its middle, outside of terminal escapes and of surrogate pairs."""
    if len(line) <= wide:
        return line
    keep = wide if wide == _WIDEST_ALONE else wide // 2
    start, end = keep, len(line) - (keep if wide == _WIDEST_ALONE else wide // 3)
    if end <= start:
        return line
    escape = line.rfind("\x1b", max(0, start - 24), start)
    if escape >= 0 and not any(one.isalpha() for one in line[escape + 1 : start]):
        start = escape
    escape = line.rfind("\x1b", max(0, end - 24), end)
    if escape >= 0 and not any(one.isalpha() for one in line[escape + 1 : end]):
        end = escape
    if "\ud800" <= line[start - 1] <= "\udbff":
        start -= 1
    if "\udc00" <= line[end] <= "\udfff":
        end += 1
    return f"{line[:start]} [… {end - start:,} characters left out …] {line[end:]}"
