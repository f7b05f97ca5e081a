"""What a session that has taken a run up by a slash command is given by its first `loomctl next` (D79).

A host gives the body of a slash command again after each compaction, as it was; a tool's result is gone with it. So
such a body says only which run it is, and the rest is owed until `next` gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.priming import memory_of_session, prime_run
from loomctl.priming.survival.receipts import is_start
from loomctl.runs.machine import parts
from loomctl.runs.machine.local import TERMINAL
from loomctl.workflows.model.triggers import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.priming.primed import Slip
    from loomctl.priming.slip import Budget
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

_KEY = "owed_by_next"


def budget(space: Workspace) -> Budget:
    """Give the budget of what a tool's result gives: three parts stand in it, a fourth comes by its hook (D62)."""
    if space.caller.host == TERMINAL or not parts.has_room(space.store.local):
        return prime_run.command_budget(space)
    return prime_run.hook_budget(space, parts.MOST)


def owe(space: Workspace, run: Run, event: Event, begun: str) -> Slip:
    """Note what is due to the caller's session; gives the slip that stands for it, with nothing in it.

    begun: as for `memory_of_session.remember`.
    """
    session_id = space.caller.session_id
    if session_id is not None:
        owed = {"run_id": run.run_id, "event": event.name, "facts": list(event.facts), "begun": begun, "lines": []}
        space.local.note_primed(session_id, {**space.local.primed(session_id), _KEY: owed})
    return prime_run.nothing(run, event, budget(space))


def tell(space: Workspace, lines: Sequence[str]) -> None:
    """Add what its user must know to what is owed to the session."""
    session_id = space.caller.session_id
    owed = _owed(space)
    if session_id is not None and owed and lines:
        told = {**owed, "lines": [*owed["lines"], *lines]}
        space.local.note_primed(session_id, {**space.local.primed(session_id), _KEY: told})


def give(space: Workspace, run: Run, besides: Slip | None) -> tuple[Slip, list[str]] | None:
    """Give what is owed to the caller's session, with the lines that go with it, and note that it was given.

    besides: what was made for the same result; all of it is in the one that is given.
    """
    session_id, owed = space.caller.session_id, _owed(space)
    if session_id is None or owed.get("run_id") != run.run_id:
        return None
    event = Event(owed["event"], (*owed["facts"], *([besides.event] if besides else [])))
    made = prime_run.prime(space, run, event, budget(space), may_write=True)
    made = memory_of_session.record(space, run.run_id, made, begun=owed["begun"])
    left = space.local.primed(session_id)
    left.pop(_KEY, None)
    space.local.note_primed(session_id, left)
    return made, owed["lines"]


def _owed(space: Workspace) -> dict[str, Any]:
    """Read what is owed; empty where nothing is, or what stands there is not what `owe` writes."""
    owed = space.local.primed(space.caller.session_id).get(_KEY)
    if not isinstance(owed, dict) or not isinstance(owed.get("event"), str) or not is_start(owed.get("begun")):
        return {}
    listed = [owed.get("facts"), owed.get("lines")]
    fits = all(isinstance(one, list) and all(isinstance(word, str) for word in one) for one in listed)
    return owed if fits else {}
