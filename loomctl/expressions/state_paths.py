"""Plain and indexed JSON paths: compiled when a run starts, read later without a JSONPath library (D11, D12).

What is read here equals the first match of jsonpath-ng (1.16 or later; before, it raised for an index too far from the
end and let an index pick a character of a text). Whatever needs more than names and indexes is not compiled.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

MAX_SOURCE = 4_096
MAX_STEPS = 100
RESERVED = frozenset({"where", "wherenot"})  # operators of jsonpath-ng when they stand unquoted

_DIGITS = frozenset("0123456789")
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NAME = _NAME_START | _DIGITS | {"-"}


class Missing:
    """The one value of this class, MISSING, says that a path matches nothing; a JSON null is a match."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


def compile_path(source: str) -> list[str | int] | None:
    """Compile `a.b`, `$.a[0]['b']` and their like to keys and indexes, or give None if it takes the library.

    `$` alone is the whole document, []. An index may count from the end. None is also the answer for what is no path.
    """
    source = source.strip(" \t")
    at = 1 if source[:1] == "$" else 0
    if not source or len(source) > MAX_SOURCE:
        return None
    steps: list[str | int] = []
    while at < len(source):
        found = _bracket(source, at) if source[at] == "[" else _name(source, at)
        if found is None or len(steps) == MAX_STEPS:
            return None
        step, at = found
        steps.append(step)
    return steps


def read(steps: list[Any], document: Any) -> Any:
    """Give what the compiled path finds in a document as `json.loads` gives it, or MISSING."""
    for step in steps:
        if isinstance(step, str):
            document = document.get(step, MISSING) if isinstance(document, dict) else MISSING
        elif isinstance(step, int) and isinstance(document, (list, tuple)) and -len(document) <= step < len(document):
            document = document[step]
        else:
            return MISSING
    return document


def _name(source: str, at: int) -> tuple[str, int] | None:
    """Read `.name`, or at the start `name`."""
    if at:
        if source[at] != ".":
            return None
        at += 1
    start = at
    while source[at : at + 1] in _NAME:
        at += 1
    name = source[start:at]
    return None if name[:1] not in _NAME_START or name in RESERVED else (name, at)


def _bracket(source: str, at: int) -> tuple[str | int, int] | None:
    """Read `[3]`, `[-1]`, `['name']` or `["name"]`."""
    quote = source[at + 1 : at + 2]
    if quote in ("'", '"'):
        end = source.find(quote, at + 2)
        name = source[at + 2 : end]
        # an escape is the library's; a quoted star has not always been a mere name there
        return None if end < 0 or source[end + 1 : end + 2] != "]" or "\\" in name or name == "*" else (name, end + 2)
    end = source.find("]", at)
    digits = source[at + 1 : end].removeprefix("-")
    if end < 0 or not 0 < len(digits) <= 9 or not _DIGITS.issuperset(digits) or (digits[0] == "0" and digits != "0"):
        return None
    return int(source[at + 1 : end]), end + 1
