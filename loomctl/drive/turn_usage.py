"""What a turn has used so far, in a file of this machine's: a driver that is killed leaves it to the next one (D75)."""

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


def note(local: str, run_id: str, told: Mapping[str, Any]) -> None:
    """Write down what is so; never fails, for nothing but a sum hangs on it."""
    path = _path(local, run_id)
    with contextlib.suppress(OSError, LoomError):
        files.refuse_links(os.path.dirname(local), path)
        files.write_atomically(path, files.to_json(told), durable=False)


def read(local: str, run_id: str) -> dict[str, Any]:
    """Give what was written down; empty where nothing was."""
    try:
        path = _path(local, run_id)
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
