"""The conditions of workflows in DOT (`outcome=succeeded && context.tests_passed=true`), as JavaScript (D61).

What comes out is evaluated like every other condition (D12); all but `contains` and `matches` is simple.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from loomctl.expressions.conditions import MAX_SOURCE
from loomctl.expressions.javascript import OBJECT_PROTOTYPE, decimal
from loomctl.kit.problems import choices

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 4_096  # characters
DEEPEST = 50  # parentheses and negations in each other
JAVASCRIPT = "js:"  # what stands behind it is JavaScript as it is

OUTCOMES = ("succeeded", "failed", "partially_succeeded", "skipped")
_OUTCOME_NAMES = {
    **{name: name for name in OUTCOMES},
    "success": "succeeded",
    "fail": "failed",
    "failure": "failed",
    "partial": "partially_succeeded",
    "partial_success": "partially_succeeded",
}
_NAMES = ("outcome", "preferred_label")  # all others are keys of the context
_COMPARISONS = ("!==", "!=", ">=", "<=", "===", "==", "=", ">", "<")
_KEY = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_WORD = re.compile(r"(contains|matches)(?=[\s\"'])")
_PLAIN_MEMBER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"(?:(?!&&|\|\|)[^\s()\"'])+")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_FLAGS = re.compile(r"\(\?([ims]+)\)")
_LINE_ENDS = {"\n": "\\n", "\r": "\\r", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Compiled(NamedTuple):
    """javascript: empty if there are errors; errors and warnings: sentences, a place in the condition named."""

    javascript: str
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()


class _WrongError(Exception):
    pass


def compile_condition(source: str) -> Compiled:
    """Turn a condition as DOT files write it into a JavaScript condition over outcome, context and preferred_label."""
    if source.lstrip().startswith(JAVASCRIPT):
        javascript = source.lstrip()[len(JAVASCRIPT) :].strip()
        return Compiled(javascript, () if javascript else (f"there is no JavaScript after {JAVASCRIPT}",))
    if len(source) > LONGEST:
        return Compiled("", (f"a condition may have at most {LONGEST:,} characters",))
    parser = _Parser(source)
    try:
        javascript = parser.whole()
    except _WrongError as wrong:
        return Compiled("", (str(wrong),))
    if len(javascript) > MAX_SOURCE:
        return Compiled("", ("the condition is too long in JavaScript",))
    return Compiled(javascript, (), parser.warnings)


class _Parser:
    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0
        self.warnings: list[str] = []

    def whole(self) -> str:
        made = self._any(0)
        if self._peek():
            left = self._source[self._at : self._at + 20]
            raise _WrongError(f"unexpected {left!r} in column {self._at + 1}; put a value of several words in quotes")
        return made

    def _any(self, depth: int) -> str:
        ways = [self._all(depth)]
        while self._took("||"):
            ways.append(self._all(depth))
        return " || ".join(ways)

    def _all(self, depth: int) -> str:
        needs = [self._one(depth)]
        while self._took("&&"):
            needs.append(self._one(depth))
        return " && ".join(needs)

    def _one(self, depth: int) -> str:
        if depth > DEEPEST:
            raise _WrongError(f"it is nested more than {DEEPEST} deep")
        if self._took("!"):
            return _negated(self._one(depth + 1))
        if self._took("("):
            inner = self._any(depth + 1)
            if not self._took(")"):
                raise _WrongError(f"missing ) in column {self._at + 1}")
            return f"({inner})" if " || " in inner or " && " in inner else inner
        return self._clause()

    def _clause(self) -> str:
        self._peek()
        found = _KEY.match(self._source, self._at)
        if found is None:
            here = self._source[self._at : self._at + 10]
            said = repr(here) if here else "the end"
            raise _WrongError(
                f"expected a key such as outcome or context.tests_passed in column {self._at + 1}, got {said}"
            )
        self._at = found.end()
        key = found[0]
        self._peek()
        word = _WORD.match(self._source, self._at)
        if word is not None:
            self._at = word.end()
            return self._worded(key, word[1])
        for operator in _COMPARISONS:
            if self._source.startswith(operator, self._at):
                self._at += len(operator)
                return self._compared(key, {"===": "=", "==": "=", "!==": "!="}.get(operator, operator))
        if key in ("true", "false"):
            self.warnings.append(
                f"{key} means a context key here; leave the condition out if the transition is always open"
            )
        return _truth(self._known(key))

    def _known(self, key: str) -> str:
        meant = "preferred_label" if key == "preferred_next_label" else key.lower()
        if meant != key and meant in _NAMES:
            self.warnings.append(f"{key} means a context key here; did you mean {meant}?")
        return _place(key)

    def _compared(self, key: str, operator: str) -> str:
        place, (value, quoted) = self._known(key), self._value(operator)
        if not quoted and value[0] in "<>=!":
            raise _WrongError(
                f"unexpected {operator + value!r:.40}; put a value that begins with such a sign in quotes"
            )
        if operator in ("=", "!="):
            if key == "outcome":
                value = self._outcome(value)
            equal = _labelled(value) if key == "preferred_label" else _equality(place, value, quoted=quoted)
            return equal if operator == "=" else _negated(equal)
        number = _number(value)
        if number is None:
            raise _WrongError(f"{operator} needs a number, got {value!r:.40}")
        return (
            f"({place} != null && {place} !== true && {place} !== false && "
            f'!({place} < "+") && !({place} >= ":") && {place} {operator} {number})'
        )

    def _worded(self, key: str, word: str) -> str:
        place = self._known(key)
        value, _ = self._value(word)
        if word == "contains":
            text = json.dumps(value)
            return (
                f"(Array.isArray({place}) ? {place}.some(one => String(one) === {text}) : "
                f'{place} != null && typeof {place} !== "object" && String({place}).includes({text}))'
            )
        return f'({place} != null && typeof {place} !== "object" && {_regex(value)}.test(String({place})))'

    def _outcome(self, value: str) -> str:
        name = _OUTCOME_NAMES.get(value.lower())
        if name is None:
            self.warnings.append(f"no step ends with {value!r:.40}: {choices(value, OUTCOMES)}")
        return name or value

    def _value(self, operator: str) -> tuple[str, bool]:
        self._peek()
        found = _QUOTED.match(self._source, self._at)
        if found is not None:
            self._at = found.end()
            text = found[1] if found[1] is not None else found[2]
            # A backslash before anything else belongs to a regular expression.
            return (text if operator == "matches" else re.sub(r"\\([\"'\\])", r"\1", text)), True
        begins = self._at
        if operator == "matches":
            self._pass_pattern()
        elif (bare := _BARE.match(self._source, self._at)) is not None:
            self._at = bare.end()
        if begins == self._at and self._peek() in ("'", '"'):
            raise _WrongError(f"the quoted value in column {begins + 1} has no end")
        if begins == self._at:
            raise _WrongError(f'missing value after {operator} in column {begins + 1}; write "" for no value')
        return self._source[begins : self._at], False

    def _pass_pattern(self) -> None:
        """Go to a bare pattern's end: blank, && and || end it, and a ) that it has not opened."""
        source, depth = self._source, 0
        while self._at < len(source) and not source[self._at].isspace():
            char = source[self._at]
            if char == "\\":
                self._at += 1
            elif char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
            if depth < 0 or source.startswith(("&&", "||"), self._at):
                return
            self._at = min(self._at + 1, len(source))

    def _peek(self) -> str:
        found = _SPACE.match(self._source, self._at)
        self._at = found.end() if found else self._at
        return self._source[self._at : self._at + 1]

    def _took(self, mark: str) -> bool:
        self._peek()
        taken = self._source.startswith(mark, self._at) and not (
            mark == "!" and self._source.startswith("!=", self._at)
        )
        self._at += len(mark) if taken else 0
        return taken


def both(first: str, second: str) -> str:
    """Join two JavaScript conditions: each must be true; an empty one is."""
    return f"({first}) && ({second})" if first and second else first or second


def neither(conditions: Sequence[str]) -> str:
    """Say in JavaScript that none of these is true; of none, nothing."""
    return " && ".join(f"!({one})" for one in conditions)


def _negated(one: str) -> str:
    """Say that one operand, which is bracketed where it holds operators of its own kind, is not true."""
    return f"!{one}" if one.startswith("(") else f"!({one})"


def _place(key: str) -> str:
    """Give the JavaScript for a key: dotted ones are flat keys of the context."""
    if key in _NAMES:
        return key
    name = key.removeprefix("context.")
    if not name or name in OBJECT_PROTOTYPE:
        raise _WrongError(f"{key!r} is not a valid context key")
    return f"context.{name}" if _PLAIN_MEMBER.fullmatch(name) else f"context[{json.dumps(name)}]"


def _truth(place: str) -> str:
    return f'({place} && {place} != "" && {place} !== "false" && {place} !== "0")'


def _equality(place: str, value: str, *, quoted: bool) -> str:
    """Compare as people mean it: 81 equals 81 and "81", true equals true and "true", nothing equals "" and null."""
    text = f"{place} === {json.dumps(value)}"
    if value == "" or (value == "null" and not quoted):
        return f"({place} == null || {text})"
    if value in ("true", "false"):
        return f"({place} === {value} || {text})"
    number = _number(value)
    return f"({place} === {number} || {text})" if number is not None else text


def _labelled(value: str) -> str:
    """Compare with the chosen label, which a response may write in small or capital letters."""
    spellings = dict.fromkeys((value, value.lower(), value.capitalize(), value.upper()))
    return "(" + " || ".join(f"preferred_label === {json.dumps(one)}" for one in spellings) + ")"


def _number(value: str) -> str | None:
    digits = value.removeprefix("-")
    found = decimal(digits, 0)
    return value if found is not None and found[1] == len(digits) else None


def _regex(pattern: str) -> str:
    """Write a regular expression as a JavaScript literal, which the engine checks before a run."""
    flags = ""
    leading = _FLAGS.match(pattern)
    if leading is not None:
        flags, pattern = "".join(sorted(set(leading[1]))), pattern[leading.end() :]
    if not pattern:
        return f"/(?:)/{flags}"
    out: list[str] = []
    at = 0
    while at < len(pattern):
        step = 2 if pattern[at] == "\\" else 1
        part = pattern[at : at + step]
        if part == "\\":
            raise _WrongError("a regular expression ends with a single backslash")
        out.append("\\/" if part == "/" else "".join(_LINE_ENDS.get(char, char) for char in part))
        at += step
    return f"/{''.join(out)}/{flags}"


# What `compile_condition` writes, undone; {0} stands for a place, \1 for the same place again.
_PLACE = r'(outcome|preferred_label|context\.\w+|context\["(?:[^"\\]|\\.)*"\])'
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_UNDONE = (
    (
        re.compile(
            rf'\({_PLACE} != null && \1 !== true && \1 !== false && !\(\1 < "\+"\) && !\(\1 >= ":"\) && '
            r"\1 (>=|<=|>|<) (-?[0-9.eE+-]+)\)"
        ),
        r"\1 \2 \3",
    ),
    (re.compile(rf'\({_PLACE} && \1 != "" && \1 !== "false" && \1 !== "0"\)'), r"\1"),
    (re.compile(rf"\({_PLACE} == null \|\| \1 === {_TEXT}\)"), r'\1="\2"'),
    (re.compile(rf"\({_PLACE} === ([\w.+-]+) \|\| \1 === {_TEXT}\)"), r"\1=\3"),
    (
        re.compile(rf'\(preferred_label === {_TEXT}(?: \|\| preferred_label === "(?:[^"\\]|\\.)*")*\)'),
        r'preferred_label="\1"',
    ),
    (
        re.compile(
            rf"\(Array\.isArray\({_PLACE}\) \? \1\.some\(one => String\(one\) === {_TEXT}\) : .*?"
            r'String\(\1\)\.includes\("(?:[^"\\]|\\.)*"\)\)'
        ),
        r'\1 contains "\2"',
    ),
    (
        re.compile(rf'\({_PLACE} != null && typeof \1 !== "object" && /((?:[^/\\]|\\.)+)/\.test\(String\(\1\)\)\)'),
        r'\1 matches "\2"',
    ),
    (re.compile(rf"!\({_PLACE} === {_TEXT}\)"), r'\1!="\2"'),
    (re.compile(rf"{_PLACE} === {_TEXT}"), r'\1="\2"'),
)
_FLAT = re.compile(r'context\["([A-Za-z_][\w.-]*)"\]')
_NEEDLESS_QUOTES = re.compile(r'(?<=[=])"([\w.-]+)"')


def readable(javascript: str) -> str:
    """Give a condition as DOT files write it, where it is one that `compile_condition` made; else as it is.

    For people: what comes out may be a mixture of both where only parts of a condition were made so.
    """
    shown = javascript
    for pattern, short in _UNDONE:
        shown = pattern.sub(short, shown)
    return _NEEDLESS_QUOTES.sub(r"\1", _FLAT.sub(r"context.\1", shown))


def as_written(javascript: str) -> str:
    """Give a condition for a DOT file, which `compile_condition` turns back: JavaScript where nothing else does."""
    shown = readable(javascript)
    compiled = compile_condition(shown)
    return shown if not compiled.errors and compiled.javascript == javascript else f"{JAVASCRIPT} {javascript}"
