"""What this machine has started, resumed and trusted: kept in the user's folder, where no repository reaches (D23)."""

from __future__ import annotations

import os

from loomctl.kit import clock, digests, files, folders
from loomctl.kit.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _path(run_id: str, store: str) -> str:
    base = folders.state_home()
    name = digests.of_text(f"{run_id}\0{os.path.realpath(store)}")[:40]
    return os.path.join(base, "runs", f"{name}.json") if base else ""


def is_known(run_id: str, store: str) -> bool:
    """Tell whether this machine started or resumed the run in this very place; a moved or copied store is new."""
    path = _path(run_id, store)
    return bool(path) and os.path.isfile(path)


def entry(run_id: str, store: str) -> dict[str, Any]:
    """Give what is kept of a run: `{run_id, store, since, trusted?: hash of its commands}`; empty if unknown."""
    path = _path(run_id, store)
    try:
        value = files.read_json(path, limit=1 << 20) if path else None
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}


def note(run_id: str, store: str, **more: Any) -> str:
    """Remember a run as this machine's own; gives what went wrong, or an empty string. Never raises.

    more: `trusted`, the hash of the commands that may run.
    """
    path = _path(run_id, store)
    if not path:
        return "there is no folder of your own to remember the run in: set LOOM_STATE_HOME"
    value = {"since": clock.now(), **entry(run_id, store), "run_id": run_id, "store": os.path.realpath(store), **more}
    try:
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, files.to_json(value), durable=False)
    except OSError as error:
        return f"the run could not be remembered on this machine ({error}); it will be announced, not primed"
    return ""


def forget(run_id: str, store: str) -> None:
    """Forget a run that is gone."""
    path = _path(run_id, store)
    if path:
        files.remove(path)
