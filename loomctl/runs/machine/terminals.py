"""A person's shell as a session: known by the process that leads it, for a terminal gives no id of its own (D24)."""

from __future__ import annotations

import os

from loomctl.kit import digests, machine
from loomctl.kit.process import processes
from loomctl.runs.machine.local import TERMINAL


def session(store: str) -> tuple[str, int | None]:
    """Give the session id of the shell that this process belongs to, in one store, and the process that leads it.

    All commands of one shell, or of one script that was started without one, are one session.
    """
    leader = os.getsid(0)
    which = (machine.hostname(), processes.boot_id(), str(leader), processes.started(leader), store)
    return f"{TERMINAL}-{digests.of_text(chr(0).join(which))[:12]}", leader or None
