"""JSON with comments and trailing commas, as assistants read their settings. Lists change in place; all else stays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# One without its end is taken to where the text ends, or each that begins in it would look as far again.
_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_BLANKS = re.compile(r"\s*")
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_decode = json.JSONDecoder().raw_decode


def read(text: str) -> Any:
    """Give the value; None for an empty text. Raises ValueError, and RecursionError."""
    return json.loads(_plain(text)) if text.strip("\ufeff \t\r\n") else None


def settings(raw: bytes) -> dict[str, Any]:
    """Give the object that a file of settings holds; an empty one where none can be read."""
    try:
        value = read(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def add(text: str, path: Sequence[str], value: str) -> str:
    """Put a text first into the list below these keys, and make what lacks on the way there.

    Raises ValueError where something else stands on the way.
    """
    new: Any = [value]
    if read(text) is None:
        for key in reversed(path):
            new = {key: new}
        return json.dumps(new, ensure_ascii=False, indent=2) + "\n"
    plain = _plain(text)
    at = _skip(plain, 0)
    for depth, key in enumerate(path):
        found = [start for name, start, _ in _inside(plain, at, "{") if name == key]
        if not found:
            for below in reversed(path[depth + 1 :]):
                new = {below: new}
            return _with_first(text, plain, at, f"{_written(key)}: {_written(new)}")
        at = found[-1]
    list(_inside(plain, at, "["))
    return _with_first(text, plain, at, _written(value))


def take(text: str, path: Sequence[str], value: str) -> str:
    """Take a text out of the list below these keys, and what is empty without it."""
    for depth in range(len(path), -1, -1):
        plain = _plain(text)
        at, inside = _skip(plain, 0), list[tuple[Any, int, int]]()
        for key in path[:depth]:
            at = next(start for name, start, _ in _inside(plain, at, "{") if name == key)
        inside = list(_inside(plain, at, "[" if depth == len(path) else "{"))
        if depth == len(path):
            own = [n for n, (_, start, end) in enumerate(inside) if plain[start:end] == _written(value)]
        else:
            own = [n for n, (name, start, _) in enumerate(inside) if name == path[depth] and _is_empty(plain, start)]
        for number in reversed(own):
            text = _without(text, plain, at, number)
            plain = _plain(text)
        if not own:
            break
    return text


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> str:
    """Give plain JSON of the same length: blanks in place of what only this kind has."""

    def blank(found: re.Match[str]) -> str:
        told = found[0]
        return told if told.startswith('"') else re.sub(r"[^\r\n]", " ", told)

    begun = f" {text[1:]}" if text.startswith("\ufeff") else text
    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, begun))


def _skip(plain: str, at: int) -> int:
    found = _BLANKS.match(plain, at)
    return found.end() if found else at


def _inside(plain: str, at: int, opens: str) -> Iterator[tuple[str, int, int]]:
    """Give each member of an object, or of a list: its name, where its value begins and ends. at: of the bracket."""
    if plain[at] != opens:
        raise ValueError(f"something else stands in the place of {'an object' if opens == '{' else 'a list'}")
    at = _skip(plain, at + 1)
    while plain[at] not in "}]":
        name = ""
        if opens == "{":
            name, at = _decode(plain, at)
            at = _skip(plain, _skip(plain, at) + 1)
        _, end = _decode(plain, at)
        yield name, at, end
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)


def _is_empty(plain: str, at: int) -> bool:
    return plain[at] in "{[" and plain[_skip(plain, at + 1)] in "}]"


def _with_first(text: str, plain: str, at: int, member: str) -> str:
    """Write a member behind the opening bracket as the first one there is written."""
    first = _skip(plain, at + 1)
    if plain[first] in "}]":
        return text[: at + 1] + member + text[at + 1 :]
    blanks = plain[at + 1 : first]
    before = re.search(r"\r?\n[ \t]*$", blanks)
    if before:
        return f"{text[: at + 1]}{before[0]}{member},{text[at + 1 :]}"
    lead = " " if text[at + 1].isspace() else ""
    return f"{text[: at + 1]}{lead}{member},{text[at + 1 :]}"


def _without(text: str, plain: str, at: int, number: int) -> str:
    """Cut a member out with its comma; a comment beside it stays."""
    begin = _skip(plain, at + 1)
    members = list(_inside(plain, at, plain[at]))
    end = members[number][2]
    if number:
        comma = plain.index(",", members[number - 1][2])
        begin = _skip(plain, comma + 1)
        head = text[:comma] + (text[comma + 1 : begin].strip() and text[comma + 1 : begin])
        return head + text[end:]
    head = text[:begin] if text[at + 1 : begin].strip() else text[: at + 1]
    if len(members) == 1:
        return head + text[end:]
    return head + text[plain.index(",", end) + 1 :]
