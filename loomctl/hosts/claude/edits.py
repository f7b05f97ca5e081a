"""What an event after a tool tells of edited files (D80)."""

from __future__ import annotations

import os

from loomctl.hosts.claude import events
from loomctl.priming import edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WRITERS = ("Edit", "Write", "MultiEdit", "NotebookEdit")


def after_tool(event: dict[str, Any]) -> tuple[str, str]:
    """Give a text for the assistant and a line for its user; what the assistant itself has written is only noted."""
    space = events.workspace_of(event)
    if space is None:
        return "", ""
    own = ""
    given = event.get("tool_input")
    if event.get("tool_name") in _WRITERS and isinstance(given, dict):
        named = given.get("file_path") or given.get("notebook_path")
        own = os.path.realpath(named) if isinstance(named, str) and named.startswith("/") and "\0" not in named else ""
    made = edits.notice(space, own=own)
    return made.text, events.for_people(made.line) if made.line else ""
