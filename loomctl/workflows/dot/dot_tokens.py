"""The tokens of a text in Graphviz DOT: words, strings, HTML and marks, each with its place."""

from __future__ import annotations

import re
from typing import NamedTuple

from loomctl.kit.problems import shown

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
