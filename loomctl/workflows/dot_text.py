"""Graphviz DOT read as data: nodes, edges and their attributes, each with its place in the text.

The dialect that people write workflows in: the standard's digraphs, and values that it would want quoted (`900s`,
`model-4-5`, `stack.child`). Linear in the text; how deep it is nested is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit.problems import error, shown, warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.kit.problems import Problem

DEEPEST = 64  # subgraphs in subgraphs
MOST_NODES = 5_000
MOST_EDGES = 20_000
MOST_ATTRIBUTES = 256  # that the defaults of one place may name

_HTML = r"<[^<>]*>"
for _ in range(8):  # angle brackets in angle brackets
    _HTML = rf"<[^<>]*(?:{_HTML}[^<>]*)*>"
# A comment by # is a line of its own. Behind = a word may have colons in it.
_BLANK = re.compile(r"(?:(?m:^)[ \t\r\f\v]*#[^\n]*|[ \t\r\f\v]+|\n|//[^\n]*|/\*[\s\S]*?\*/)*")
_TOKEN = rf"""(?P<string>"[^"\\]*(?:\\[\s\S][^"\\]*)*")|(?P<html>{_HTML})|->|[{{}}\[\];,=:+]|(?P<word>WORD)"""
_WORD = r"-?[\w.]+(?:-(?![->])[\w.]+)*"
_ANYWHERE = re.compile(_TOKEN.replace("WORD", _WORD))
_BEHIND_EQUALS = re.compile(_TOKEN.replace("WORD", _WORD.replace(".]", ".:]")))
_ESCAPE = re.compile(r"\\(\r?\n|.)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "\n": "", "\r\n": ""}
_NODE_NAME = re.compile(r"[^\W\d]\w*|-?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)")
_TEXTS = ("word", "string", "html")
_KEYWORDS = ("node", "edge", "graph", "digraph", "subgraph", "strict")


class Value(NamedTuple):
    """A token, name or value; at: its offset; kind: word, string, html, end, or the mark that it is."""

    text: str
    at: int
    kind: str = "word"


class Node(NamedTuple):
    """defaults: those of the place where it was first named; own: what was said of it."""

    name: str
    at: int
    defaults: Mapping[str, Value]
    own: dict[str, Value]

    def get(self, key: str) -> Value | None:
        """Give an attribute; its own comes before a default."""
        return self.own.get(key) or self.defaults.get(key)

    def attributes(self) -> dict[str, Value]:
        """Give all attributes that hold of the node."""
        return {**self.defaults, **self.own}


class Edge(NamedTuple):
    """One arrow; a chain is one for each of its arrows."""

    tail: str
    head: str
    at: int
    attributes: Mapping[str, Value]


class Graph(NamedTuple):
    """name: None where the file gives none; attributes: the outermost graph's; nodes: in the order of first mention."""

    name: Value | None
    attributes: Mapping[str, Value]
    nodes: Mapping[str, Node]
    edges: Sequence[Edge]


class Report:
    """What is wrong with a text, each named by its place: `line 3, column 7`."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.problems: list[Problem] = []

    def where(self, at: int) -> str:
        """Name the place at an offset."""
        line = bisect_right(self._starts, at)
        return f"line {line}, column {at - self._starts[line - 1] + 1}"

    def fail(self, code: str, at: int, message: str, hint: str = "") -> None:
        """Report an error."""
        self.problems.append(error(code, self.where(at), message, hint))

    def warn(self, code: str, at: int, message: str, hint: str = "") -> None:
        """Report a warning."""
        self.problems.append(warning(code, self.where(at), message, hint))


def parse(text: str, report: Report) -> Graph | None:
    """Read one digraph, or report the first thing that is wrong with the text."""
    try:
        return _Reader(text).graph()
    except NotDotError as wrong:
        report.fail(wrong.code, wrong.at, str(wrong), wrong.hint)
        return None


def quoted(text: str) -> str:
    """Write a text as a quoted string that `parse` and Graphviz read."""
    for character, meant in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", ""), ("\0", "")):
        text = text.replace(character, meant)
    return f'"{text}"'


class NotDotError(Exception):
    """What is wrong with a text, at an offset."""

    def __init__(self, at: int, message: str, hint: str = "", code: str = "DOT_SYNTAX") -> None:
        super().__init__(message)
        self.at, self.hint, self.code = at, hint, code


class _Scope:
    """What holds in a graph or subgraph from here on, and the nodes that were named in it."""

    def __init__(self, at: int, outer: _Scope | None = None) -> None:
        self.at = at
        self.depth: int = outer.depth + 1 if outer else 1
        self.graph: dict[str, Value] = {}
        self.node: dict[str, Value] = outer.node if outer else {}
        self.edge: dict[str, Value] = outer.edge if outer else {}
        self.members: dict[str, None] = {}


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._next: Value | None = None
        self._behind_equals = False
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []

    def graph(self) -> Graph:
        first = self._take()
        word = first.text.lower() if first.kind == "word" else ""
        if word == "strict":
            message = "Loom does not read strict: two arrows between the same steps are two ways"
            raise NotDotError(first.at, message, "write digraph without strict")
        if word == "graph":
            message = "a workflow must be a digraph; an undirected graph has no direction"
            raise NotDotError(first.at, message, "write digraph, and -> for --")
        if word != "digraph":
            hint = "digraph review { start -> review -> exit }"
            raise NotDotError(first.at, f"a workflow in DOT must begin with digraph, not {_named(first)}", hint)
        name = self._whole(self._take()) if self._peek().kind in _TEXTS else None
        outer = _Scope(self._expect("{", "the graph's body"))
        self._statements(outer)
        after = self._take()
        if after.kind != "end":
            raise NotDotError(
                after.at, f"unexpected {_named(after)} after the graph's end", "put one digraph in a file"
            )
        return Graph(name, outer.graph, self._nodes, self._edges)

    # ---- Tokens.

    def _peek(self) -> Value:
        if self._next is None:
            self._next = self._read()
        return self._next

    def _take(self) -> Value:
        token, self._next = self._peek(), None
        return token

    def _next_is(self, mark: str) -> bool:
        return self._peek().kind == mark

    def _read(self) -> Value:
        text, at = self._text, self._at
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        found = (_BEHIND_EQUALS if self._behind_equals else _ANYWHERE).match(text, at)
        if found is None:
            if at < len(text):
                raise _unread(text, at)
            return Value("", at, "end")
        read, kind = found[0], found.lastgroup or found[0]
        self._at, self._behind_equals = found.end(), kind == "="
        if kind == "string":
            read = _ESCAPE.sub(lambda one: _ESCAPES.get(one[1], one[0]), read[1:-1])
        return Value(read[1:-1] if kind == "html" else read, at, kind)

    def _whole(self, token: Value) -> Value:
        parts = [token.text]
        while token.kind == "string" and self._next_is("+"):
            plus, following = self._take(), self._take()
            if following.kind != "string":
                raise NotDotError(plus.at, "+ needs two quoted strings")
            parts.append(following.text)
        return token._replace(text="".join(parts))

    def _expect(self, mark: str, what: str) -> int:
        token = self._take()
        if token.kind != mark:
            raise NotDotError(token.at, f"expected {mark} before {what}, got {_named(token)}")
        return token.at

    # ---- Statements.

    def _statements(self, scope: _Scope) -> None:
        if scope.depth > DEEPEST:
            raise NotDotError(scope.at, f"nested more than {DEEPEST} deep", "make it flatter", "TOO_DEEP")
        while True:
            token = self._take()
            if token.kind == "end":
                raise NotDotError(scope.at, "this { has no }", "close it with }")
            if token.kind == "}":
                return
            if token.kind == "word" and token.text.lower() in ("graph", "node", "edge"):
                self._defaults(scope, token)
            elif token.kind not in (";", ","):
                self._statement(scope, token)

    def _defaults(self, scope: _Scope, token: Value) -> None:
        if self._next_is("="):
            raise NotDotError(token.at, f"{token.text} is a keyword of DOT, not an attribute", _in_quotes(token))
        if not self._next_is("["):
            self._expect("[", f"the attributes of {token.text}")
        held = dict(getattr(scope, token.text.lower()))
        while self._next_is("["):
            self._attributes(held)
        setattr(scope, token.text.lower(), held)

    def _statement(self, scope: _Scope, token: Value) -> None:
        if token.kind == "]":
            raise NotDotError(token.at, "unexpected ]", "remove it")
        if token.kind == "[":
            raise NotDotError(token.at, "attributes must follow a step or an arrow", 'a [label="A"]')
        token = self._whole(token)
        if token.kind in _TEXTS and self._next_is("="):
            self._take()
            self._put(scope.graph, token)
            return
        is_node, tails = self._operand(scope, token)
        arrows: list[tuple[list[str], list[str], int]] = []
        while self._next_is("->"):
            arrow = self._take()
            if self._peek().kind not in (*_TEXTS, "{", "->"):
                raise NotDotError(arrow.at, "an arrow must lead to a step", "a -> b")
            _, heads = self._operand(scope, self._whole(self._take()))
            arrows.append((tails, heads, arrow.at))
            tails = heads
        if not arrows and not is_node:
            return
        said = dict(scope.edge) if arrows else self._nodes[tails[0]].own
        while self._next_is("["):
            self._attributes(said)
        for begins, ends, at in arrows:
            if len(self._edges) + len(begins) * len(ends) > MOST_EDGES:
                raise _too_large(at, f"more than {MOST_EDGES:,} arrows")
            self._edges += [Edge(tail, head, at, said) for tail in begins for head in ends]

    def _operand(self, scope: _Scope, token: Value) -> tuple[bool, list[str]]:
        word = token.text.lower() if token.kind == "word" else ""
        if word == "subgraph" or token.kind == "{":
            if word and self._peek().kind in _TEXTS:
                self._whole(self._take())
            inner = _Scope(self._expect("{", "the subgraph's body") if word else token.at, scope)
            self._statements(inner)
            scope.members.update(inner.members)
            return False, list(inner.members)
        if token.kind == "->":
            raise NotDotError(token.at, "an arrow must begin at a step", "a -> b")
        if token.kind not in _TEXTS:
            raise NotDotError(token.at, f"unexpected {_named(token)}")
        if word in _KEYWORDS:
            raise NotDotError(token.at, f"{token.text} is a keyword of DOT", _in_quotes(token))
        if word and not _NODE_NAME.fullmatch(token.text):
            hint = f"use letters, digits and _, or quotes: {quoted(token.text)}"
            raise NotDotError(token.at, f"{shown(token.text)} is not a valid step name", hint)
        for _ in range(2):  # a port and its compass point, which are drawing
            if self._next_is(":"):
                colon = self._take()
                if self._peek().kind not in _TEXTS:
                    hint = "put a name with : in quotes"
                    raise NotDotError(colon.at, "missing port after :", hint)
                self._whole(self._take())
        if token.text not in self._nodes:
            if len(self._nodes) == MOST_NODES:
                raise _too_large(token.at, f"more than {MOST_NODES:,} nodes")
            self._nodes[token.text] = Node(token.text, token.at, scope.node, {})
        scope.members[token.text] = None
        return True, [token.text]

    def _attributes(self, said: dict[str, Value]) -> None:
        self._take()
        while True:
            token = self._take()
            if token.kind == "]":
                return
            if token.kind in (",", ";"):
                continue
            if token.kind not in _TEXTS:
                hint = "write attributes as name=value, then ]"
                raise NotDotError(token.at, f"unexpected {_named(token)} among attributes", hint)
            key, equals = self._whole(token), self._take()
            if equals.kind != "=":
                hint = f'write {key.text[:40]}="…"; put text with spaces or signs in double quotes'
                raise NotDotError(equals.at, f"missing = after {shown(key.text)}", hint)
            self._put(said, key)

    def _put(self, said: dict[str, Value], key: Value) -> None:
        token = self._take()
        if token.kind not in _TEXTS:
            hint = "put text, paths and conditions in double quotes"
            raise NotDotError(token.at, f"missing value before {_named(token)}", hint)
        said[key.text] = self._whole(token)
        if len(said) > MOST_ATTRIBUTES:
            raise _too_large(token.at, f"more than {MOST_ATTRIBUTES} attributes")


def _unread(text: str, at: int) -> NotDotError:
    """Say what is wrong at a place where nothing that DOT knows begins."""
    for begin, message, hint in (
        ('"', "a quoted text has no end", 'close it with "; a quote inside is written \\"'),
        ("<", "an HTML text has no end", "each < needs its >"),
        ("/*", "a comment has no end", "close it with */"),
        ("--", "-- has no direction", "write a workflow's arrows as ->"),
        ("#", "unexpected '#'", "begin a comment with //"),
    ):
        if text.startswith(begin, at):
            return NotDotError(at, message, hint)
    return NotDotError(at, f"unexpected {shown(text[at])}", "put text with such characters in quotes")


def _too_large(at: int, message: str) -> NotDotError:
    return NotDotError(at, message, "no workflow needs this", "TOO_LARGE")


def _named(token: Value) -> str:
    return shown(token.text, 40) if token.kind in _TEXTS else token.text or "the end of the file"


def _in_quotes(token: Value) -> str:
    return f"to use it as a name, put it in quotes: {quoted(token.text)}"
