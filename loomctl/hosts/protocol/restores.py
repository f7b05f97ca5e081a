"""A compaction that no session start follows: its host's next event that can, primes (`Host.primes_at`).

PreCompact leaves a note where the host has one, else whatever sees a compaction (`session_notes.note_compacted`). The
first event that takes the note away gives what a start would have given, in its own room. Where the compaction goes on
beside the turn, the note stays, and the first event after its end looks whether that arrived, and what the summary
lost.
"""

from __future__ import annotations

from loomctl.hosts import asking
from loomctl.hosts.protocol.events import attempt
from loomctl.runs.machine import session_notes
from loomctl.runs.machine.session_notes import GIVEN_THEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.hosts.protocol.sessions import Given
    from loomctl.runs.project import Workspace


def restored(space: Workspace, word: str, event: dict[str, Any], room: int) -> Given | None:
    """Prime the caller's session if it was compacted; None where it was not, or nothing is to be said.

    word: the event's; room: UTF-16 units that its host takes of what is told now.
    """
    if word not in asking.host().primes_at:
        return None
    state = _claim(space)
    if state is None or (state == GIVEN_THEN and not _is_lost(space)):
        return None
    from loomctl.hosts.protocol import sessions  # most events follow no compaction

    session_id, local = space.caller.session_id or "", space.store.local
    attempt([], lambda: session_notes.drop_owed(local, session_id))
    attempt([], lambda: session_notes.doubt(local, session_id))
    told = {"source": "compact", "transcript_path": event.get("transcript_path")}
    given = sessions.start(space, told, room)
    if state != GIVEN_THEN and space.caller.conversation.compacting():
        attempt([], lambda: session_notes.note_compacted(local, session_id, GIVEN_THEN))
    return given


def settle(space: Workspace) -> None:
    """Look, where a turn ends, what the summary of a compaction lost; the next prompt puts it back."""
    if asking.host().primes_at and (state := _claim(space)) is not None and (state != GIVEN_THEN or _is_lost(space)):
        session_notes.note_compacted(space.store.local, space.caller.session_id or "")  # primed with the next prompt


def _claim(space: Workspace) -> str | None:
    """Take the note, unless the compaction still goes on after what was given for it."""
    session_id, local = space.caller.session_id, space.store.local
    state = session_notes.claim_compacted(local, session_id) if session_id else None
    if session_id and state == GIVEN_THEN and space.caller.conversation.compacting():
        attempt([], lambda: session_notes.note_compacted(local, session_id, GIVEN_THEN))
        return None
    return state


def _is_lost(space: Workspace) -> bool:
    """Tell whether nothing of what was given stands in the conversation; else judge the summary.

    A summariser may call a tool, too, and its hook is the conversation's.
    """
    from loomctl.hosts.protocol import sessions
    from loomctl.priming import memory_of_session

    run_id = space.local.primed(space.caller.session_id).get("run_id")
    seen = space.caller.conversation.boundary() is not None and isinstance(run_id, str)
    if seen and not memory_of_session.held(space, str(run_id)).any_slip:
        return True
    attempt([], lambda: sessions.after_compaction(space, {}))
    return False
