"""Reading JSON that people write: strict, with the line of every mistake, doubled keys and endless depth included."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.kit.problems import error, shown

if TYPE_CHECKING:
    from loomctl.kit.problems import Problem

# Strings first, so that brackets and colons inside them are not seen. A string without its end matches too (as group 1
# says): looked for again from each of its quotes, it would take time by the square.
_TOKEN = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*("?)|[\[\]{}:,]')
_LONGEST_NUMBER = 400  # digits; what JSON writers of other languages can read back
MOST_PROBLEMS = 100  # of one file; finding each next one takes time, and nobody reads on
_HINTS = (
    ("Illegal trailing comma", "take the comma out"),
    ("Expecting property name", "keys stand in double quotes, and no comma follows the last entry"),
    ("Expecting ',' delimiter", "a comma is missing, or a quote inside a text needs a backslash"),
    ("Expecting value", "a value is missing here; JSON knows no comments and no trailing comma"),
    ("Invalid control character", "a line break inside a text is written \\n"),
    ("Invalid \\escape", "a backslash inside a text is written \\\\"),
    ("Extra data", "a file holds one value"),
)


def parse(text: str, *, max_depth: int) -> tuple[Any, list[Problem]]:
    """Parse JSON and gather what is wrong, each with line and column; the value is None if anything is.

    Refused beyond bad syntax: nesting over `max_depth`, a key twice in one object, NaN and infinities, numbers that
    overflow, lone surrogates.
    """
    found = _shape(text, max_depth)
    if any(problem.code == "TOO_DEEP" for problem in found):
        return None, found
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_countable)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        return None, [*found, error("JSON_SYNTAX", where, f"this is not JSON: {problem.msg}", _hint(problem, text))]
    except RecursionError:
        return None, [*found, _too_deep("$", max_depth)]
    except ValueError as problem:
        return None, [*found, error("JSON_SYNTAX", "$", f"this is not JSON: {problem}")]
    if not text.isascii() or "\\ud" in text.lower():
        found += surrogates(value)
    return (None if found else value), found


def surrogates(value: Any) -> list[Problem]:
    """Report text that no file can hold: half of a surrogate pair."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and any("\ud800" <= character <= "\udfff" for character in item):
            message = f"half of a surrogate pair in {shown(item)}"
            return [error("BAD_TEXT", "$", message, "write the character itself, or both halves")]
    return []


def position(text: str, at: int) -> str:
    """Name a place in the text as `line 3, column 7`."""
    start = text.rfind("\n", 0, at) + 1
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - start + 1}"


def _shape(text: str, max_depth: int) -> list[Problem]:
    """Find nesting that is too deep and keys that stand twice, in one pass without recursion."""
    found: list[Problem] = []
    stack: list[dict[str, int] | None] = []
    last: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if token[1] == "":  # the parser says where it should have ended
            return found
        if mark in ("{", "["):
            stack.append({} if mark == "{" else None)
            if len(stack) > max_depth:
                return [*found, _too_deep(position(text, token.start()), max_depth)]
        elif mark in ("}", "]"):
            if stack:
                stack.pop()
        elif mark == ":" and last is not None and stack and (keys := stack[-1]) is not None:
            key = _unquoted(last.group())
            if key in keys:
                message = f"the key {shown(key)} stands twice, here and at {position(text, keys[key])}"
                found.append(error("DUPLICATE_KEY", position(text, last.start()), message, "keep one of them"))
                if len(found) == MOST_PROBLEMS:
                    return found
            keys.setdefault(key, last.start())
        last = token if mark[0] == '"' else None
    return found


def _unquoted(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted


def _too_deep(where: str, max_depth: int) -> Problem:
    return error("TOO_DEEP", where, f"nested more than {max_depth} deep", "no workflow needs this; make it flatter")


def _hint(problem: json.JSONDecodeError, text: str) -> str:
    around = text[max(0, problem.pos - 3) : problem.pos + 3]
    if "{{" in around or "{%" in around:
        return "this looks like a template; render it first"
    if not text.strip():
        return "the file is empty"
    return next((hint for start, hint in _HINTS if problem.msg.startswith(start)), "")


def _no_constant(word: str) -> Any:
    message = f"{word} is no JSON number"
    raise ValueError(message)


def _countable(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        message = f"the number {digits[:20]}… is too long"
        raise ValueError(message)
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        message = f"the number {digits[:40]} is too large"
        raise ValueError(message)
    return number


DEEPEST = 64
