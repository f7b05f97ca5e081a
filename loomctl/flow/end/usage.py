"""What a stage used of models and tokens, in every conversation on this machine that worked on it (D41)."""

from __future__ import annotations

import os

from loomctl.changes import track
from loomctl.kit import clock
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


def of_visit(space: Workspace, run: Run, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Sum what was used since a visit began, each message once, also one that two transcripts hold; None: unknown.

    It is `partial` where a session that worked on the run since then cannot be seen here.
    """
    own, unseen = space.caller.conversation, False
    beside = []
    for record in sessions.history(run.state):
        session_id, last = record.get("session_id"), str(record.get("last_activity") or "")
        if not isinstance(session_id, str) or session_id == space.caller.session_id or last < entry["started_at"]:
            continue
        if record.get("host") == TERMINAL:  # nobody converses there
            continue
        binding = space.local.binding(session_id) or {}
        path = binding.get("transcript_path") if binding.get("run_id") == run.run_id else None
        if isinstance(path, str) and os.path.isfile(path):
            beside.append(own.another(path))
        else:
            unseen = True
    used = own.usage_since(clock.exact_stamp(track.began_at(space, run, entry)), beside)
    return {**used, "partial": True} if used and unseen else used
