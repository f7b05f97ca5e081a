"""Reading JSON that people write: strict, with the line of every mistake, then an object's fields one by one.

What nobody took of an object survives as extra.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.kit.problems import POSSIBLE_TYPO, at, choices, error, kind_of, nearest, shown, warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


# One path component on every file system (D10); the schema's pattern says the same.
ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_ABSENT: Any = object()


class Fields:
    """Getters over one object. Each gives None (or an empty tuple) for what is absent or was reported as wrong."""

    def __init__(self, raw: Mapping[str, Any], where: str, problems: list[Problem]) -> None:
        self._raw, self.problems = raw, problems
        self._taken: set[str] = set()
        self.where = where

    @classmethod
    def opened(cls, raw: object, where: str, problems: list[Problem]) -> Fields | None:
        """Begin to read `raw`, or report that it is no object."""
        if not isinstance(raw, dict):
            problems.append(error("WRONG_TYPE", where, f"expected an object, got {kind_of(raw)}"))
            return None
        return cls(raw, where, problems)

    def has(self, key: str) -> bool:
        """Tell whether the key is there, whatever its value."""
        return key in self._raw

    def raw(self, key: str) -> Any:
        """Take a value as it is; None if absent."""
        self._taken.add(key)
        return self._raw.get(key)

    def path(self, *keys: str | int) -> str:
        """Give the JSON path of something in this object."""
        return at(self.where, *keys)

    def fail(self, code: str, key: str, message: str, hint: str = "") -> None:
        """Report an error at one key, or at the object itself if that is empty."""
        self.problems.append(error(code, self.path(key) if key else self.where, message, hint))

    def warn(self, code: str, key: str, message: str, hint: str = "") -> None:
        """Report a warning at one key."""
        self.problems.append(warning(code, self.path(key), message, hint))

    def seconds(self, key: str, *, most: int) -> float | None:
        """Take a number of seconds above 0 and at most `most`."""
        if not self.has(key):
            return None
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail("WRONG_TYPE", key, f"{key}: expected seconds, got {kind_of(value)}", f'"{key}": 600')
            return None
        if not 0 < value <= most:
            self.fail("OUT_OF_RANGE", key, f"{key} is in seconds, above 0 and at most {most:,}")
            return None
        return float(value)

    def text(self, key: str, *, required: bool = False, blank: bool = False) -> str | None:
        """Take text; an empty one is refused unless `blank`."""
        value = self._take(key, required=required)
        if value is _ABSENT:
            return None
        if not isinstance(value, str):
            self._wrong(key, "text", value)
            return None
        if not value.strip() and not blank:
            self.fail("EMPTY_TEXT", key, f"{key} is empty", "write it, or leave the key out")
            return None
        return value

    def flag(self, key: str, *, required: bool = False) -> bool | None:
        """Take true or false."""
        value = self._take(key, required=required)
        if value is _ABSENT or isinstance(value, bool):
            return None if value is _ABSENT else value
        self._wrong(key, "true or false", value)
        return None

    def whole(self, key: str) -> int | None:
        """Take a whole number, zero or more."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            self._wrong(key, "a whole number", value)
            return None
        if value < 0:
            self.fail("OUT_OF_RANGE", key, f"{key} is below zero")
            return None
        return value

    def choice(self, key: str, known: Sequence[str], *, code: str = "UNKNOWN_VALUE") -> str | None:
        """Take one of the known words."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        if not isinstance(value, str):
            self._wrong(key, "text", value)
            return None
        if value not in known:
            self.fail(code, key, f"{shown(value)} is no {key}", choices(value, known))
            return None
        return value

    def texts(
        self, key: str, *, required: bool = False, check: Callable[[str, str], Problem | None] | None = None
    ) -> tuple[str, ...] | None:
        """Take a list of texts, none of them empty; `check` gets each with its JSON path and may object."""
        entries = self.items(key, required=required)
        if entries is None:
            return None
        found: list[str] = []
        for where, entry in entries:
            if not isinstance(entry, str):
                self.problems.append(error("WRONG_TYPE", where, f"expected text, got {kind_of(entry)}"))
            elif not entry.strip():
                self.problems.append(error("EMPTY_TEXT", where, "an empty entry", "leave it out"))
            else:
                objection = check(where, entry) if check else None
                if objection is not None:
                    self.problems.append(objection)
                found.append(entry)
        return tuple(found)

    def items(self, key: str, *, required: bool = False) -> list[tuple[str, Any]] | None:
        """Take a list, each entry with its JSON path."""
        value = self._take(key, required=required)
        if value is _ABSENT:
            return None
        if not isinstance(value, list):
            self._wrong(key, "a list", value)
            return None
        return [(self.path(key, index), entry) for index, entry in enumerate(value)]

    def inner(self, key: str) -> Fields | None:
        """Take an object to read; None if it is absent or none."""
        return Fields.opened(self.raw(key), self.path(key), self.problems) if self.has(key) else None

    def each(self, key: str, *, required: bool = False) -> list[Fields] | None:
        """Take a list of objects to read; what is none is reported."""
        entries = self.items(key, required=required)
        if entries is None:
            return None
        opened = (Fields.opened(raw, where, self.problems) for where, raw in entries)
        return [one for one in opened if one is not None]

    def entries(self, key: str) -> list[tuple[str, str, Any]] | None:
        """Take an object as (name, JSON path, value) in its order."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        if not isinstance(value, dict):
            self._wrong(key, "an object", value)
            return None
        return [(name, self.path(key, name), entry) for name, entry in value.items()]

    def rest(self, *, later: Sequence[str] = (), inert: Sequence[str] = ()) -> dict[str, Any]:
        """Give what no getter took, kept as it is.

        later: keys that are not supported yet, an error; inert: keys that are kept and change nothing, a warning if
        they say something. Any other key that looks like a slip of the pen is named.
        """
        kept = {key: self.raw(key) for key in (*later, *inert) if self.has(key)}
        for key, value in kept.items():
            if key in later:
                self.fail("NOT_SUPPORTED", key, f"{key} is not supported yet", f"leave {key} out for now")
            elif any(value.values()) if isinstance(value, dict) else value:
                self.warn("IGNORED_FIELD", key, f"kept, but Loom does not act on {key}")
        known = sorted(self._taken)
        extra = {key: value for key, value in self._raw.items() if key not in self._taken}
        for key in extra:
            meant = nearest(key.lower(), [name for name in known if name not in self._raw], cutoff=0.82)
            if meant:
                hint = f"write {meant} if you meant that; else nothing needs to be done"
                self.warn(POSSIBLE_TYPO, key, f"Loom knows no {shown(key)} here; did you mean {meant}?", hint)
        return {**kept, **extra}

    def _take(self, key: str, *, required: bool) -> Any:
        self._taken.add(key)
        if key in self._raw:
            return self._raw[key]
        if required:
            self.fail("MISSING_FIELD", key, f"{key} is missing")
        return _ABSENT

    def _wrong(self, key: str, expected: str, value: object) -> None:
        hint = "YAML reads yes, no, on, off as true and false: put quotes around it" if isinstance(value, bool) else ""
        if expected != "text":
            hint = "leave the key out" if value is None else ""
        self.fail("WRONG_TYPE", key, f"{key}: expected {expected}, got {kind_of(value)}", hint)


def objects(holder: object, key: str, where: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Go through the objects of a list, each with its JSON path; what has another shape is passed over."""
    listed = holder.get(key) if isinstance(holder, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            yield at(where, key, index), entry


def is_id(text: str) -> bool:
    """Tell whether text may name a phase, step or artifact."""
    return ID.fullmatch(text) is not None


ID_RULE = "letters, digits, '_', '-' and '.', beginning with a letter, digit or '_', no '..', 80 characters at most"


def only(keys: Sequence[str], values: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Build an object for writing: the known keys that have a value, in order, then the extra ones."""
    known = {key: values[key] for key in keys if values[key] is not None}
    return {**known, **{key: value for key, value in extra.items() if key not in known}}
