"""One setting written into a `config.yaml` that a person wrote: all else in it stays, comments and line ends too."""

from __future__ import annotations

from typing import Any

import yaml

from loomctl.kit import strict
from loomctl.kit.errors import LoomError, quoted

_DEEPEST = 20


def with_setting(text: str, name: str, value: str, *, where: str) -> str:
    """Give the text with a top-level setting in place of the one before, or behind all others.

    Raises NOT_EDITABLE, with the line to write, where that would change anything else.
    """
    line = f"{name}: {_scalar(value)}"
    end = "\r\n" if "\r\n" in text else "\n"
    span = _span(text, name)
    if span is not None:
        made = text[: span[0]] + line + text[span[1] :]
    else:
        made = text + (end if text and not text.endswith("\n") else "") + line + end
    before, after = _parsed(text), _parsed(made)
    if after is None or after != {**(before or {}), name: value}:
        what = f"Loom cannot set {name} here without changing other settings"
        why = f"add this line yourself: {line}"
        raise LoomError("NOT_EDITABLE", what, where=where, why=why, hint=f"${{EDITOR:-vi}} {quoted(where)}")
    return made


def has(text: str, name: str) -> bool:
    """Tell whether a text holds a top-level setting."""
    return _span(text, name) is not None


def _span(text: str, name: str) -> tuple[int, int] | None:
    """Find where a setting stands, from its key to the end of its value."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    pairs: list[Any] = root.value if isinstance(root, yaml.MappingNode) else []
    for key, value in pairs:
        if key.value == name:
            at: int = key.start_mark.index
            return at, value.end_mark.index
    return None


def _parsed(text: str) -> dict[str, Any] | None:
    value, problems = strict.parse_yaml(text, max_depth=_DEEPEST)
    if problems or not isinstance(value, dict | None):
        return None
    return value


def _scalar(value: str) -> str:
    """Write a text as YAML, without quotes where that reads back as the same."""
    plain = bool(value) and _parsed(f"x: {value}\n") == {"x": value}
    return value if plain else "'" + value.replace("'", "''") + "'"
