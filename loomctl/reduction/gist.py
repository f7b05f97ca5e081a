"""What prose and JSON come to: of all parts of a report what says most, and the short values of what was made."""

from __future__ import annotations

import re

from loomctl.kit.text.assigned_secrets import names_a_secret
from loomctl.kit.text.secrets import mask
from loomctl.reduction.lists import cost, within
from loomctl.reduction.live import without_digits
from loomctl.reduction.marks import LONGEST_LINE, cut
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_outputs import ASIDE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What tells more than words do: code, addresses, paths, names of programs, numbers, a label.
_TELLING = re.compile(
    r"`[^`]+`|https?://\S|\S+/\S|\b\w+(?:_\w+|[a-z][A-Z]\w*)\b|\b[\w-]+\.[a-z]{1,5}\b|\d[\w.,:-]*|(?<!\S)--?[a-z]"
    r"|\*\*[^*]+\*\*|\S\s{2,}(?=\S)"
)
_HEADING = re.compile(r"#{1,6} \S|\*\*[^*]+\*\*:?\Z|[A-Z][\w /()-]{0,60}:\Z|[A-Z][A-Z ]{3,40}\Z")
_LINE_OF_TABLE = re.compile(r"[\s|:+=-]+\Z")
_SENTENCE = re.compile(r"(?<=[.!?;]) (?=[A-Z`*\[(\d])")
_PART = 12  # lines of a part without a heading of its own
_MOST_PIECES = 800  # that are weighed: of more every second, or third, and so on
_ALIKE = 4  # lines that differ in numbers alone and stand for all that do
# The last words of keys that name a thing or say how it is, which come before others.
_NAMES = frozenset((
    "id", "ids", "status", "state", "count", "total", "iid", "number", "url", "uri", "link", "key", "name", "title",
    "slug", "sha", "ref", "path", "file", "branch", "version", "error", "message", "subject", "owner", "summary",
    "label", "line", "login", "code",
))  # fmt: skip
_COUNTED = ("code", "id", "status", "failed", "failures", "errors", "error", "merged", "mergeable")
_NAMING = ("message", "login", "name", "title", "key", "path", "id")  # of a thing in another
_LONGEST_VALUE, _BEGUN = 100, 100  # characters of a value that is told, and of the beginning of a longer one
_DEEPEST = 4
_MOST_ROWS = 200  # objects that are looked at
_LEAST_OF_ROW = 12  # tokens


def gist(text: str, room: float, first: Sequence[str] = ()) -> list[str]:
    """Give a text's lines if there is room for all, else by turns from each of its parts what tells most in it.

    A part's heading comes with it; the first line and the last come first. room: in estimated tokens; first: words in
    small letters, of which what has one comes before all others.
    """
    pieces = list(_pieces(text))
    if cost(pieces, room) <= room:
        return pieces
    heads, order = _order(pieces, 1 if first else 1 + len(pieces) // _MOST_PIECES)
    if first:
        order.sort(key=lambda at: not any(word in pieces[at].lower() for word in first))
    chosen: set[int] = set()
    for at in order:
        new = {at, heads.get(at, at)} - chosen
        spent = cost((pieces[one] for one in new), room)
        if spent <= room:
            room -= spent
            chosen |= new
        elif room < _LEAST_OF_ROW:
            break
    return [pieces[at] for at in sorted(chosen)]


def _pieces(text: str) -> Iterator[str]:
    """Give the lines of a text, of long ones the sentences."""
    for raw in text.split("\n"):
        line = raw.strip()
        if any(map(str.isalnum, line)) and not _LINE_OF_TABLE.match(line):
            yield from map(cut, _SENTENCE.split(line) if len(line) > LONGEST_LINE else (line,))


def _order(pieces: list[str], step: int) -> tuple[dict[int, int], list[int]]:
    """Give for each piece the heading of its part, and the pieces in the order of choice.

    step: one of so many is weighed.
    """
    heads: dict[int, int] = {}
    parts: list[list[tuple[float, int]]] = []
    shapes: dict[str, int] = {}
    head, ends = -1, {0: 0, len(pieces) - 1: 0}
    for at, piece in enumerate(pieces):
        is_heading = _HEADING.match(piece) is not None
        if is_heading or not parts or len(parts[-1]) == _PART:
            parts.append([])
        if is_heading:
            head = at
            continue
        if head >= 0:
            heads[at] = head
        if at % step:
            continue
        shape = without_digits(piece)
        shapes[shape] = shapes.get(shape, 0) + 1
        shapes[piece] = shapes.get(piece, 0) + (shape != piece)
        if shapes[shape] <= _ALIKE and shapes[piece] == 1:
            worth = len(_TELLING.findall(piece)) / (8 + piece.count(" "))
            parts[-1].append((-worth, at))
    turns = [(turn, worth, at) for part in parts for turn, (worth, at) in enumerate(sorted(part)) if at not in ends]
    return heads, [*(ends if pieces else ()), *(at for _, _, at in sorted(turns))]


def facts(value: object, room: float) -> list[str]:
    """Give for each object in a JSON value a line of its short values: `id=12 title=A fault`, names and states first.

    Where there is no room for all, each has an even share, and those at the end are counted; what room they leave is
    for the long texts in it. room: in estimated tokens.
    """
    rows = list(dict.fromkeys(tuple(row) for _, row in zip(range(_MOST_ROWS), _rows(value, _DEEPEST), strict=False)))
    whole = list(dict.fromkeys(mask(" ".join(row))[0] for row in rows))  # before any of it is cut
    if cost(whole, room) > room:
        share = max(_LEAST_OF_ROW, _share([estimate(line) + 1 for line in whole], room))
        whole = [_begun(line, share - 3) for line in whole]
    told = list(within(whole, room + len(whole)))
    if len(told) < len(whole):
        at_least = "at least " if len(rows) == _MOST_ROWS else ""
        return [*told, f"[{at_least}{len(whole) - len(told)} more]"] if told else []
    return told + gist("\n".join(_texts(value, _DEEPEST)), room - cost(told, room))


def _texts(value: object, depth: int) -> Iterator[str]:
    """Give the long texts of a value, of which a line has the beginning alone; a piece of a difference is none."""
    if isinstance(value, str):
        if len(value) > _LONGEST_VALUE and " " in value and not value.startswith("@@ "):
            yield value
    elif isinstance(value, (dict, list)) and depth:
        held = value.items() if isinstance(value, dict) else ((None, one) for one in value[:_MOST_ROWS])
        for key, one in held:
            if key not in ASIDE:
                yield from _texts(one, depth - isinstance(value, dict))


def _begun(line: str, room: float) -> str:
    size = estimate(line)
    return line if size <= room else f"{line[: int(len(line) * room / size)]}…"


def _share(costs: list[float], room: float) -> float:
    """Give what each may cost where those that cost less leave the others what they do not need."""
    for left, least in zip(range(len(costs), 0, -1), sorted(costs), strict=True):
        if least > room / left:
            return room / left
        room -= least
    return room


def _rows(value: object, depth: int) -> Iterator[list[str]]:
    if isinstance(value, dict) and depth:
        held = {str(key): one for key, one in value.items() if key not in ASIDE and _is_telling(str(key), one)}
        if "html_url" in held:
            held.pop("url", None)
        told = {key: _short(key, held[key]) for key in sorted(held, key=lambda key: _order_of(key, held[key]))}
        if any(told.values()):
            for key, one in held.items():
                if isinstance(one, dict):
                    told[key] = next((_short(name, one[name]) for name in _NAMING if name in one), "")
        once = {(_last_word(key), one): f"{key}={one}" for key, one in reversed(told.items()) if one}
        row = [*reversed(once.values())]
        if row and (depth >= _DEEPEST - 1 or any(_last_word(key) not in ("url", "href") for key in told if told[key])):
            yield row
        for key, one in held.items():
            if not told.get(key):
                yield from _rows(one, depth - 1)
    elif isinstance(value, list) and depth:
        for one in value[:_MOST_ROWS]:
            yield from _rows(one, depth)


def _order_of(key: str, value: object) -> int:
    """Put what names a thing first, then a text, of which there may be but the beginning."""
    return 0 if _last_word(key) in _NAMES else 1 if isinstance(value, str) and len(value) > _LONGEST_VALUE else 2


def _is_telling(key: str, value: object) -> bool:
    """Leave out links to what belongs to a thing, its names for machines, and counts of nothing."""
    word = _last_word(key)
    if isinstance(value, (dict, list)) and names_a_secret(key):
        return False  # what stands in it is a secret, and has another name there
    if key.startswith("_") or key.endswith("node_id") or (value == 0 and word not in _COUNTED):
        return False
    return key == "html_url" or not key.endswith("_url")


def _last_word(key: str) -> str:
    """Give the last word of `html_url` or `createdAt`, in small letters."""
    last = key.rpartition("_")[2]
    capital = max(
        (at for at, letter in enumerate(last) if at and letter.isupper() and last[at - 1].islower()), default=0
    )
    return last[capital:].lower()


def _short(key: str, value: object) -> str:
    """Give a value on a line, of a long text its beginning; "" for what tells nothing."""
    if isinstance(value, bool):
        return str(value).lower() if _last_word(key) in _COUNTED else ""
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str) or "{/" in value or value.startswith("@@ "):
        return ""
    words = " ".join(value[: 2 * LONGEST_LINE].split())
    if len(words) <= _LONGEST_VALUE and len(value) <= 2 * LONGEST_LINE:
        return words
    return f"{words[:_BEGUN]}…" if " " in words else ""
