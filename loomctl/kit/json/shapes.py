"""What must stand where in JSON that others may have written: checked before anything relies on it."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

TEXT, WHOLE, FLAG, LIST, OBJECT = (str,), (int,), (bool,), (list,), (dict,)
NUMBER = (float, int)
NOTHING = (type(None),)
LARGEST = 2**53 - 1  # what every reader of JSON counts exactly
_NAMES: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def as_object(value: object) -> dict[str, Any]:
    """Give what should be an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Give what should be a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def as_objects(value: object) -> list[dict[str, Any]]:
    """Give the objects in what should be a list."""
    return [one for one in as_list(value) if isinstance(one, dict)]


def as_texts(value: object) -> list[str]:
    """Give the texts in what should be a list."""
    return [one for one in as_list(value) if isinstance(one, str)]


def following(count: object) -> int:
    """Give what comes after a counter: always a number that every reader takes; 1 after what is no counter."""
    return count + 1 if type(count) is int and 0 <= count < LARGEST else 1


class Shape(NamedTuple):
    """An object's keys with the types that each may have. needed: must be there; if_there: may be missing.

    lines: texts that are shown as names; a line break or control character in one could pose as something else.
    """

    needed: Mapping[str, tuple[type, ...]]
    if_there: Mapping[str, tuple[type, ...]]
    lines: Sequence[str] = ()


ANY_OBJECT = Shape({}, {})
_GONE = object()


def misfit(path: str, value: object, shape: Shape) -> tuple[str, str] | None:
    """Give the JSON path of the first thing that does not fit and why, or None; keys that the shape has not may be."""
    if not isinstance(value, dict):
        return path, f"it is {_NAMES[type(value)]}, not an object"
    for fields in (shape.needed, shape.if_there):
        for key, types in fields.items():
            held = value.get(key, _GONE)
            kind = type(held)
            if kind in types and (kind is not int or -LARGEST <= held <= LARGEST):  # true is no whole number
                continue
            if kind in types:
                return f"{path}.{key}", "it is too large a number"
            if held is not _GONE:
                return f"{path}.{key}", f"it is {_NAMES[kind]}, not {_NAMES[types[0]]}"
            if fields is shape.needed:
                return f"{path}.{key}", "it is missing"
    for key in shape.lines:
        held = value.get(key)
        if type(held) is str and not held.isprintable():
            return f"{path}.{key}", "it holds a line break or a control character"
    return None


def not_text(path: str, values: object) -> tuple[str, str] | None:
    """Give the first entry of a list that is no text, as `misfit` does."""
    if isinstance(values, list):
        for index, value in enumerate(values):
            if not isinstance(value, str):
                return f"{path}[{index}]", f"it is {_NAMES[type(value)]}, not text"
    return None


def pointer(*keys: str | int) -> str:
    """Make a JSON Pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
