"""What a driver leaves to others in files of this machine's: what its turn has used so far, and prices (D75)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.quick_json import as_object
from loomctl.runs.machine import drivers

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRICES = "prices"  # no run's file
_MOST = 20  # models


def note(local: str, run_id: str, told: Mapping[str, Any]) -> None:
    """Write down what is so; never fails, for nothing but a sum hangs on it."""
    _note(local, _path(local, run_id), told)


def prices(local: str) -> dict[str, Any]:
    """Give what an input token of each model has cost in any run here, in USD."""
    return _read(local, os.path.join(local, drivers.FOLDER, _PRICES))


def note_prices(local: str, found: Mapping[str, float]) -> None:
    """Write down what models cost now; of two drivers that do so at once, one's may be lost."""
    known = {model: price for model, price in prices(local).items() if model not in found}
    _note(local, os.path.join(local, drivers.FOLDER, _PRICES), dict(list({**known, **found}.items())[-_MOST:]))


def _note(local: str, path: str, told: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError, LoomError):
        files.refuse_links(os.path.dirname(local), path)
        files.write_atomically(path, files.to_json(told), durable=False)


def read(local: str, run_id: str) -> dict[str, Any]:
    """Give what was written down; empty where nothing was."""
    return _read(local, _path(local, run_id))


def _read(local: str, path: str) -> dict[str, Any]:
    try:
        files.refuse_links(os.path.dirname(local), path)
        return as_object(files.read_json(path, limit=1 << 16))
    except (OSError, LoomError):
        return {}


def forget(local: str, run_id: str) -> None:
    """Forget it: it is booked."""
    with contextlib.suppress(OSError, LoomError):
        files.remove(_path(local, run_id))


def _path(local: str, run_id: str) -> str:
    return os.path.join(local, drivers.FOLDER, checked_id(run_id) + ".turn")
