"""Receipts: what became of the items that must survive a compaction, and of the artifacts at each start. Pure."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.runs.model import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

_LISTS = ("kept", "lost", "restored", "absent")
BEGUN = {
    "startup": "new session",
    "resume": "resumed",
    "clear": "after /clear",
    "fork": "forked",
    "compact": "after a compaction",
    "run": "the run's beginning",
    "take_up": "taken up",
    "move": "taken up in another place",
}
"""What a conversation was given something at: the host's words for why a session starts, and Loom's own, in words."""
FATES = ("present", "restored", "reachable", "stale", "lost")
"""What became of an artifact: given whole by Loom; whole by the host, or a Read; named, with how to read it; an older
content stands there; none of these."""
FINDINGS = ("stale", "lost")
NOT_SOUGHT = "masked: a secret is not looked for"
"""The note of an item whose text is, but for a word or two, a secret."""


class Receipt(NamedTuple):
    """Names of items. kept: present; lost: in neither summary nor priming; restored: of those, put back later.

    proven: False where nobody could look into a summary; absent: had nothing to look for; notes: what is to be said of
    some, by their names: why one is lost that could not be looked for, or absent, or what of an artifact it is.
    """

    proven: bool
    kept: Sequence[str]
    lost: Sequence[str]
    restored: Sequence[str]
    absent: Sequence[str]
    notes: Mapping[str, str] = {}

    @property
    def still_lost(self) -> list[str]:
        """What was lost and not put back."""
        return [name for name in self.lost if name not in self.restored]

    def to_dict(self) -> dict[str, Any]:
        """Give what a session's record holds and an event tells; `absent` and `notes` only where there are any."""
        document = {"proven": self.proven, "kept": [*self.kept], "lost": [*self.lost], "restored": [*self.restored]}
        absent = {"absent": [*self.absent]} if self.absent else {}
        return {**document, **absent, **({"notes": {**self.notes}} if self.notes else {})}


class Compacted(NamedTuple):
    """A compaction of a session. receipt: None where nothing was declared, or nobody looked.

    pending: of what was lost the names that are still put back, as far as this machine knows; number: its place among
    those that the session's record holds, from 1, for two may be of one second; 0 where no record has it.
    """

    session_id: str
    at: str
    trigger: str
    receipt: Receipt | None
    pending: Sequence[str] = ()
    number: int = 0

    @property
    def which(self) -> dict[str, Any]:
        """Tell it from all others of its session, as events and notes do."""
        return {"at": self.at, "number": self.number} if self.number else {"at": self.at}

    @property
    def still_lost(self) -> list[str]:
        """What was lost, was not put back, and does not come back by itself."""
        return [name for name in self.receipt.still_lost if name not in self.pending] if self.receipt else []


class Start(NamedTuple):
    """What a conversation was seen to have from a start on. event: a key of BEGUN; fates: by the artifacts' ids."""

    session_id: str
    at: str
    event: str
    fates: Mapping[str, str]

    def of(self, fate: str) -> list[str]:
        """Give the ids of the artifacts of one fate."""
        return [name for name, one in self.fates.items() if one == fate]

    def to_dict(self) -> dict[str, Any]:
        """Give what is kept, and what an event tells; the session is the event's own."""
        return {"at": self.at, "event": self.event, "artifacts": {**self.fates}}


def read_start(session_id: str, raw: object) -> Start | None:
    """Read the receipt of a start as `Start.to_dict` gives it; None for what has not its form."""
    if not isinstance(raw, dict) or not isinstance(raw.get("at"), str) or not is_start(raw.get("event")):
        return None
    artifacts = raw.get("artifacts")
    fates = artifacts.items() if isinstance(artifacts, dict) else ()
    known = {name: one for name, one in fates if isinstance(name, str) and isinstance(one, str) and one in FATES}
    return Start(session_id, raw["at"], raw["event"], known)


def is_start(word: object) -> bool:
    """Tell a word of BEGUN."""
    return isinstance(word, str) and word in BEGUN


def read(raw: object) -> Receipt | None:
    """Read a receipt as a record holds it; None for what has not its form."""
    if not isinstance(raw, dict) or not isinstance(raw.get("proven"), bool):
        return None
    kept, lost, restored, absent = (texts(raw.get(key)) for key in _LISTS)
    return Receipt(raw["proven"], kept, lost, [name for name in restored if name in lost], absent, read_notes(raw))


def read_notes(raw: Mapping[str, Any]) -> dict[str, str]:
    """Read the notes of a receipt, or of what is owed; what has not their form is passed over."""
    notes = raw.get("notes")
    told = notes.items() if isinstance(notes, dict) else ()
    return {name: note for name, note in told if isinstance(name, str) and isinstance(note, str)}


def texts(raw: object) -> list[str]:
    """Give the texts of what should be a list of them."""
    return [one for one in raw if isinstance(one, str)] if isinstance(raw, list) else []


def compactions(records: Iterable[Mapping[str, Any]]) -> Iterator[Compacted]:
    """Give the compactions of session records, in their order; what has no such form is passed over."""
    for record in records:
        listed = record.get("compactions")
        for number, entry in enumerate(listed if isinstance(listed, list) else (), 1):
            if isinstance(entry, dict):
                at, trigger = str(entry.get("at") or ""), str(entry.get("trigger") or "")
                receipt = read(entry.get("receipt"))
                yield Compacted(str(record.get("session_id")), at, trigger, receipt, number=number)


def last(state: Mapping[str, Any], session_id: str) -> Compacted | None:
    """Give a session's last compaction, as far as the state has its record."""
    record = sessions.record_of(state, session_id)
    found = list(compactions([record])) if record else []
    return found[-1] if found else None


def noted(state: State, session_id: str, receipt: Receipt) -> State:
    """Write the receipt of a session's last compaction; a state without one stays as it is."""
    return _changed(state, session_id, lambda _: receipt)


def restored(state: State, session_id: str, names: Collection[str]) -> State:
    """Note that items which a session's last compaction lost were put back."""
    return _changed(state, session_id, lambda before: with_restored(before, names))


def with_restored(before: Receipt | None, names: Collection[str]) -> Receipt | None:
    """Give a receipt in which what was lost of these names is put back."""
    if before is None:
        return None
    kept = [*before.restored, *(name for name in names if name not in before.restored)]
    return before._replace(restored=[name for name in kept if name in before.lost])


def _changed(state: State, session_id: str, change: Callable[[Receipt | None], Receipt | None]) -> State:
    record = sessions.record_of(state, session_id)
    listed = record.get("compactions") if record else None
    if not isinstance(listed, list) or not listed or not isinstance(listed[-1], dict):
        return state
    receipt = change(read(listed[-1].get("receipt")))
    if receipt is None:
        return state
    return sessions.with_compactions(state, session_id, [*listed[:-1], {**listed[-1], "receipt": receipt.to_dict()}])
