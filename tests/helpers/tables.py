"""A table of rows in one test: each is tried, and what fails is told row by row.

A row of `pytest.mark.parametrize` is a test of its own, with a home folder and a report; that is for rows that need
fixtures, are slow, or are claims of their own. Where rows differ in their wording alone, one test goes through them.
"""

from __future__ import annotations

import itertools
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SHOWN = 10  # rows that fail, of which the whole is told


def each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Try a test with each row, as `parametrize` reads them; two of these try all pairs."""
    known = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        inner: Callable[..., None] = getattr(test, "inner", test)
        table = [dict(zip(known, _values(row, alone=len(known) == 1), strict=True)) for row in rows]
        tables: list[list[dict[str, Any]]] = [table, *getattr(test, "tables", [])]

        def run() -> None:
            failed: list[str] = []
            count = 0
            for picked in itertools.product(*tables):
                values = {name: value for row in picked for name, value in row.items()}
                count += 1
                try:
                    inner(**values)
                except Exception:  # noqa: BLE001 - whatever it is, the other rows are tried
                    failed.append(f"{values!r:.1000}\n{traceback.format_exc(limit=-3)}")
            assert count, "the table has no rows"
            more = f"\nand {len(failed) - _SHOWN} more" if failed[_SHOWN:] else ""
            assert not failed, f"{len(failed)} of {count} rows fail:\n\n" + "\n".join(failed[:_SHOWN]) + more

        run.__name__, run.__qualname__ = inner.__name__, inner.__qualname__
        run.__module__, run.__doc__ = inner.__module__, inner.__doc__
        for key, value in (("inner", inner), ("tables", tables), ("pytestmark", getattr(test, "pytestmark", []))):
            setattr(run, key, value)
        return run

    return decorate


def _values(row: Any, *, alone: bool) -> Sequence[Any]:
    if hasattr(row, "marks"):  # a `pytest.param`, whose id nobody needs here
        return tuple(row.values)
    return (row,) if alone else row
