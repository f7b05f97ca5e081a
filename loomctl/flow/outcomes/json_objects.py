"""The JSON objects that stand in a text, whatever stands around and between them (D33).

The standard library reads from each brace on that may begin one. It reads windows of the text that grow, for its error
counts all lines before the fault. So work grows with the text alone: what an attempt that failed has passed over is not
tried again, and whether a string is open there differs between two such attempts at most.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError, JSONDecoder

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEEPEST = 200  # objects and lists inside each other; what is nested deeper does not parse
LONGEST_NUMBER = 400  # digits
_WINDOW = 64  # characters of a text that are read first
_CUT = 16  # characters before a window's end where what is cut off may be the fault
_BEGINNING = re.compile(  # a brace, and its end or a key with its colon
    r'\{[ \t\n\r]*(?:\}|"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"[ \t\n\r]*:)'
)
_TOKEN = re.compile(r'"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)|[{}\[\]]', re.DOTALL)
_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?(?:NaN|Infinity|[0-9][0-9.eE+-]*))', re.DOTALL)
_WORDS = {
    "Expecting property name": "expected a key in double quotes",
    "Expecting ':'": "expected a colon after the key",
    "Expecting value": "expected a value",
    "Unterminated string": "a string is not closed",
    "Invalid control": "a line break or control character in a string is not escaped",
    "Invalid \\": "a backslash in a string is not escaped",
}


class Found(NamedTuple):
    """An object that parses: `text[start:end]` is its JSON."""

    start: int
    end: int
    value: dict[str, Any]


class Refusal(NamedTuple):
    """Why no object begins at a brace, in words, and where the text ceases to be JSON (the brace itself: too deep)."""

    at: int
    why: str


def objects(text: str) -> Iterator[Found]:
    """Give every object that a text holds, in order: outermost ones, and inside of a candidate that does not parse too.

    A candidate begins at any brace, with no string open there: a quote in the prose before it hides nothing, and a
    brace in a string of a candidate that does not parse is one as well. Strict JSON: no NaN, no infinity, no comma
    before an end, no numbers of more than LONGEST_NUMBER digits; of a doubled key the last counts.
    """
    failed: set[int] = set()
    begins = _BEGINNING.search(text)
    while begins:
        start = begins.start()
        end = start + 1
        if begins[0][-1] == "}":
            yield Found(start, begins.end(), {})
            end = begins.end()
        elif start not in failed:
            found = read(text, start)
            if isinstance(found, Found):
                yield found
                end = found.end
            else:
                failed.update(_unfit(text[start : found.at if found.at > start else None], start))
        begins = _BEGINNING.search(text, end)


def alone(text: str) -> dict[str, Any] | None:
    """Give the object that a text consists of, None for every other text."""
    found = read(text, 0) if text.startswith("{") else None
    return found.value if isinstance(found, Found) and found.end == len(text) else None


def read(text: str, start: int) -> Found | Refusal:
    """Read the object that begins with the brace at `start`."""
    size = _WINDOW
    while True:
        part = text[start : start + size]
        try:
            value, end = _SCAN(part, 0)
        except RecursionError:
            return Refusal(start, f"it is nested deeper than {DEEPEST} levels")
        except StopIteration as stopped:
            at, why = stopped.value, "Expecting value"
        except JSONDecodeError as error:
            at, why = error.pos, error.msg
        except ValueError as error:
            at, why = _place_of_number(part), str(error)
        else:
            if part.count("{", 0, end) + part.count("[", 0, end) > DEEPEST and 0 in _unfit(part[:end], 0):
                return Refusal(start, f"it is nested deeper than {DEEPEST} levels")
            return Found(start, start + end, value)
        if start + size >= len(text) or (at < size - _CUT and not why.startswith("Unterminated")):
            return _refusal(part, at, why, start)
        size *= 4


def _refusal(part: str, at: int, why: str, start: int) -> Refusal:
    if why.startswith("Illegal trailing comma"):  # as Python 3.13 has it, at the comma
        why = "Expecting value" if "array" in why else "Expecting property name"
        at += 1 + len(part[at + 1 :]) - len(part[at + 1 :].lstrip(" \t\n\r"))
    words = next((words for begin, words in _WORDS.items() if why.startswith(begin)), why)
    if at >= len(part):
        words = "the text ends before the object does"
    elif why.startswith("Expecting ','"):
        opened = [sign for _, sign, _ in _opened(part[:at], [])]
        words = f"expected a comma or {'}' if opened[-1:] == ['{'] else ']'}"
    elif why.startswith("Expecting property name") and part[at] == "}":
        words += ", not a comma before it"
    return Refusal(start + at, words)


def _unfit(part: str, start: int) -> list[int]:
    """Give the braces in a part of a text that give no object: unclosed ones, and those nested too deep."""
    deep: list[int] = []
    opened = [at for at, sign, _ in _opened(part, deep) if sign == "{"]
    return [start + at for at in (*opened, *deep)]


def _opened(part: str, deep: list[int]) -> list[tuple[int, str, int]]:
    """Give what is opened in a part and not closed, as (place, sign, levels in it); adds to `deep` the deep objects."""
    opened: list[tuple[int, str, int]] = []
    for match in _TOKEN.finditer(part):
        sign = match[0]
        if sign in ("{", "["):
            opened.append((match.start(), sign, 1))
        elif sign in ("}", "]"):
            at, sign, levels = opened.pop()
            if sign == "{" and levels > DEEPEST:
                deep.append(at)
            if not opened:
                break
            above, outer, most = opened[-1]
            opened[-1] = (above, outer, max(most, levels + 1))
    return opened


def _place_of_number(part: str) -> int:
    for match in _NUMBER.finditer(part):
        if match[1]:
            try:
                _SCAN(match[1], 0)
            except ValueError:
                return match.start()
            except StopIteration:
                pass
    return len(part)


def _whole_number(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has more than {LONGEST_NUMBER} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_DECODER = JSONDecoder(parse_int=_whole_number, parse_float=_finite, parse_constant=_no_constant)
_SCAN = _DECODER.scan_once  # type: ignore[attr-defined] # the stub lacks it


def broken(text: str) -> list[tuple[int, int]]:
    """Give every brace from which nothing parses, outside of the objects that do, in order.

    As (start, end): end is behind the brace that balances it, as D33 has it (strings and escapes respected, no string
    open at the beginning), -1 where none does. In a text in which most are never balanced, that is looked for from the
    end on as long as twice the text was passed over; -1 for those before.
    """
    starts: list[int] = []
    at = 0
    for start, end in (*((found.start, found.end) for found in objects(text)), (len(text), 0)):
        while (at := text.find("{", at, start)) >= 0:
            starts.append(at)
            at += 1
        at = end
    room, found = 2 * len(text) + (1 << 16), []
    for start in reversed(starts):
        end = _balanced(text, start, start + room) if room > 0 else -1
        room -= (end if end >= 0 else len(text)) - start
        found.append((start, end))
    return found[::-1]


def _balanced(text: str, start: int, limit: int) -> int:
    depth = 0
    for match in _TOKEN.finditer(text, start, limit):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return -1
