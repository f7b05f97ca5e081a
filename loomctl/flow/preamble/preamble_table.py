"""What a run's context holds, as a table in a preamble (D46)."""

from __future__ import annotations

import json

from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import masked, masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.flow.preamble.preamble_facts import Value
    from loomctl.reduction.token_room import Room

# Keys of the context that the table leaves out: the engine's own, and what the completed stages tell themselves (D44).
_INTERNAL = ("_", "internal.", "response.", "command.")
_TOLD_ELSEWHERE = ("last_stage", "last_response")


def is_told(key: str) -> bool:
    """Tell whether a context key stands in the table."""
    return not key.startswith(_INTERNAL) and key not in _TOLD_ELSEWHERE


class Table:
    """The table of the context, what was set last first; a value that is too long for it is named by its file."""

    _HEAD = "## Context\n\n| key | value |\n|---|---|"

    def __init__(self, context: Sequence[Value], limit: int, room: Room) -> None:
        self._values = [one for one in reversed(context) if is_told(one.key)]
        self._limit = limit
        self._rows: list[str] = []
        self._begun = bool(self._values) and room.takes(self._HEAD + self._rest(len(self._values)))

    @staticmethod
    def _rest(count: int) -> str:
        return f"\n\n({count:,} more key{'' if count == 1 else 's'}: loomctl state show --path context)"

    def fill(self, room: Room) -> None:
        """Put the next values in, as far as there is room."""
        while self._begun and len(self._rows) < len(self._values):
            one = self._values[len(self._rows)]
            row = f"| {_cell(masked_line(one.key, 120))} | {_cell(_shown(one, self._limit))} |"
            if not room.takes(row):
                return
            self._rows.append(row)

    def text(self) -> str:
        """Give the section; empty where there is nothing to show, or no room at all."""
        left_out = len(self._values) - len(self._rows)
        if not self._begun:
            return ""
        if not self._rows:
            return "## Context" + self._rest(left_out).replace(" more ", " ")
        return "\n".join([self._HEAD, *self._rows]) + (self._rest(left_out) if left_out else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(one: Value, limit: int) -> str:
    if one.at:
        return f"See: {path(one.at)}"
    text = as_text(one.key, one.value)
    if text is None:
        return "(no JSON value)"
    if len(text) <= max(limit, len(one.copy)):  # a reference would be no shorter
        return text
    said = _described(one.value, text)
    return f"See: {path(one.copy)} ({said})" if one.copy else f"({said})"


def as_text(key: str, value: Any) -> str | None:
    """Give a value as the table shows it whole; None for what is no JSON."""
    ((_, safe),) = masked({key: value}).items()
    try:
        return visible(json.dumps(safe, ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return None


def _described(value: Any, text: str) -> str:
    if isinstance(value, str):
        return f"a text of {len(value):,} characters"
    if isinstance(value, (dict, list)):
        return f"a value of {len(value):,} {'keys' if isinstance(value, dict) else 'items'}"
    return f"a value of {len(text):,} digits"


def path(at: str) -> str:
    """Give the path of a file as a preamble names it."""
    return masked_line(at, 1000)
