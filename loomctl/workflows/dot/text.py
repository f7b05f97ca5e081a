"""Graphviz DOT read as data: nodes, edges and their attributes, each with its place in the text.

The dialect that people write workflows in: the standard's digraphs, and values that it would want quoted (`900s`,
`claude-sonnet-4-5`, `stack.child`). One pass with a stack of its own: linear, and no nesting meets a recursion limit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit.problems import error, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.kit.problems import Problem

_SPACE = re.compile(r"(?:[ \t\r\f\v\n]+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_HASH_LINE = re.compile(r"#[^\n]*")  # a preprocessor's line, which the standard passes over
_WORD = re.compile(r"-?[\w.]+(?:-(?![->])[\w.]+)*")
_BARE_VALUE = re.compile(r"-?[\w.:]+(?:-(?![->])[\w.:]+)*")
_MARK = re.compile(r"->|--|[{}\[\];,=:+]")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)("?)', re.DOTALL)
_ANGLE = re.compile(r"[<>]")
_ESCAPE = re.compile(r"\\(\r?\n|.)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "\n": "", "\r\n": ""}


class Value(NamedTuple):
    """A name or an attribute's value as it is meant; at: its offset; kind: word, string or html."""

    text: str
    at: int
    kind: str = "word"


class NotDotError(Exception):
    """What is wrong with a text, at an offset. code: of the finding, empty for a matter of its form."""

    def __init__(self, at: int, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.at, self.message, self.hint, self.code = at, message, hint, code


class Token(NamedTuple):
    """kind: word, string, html, mark or end."""

    kind: str
    text: str
    at: int


class Tokens:
    """Gives one token after the other; what a word may hold depends on where it stands."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """Give the next token and leave it there."""
        if self._next is None:
            self._next = self._read(_WORD)
        return self._next

    def take(self) -> Token:
        """Take the next token."""
        token, self._next = self.peek(), None
        return token

    def value(self) -> Value:
        """Take an attribute's value; strings joined by + are one."""
        token = self._read(_BARE_VALUE) if self._next is None else self.take()
        if token.kind in ("mark", "end"):
            hint = "text, paths and conditions stand in double quotes"
            raise NotDotError(token.at, f"a value is missing before {named(token)}", hint)
        return self.whole(token)

    def whole(self, token: Token) -> Value:
        """Give a name or value with everything that + joins to it."""
        parts = [token.text]
        while token.kind == "string" and self.peek()[:2] == ("mark", "+"):
            plus = self.take()
            following = self.take()
            if following.kind != "string":
                raise NotDotError(plus.at, "+ joins two quoted strings")
            parts.append(following.text)
        return Value("".join(parts), token.at, token.kind)

    def _read(self, word: re.Pattern[str]) -> Token:
        text, at = self._text, self._skipped(self._at)
        if at >= len(text):
            self._at = at
            return Token("end", "", at)
        if text[at] == '"':
            return self._string(at)
        if text[at] == "<":
            return self._html(at)
        found = _MARK.match(text, at)
        if found is not None:
            self._at = found.end()
            return Token("mark", found[0], at)
        found = word.match(text, at)
        if found is None:
            if text.startswith("/*", at):
                raise NotDotError(at, "a comment has no end", "close it with */")
            hint = "a comment begins with //" if text[at] == "#" else "text with such characters stands in quotes"
            raise NotDotError(at, f"{shown(text[at])} has no meaning here", hint)
        self._at = found.end()
        return Token("word", found[0], at)

    def _skipped(self, at: int) -> int:
        text = self._text
        while True:
            found = _SPACE.match(text, at)
            at = found.end() if found else at
            if text[at : at + 1] != "#" or text[text.rfind("\n", 0, at) + 1 : at].strip():
                return at
            found = _HASH_LINE.match(text, at)
            at = found.end() if found else at

    def _string(self, at: int) -> Token:
        found = _STRING.match(self._text, at)
        if found is None or not found[2]:
            raise NotDotError(at, "a quoted text has no end", 'close it with "; a quote inside is written \\"')
        self._at = found.end()
        return Token("string", _ESCAPE.sub(lambda one: _ESCAPES.get(one[1], one[0]), found[1]), at)

    def _html(self, at: int) -> Token:
        open_ones = 0
        for found in _ANGLE.finditer(self._text, at):
            open_ones += 1 if found[0] == "<" else -1
            if not open_ones:
                self._at = found.end()
                return Token("html", self._text[at + 1 : found.start()], at)
        raise NotDotError(at, "an HTML text has no end", "each < needs its >")


def named(token: Token) -> str:
    """Name a token in a message."""
    return {"end": "the end of the file", "mark": token.text}.get(token.kind) or shown(token.text, 40)


DEEPEST = 64  # subgraphs in subgraphs
MOST_NODES = 5_000
MOST_EDGES = 20_000
MOST_ATTRIBUTES = 256  # that the defaults of one place may name

_NODE_NAME = re.compile(r"[^\W\d]\w*|-?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)")
_KEYWORDS = ("node", "edge", "graph", "digraph", "subgraph", "strict")


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


class Lines:
    """Names places in a text as `line 3, column 7`."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def of(self, at: int) -> str:
        """Name the place at an offset."""
        line = bisect_right(self._starts, at)
        return f"line {line}, column {at - self._starts[line - 1] + 1}"


def parse(text: str) -> tuple[Graph | None, list[Problem]]:
    """Read one digraph, or give the first thing that is wrong with the text, with line and column."""
    try:
        return _Reader(text).graph(), []
    except NotDotError as wrong:
        where = Lines(text).of(wrong.at)
        if wrong.code:
            return None, [error(wrong.code, where, wrong.message, wrong.hint)]
        return None, [error("DOT_SYNTAX", where, wrong.message, wrong.hint)]


def quoted(text: str) -> str:
    """Write a text as a quoted string that `parse` and Graphviz read."""
    for character, meant in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", ""), ("\0", "")):
        text = text.replace(character, meant)
    return f'"{text}"'


class _Scope:
    """One graph or subgraph under construction, with the chain of its current statement."""

    def __init__(self, at: int, node: Mapping[str, Value], edge: Mapping[str, Value]) -> None:
        self.at = at
        self.node_defaults, self.edge_defaults = node, edge
        self.attributes: dict[str, Value] = {}
        self.members: dict[str, None] = {}
        self.drop_chain()

    def drop_chain(self) -> None:
        """Begin a new statement."""
        self.left: list[str] | None = None  # what the last arrow may begin at
        self.is_node = False  # the statement is a node so far, which attributes may follow
        self.arrow: Token | None = None
        self.pairs: list[tuple[list[str], list[str], int]] = []
        self.said: dict[str, Value] = {}


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._stack: list[_Scope] = []

    def graph(self) -> Graph:
        name = self._header()
        outer = _Scope(self._expect("{", "the graph's body").at, {}, {})
        self._stack = [outer]
        while self._stack:
            self._statement(self._stack[-1])
        after = self._tokens.take()
        if after.kind != "end":
            raise NotDotError(after.at, f"{named(after)} after the graph's end", "one file holds one digraph")
        return Graph(name, outer.attributes, self._nodes, self._edges)

    def _header(self) -> Value | None:
        first = self._tokens.take()
        word = first.text.lower() if first.kind == "word" else ""
        if word == "strict":
            message = "strict is not read: two arrows between the same steps are two ways to go on"
            raise NotDotError(first.at, message, "write digraph without strict")
        if word == "graph":
            message = "an undirected graph has no way to go: a workflow is a digraph"
            raise NotDotError(first.at, message, "write digraph, and -> for --")
        if word != "digraph":
            hint = "digraph review { start -> review -> exit }"
            raise NotDotError(first.at, f"a workflow in DOT begins with digraph, not {named(first)}", hint)
        if self._tokens.peek().kind in ("mark", "end"):
            return None
        return self._tokens.whole(self._tokens.take())

    def _statement(self, scope: _Scope) -> None:
        token = self._tokens.take()
        word = token.text.lower() if token.kind == "word" else ""
        if token.kind == "end":
            raise NotDotError(scope.at, "this { has no }", "close it with }")
        if word == "subgraph" or token[:2] == ("mark", "{"):
            self._open(scope, token)
        elif word in _KEYWORDS:
            self._defaults(scope, token, word)
        elif token.kind != "mark":
            self._name(scope, token)
        elif token.text == "}":
            self._close(scope)
        elif token.text in (";", ","):
            self._finish(scope)
        elif token.text == "->":
            if scope.left is None or scope.arrow is not None:
                raise NotDotError(token.at, "an arrow begins at a step", "a -> b")
            scope.arrow = token
        elif token.text == "[":
            if scope.arrow is not None or not (scope.is_node or scope.pairs):
                raise NotDotError(token.at, "attributes stand behind a step or an arrow", 'a [label="A"]')
            self._attributes(scope.said)
        elif token.text == "--":
            raise NotDotError(token.at, "-- has no direction", "a workflow's arrows are written ->")
        else:
            raise NotDotError(token.at, f"{named(token)} has no meaning here")

    def _name(self, scope: _Scope, token: Token) -> None:
        value = self._tokens.whole(token)
        if scope.arrow is None:
            self._finish(scope)
            if self._tokens.peek()[:2] == ("mark", "="):
                self._tokens.take()
                self._put(scope.attributes, value.text, self._tokens.value())
                return
        if token.kind == "word" and not _NODE_NAME.fullmatch(token.text):
            hint = f'letters, digits and _, or in quotes: "{token.text}"'
            raise NotDotError(token.at, f"{shown(token.text)} is no name of a step", hint)
        self._pass_port()
        self._declare(value.text, token.at, scope)
        self._operand(scope, [value.text], is_node=True)

    def _pass_port(self) -> None:
        """Pass over `:port` and `:port:compass`: where an arrow touches its step is drawing."""
        for _ in range(2):
            if self._tokens.peek()[:2] != ("mark", ":"):
                return
            colon = self._tokens.take()
            if self._tokens.peek().kind in ("mark", "end"):
                raise NotDotError(colon.at, "a port is missing behind :", "a name with : in it stands in quotes")
            self._tokens.whole(self._tokens.take())

    def _declare(self, name: str, at: int, scope: _Scope) -> None:
        if name not in self._nodes:
            if len(self._nodes) == MOST_NODES:
                raise NotDotError(at, f"more than {MOST_NODES:,} nodes", "no workflow needs this", "TOO_LARGE")
            self._nodes[name] = Node(name, at, scope.node_defaults, {})
        scope.members[name] = None

    def _operand(self, scope: _Scope, names: list[str], *, is_node: bool) -> None:
        if scope.arrow is not None:
            assert scope.left is not None  # an arrow is taken only behind something
            scope.pairs.append((scope.left, names, scope.arrow.at))
            scope.arrow = None
        scope.left, scope.is_node = names, is_node and not scope.pairs

    def _open(self, scope: _Scope, token: Token) -> None:
        if scope.arrow is None:
            self._finish(scope)
        if token.kind == "word":
            if self._tokens.peek().kind in ("word", "string", "html"):
                self._tokens.whole(self._tokens.take())
            token = self._expect("{", "the subgraph's body")
        if len(self._stack) >= DEEPEST:
            raise NotDotError(token.at, f"nested more than {DEEPEST} deep", "make it flatter", "TOO_DEEP")
        self._stack.append(_Scope(token.at, scope.node_defaults, scope.edge_defaults))

    def _close(self, scope: _Scope) -> None:
        self._finish(scope)
        self._stack.pop()
        if self._stack:
            outer = self._stack[-1]
            outer.members.update(scope.members)
            self._operand(outer, list(scope.members), is_node=False)

    def _defaults(self, scope: _Scope, token: Token, word: str) -> None:
        if word in ("digraph", "strict") or scope.arrow is not None:
            raise NotDotError(token.at, f"{word} is a word of DOT", f'as a name it stands in quotes: "{token.text}"')
        self._finish(scope)
        if self._tokens.peek()[:2] == ("mark", "="):
            hint = f'as a name it stands in quotes: "{token.text}"'
            raise NotDotError(token.at, f"{word} is a word of DOT, no attribute", hint)
        said: dict[str, Value] = {}
        self._expect("[", f"the attributes of {word}")
        self._attributes(said)
        while self._tokens.peek()[:2] == ("mark", "["):
            self._tokens.take()
            self._attributes(said)
        if word == "graph":
            held: Mapping[str, Value] = {**scope.attributes, **said}
            scope.attributes.update(said)
        elif word == "node":
            held = scope.node_defaults = {**scope.node_defaults, **said}
        else:
            held = scope.edge_defaults = {**scope.edge_defaults, **said}
        if len(held) > MOST_ATTRIBUTES:
            raise NotDotError(token.at, f"more than {MOST_ATTRIBUTES} attributes", "no step has so many", "TOO_LARGE")

    def _attributes(self, said: dict[str, Value]) -> None:
        """Read what stands between [ and ]."""
        while True:
            token = self._tokens.take()
            if token[:2] == ("mark", "]"):
                return
            if token[:2] in (("mark", ","), ("mark", ";")):
                continue
            if token.kind in ("mark", "end"):
                raise NotDotError(token.at, f"{named(token)} among attributes", "attributes are name=value, then ]")
            key = self._tokens.whole(token)
            equals = self._tokens.take()
            if equals[:2] != ("mark", "="):
                hint = f'write {key.text[:40]}="…"; text with spaces or signs in it stands in double quotes'
                raise NotDotError(equals.at, f"= is missing behind {shown(key.text)}", hint)
            self._put(said, key.text, self._tokens.value())

    def _put(self, said: dict[str, Value], key: str, value: Value) -> None:
        said[key] = value
        if len(said) > MOST_ATTRIBUTES:
            raise NotDotError(value.at, f"more than {MOST_ATTRIBUTES} attributes", "no step has so many", "TOO_LARGE")

    def _finish(self, scope: _Scope) -> None:
        """End the statement: its node gets what was said, or its arrows become edges."""
        if scope.arrow is not None:
            raise NotDotError(scope.arrow.at, "an arrow leads to a step", "a -> b")
        attributes = {**scope.edge_defaults, **scope.said}
        for tails, heads, at in scope.pairs:
            if len(self._edges) + len(tails) * len(heads) > MOST_EDGES:
                raise NotDotError(at, f"more than {MOST_EDGES:,} arrows", "no workflow needs this", "TOO_LARGE")
            self._edges += [Edge(tail, head, at, attributes) for tail in tails for head in heads]
        if scope.is_node and scope.left:
            self._nodes[scope.left[0]].own.update(scope.said)
        scope.drop_chain()

    def _expect(self, mark: str, what: str) -> Token:
        token = self._tokens.take()
        if token[:2] != ("mark", mark):
            raise NotDotError(token.at, f"{mark} is missing before {what}: here stands {named(token)}")
        return token
