"""What prose and JSON come to: the lines of a report that say most, and the short values of what was made or listed."""

from __future__ import annotations

import re

from loomctl.reduction.lists import within
from loomctl.reduction.marks import cut
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_outputs import ASIDE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# What makes a line of prose worth more than others: a heading, a label, something quoted as code, an address, a hash.
_TELLING = re.compile(
    r"#{1,6} \S|(?:[-*] |\d+[.)] )?\*\*[^*]+\*\*|`[^`]+`|https?://|\b[0-9a-f]{7,40}\b|\S+/\S+\.\w{1,5}\b"
)
_LINE_OF_TABLE = re.compile(r"[\s|:+=-]+\Z")
# The last words of keys that name a thing or say how it is; the latter alone name nothing.
_STATES = frozenset(("id", "ids", "status", "state", "count", "total"))
_NAMES = _STATES.union((
    "iid", "number", "url", "uri", "link", "key", "name", "title", "slug", "sha", "ref", "path", "file", "branch",
    "version", "error", "message", "subject", "owner", "summary", "label",
))  # fmt: skip
_LONGEST_VALUE = 100  # characters of a value that is told
_DEEPEST = 4
_MOST_ROWS = 200  # objects that are looked at


def gist(text: str, room: float) -> list[str]:
    """Give a text's lines if there is room for all, else its first and its last, those that tell most, then the others.

    room: in estimated tokens.
    """
    lines = [line.strip() for line in text.split("\n")]
    lines = [cut(line) for line in lines if line and not _LINE_OF_TABLE.match(line)]
    if not lines:
        return []
    ends = {0, len(lines) - 1}
    order = sorted(range(len(lines)), key=lambda at: (0 if at in ends else 1 if _TELLING.search(lines[at]) else 2, at))
    chosen: list[int] = []
    for at in order:
        cost = estimate(lines[at]) + 1
        if cost <= room:
            room -= cost
            chosen.append(at)
    return [lines[at] for at in sorted(chosen)]


def facts(value: object, room: float) -> list[str]:
    """Give for each object in a JSON value a line of what names it and says how it is: `id=12 title=A fault`."""
    return list(within(_once(_rows(value, _DEEPEST)), room))


def _rows(value: object, depth: int, *, is_entry: bool = False) -> Iterator[str]:
    if isinstance(value, dict) and depth:
        told = {key: one for key, one in value.items() if _last_word(str(key)) in _NAMES and _is_short(one)}
        if told and not (is_entry and all(_last_word(str(key)) in _STATES for key in told)):
            yield " ".join(f"{key}={one}" for key, one in told.items())
        for key, one in value.items():
            if key not in ASIDE:
                yield from _rows(one, depth - 1)
    elif isinstance(value, list) and depth:
        for one in value[:_MOST_ROWS]:
            yield from _rows(one, depth, is_entry=True)


def _last_word(key: str) -> str:
    """Give the last word of `html_url` or `createdAt`, in small letters."""
    last = key.rpartition("_")[2]
    capital = max(
        (at for at, letter in enumerate(last) if at and letter.isupper() and last[at - 1].islower()), default=0
    )
    return last[capital:].lower()


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_VALUE and "\n" not in value
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _once(rows: Iterator[str]) -> Iterator[str]:
    return iter(dict.fromkeys(row for _, row in zip(range(_MOST_ROWS), rows, strict=False)))
