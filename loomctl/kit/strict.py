"""Reading JSON and YAML that people write: strict, with the line of every mistake, doubled keys and endless depth too.

YAML is read as data that JSON could hold: no aliases, tags or dates, each key once and text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.kit.problems import error, kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import yaml

    from loomctl.kit.problems import Problem

# Strings first, so that brackets and colons inside them are not seen. A string without its end matches too (as group 1
# says): looked for again from each of its quotes, it would take time by the square.
_TOKEN = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*("?)|[\[\]{}:,]')
_LONGEST_NUMBER = 400  # digits; what JSON writers of other languages can read back
DEEPEST = 64  # levels of nesting
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


def parse_json(text: str, *, max_depth: int) -> tuple[Any, list[Problem]]:
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
        return None, [
            *found,
            error("JSON_SYNTAX", where, f"this is not JSON: {problem.msg}", _json_hint(problem, text)),
        ]
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


def _json_hint(problem: json.JSONDecodeError, text: str) -> str:
    around = text[max(0, problem.pos - 3) : problem.pos + 3]
    if "{{" in around or "{%" in around:
        return "this looks like a template; render it first"
    if not text.strip():
        return "the file is empty"
    return next((hint for start, hint in _HINTS if problem.msg.startswith(start)), "")


def _no_constant(word: str) -> Any:
    message = f"{word} is not a JSON number"
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


_WORDS: dict[str, bool | None] = {
    **{form: None for word in ("null",) for form in (word, word.title(), word.upper())},
    "~": None,
    "": None,
    **{form: True for word in ("true", "yes", "on") for form in (word, word.title(), word.upper())},
    **{form: False for word in ("false", "no", "off") for form in (word, word.title(), word.upper())},
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_MOST_VALUES = 20_000  # of one file; the reader makes some ten thousand a second
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?")


class _Frame:
    """A list or mapping under construction. key: the key whose value comes next; lines: where each key stands."""

    __slots__ = ("key", "lines", "value")

    def __init__(self, value: list[Any] | dict[str, Any]) -> None:
        self.value = value
        self.key: str | None = None
        self.lines: dict[str, int] = {}


def parse_yaml(text: str, *, max_depth: int) -> tuple[Any, list[Problem]]:
    """Parse one YAML document and gather what is wrong, each with line and column; the value is None if anything is.

    Plain words are read as YAML 1.1 readers do for true/yes/on, false/no/off, null and decimal numbers; everything
    else, dates and times included, stays text. Built from the parser's events with a stack of its own, so that
    neither depth nor an alias bomb can hurt.
    """
    import yaml  # 30 ms, and most files are JSON

    reader = _Reader(max_depth)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if not reader.take(event):
                break
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "$"
        said = " ".join(part for part in (problem.context, problem.problem) if part)
        reader.found.append(error("YAML_SYNTAX", where, f"this is not YAML: {said}", _yaml_hint(said)))
    except yaml.YAMLError as problem:  # a character that no YAML holds
        reader.found.append(error("YAML_SYNTAX", "$", f"this is not YAML: {str(problem).splitlines()[0]}"))
    found = reader.found or surrogates(reader.root)
    return (None if found else reader.root), found


class _Reader:
    """Turns events into a value; `take` gives False where reading on makes no sense."""

    def __init__(self, max_depth: int) -> None:
        self.root: Any = None
        self.found: list[Problem] = []
        self._max_depth = max_depth
        self._stack: list[_Frame] = []
        self._documents = 0
        self._values = 0

    def take(self, event: yaml.Event) -> bool:
        import yaml

        if len(self.found) >= MOST_PROBLEMS:
            return False
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail("YAML_DOCUMENTS", event, "a second document begins", "one file holds one workflow")
                return False
        elif isinstance(event, yaml.AliasEvent):
            message = f"the YAML alias *{event.anchor} is not supported"
            self._fail("YAML_ALIAS", event, message, "write it out, or use extends to share")
            self._put(None, event)
        elif isinstance(event, yaml.NodeEvent):
            return self._node(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._stack.pop()
        return True

    def _node(self, event: Any) -> bool:
        import yaml

        self._values += 1
        if self._values > _MOST_VALUES:
            message = f"the file holds more than {_MOST_VALUES:,} values"
            self._fail("TOO_LARGE", event, message, "no workflow needs this many; Loom reads JSON faster")
            return False
        if event.anchor is not None:
            message = f"the YAML anchor &{event.anchor} is not supported"
            self._fail("YAML_ALIAS", event, message, "write the value out where it is used")
        if event.tag is not None:
            self._fail("YAML_TAG", event, f"the YAML tag {shown(str(event.tag))} is not supported", "leave the tag out")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] and event.tag is None
            self._put(_scalar(event.value) if plain else event.value, event)
            return True
        made: _Frame = _Frame({}) if isinstance(event, yaml.MappingStartEvent) else _Frame([])
        self._put(made.value, event)
        self._stack.append(made)
        if len(self._stack) > self._max_depth:
            hint = "no workflow needs this; make it flatter"
            self._fail("TOO_DEEP", event, f"nested more than {self._max_depth} levels deep", hint)
            return False
        return True

    def _put(self, value: Any, event: yaml.Event) -> None:
        if not self._stack:
            self.root = value
            return
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is None:
            frame.key = self._key(frame, value, event)
        else:
            frame.value[frame.key] = value
            frame.key = None

    def _key(self, frame: _Frame, value: Any, event: yaml.Event) -> str:
        line, column = _place(event)
        if not isinstance(value, str):
            import yaml

            what = "YAML reads this key as " + kind_of(value)
            if isinstance(event, yaml.ScalarEvent):
                what = f"YAML reads the key {event.value[:40]} as {kind_of(value)}"
            self._fail("NON_STRING_KEY", event, what, "put quotes around it")
            return f"\0{line}:{column}"
        if value in frame.lines:
            message = f"duplicate key {shown(value)}, here and in line {frame.lines[value]}"
            self._fail("DUPLICATE_KEY", event, message, "keep one of them")
        frame.lines.setdefault(value, line)
        return value

    def _fail(self, code: str, event: yaml.Event, message: str, hint: str) -> None:
        line, column = _place(event)
        self.found.append(error(code, f"line {line}, column {column}", message, hint))


def _place(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    convert: Callable[[str], float] | None = None
    if _INTEGER.fullmatch(text):
        convert = int
    elif _FLOAT.fullmatch(text):
        convert = float
    return text if convert is None else convert(text)


def _yaml_hint(said: str) -> str:
    if "'{'" in said or "'%'" in said or "flow mapping" in said:
        return "text that begins with { or [ needs quotes; a template has to be rendered first"
    if "\\t" in said:
        return "YAML is indented with spaces, not tabs"
    if "mapping values are not allowed" in said:
        return "text with a colon in it needs quotes"
    return ""
