"""What a person allowed in a project for all runs to come: kept in the user's own folder, never the project (D23)."""

from __future__ import annotations

import os

from loomctl.kit import clock, digests, files, machine
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object

_LARGEST = 1 << 20


def is_allowed(store: str, command: str) -> bool:
    """Tell whether a person allowed exactly this command in the project of a store; a moved project is a new one."""
    try:
        held = as_object(files.read_json(_path(store), limit=_LARGEST))
    except (OSError, LoomError):
        return False
    return held.get("tests") == digests.of_text(command)


def allow(store: str, command: str) -> str:
    """Allow a command as the project's tests, in place of the one before; gives what went wrong, or an empty string."""
    path = _path(store)
    if not path:
        return "Loom has no folder to remember it in: set LOOM_STATE_HOME"
    value = {"store": os.path.realpath(store), "tests": digests.of_text(command), "since": clock.now()}
    try:
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, files.to_json(value), durable=False)
    except OSError as error:
        return f"Loom could not remember it on this machine ({error})"
    return ""


def _path(store: str) -> str:
    base = machine.state_home()
    return os.path.join(base, "projects", f"{digests.of_text(os.path.realpath(store))[:40]}.json") if base else ""
