"""Simple JavaScript conditions: compiled to JSON when a run starts, evaluated later without an engine (D12).

Exact or refused: what cannot be answered just as JavaScript would is not compiled (None) or raises NeedsEngine.

Compiled code is a tree of lists, fit for plan.json:
`["get", root, key…]`, `["of", node, key…]`, `["value", literal]`, `["undefined"]`, `["!", node]`,
`["&&" or "||", node, node…]` and `[comparison, left, right]`. A key is a string or an array index.
What takes the engine is asked as a Question and answered as an Answer (`engine`).
"""

from __future__ import annotations

from loomctl.expressions.javascript import (
    DIGITS,
    MAX_INDEX,
    NAME_START,
    OBJECT_PROTOTYPE,
    UNDEFINED,
    ConditionThrew,
    NeedsEngine,
    decimal,
    less,
    loosely_equal,
    member,
    strictly_equal,
    truthy,
)
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any


ROOTS = ("state", "outcome", "context", "preferred_label", "task")
MAX_SOURCE = 16_384  # characters; far beyond what a person writes, and it bounds the time of every parser
MAX_DEPTH = 200

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": loosely_equal,
    "!=": lambda left, right: not loosely_equal(left, right),
    "===": strictly_equal,
    "!==": lambda left, right: not strictly_equal(left, right),
    "<": less,
    "<=": lambda left, right: less(left, right, or_equal=True),
    ">": lambda left, right: less(right, left),
    ">=": lambda left, right: less(right, left, or_equal=True),
}
_BINARY = {"||": 1, "&&": 2} | {operator: 3 if operator[0] in "=!" else 4 for operator in _COMPARE}
_BINDING = _BINARY | {"(": 0, "!": 5}
_LITERALS = {"true": True, "false": False, "null": None}
_ESCAPES = dict(zip("ntrbfv\\'\"/", "\n\t\r\b\f\v\\'\"/", strict=True))
_HEX = frozenset("0123456789abcdefABCDEF")


def compile_condition(source: str) -> list[Any] | None:
    """Compile a simple condition (D12) to JSON-serialisable code, or give None if it takes the engine.

    None is also the answer for what is no JavaScript at all: only the engine can say what is wrong with it.
    Takes time linear in the source; at most MAX_SOURCE characters and MAX_DEPTH levels are simple.
    """
    if len(source) > MAX_SOURCE:
        return None
    try:
        return _Parser().parse(source)
    except _NotSimpleError:
        return None


def evaluate(code: list[Any], scope: Mapping[str, Any]) -> bool:
    """Say whether the compiled condition is truthy.

    scope: values as `json.loads` gives them under some of ROOTS; a root that is absent is not defined.
    Raises NeedsEngine, or ConditionThrew where JavaScript would throw.
    """
    return truthy(_value(code, scope, 1))


def values_of(code: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a compiled condition looks at, by its path (`state.context.score`); None for what is not there.

    All of it, also what stands behind an `&&` that was not passed. Nothing for what is no code of Loom's.
    """
    found: dict[str, Any] = {}
    waiting = [code]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, list) or not node:
            continue
        if node[0] == "get":
            try:
                value = _leaf("get", node[1:], scope)
            except (ConditionThrew, NeedsEngine):
                value = UNDEFINED
            found[".".join(map(str, node[1:]))] = None if value is UNDEFINED else value
        elif node[0] != "value":
            waiting += reversed(node[1:])
    return found


def _value(node: Any, scope: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(node, list) or not node or not isinstance(node[0], str) or depth > MAX_DEPTH:
        raise NeedsEngine("the compiled condition is not one that Loom writes")
    operator, *rest = node
    if operator in ("&&", "||"):
        return _chain(rest, scope, depth, until=operator == "||")
    if operator in _COMPARE and len(rest) == 2:
        left = _value(rest[0], scope, depth + 1)
        return _COMPARE[operator](left, _value(rest[1], scope, depth + 1))
    if operator == "!" and len(rest) == 1:
        return not truthy(_value(rest[0], scope, depth + 1))
    if operator == "of" and rest:
        return _members(_value(rest[0], scope, depth + 1), rest[1:])
    return _leaf(operator, rest, scope)


def _leaf(operator: str, rest: list[Any], scope: Mapping[str, Any]) -> Any:
    if operator == "value" and len(rest) == 1:
        return rest[0]
    if operator == "undefined":
        return UNDEFINED
    if operator != "get" or not rest or rest[0] not in ROOTS:
        raise NeedsEngine("the compiled condition is not one that Loom writes")
    if rest[0] not in scope:
        raise ConditionThrew(f"ReferenceError: {rest[0]} is not defined")
    return _members(scope[rest[0]], rest[1:])


def _chain(nodes: list[Any], scope: Mapping[str, Any], depth: int, *, until: bool) -> Any:
    """Give the first value whose truth is `until`, else the last; what comes after it is not looked at."""
    value: Any = None
    for node in nodes:
        value = _value(node, scope, depth + 1)
        if truthy(value) is until:
            break
    return value


def _members(value: Any, keys: list[Any]) -> Any:
    for key in keys:
        value = member(value, key)
    return value


class _NotSimpleError(Exception):
    pass


class _Parser:
    """Operator precedence with stacks of its own, so that no nesting meets Python's recursion limit."""

    def __init__(self) -> None:
        self.operands: list[tuple[list[Any], int]] = []  # node, depth
        self.operators: list[str] = []  # "(", "!" and binary operators that wait for their right side
        self.open = 0

    def parse(self, source: str) -> list[Any]:
        tokens = _tokens(source)
        wants_operand, has_members = True, False  # a literal's members are not simple
        for kind, word in tokens:
            if wants_operand:
                wants_operand, has_members = self._operand(kind, word, tokens)
            elif kind != "op":
                raise _NotSimpleError
            elif word in (".", "[") and has_members:
                self._add_member(_key(word, tokens))
            elif word == ")" and self.open:
                self._reduce_to(1)
                self.operators.pop()
                self.open -= 1
                has_members = True
            elif word in _BINARY:
                self._reduce_to(_BINARY[word])
                self.operators.append(word)
                wants_operand = True
            else:
                raise _NotSimpleError
        if wants_operand or self.open:
            raise _NotSimpleError
        self._reduce_to(1)
        return self.operands[0][0]

    def _operand(self, kind: str, word: Any, tokens: Iterator[tuple[str, Any]]) -> tuple[bool, bool]:
        """Take a word where an operand begins; say whether one is still wanted and whether it may have members."""
        if kind == "op" and word in ("(", "!"):
            self.operators.append(word)
            self.open += word == "("
            if self.open > MAX_DEPTH:
                raise _NotSimpleError
            return True, False
        if kind == "op" and word == "-":  # minus is an operator in JavaScript; before a number it comes to the same
            kind, word = next(tokens, ("", None))
            if kind != "number":
                raise _NotSimpleError
            word = -word or -0.0
        if kind == "name" and word in ROOTS:
            self._push(["get", word], 1)
            return False, True
        if kind in ("number", "string"):
            self._push(["value", word], 1)
        elif kind == "name" and word in _LITERALS:
            self._push(["value", _LITERALS[word]], 1)
        elif kind == "name" and word == "undefined":
            self._push(["undefined"], 1)
        else:
            raise _NotSimpleError
        return False, False

    def _push(self, node: list[Any], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _NotSimpleError
        self.operands.append((node, depth))

    def _add_member(self, key: str | int) -> None:
        node, depth = self.operands.pop()
        if node[0] in ("get", "of"):
            node.append(key)
            self._push(node, depth)
        else:
            self._push(["of", node, key], depth + 1)

    def _reduce_to(self, binding: int) -> None:
        """Apply the operators that bind at least as tightly, back to the last open parenthesis."""
        while self.operators and _BINDING[self.operators[-1]] >= binding:
            operator = self.operators.pop()
            right, right_depth = self.operands.pop()
            if operator == "!":
                self._push(["!", right], right_depth + 1)
                continue
            left, left_depth = self.operands.pop()
            if operator == left[0] and operator in ("&&", "||"):  # a long chain is one flat node
                left.append(right)
                self._push(left, max(left_depth, right_depth + 1))
            else:
                self._push([operator, left, right], max(left_depth, right_depth) + 1)


def _key(opener: str, tokens: Iterator[tuple[str, Any]]) -> str | int:
    kind, key = next(tokens, ("", None))
    if opener == ".":
        simple = kind == "name"
    else:
        simple = kind == "string" or (kind == "number" and isinstance(key, int) and key <= MAX_INDEX)
        simple = simple and next(tokens, None) == ("op", "]")
    if not simple or key in OBJECT_PROTOTYPE or not isinstance(key, (str, int)):
        raise _NotSimpleError
    return key


def _tokens(source: str) -> Iterator[tuple[str, Any]]:
    """Give (kind, value) of each name, number, string and operator; anything else is not simple."""
    at, end = 0, len(source)
    while at < end:
        char = source[at]
        if char in " \t\r\n":
            at += 1
        elif char in NAME_START:
            start = at
            while at < end and (source[at] in NAME_START or source[at] in DIGITS):
                at += 1
            yield "name", source[start:at]
        elif char in DIGITS or (char == "." and source[at + 1 : at + 2] in DIGITS):
            number = decimal(source, at)
            if number is None:
                raise _NotSimpleError
            at = number[1]
            yield "number", number[0]
        elif char in "\"'":
            text, at = _string(source, at)
            yield "string", text
        else:
            operator = _operator(source, at)
            at += len(operator)
            yield "op", operator


def _operator(source: str, at: int) -> str:
    for length in (3, 2, 1):  # the longest wins, as in JavaScript
        operator = source[at : at + length]
        if operator in _BINARY or operator in (".", "[", "]", "(", ")", "!", "-"):
            return operator
    raise _NotSimpleError


def _string(source: str, start: int) -> tuple[str, int]:
    """Read the string at `start`: its text and where it ends."""
    quote, at, parts = source[start], start + 1, list[str]()
    while source[at : at + 1] not in ("", "\r", "\n", quote):
        char, at = _escape(source, at + 1) if source[at] == "\\" else (source[at], at + 1)
        parts.append(char)
    if source[at : at + 1] != quote:
        raise _NotSimpleError
    try:  # two escaped halves of one character become it, as in JavaScript; half a character fits no plan
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le"), at + 1
    except UnicodeDecodeError:
        raise _NotSimpleError from None


def _escape(source: str, at: int) -> tuple[str, int]:
    letter = source[at : at + 1]
    if letter in ("x", "u"):
        stop = at + (3 if letter == "x" else 5)
        digits = source[at + 1 : stop]
        if len(digits) == stop - at - 1 and _HEX.issuperset(digits):
            return chr(int(digits, 16)), stop
    if letter not in _ESCAPES:
        raise _NotSimpleError
    return _ESCAPES[letter], at + 1


PROCESSOR_SECONDS = 0.5  # of one question; then the system ends the child, whatever it is in the middle of
SCHEMA_SECONDS = 2.0  # as above, of a value held against a schema: the library takes longer to load
READY = b"ready"


class Question(NamedTuple):
    """kind: "condition" (JavaScript over the scope), "path" (JSONPath over the scope's state) or "schema".

    A schema's source is the JSON of {schema, value}; the answer is what the one says against the other, as a list of
    [JSON Pointer, message].
    """

    kind: str
    source: str


class Answer(NamedTuple):
    """status: "ok", "threw" (it threw, ran away, or is wrong in itself) or "needs_environment".

    value: a condition's truth, or what a path matches first, MISSING for nothing; None unless ok.
    message: what the engine said or why there is no answer, in one line; "" when ok.
    """

    status: str
    value: Any
    message: str


def processor_seconds(kind: str) -> float:
    """Give how long one question of a kind may keep the processor busy."""
    return SCHEMA_SECONDS if kind == "schema" else PROCESSOR_SECONDS


def one_line(problem: object) -> str:
    """Give the first line of an error or source for people."""
    lines = str(problem).splitlines() or [""]
    return "".join(char if char.isprintable() else " " for char in lines[0][:300]).strip()
