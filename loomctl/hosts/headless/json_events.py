"""One event of an assistant's output, a JSON object in a line, as anybody may have written it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.kit import quick_json
from loomctl.kit.quick_json import as_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loomctl.drive.signs import Sign


def read(line: bytes, signs: Callable[[dict[str, Any]], Iterator[Sign]]) -> Iterator[Sign]:
    """Give the signs of the object that a line holds: none where it cannot be read, or is too deep."""
    try:
        yield from list(signs(as_object(quick_json.loads(line.decode("utf-8", "replace")))))
    except (ValueError, RecursionError):
        return


def text(value: object) -> str:
    """Give a text; empty for anything else."""
    return value if isinstance(value, str) else ""


def number(value: object) -> float:
    """Give a number that is no less than 0; 0 for anything else, and for one beyond all measure."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0
