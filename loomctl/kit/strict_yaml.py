"""Reading YAML that people write, as data that JSON could hold: no aliases, tags or dates, each key once and text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from loomctl.kit.problems import error, kind_of, shown
from loomctl.kit.strict_json import MOST_PROBLEMS, surrogates

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomctl.kit.problems import Problem

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


def parse(text: str, *, max_depth: int) -> tuple[Any, list[Problem]]:
    """Parse one YAML document and gather what is wrong, each with line and column; the value is None if anything is.

    Plain words are read as YAML 1.1 readers do for true/yes/on, false/no/off, null and decimal numbers; everything
    else, dates and times included, stays text. Built from the parser's events with a stack of its own, so that
    neither depth nor an alias bomb can hurt.
    """
    reader = _Reader(max_depth)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if not reader.take(event):
                break
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "$"
        said = " ".join(part for part in (problem.context, problem.problem) if part)
        reader.found.append(error("YAML_SYNTAX", where, f"this is not YAML: {said}", _hint(said)))
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
        if len(self.found) >= MOST_PROBLEMS:
            return False
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail("YAML_DOCUMENTS", event, "a second document begins", "one file holds one workflow")
                return False
        elif isinstance(event, yaml.AliasEvent):
            self._fail("YAML_ALIAS", event, f"the alias *{event.anchor}", "write it out, or use extends to share")
            self._put(None, event)
        elif isinstance(event, yaml.NodeEvent):
            return self._node(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._stack.pop()
        return True

    def _node(self, event: Any) -> bool:
        self._values += 1
        if self._values > _MOST_VALUES:
            message = f"more than {_MOST_VALUES:,} values"
            self._fail("TOO_LARGE", event, message, "no workflow needs this; JSON is read faster")
            return False
        if event.anchor is not None:
            self._fail("YAML_ALIAS", event, f"the anchor &{event.anchor}", "anchors and aliases are not read here")
        if event.tag is not None:
            self._fail("YAML_TAG", event, f"the tag {shown(str(event.tag))}", "leave tags out: text, numbers, lists")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] and event.tag is None
            self._put(_scalar(event.value) if plain else event.value, event)
            return True
        made: _Frame = _Frame({}) if isinstance(event, yaml.MappingStartEvent) else _Frame([])
        self._put(made.value, event)
        self._stack.append(made)
        if len(self._stack) > self._max_depth:
            hint = "no workflow needs this; make it flatter"
            self._fail("TOO_DEEP", event, f"nested more than {self._max_depth} deep", hint)
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
            what = "YAML reads this key as " + kind_of(value)
            if isinstance(event, yaml.ScalarEvent):
                what = f"YAML reads the key {event.value[:40]} as {kind_of(value)}"
            self._fail("NON_STRING_KEY", event, what, "put quotes around it")
            return f"\0{line}:{column}"
        if value in frame.lines:
            message = f"the key {shown(value)} stands twice, here and in line {frame.lines[value]}"
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


def _hint(said: str) -> str:
    if "'{'" in said or "'%'" in said or "flow mapping" in said:
        return "text that begins with { or [ needs quotes; a template has to be rendered first"
    if "\\t" in said:
        return "YAML is indented with spaces, not tabs"
    if "mapping values are not allowed" in said:
        return "text with a colon in it needs quotes"
    return ""
