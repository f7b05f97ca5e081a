"""A compaction that no session start follows: its host's next event that can, primes (`Host.restores`).

PreCompact leaves a note where the host has one, else whatever sees a compaction (`session_notes.note_compacted`).
The first event that takes the note away gives what a start would have given, in its own room. Whether that arrived is
looked for at the next prompt, as after any compaction.
"""

from __future__ import annotations

from loomctl.hosts import table
from loomctl.hosts.protocol.events import attempt
from loomctl.runs.machine import session_notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.hosts.protocol.sessions import Given
    from loomctl.runs.project import Workspace


def restored(space: Workspace, word: str, event: dict[str, Any], room: int) -> Given | None:
    """Prime the caller's session if it was compacted; None where it was not, or nothing is to be said.

    word: the event's; room: UTF-16 units that its host takes of what is told now.
    """
    session_id, local = space.caller.session_id, space.store.local
    if session_id is None or word not in table.of_hook().restores:
        return None
    if not session_notes.claim_compacted(local, session_id):
        return None
    from loomctl.hosts.protocol import sessions  # most events follow no compaction

    attempt([], lambda: session_notes.drop_owed(local, session_id))
    attempt([], lambda: session_notes.doubt(local, session_id))
    told = {"source": "compact", "transcript_path": event.get("transcript_path")}
    return sessions.start(space, told, room)
