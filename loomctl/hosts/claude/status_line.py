"""Claude Code's status line where the launcher has none prepared: JSON on standard input, one line, always exit 0.

It is started as a hook is: the standard library alone. What goes wrong shows nothing, for the line is drawn again and
again.
"""

from __future__ import annotations

import os
import sys
import time

from loomctl.hosts.claude import events
from loomctl.kit import files


def main() -> int:
    """Make the session's line, keep it for the launcher, and print it; always gives 0."""
    if os.environ.get("LOOM_DISABLED") == "1":
        return 0
    try:
        line = _line()
        if line:
            files.write_all(sys.stdout.fileno(), f"{line}\n".encode("utf-8", "backslashreplace"))
    except Exception:  # noqa: BLE001, S110 - a status line fails open, as a hook does (D55)
        pass
    return 0


def _line() -> str:
    from loomctl.views import overview

    now = time.time()
    space = events.workspace_of(events.read_event())
    if space is None or space.caller.session_id is None:
        return ""
    forms = overview.session_line(space, space.caller.session_id, now=now)
    return overview.fitting(forms, os.environ.get("COLUMNS", ""))
