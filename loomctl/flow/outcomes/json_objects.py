"""The JSON objects that stand in a text, whatever stands around and between them, found in one pass (D33)."""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError, JSONDecoder, scanstring  # type: ignore[attr-defined] # the stub lacks it

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEEPEST = 200  # objects and lists inside each other; what is nested deeper does not parse
LONGEST_NUMBER = 400  # digits
QUICK_FAILURES = 16  # so many candidates of a text may be read twice
_BLANKS = " \t\n\r"
_MARK = re.compile(r'["\\{}]')
_KEY, _KEY_OR_END, _VALUE, _VALUE_OR_END, _COMMA_OR_END = range(5)


class Found(NamedTuple):
    """An object that parses: `text[start:end]` is its JSON."""

    start: int
    end: int
    value: dict[str, Any]


class Attempt(NamedTuple):
    """What came of reading an object from one brace on.

    whole: the outermost objects that parse, the one itself or what stands in it; failed: the braces that were read as
    the beginning of an object and are known to give none; at, why: where the one itself ceased to be JSON and what is
    the matter, in words, empty if it parses.
    """

    whole: list[Found]
    failed: list[int]
    at: int
    why: str


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """The text ceases to be JSON at a place (0), for a reason (1)."""


def objects(text: str) -> Iterator[Found]:
    """Give every object that a text holds, in order: outermost ones, and inside of a candidate that does not parse too.

    A candidate begins at any brace, with no string open there: a quote in the prose before it hides nothing, and a
    brace in a string of a candidate that does not parse is one as well. Strict JSON: no NaN, no infinity, no comma
    before an end, no numbers of more than LONGEST_NUMBER digits; of a doubled key the last counts.

    Linear: a brace that an earlier attempt has read is not read again. Attempts of which neither began at a brace that
    the other read differ in whether a string is open, for as long as both go on; so two at most pass over any place.
    """
    whole: dict[int, Found] = {}
    failed: set[int] = set()
    at = text.find("{")
    quote = close = -1
    spare = QUICK_FAILURES
    while at >= 0:
        # Only a quote or a closing brace may follow, so of all braces before the next of these the last alone counts.
        if quote < at:
            quote = _find(text, '"', at)
        if close < at:
            close = _find(text, "}", at)
        following = min(quote, close)
        if following == len(text):
            return
        at = text.rfind("{", at, following)
        end = 0
        if text[at + 1 : following].strip(_BLANKS):
            pass
        elif following == close:
            end = close + 1
            yield Found(at, end, {})
        elif at not in failed and (at in whole or begins_with_key(text, at)):
            quick = _quickly(text, at) if spare and at not in whole else None
            if quick is not None:
                whole[at] = quick
            elif at not in whole:
                spare -= bool(spare)
                attempt = read(text, at)
                failed.update(attempt.failed)
                whole.update((one.start, one) for one in attempt.whole)
            if at in whole:
                found = whole.pop(at)
                end = found.end
                yield found
        at = text.find("{", end or following)


def alone(text: str) -> dict[str, Any] | None:
    """Give the object that a text consists of, None for every other text; at the speed of the standard library."""
    found = _quickly(text, 0) if text.startswith("{") else None
    return found.value if found is not None and found.end == len(text) else None


def _quickly(text: str, start: int) -> Found | None:
    """Read an object by the standard library's C code, which does not say how far it came where it fails."""
    try:
        value, end = _SCAN(text, start)
    except (ValueError, StopIteration, RecursionError):
        return None
    brackets = text.count("{", start, end) + text.count("[", start, end)
    return None if brackets > DEEPEST and _is_deep(value) else Found(start, end, value)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        parents, level = level, []
        for parent in parents:
            children = parent.values() if isinstance(parent, dict) else parent
            level += [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _find(text: str, what: str, at: int) -> int:
    found = text.find(what, at)
    return found if found >= 0 else len(text)


def read(text: str, start: int) -> Attempt:
    """Try to read the object that begins with the brace at `start`; see Attempt. Raises nothing."""
    whole: list[Found] = []
    failed: list[int] = []
    frames: list[_Frame] = []
    at = start
    try:
        _read(text, start, whole, failed, frames)
    except _Refused as refused:
        at, why = refused.args
        failed += [frame.start for frame in frames if frame.is_object]
        return Attempt(whole, failed, at, why)
    if whole and whole[0].start == start:
        return Attempt(whole, failed, whole[0].end, "")
    return Attempt(whole, failed, at, f"it is nested deeper than {DEEPEST} levels")


class _Frame:
    """An object or list that is not closed yet. mark: how many whole objects there were when it began."""

    __slots__ = ("height", "is_object", "key", "mark", "start", "value")

    def __init__(self, start: int, mark: int, *, is_object: bool) -> None:
        self.start, self.mark, self.is_object, self.height, self.key = start, mark, is_object, 1, ""
        self.value: Any = {} if is_object else []

    def add(self, value: Any) -> None:
        if self.is_object:
            self.value[self.key] = value
        else:
            self.value.append(value)


def _read(text: str, start: int, whole: list[Found], failed: list[int], frames: list[_Frame]) -> None:
    at, expecting = start, _VALUE
    while True:
        at = _past_blanks(text, at)
        char = text[at : at + 1]
        if expecting in (_KEY, _KEY_OR_END) and char == '"':
            key, at = _string(text, at)
            at = _past_blanks(text, at)
            if text[at : at + 1] != ":":
                raise _Refused(at, "a colon is missing behind the key")
            frames[-1].key, at, expecting = key, at + 1, _VALUE
            continue
        if expecting in (_VALUE, _VALUE_OR_END) and char not in ("]", "}"):
            if char in ("{", "["):
                frames.append(_Frame(at, len(whole), is_object=char == "{"))
                at, expecting = at + 1, _KEY_OR_END if char == "{" else _VALUE_OR_END
            else:
                value, at = _string(text, at) if char == '"' else _scalar(text, at)
                frames[-1].add(value)
                expecting = _COMMA_OR_END
            continue
        frame = frames[-1]
        if expecting == _COMMA_OR_END and char == ",":
            at, expecting = at + 1, _KEY if frame.is_object else _VALUE
            continue
        if expecting in (_KEY, _VALUE) or char != ("}" if frame.is_object else "]"):
            raise _Refused(at, _missing(expecting, char, frame.is_object))
        at += 1
        frames.pop()
        too_deep = frame.height > DEEPEST
        if frame.is_object and too_deep:
            failed.append(frame.start)
        elif frame.is_object:
            del whole[frame.mark :]
            whole.append(Found(frame.start, at, frame.value))
        if not frames:
            return
        frames[-1].add(None if too_deep else frame.value)
        frames[-1].height = max(frames[-1].height, frame.height + 1)
        expecting = _COMMA_OR_END


def _missing(expecting: int, char: str, in_object: bool) -> str:  # noqa: FBT001 - told by position, as the others
    if not char:
        return "the text ends before the object does"
    if expecting in (_KEY, _KEY_OR_END):
        return "a key in double quotes is expected" + (", not a comma before it" if char == "}" else "")
    if expecting == _COMMA_OR_END:
        return f"a comma or {'}' if in_object else ']'} is expected"
    return "a value is expected"


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _string(text: str, at: int) -> tuple[str, int]:
    """Read the string whose opening quote is at `at`; gives it and where it ends."""
    close = _closing_quote(text, at + 1)
    if close < 0:
        raise _Refused(at, "a string is not closed")
    try:  # on a slice, for the error counts all lines before it
        return scanstring(text[at + 1 : close + 1], 0)[0], close + 1
    except JSONDecodeError as error:
        what = "a line break or control character" if error.msg.startswith("Invalid control") else "a backslash"
        raise _Refused(at + 1 + error.pos, f"{what} in a string is not escaped") from None


def _closing_quote(text: str, begins: int) -> int:
    """Find the quote that ends the string which begins at `begins`, -1 where none does."""
    close = text.find('"', begins)
    while close >= 0:
        before = close
        while before > begins and text[before - 1] == "\\":
            before -= 1
        if (close - before) % 2 == 0:
            return close
        close = text.find('"', close + 1)
    return -1


def _scalar(text: str, at: int) -> tuple[Any, int]:
    try:
        read: tuple[Any, int] = _SCAN(text, at)
    except StopIteration:
        raise _Refused(
            at, "a value is expected" if text[at : at + 1] else "the text ends before the object does"
        ) from None
    except ValueError as error:
        raise _Refused(at, str(error)) from None
    return read


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
    raise ValueError(f"{word} is no JSON")


_DECODER = JSONDecoder(parse_int=_whole_number, parse_float=_finite, parse_constant=_no_constant)
_SCAN = _DECODER.scan_once  # type: ignore[attr-defined] # as above


def begins_with_key(text: str, start: int) -> bool:
    """Tell whether the brace at `start` is followed by a key and its colon: then somebody meant JSON."""
    at = _past_blanks(text, start + 1)
    close = _closing_quote(text, at + 1) if text[at : at + 1] == '"' else -1
    if close < 0:
        return False
    at = _past_blanks(text, close + 1)
    return text[at : at + 1] == ":"


def broken(text: str) -> list[tuple[int, int]]:
    """Give every brace from which nothing parses, outside of the objects that do, in order.

    As (start, end): end is behind the brace that balances it, as D33 has it (strings and escapes respected, no string
    open at the beginning), -1 where none does.
    """
    found: list[tuple[int, int]] = []
    spans = objects(text)
    span = next(spans, None)
    for start, end in sorted(_balanced(text)):
        while span is not None and span.end <= start:
            span = next(spans, None)
        if span is None or start < span.start:
            found.append((start, end))
    return found


def _balanced(text: str) -> Iterator[tuple[int, int]]:
    """Give every brace with where it is balanced, -1 for nowhere.

    One pass for all beginnings at once. What has begun is in one of three states: outside of a string, in one, or in
    one behind a backslash. All in one state share what follows, so they share a stack; where two states become one,
    their stacks are joined by their tops. A join costs as much as the shorter stack has levels, and takes as many away.
    """
    outside: list[_Group] = []
    inside: list[_Group] = []
    escaped: list[_Group] = []
    behind = -1  # the place behind a backslash
    for match in _MARK.finditer(text, _find(text, "{", 0)):
        at, char = match.start(), match[0]
        if escaped and (at != behind or char not in ('"', "\\")):
            inside, escaped = _joined(inside, escaped), []
        if char == '"':
            if escaped:
                outside, escaped = _joined(outside, escaped), []
            outside, inside = inside, outside
        elif char == "\\":
            inside, escaped, behind = escaped, inside, at + 1
        elif char == "{":
            outside.append(at)
        elif outside:
            for start in _starts(outside.pop()):
                yield start, at + 1
    for group in (*outside, *inside, *escaped):
        for start in _starts(group):
            yield start, -1


# Beginnings that one brace balances: a place, or two groups that became one.
if TYPE_CHECKING:
    _Group = int | tuple["_Group", "_Group"]


def _joined(one: list[_Group], other: list[_Group]) -> list[_Group]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    for level in range(-len(shorter), 0):
        longer[level] = (longer[level], shorter[level])
    return longer


def _starts(group: _Group) -> Iterator[int]:
    left = [group]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left += one
        else:
            yield one
