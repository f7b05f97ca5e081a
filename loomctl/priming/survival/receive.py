"""Receipts of what a session was given as it began, came back, was cleared or compacted, or took a run up (D81).

A start leaves a note of what is due to the conversation (`local/opened`); the first Stop, or the next compaction, looks
into the host's transcript for it. What became of each artifact stands in the log of the run that the session is bound
to, else on this machine alone (`local/receipts`). Presence of a text is what is claimed, no more.
"""

from __future__ import annotations

import sys

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.lock import HOOK_PATIENCE
from loomctl.priming.survival import receipts
from loomctl.priming.survival.receipts import Start
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.runs.caller import Sent, Workspace
    from loomctl.runs.store.store import Run

_CHECKED = "context.checked"
_COMPACT = "compact"
_LARGEST = 1 << 20  # bytes of an artifact (D17)
_KEPT = 20  # receipts that this machine keeps of a session
PATIENCE = 1.0
"""Seconds in which a host writes down what it gave: it calls its hooks before."""


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
    if not receipts.is_start(opened["event"]):
        return ""
    artifacts = {name: one for name, one in opened["artifacts"].items() if isinstance(one, dict)}
    wanted = {slip for one in artifacts.values() for slip in receipts.texts(one.get("slips"))}
    older = {slip for one in artifacts.values() for slip in receipts.texts(one.get("older"))}
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
    read = (receipts.read_start(session_id, raw) for session_id, raw in space.local.receipts_of(run.run_id))
    return sorted([*_in_the_log(run.folder), *(one for one in read if one is not None)], key=lambda one: one.at)


def _in_the_log(run_dir: str) -> Iterator[Start]:
    from loomctl.runs.store import event_log  # no hook asks

    def is_one(entry: Mapping[str, Any]) -> bool:
        return entry.get("event") == _CHECKED

    try:
        lines = event_log.tail(run_dir, sys.maxsize, is_one, (_CHECKED.encode(),))
    except (OSError, LoomError):
        return
    for line in lines:
        entry = line.entry or {}
        one = receipts.read_start(str(entry.get("session_id") or ""), entry.get("properties"))
        if one is not None:
            yield one


def _fate(noted: Mapping[str, Any], sent: Sent, *, is_compaction: bool) -> str:
    """Tell what became of an artifact.

    After a compaction an older content is stale wherever it stands; else it was superseded by what was given since,
    unless that did not arrive.
    """
    slips = receipts.texts(noted.get("slips"))
    arrived = bool(slips) and sent.slips.issuperset(slips)
    is_whole = arrived and noted.get("whole") is True
    older = not sent.slips.isdisjoint(receipts.texts(noted.get("older")))
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
    """Say in a line what a conversation has not as it should; empty where all is well."""
    from loomctl.kit.text.fences import one_line

    told = [f"{fate}: {', '.join(receipt.of(fate))}" for fate in receipts.FINDINGS if receipt.of(fate)]
    return one_line(f"{receipts.BEGUN[receipt.event]}: {'; '.join(told)} (loomctl prove)", 600) if told else ""
