"""Runs that are taken up inside of a host's sandbox, where `loomctl` cannot write into the user's own folders.

Hooks run outside of it: the one that follows the call remembers the run as this machine's (D23).
"""

from __future__ import annotations

from loomctl.hosts.protocol import events
from loomctl.runs.machine import run_notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TAKE_UP = tuple(f"loomctl {verb}" for verb in ("run", "resume", "fork", "pull"))


def remember(event: dict[str, Any]) -> None:
    """Remember the run that a session is bound to behind a call that takes one up. Raises OSError and LoomError."""
    given = event.get("tool_input")
    command = given.get("command") if isinstance(given, dict) else None
    if not isinstance(command, str) or not any(call in command for call in _TAKE_UP):
        return
    space = events.workspace_of(event)
    binding = space.local.binding(space.caller.session_id) if space is not None else None
    if space is not None and binding is not None and space.store.has(binding["run_id"]):
        run_notes.note_known(binding["run_id"], space.store.folder)
