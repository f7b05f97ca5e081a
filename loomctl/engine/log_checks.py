"""What is wrong with a run's `events.jsonl`: lines that are no entries, numbers and hashes that do not fit (D54)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from loomctl.disk import digests, events, files
from loomctl.model.errors import LoomError, quoted
from loomctl.model.problems import error, warning

if TYPE_CHECKING:
    from typing import Any

    from loomctl.model.problems import Problem

_LARGEST = 256 << 20
_NOTES = ("ledger.torn_line", "ledger.mismatch")


def check_log(path: str) -> list[Problem]:
    """Give every fault of a log; those that an entry of the log itself tells of are warnings."""
    try:
        data = files.read_bytes(path, limit=_LARGEST)
    except (OSError, LoomError) as problem:
        return [error("UNREADABLE", "$", str(problem), f"ls -l {quoted(path)}")]
    hint = f"loomctl resume {os.path.basename(os.path.dirname(os.path.abspath(path)))}"
    found: list[Problem] = []
    last, unread = events.Head(0, ""), ""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line:
            continue
        entry = _entry(line)
        if entry is None:
            unread = unread or f"line {number}"
            continue
        name, seq = entry["event"], entry["seq"]
        if unread:
            found.append(_torn(unread, told=name in _NOTES, hint=hint))
        if (seq, entry["prev"]) != (last.seq + 1, last.sha256):
            told = name in _NOTES
            message = f"entry {seq} does not follow on entry {last.seq}: lines are missing, or were changed"
            whole = "what is gone is in no other file of Loom's; a copy of yours may have it"
            found.append((warning if told else error)("BROKEN_CHAIN", f"line {number}", message, whole))
        last, unread = events.Head(seq, digests.of_bytes(line)), ""
    if unread:
        found.append(_torn(unread, told=False, hint=hint))
    return [*found, *_beside_the_state(path, last, hint)]


def _torn(where: str, *, told: bool, hint: str) -> Problem:
    message = "this is no entry: a write was cut off here, or the file was changed"
    if told:
        return warning("TORN_LINE", where, f"{message}; the log tells of it")
    return error("TORN_LINE", where, message, hint)


def _beside_the_state(path: str, last: events.Head, hint: str) -> list[Problem]:
    """Compare the log's end with what the run's state remembers of it."""
    try:
        state = files.read_json(os.path.join(os.path.dirname(path), "state.json"))
    except (OSError, LoomError):  # has an error of its own
        return []
    known = events.head_of(state.get("ledger_head") if isinstance(state, dict) else None)
    if known is None or known.seq < last.seq or known == last:
        return []
    message = f"the log ends with entry {last.seq}, the state remembers entry {known.seq}; the next update tells of it"
    return [error("LOG_CUT_OFF", "$", message, hint)]


def _entry(line: bytes) -> dict[str, Any] | None:
    return json.loads(line) if events.seq_of(line) else None
