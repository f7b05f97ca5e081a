"""A table of rows in one test: each is tried, and what fails is told row by row.

A row of `pytest.mark.parametrize` is a test of its own, with a home folder and a report; that is for rows that are
slow, or are claims of their own. Where rows differ in their wording alone, one test goes through them. Its fixtures
are made once; the folders and the environment that they left are put back before each row.
"""

import inspect
import itertools
import os
import shutil
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.scenes import Scene

_SHOWN = 10  # rows that fail, of which the whole is told


def each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a test with each row, as `parametrize` reads them; two of these try all pairs."""
    known = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner: Callable[..., None] = getattr(test, "inner", test)
        table = [dict(zip(known, _values(row, alone=len(known) == 1), strict=True)) for row in rows]
        tables: list[list[dict[str, Any]]] = [table, *getattr(test, "tables", [])]

        def run(**fixtures: Any) -> None:
            failed: list[str] = []
            count = 0
            whole = _Whole(fixtures) if fixtures else None
            for picked in itertools.product(*tables):
                values = {name: value for row in picked for name, value in row.items()}
                if whole is not None and count:
                    whole.restore()
                count += 1
                patch = pytest.MonkeyPatch()
                try:
                    inner(**values, **{**fixtures, **({"monkeypatch": patch} if "monkeypatch" in fixtures else {})})
                except Exception:  # noqa: BLE001 - whatever it is, the other rows are tried
                    failed.append(f"{values!r:.1000}\n{traceback.format_exc(limit=-3)}")
                finally:
                    patch.undo()
            assert count, "the table has no rows"
            more = f"\nand {len(failed) - _SHOWN} more" if failed[_SHOWN:] else ""
            assert not failed, f"{len(failed)} of {count} rows fail:\n\n" + "\n".join(failed[:_SHOWN]) + more

        in_rows = {name for one in tables for row in one[:1] for name in row}
        signature = inspect.signature(inner)
        left = [parameter for name, parameter in signature.parameters.items() if name not in in_rows]
        run.__name__, run.__qualname__ = inner.__name__, inner.__qualname__
        run.__module__, run.__doc__ = inner.__module__, inner.__doc__
        made = {"inner": inner, "tables": tables, "pytestmark": getattr(test, "pytestmark", [])}
        for key, value in {**made, "__signature__": signature.replace(parameters=left)}.items():
            setattr(run, key, value)
        return run

    return decorate


def _values(row: Any, *, alone: bool) -> Sequence[Any]:
    if hasattr(row, "marks"):  # a `pytest.param`, whose id nobody needs here
        return tuple(row.values)
    return (row,) if alone else row


class _Whole:
    """What a test's fixtures made: the project's folder and the home folder, and the environment."""

    def __init__(self, fixtures: Mapping[str, Any]) -> None:
        folders = {Path(os.environ["HOME"])}
        for name, value in fixtures.items():
            scene = getattr(value, "scene", value)
            if isinstance(scene, Scene):
                folders.add(scene.root.parent)
            elif name == "tmp_path":
                folders.add(value)
        copies = Path(os.environ["HOME"]).with_name("home-of-tables")
        shutil.rmtree(copies, ignore_errors=True)
        self._copies = {folder: copies / str(number) for number, folder in enumerate(sorted(folders))}
        for folder, copy in self._copies.items():
            shutil.copytree(folder, copy, symlinks=True)
        self._environ = dict(os.environ)
        self._captured = [value for value in fixtures.values() if hasattr(value, "readouterr")]

    def restore(self) -> None:
        """Put it all back."""
        for folder, copy in self._copies.items():
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            shutil.copytree(copy, folder, symlinks=True, dirs_exist_ok=True)
        os.environ.clear()
        os.environ.update(self._environ)
        for captured in self._captured:
            captured.readouterr()
