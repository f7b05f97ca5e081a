"""What of a compaction's losses still comes back: it is owed to a session of this machine that lives.

It is read from what the hooks keep for themselves (`disk/owed`), so another machine knows of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.disk import owed

if TYPE_CHECKING:
    from collections.abc import Collection

    from loomctl.engine.caller import Workspace
    from loomctl.model.receipts import Compacted


def names(space: Workspace, run_id: str, session_id: str, at: str, lost: Collection[str]) -> list[str]:
    """Give what of a compaction's losses is put back yet: with the next tool result or prompt of its session.

    at: when the compaction was; lost: what it lost and did not get back. Empty once the session has ended. What was
    tried and left out for lack of room is none of it, though it may be owed still: whether there is room is not known.
    """
    if not lost:
        return []
    noted = owed.standing(space.store.local, session_id)
    if noted is None or noted.get("run_id") != run_id or noted.get("at") != at:
        return []
    binding = space.local.binding(session_id)
    if binding is None or binding["run_id"] != run_id or not space.local.is_alive(binding):
        return []
    due = noted.get("given", noted.get("lost"))
    return [name for name in due if name in lost] if isinstance(due, list) else []


def marked(space: Workspace, run_id: str, one: Compacted) -> Compacted:
    """Give a compaction with what of it is still put back."""
    lost = one.receipt.still_lost if one.receipt is not None else []
    return one._replace(pending=names(space, run_id, one.session_id, one.at, lost))
