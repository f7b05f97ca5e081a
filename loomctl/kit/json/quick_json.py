"""JSON by the C code that the standard library's own module uses, without the 8 ms that importing that module takes.

What is parsed and rendered here is what `json.loads` and `json.dumps` give; where the C code is missing or behaves
otherwise, they do the work. Hooks use this module alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
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
    raise TypeError(f"{type(value).__name__} is no JSON")


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
