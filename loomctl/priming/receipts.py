"""Receipts: what became of the items that must survive a compaction, and of the artifacts at each start (D81).

A start leaves a note of what is due to the conversation (`local/opened`); the first Stop, or the next compaction, looks
into the host's transcript for it. What became of each artifact stands in the log of the run that the session is bound
to, else on this machine alone (`local/receipts`). Presence of a text is what is claimed, no more.
"""

from __future__ import annotations

import sys

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import HOOK_PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import sessions, visits
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Sent, Workspace
    from loomctl.runs.store.store import Run

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
NOT_SOUGHT = "masked: Loom does not look for secrets"
"""The note of an item whose text is, but for a word or two, a secret."""
JUDGED = "judged"
"""Stands in what is noted of a session from the moment that its compaction is judged until its user is told."""
_CHECKED = "context.checked"
_COMPACT = "compact"
_LARGEST = 1 << 20  # bytes of an artifact (D17)
_KEPT = 20  # receipts that this machine keeps of a session
PATIENCE = 1.0
"""Seconds in which a host writes down what it gave: it calls its hooks before."""


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

    @property
    def survived(self) -> str:
        """How many of those that had something to look for are there, in words."""
        return f"{len(self.kept) + len(self.restored)} of {len(self.kept) + len(self.lost)} survived"

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


def with_last(state: State, session_id: str, receipt: Receipt) -> State:
    """Write the receipt of a session's last compaction; a state without one stays as it is."""
    return _changed(state, session_id, lambda _: receipt)


def with_put_back(state: State, session_id: str, names: Collection[str]) -> State:
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


def survived(space: Workspace) -> str:
    """Say once after a compaction was judged where the run stands, and how much survived; empty else."""
    session_id = space.caller.session_id
    noted = space.local.primed(session_id)
    if session_id is None or not noted.pop(JUDGED, False):
        return ""
    space.local.note_primed(session_id, noted)
    binding = space.local.binding(session_id)
    state = space.store.read_state(binding["run_id"]) if binding is not None else {}
    receipt = found.receipt if state and (found := last(state, session_id)) is not None else None
    if receipt is None or not receipt.proven:
        return ""
    from loomctl.kit.text.secrets import masked_line
    from loomctl.runs.model.state import handle

    told = ", ".join(filter(None, (handle(state), masked_line(visits.place_line(state), 120))))
    return f"Loom: {told}. {receipt.survived}."


def settle(space: Workspace, *, patience: float = 0) -> str:
    """Look whether the caller's conversation has what its last start was to give; gives a line on what it has not.

    patience: seconds for which a host may still write down what it gave. Without a transcript nothing can be seen, and
    there is no receipt.
    """
    session_id = space.caller.session_id
    opened = space.local.opened(session_id)
    if session_id is None or opened is None:
        return ""
    space.local.drop_opened(session_id)
    if not is_start(opened["event"]):
        return ""
    artifacts = {name: one for name, one in opened["artifacts"].items() if isinstance(one, dict)}
    wanted = {slip for one in artifacts.values() for slip in texts(one.get("slips"))}
    older = {slip for one in artifacts.values() for slip in texts(one.get("older"))}
    sent = space.caller.conversation.sent(wanted, older, patience=patience)
    if sent is None:
        return ""
    is_compaction = opened["event"] == _COMPACT
    found = {name: _fate(one, sent, is_compaction=is_compaction) for name, one in artifacts.items()}
    receipt = Start(session_id, opened["at"], opened["event"], found)
    try:
        _keep(space, opened["run_id"], receipt)
    except (LoomError, OSError):  # its user hears of it all the same
        pass
    return _line(receipt)


def _keep(space: Workspace, run_id: str, receipt: Start) -> None:
    """Tell a receipt in the run's log; keep it here where its session is not bound to the run, or may not write it."""
    binding = space.local.binding(receipt.session_id)
    if binding is not None and binding["run_id"] == run_id:
        told = Event("context.checked", receipt.to_dict(), receipt.session_id)
        try:
            space.store.tell(run_id, lambda _: [told], durable=False, patience=HOOK_PATIENCE)
        except (LoomError, OSError):
            pass
        else:
            return
    kept = [*space.local.receipts(receipt.session_id), {"run_id": run_id, **receipt.to_dict()}]
    space.local.note_receipts(receipt.session_id, kept[-_KEPT:])


def of_run(space: Workspace, run: Run) -> list[Start]:
    """Give the receipts of a run's starts, oldest first: those of its log, and those that this machine alone has."""
    from loomctl.runs.store import event_log  # no hook asks

    try:
        lines = event_log.tail(run.folder, sys.maxsize, lambda one: one.get("event") == _CHECKED, (_CHECKED.encode(),))
        entries = [line.entry for line in lines if line.entry is not None]
    except (OSError, LoomError):
        entries = []
    logged = [(str(entry.get("session_id") or ""), entry.get("properties")) for entry in entries]
    starts = (read_start(session_id, raw) for session_id, raw in [*logged, *space.local.receipts_of(run.run_id)])
    return sorted((one for one in starts if one is not None), key=lambda one: one.at)


def _fate(noted: Mapping[str, Any], sent: Sent, *, is_compaction: bool) -> str:
    """Tell what became of an artifact.

    After a compaction an older content is stale wherever it stands; else it was superseded by what was given since,
    unless that did not arrive.
    """
    slips = texts(noted.get("slips"))
    arrived = bool(slips) and sent.slips.issuperset(slips)
    is_whole = arrived and noted.get("whole") is True
    older = not sent.slips.isdisjoint(texts(noted.get("older")))
    due, path = noted.get("sha256"), str(noted.get("file"))
    copies = sent.copies.get(path, ())
    now, is_due = _now(path, due) if copies else (None, False)
    is_back = any(_is_of(text, due, now) for text in copies)
    if is_compaction and is_due:  # else what differs may be newer
        again = sent.given_again.get(path)
        older = older or (again is not None and not _is_of(again, due, now))
    if older and (is_compaction or not (arrived or is_back)):
        return "stale"
    if is_whole or (is_back and noted.get("in_memory") is True):
        return "present"
    if is_back:
        return "restored"
    return "reachable" if arrived and noted.get("named") is True else "lost"


def _now(path: str, due: object) -> tuple[str | None, bool]:
    """Read an artifact's file again, None where it cannot be read; tells whether it is still what was due."""
    try:
        data = files.read_bytes(path, limit=_LARGEST)
    except (OSError, ValueError, LoomError):
        return None, False
    return data.decode("utf-8", "surrogateescape"), digests.of_bytes(data) == due


def _is_of(text: str, sha256: object, now: str | None) -> bool:
    """Tell whether a text is the content that was due, or the file's present one. now: that; None where it has none."""
    if now is not None and _as_shown(text) == _as_shown(now):
        return True
    return any(digests.of_text(form) == sha256 for form in (text, f"{text}\n"))


def _as_shown(text: str) -> str:
    """Give a file as a host shows it: line ends alike, no front matter, no comments of HTML, nothing around it.

    It does so with what its memory imports; of what was Read it leaves out a mark at the beginning and the last line's
    end.
    """
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text.startswith("---\n") and (end := text.find("\n---\n", 3)) >= 0:
        text = text[end + 5 :]
    kept: list[str] = []
    while (start := text.find("<!--")) >= 0 and (end := text.find("-->", start)) >= 0:
        kept.append(text[:start])
        text = text[end + 3 :]
    return "\n".join(line.rstrip() for line in "".join([*kept, text]).split("\n") if line.strip())


def _line(receipt: Start) -> str:
    from loomctl.kit.text.fences import one_line

    told = [f"{fate}: {', '.join(receipt.of(fate))}" for fate in FINDINGS if receipt.of(fate)]
    return one_line(f"{BEGUN[receipt.event]}: {'; '.join(told)} (loomctl prove)", 600) if told else ""
