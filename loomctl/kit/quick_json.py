"""JSON by the C code that the standard library's own module uses, without the 8 ms that importing that module takes.

What is parsed and rendered here is what `json.loads` and `json.dumps` give; where the C code is missing or behaves
otherwise, they do the work. Hooks use this module alone. What others may have written is checked by `Shape`s.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_BLANKS = " \t\n\r"
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Context:
    """What the C scanner asks of a decoder."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, _CONSTANTS.__getitem__
    memo: dict[str, str] = {}  # noqa: RUF012 - the C scanner has its own

    def __init__(self, **parsers: Callable[[str], Any]) -> None:
        for name, parser in parsers.items():
            setattr(self, name, parser)


def _refused(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


try:
    from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner

    def loader(**parsers: Callable[[str], Any]) -> Callable[[str], Any]:
        """Give a `loads` with parsers of its own: parse_int, parse_float, parse_constant, as json.loads has them."""
        scan = make_scanner(_Context(**parsers))  # type: ignore[arg-type] # the stub asks for what it makes

        def loads(text: str) -> Any:
            """Parse a JSON text as json.loads does. Raises ValueError, RecursionError for one nested too deep."""
            try:
                value, end = scan(text, len(text) - len(text.lstrip(_BLANKS)))
            except (StopIteration, SystemError):  # before json is there the C code has no error of its own to raise
                end = -1
            if end < 0 or text[end:].strip(_BLANKS):
                import json

                return json.loads(text, **parsers)  # type: ignore[arg-type] # its error tells the place
            return value

        return loads

    def dumper(
        *, ensure_ascii: bool = True, allow_nan: bool = True, separators: tuple[str, str] = (", ", ": ")
    ) -> Callable[[Any], str]:
        """Give a `dumps` in one form, as json.dumps has it."""
        encoder = encode_basestring_ascii if ensure_ascii else encode_basestring
        # default, encoder, indent, separators, sort_keys, skipkeys, allow_nan
        form = (_refused, encoder, None, separators[1], separators[0], False, False, allow_nan)

        def dumps(value: Any) -> str:
            """Render a value as json.dumps does. Raises TypeError, ValueError and RecursionError."""
            if type(value) is str:
                return encoder(value)
            # Made each time: what a failure left in the first would be taken for a loop.
            return "".join(make_encoder({}, *form)(value, 0))

        return dumps

    if loader()(dumper()({"é": [1, 0.5, None, True]})) != {"é": [1, 0.5, None, True]}:
        raise ImportError("another _json")  # noqa: TRY301 - as if it were not there
except (ImportError, TypeError, ValueError, AttributeError):
    import json
    from functools import partial

    def loader(**parsers: Callable[[str], Any]) -> Callable[[str], Any]:
        """Give json.loads with parsers of its own."""
        return partial(json.loads, **parsers)  # type: ignore[arg-type] # of these three alone

    def dumper(
        *, ensure_ascii: bool = True, allow_nan: bool = True, separators: tuple[str, str] = (", ", ": ")
    ) -> Callable[[Any], str]:
        """Give json.dumps in one form."""
        return partial(json.dumps, ensure_ascii=ensure_ascii, allow_nan=allow_nan, separators=separators)


loads = loader()
dumps = dumper()
plain = dumper(ensure_ascii=False)


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
    for key, types in shape.needed.items():
        held = value.get(key, _GONE)
        kind = type(held)
        if kind not in types or kind is int:  # true is no whole number
            why = "it is missing" if held is _GONE else _misfit(held, types)
            if why:
                return f"{path}.{key}", why
    for key, types in shape.if_there.items():
        if key in value and (why := _misfit(value[key], types)):
            return f"{path}.{key}", why
    for key in shape.lines:
        held = value.get(key)
        if type(held) is str and not held.isprintable():
            return f"{path}.{key}", "it holds a line break or a control character"
    return None


def _misfit(held: Any, types: tuple[type, ...]) -> str:
    kind = type(held)
    if kind not in types:
        return f"it is {_NAMES[kind]}, not {_NAMES[types[0]]}"
    return "" if kind is not int or -LARGEST <= held <= LARGEST else "it is too large a number"


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
