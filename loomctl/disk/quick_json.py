"""JSON by the C code that the standard library's own module uses, without the 8 ms that importing that module takes.

What is parsed and rendered here is what `json.loads` and `json.dumps` give; where the C code is missing or behaves
otherwise, they do the work.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BLANKS = " \t\n\r"
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Context:
    """What the C scanner asks of a decoder."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, _CONSTANTS.__getitem__
    memo: dict[str, str] = {}  # noqa: RUF012 - the C scanner has its own


def _refused(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is no JSON")


try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan = make_scanner(_Context())  # type: ignore[arg-type] # the stub asks for what it makes
    # default, encoder, indent, separators, sort_keys, skipkeys, allow_nan: as json.dumps has them
    _FORM = (_refused, encode_basestring_ascii, None, ": ", ", ", False, False, True)

    def loads(text: str) -> Any:
        """Parse a JSON text as json.loads does. Raises ValueError, and RecursionError for one nested too deep."""
        try:
            value, end = _scan(text, len(text) - len(text.lstrip(_BLANKS)))
        except StopIteration as error:
            raise ValueError(f"no JSON value at character {error.value}") from None
        if text[end:].strip(_BLANKS):
            raise ValueError(f"something follows the JSON value at character {end}")  # noqa: TRY301 - it is for the caller
        return value

    def dumps(value: Any) -> str:
        """Render a value in ASCII as json.dumps does. Raises TypeError, ValueError and RecursionError."""
        return "".join(make_encoder({}, *_FORM)(value, 0))  # what a failure left in the first would be taken for a loop

    if loads(dumps({"é": [1, 0.5, None, True]})) != {"é": [1, 0.5, None, True]}:
        raise ImportError("another _json")  # noqa: TRY301 - as if it were not there
except (ImportError, TypeError, ValueError, AttributeError):
    from json import dumps, loads  # type: ignore[assignment] # they take more
