"""What a tool gave back, read out of whatever shape the tool or its host gives it (D47)."""

from __future__ import annotations

import json

from loomctl.model.records import NamedTuple
from loomctl.model.tool_rules import LIST, MATCHES, SEARCH, SHELL, VISIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.model.tool_rules import Rule


class Output(NamedTuple):
    """A result as far as the rules look at it.

    text: what the tool printed, read or found; at: the place of it in the result, None where it is the result; errors:
    what it said besides; exit_code: None where none is known; facts: numbers for the first line; result: as it came.
    """

    text: str
    at: tuple[str, ...] | None
    errors: str
    success: bool
    exit_code: int | None
    facts: dict[str, Any]
    result: object = None

    @property
    def size(self) -> int:
        """Give the bytes of the text in UTF-8."""
        return len(self.text.encode("utf-8", "surrogatepass"))

    @property
    def lines(self) -> int:
        """Give the number of the text's lines."""
        return self.text.count("\n") + (not self.text.endswith("\n")) if self.text else 0


# Where the text of a result stands, by the names that tools give it.
_TEXTS = (
    ("stdout",), ("file", "content"), ("content",), ("result",), ("text",), ("output",), ("results",), ("filenames",),
    ("entries",), ("matches",), ("body",), ("data",), ("message",),
)  # fmt: skip


def read_output(rule: Rule, args: Mapping[str, Any], result: object, *, failed: bool) -> Output:
    """Read a result, of whatever shape; failed: the host said that the call did."""
    at: tuple[str, ...] | None = None
    text = ""
    if isinstance(result, str):
        text = result
    elif isinstance(result, dict):
        for place in _TEXTS:
            value = _at(result, place)
            if isinstance(value, str) and (value or not text):
                text, at = value, place
                if value:
                    break
        if at is None:
            text = as_text(result)
    elif result is not None:
        text = as_text(result)
    held = result if isinstance(result, dict) else {}
    errors = next((held[key] for key in ("stderr", "error") if isinstance(held.get(key), str) and held[key]), "")
    code = next(
        (held[key] for key in ("exit_code", "exitCode", "returncode", "code") if type(held.get(key)) is int), None
    )
    if rule.action == VISIT:
        code = None
    elif code is None:
        code = _exit_code_said(text if failed or isinstance(result, str) else "")
    said_no = held.get("success") is False or held.get("is_error") is True or bool(held.get("error"))
    ended_ill = code not in (None, 0) and not (rule.action in (SHELL, MATCHES) and code == 1 and _is_a_search(args))
    facts = {"items": _count(rule, held, result, text), **_facts(held, is_visit=rule.action == VISIT)}
    refused = rule.action == VISIT and type(facts.get("status")) is int and facts["status"] >= 400
    success = not (failed or said_no or ended_ill or refused or held.get("interrupted") is True)
    return Output(text, at, errors, success, code, facts, result)


def _facts(held: Mapping[str, Any], *, is_visit: bool) -> dict[str, Any]:
    file = held.get("file")
    named = {**held, **(file if isinstance(file, dict) else {})}
    wanted = ("status", "title", "numLines", "totalLines", "startLine", "numFiles", "interrupted", "code", "bytes")
    found = {key: named[key] for key in wanted if isinstance(named.get(key), (int, str)) and named.get(key) != ""}
    code = found.pop("code", None)
    return {"status": code, **found} if is_visit and code is not None else found


def _is_a_search(args: Mapping[str, Any]) -> bool:
    """Tell a command whose exit code 1 says that nothing was found."""
    words = str(args.get("command", "")).split()
    return bool(words) and words[0].rpartition("/")[2] in (
        "grep",
        "rg",
        "egrep",
        "fgrep",
        "ag",
        "diff",
        "cmp",
        "test",
        "[",
    )


def _exit_code_said(text: str) -> int | None:
    head = text[:200].lower()
    mark = head.find("exit code ")
    digits = head[mark + 10 : mark + 14].split()[:1] if mark >= 0 else []
    number = digits[0].rstrip(".:,") if digits else ""
    return int(number) if number.isascii() and number.isdecimal() else None


def _count(rule: Rule, held: Mapping[str, Any], result: object, text: str) -> int:
    if type(held.get("numFiles")) is int and rule.action == LIST:
        return int(held["numFiles"])
    for key in ("entries", "results", "filenames", "matches"):
        if isinstance(held.get(key), list):
            return len(held[key])
    if isinstance(result, list):
        return len(result)
    if rule.action == SEARCH:
        return text.count('"url"') or text.count("http")
    return sum(bool(line.strip()) for line in text.split("\n"))


def as_text(value: object) -> str:
    """Give a value in JSON, or what stands for one that has none."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=1, default=str)
    except (ValueError, RecursionError, TypeError):
        return str(type(value))


def _at(value: object, place: tuple[str, ...]) -> object:
    for key in place:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
