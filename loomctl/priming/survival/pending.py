"""What of a compaction's losses still comes back: it is owed to a session of this machine that lives.

It is read from what the hooks keep for themselves (`runs/machine/owed`), so another machine knows of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.runs.machine import owed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.priming.survival.receipts import Compacted
    from loomctl.runs.caller import Workspace


def names(space: Workspace, run_id: str, one: Compacted, *, is_last: bool = True) -> list[str]:
    """Give what of a compaction's losses is put back yet: with the next tool result or prompt of its session.

    is_last: whether none of its session came later in the same second, which tells where no record numbers it. Empty
    once the session has ended. What never fits is none of it as soon as that was found.
    """
    lost = one.receipt.still_lost if one.receipt is not None else []
    noted = owed.standing(space.store.local, one.session_id) if lost else None
    if noted is None or noted.get("run_id") != run_id or noted.get("at") != one.at:
        return []
    if noted["number"] != one.number if noted.get("number") else not is_last:
        return []
    binding = space.local.binding(one.session_id)
    if binding is None or binding["run_id"] != run_id or not space.local.is_alive(binding):
        return []
    coming = {*owed.left(noted), *(name for part in owed.parts(noted) for name in owed.names(part, "given"))}
    return [name for name in lost if name in coming.difference(owed.names(noted, "never"))]


def marked(space: Workspace, run_id: str, found: Sequence[Compacted]) -> list[Compacted]:
    """Give compactions, each session's in their order, with what of them is still put back."""
    last = {(one.session_id, one.at): at for at, one in enumerate(found)}
    return [
        one._replace(pending=names(space, run_id, one, is_last=last[(one.session_id, one.at)] == at))
        for at, one in enumerate(found)
    ]
