"""HTML made of small parts, in which everything that is not markup already is escaped and made visible (D21)."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.kit.text.fences import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID = frozenset(("meta", "input", "br", "hr", "rect", "line", "path", "circle", "use", "polyline", "polygon"))
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*\Z")
# A link that a page holds leads to a place below it or beside it, never to another site or a program.
_RELATIVE = re.compile(r"(?:#|\./|(?:\.\./)+)[A-Za-z0-9._~%/@+-]*\Z")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Give a value as text of a page: escaped, what hides or reorders text made visible; markup stays what it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(visible(str(value)), quote=True))


def el(tag: str, *children: object, **attributes: object) -> Markup:
    """Give an element. A child that is None is left out, as is an attribute that is None or False.

    An attribute's name has `-` for `_`, and none at its end: `class_`, `aria_label`. A link that is not relative, or
    is of another scheme, is left out. Raises ValueError for a name that is none.
    """
    parts = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if not _NAME.match(name) or name.startswith("on") or name == "style":
            raise ValueError(name)
        if value is None or value is False or (name in ("href", "src") and not is_relative(str(value))):
            continue
        parts.append(name if value is True else f'{name}="{text(value)}"')
    if not _NAME.match(tag):
        raise ValueError(tag)
    opened = " ".join(parts)
    if tag in _VOID:
        return Markup(f"<{opened}>" if tag in ("meta", "input", "br", "hr") else f"<{opened}/>")
    return Markup(f"<{opened}>{join(children)}</{tag}>")


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Put parts together; those that are None are left out."""
    return Markup(text(between).join(text(part) for part in parts if part is not None))


def is_relative(link: str) -> bool:
    """Tell whether a link leads to a place in this page, or to a file below or beside it."""
    return bool(_RELATIVE.match(link))


def data(value: Any, identity: str) -> Markup:
    """Give a JSON value as a block of data that a script reads; nothing in it can end the block or begin another.

    Half a character, which UTF-8 does not have, is made visible.
    """
    told = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    told = told.encode("utf-8", "backslashreplace").decode()
    for character in "<>&\u2028\u2029":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{text(identity)}">{told}</script>')
