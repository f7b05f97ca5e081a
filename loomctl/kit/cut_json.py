"""The two ends of a JSON object too large to be parsed: what stands before the cut, and the cut text's end (D59)."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BLANKS = re.compile(r"[ \t\n\r]*")
_REST = re.compile(r"(?:[^\"\\]|\\.)*", re.DOTALL)  # of a string, up to its end
_CALL = re.compile(r'"tool_use_id": ?"([A-Za-z0-9_-]{1,200})"')
_DEEPEST = 8
_LONGEST_ESCAPE = 12  # of a character outside of the basic plane


def read(head: str, tail: str) -> dict[str, Any]:
    """Give the event as far as its ends tell it: a text that the cut parts is its beginning, a new line, and its end.

    What follows that text is left out, but for the call's id. Raises ValueError where the head is no object's.
    """
    decoder = json.JSONDecoder(strict=False)
    if not head.lstrip().startswith("{"):
        raise ValueError("no object")
    event = _value(decoder, head, _BLANKS.match(head).end(), tail, _DEEPEST)  # type: ignore[union-attr] # it matches ""
    named = _CALL.findall(tail)
    if named and "tool_use_id" not in event:
        event["tool_use_id"] = named[-1]
    return dict(event)


def _value(decoder: json.JSONDecoder, text: str, at: int, tail: str, depth: int) -> Any:
    """Give a value that begins at a place and that the text's end cuts."""
    opening = text[at : at + 1]
    if opening == '"':
        return f"{_beginning(text[at + 1 :])}\n{_ending(tail)}"
    found: Any = {} if opening == "{" else []
    if opening not in ("{", "[") or not opening or not depth:
        return None
    at += 1
    while at < len(text):
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr] # it matches ""
        key, is_whole = "", True
        if opening == "{":
            key, at, is_whole = _whole(decoder, text, at)
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            if not is_whole or not isinstance(key, str) or text[at : at + 1] != ":":
                break
            at = _BLANKS.match(text, at + 1).end()  # type: ignore[union-attr]
        value, at, is_whole = _whole(decoder, text, at)
        if not is_whole:
            value = _value(decoder, text, at, tail, depth - 1)
        if opening == "{":
            found[key] = value
        else:
            found.append(value)
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if not is_whole or text[at : at + 1] != ",":
            break
        at += 1
    return found


def _whole(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int, bool]:
    """Give a value, the place behind it, and whether all of it stands in the text."""
    try:
        value, end = decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at, False
    return value, end, end < len(text)


def _beginning(raw: str) -> str:
    """Give the beginning of a string, from what of it stands in JSON; an escape may be cut."""
    for less in range(min(_LONGEST_ESCAPE, len(raw)) + 1):
        try:
            return str(json.loads(f'"{raw[: len(raw) - less]}"', strict=False))
        except ValueError:
            continue
    return ""


def _ending(raw: str) -> str:
    """Give the end of a string whose rest this text begins with; the cut may stand in the middle of an escape."""
    start = next((at for at in range(1, len(raw)) if raw[at - 1] != "\\" != raw[at]), len(raw))
    rest = _REST.match(raw, start)
    return _beginning(rest.group()) if rest else ""
