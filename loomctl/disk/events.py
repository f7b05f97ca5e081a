"""The append-only `events.jsonl` of a run: each line carries its number and the hash of the line before (D54)."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from loomctl.disk import clock, digests, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FILE = "events.jsonl"


class Event(NamedTuple):
    """name: dotted (`stage.completed`, D41); properties: JSON values; session_id, step_id: whose, if anybody's."""

    name: str
    properties: Mapping[str, Any]
    session_id: str | None = None
    step_id: str | None = None


class Head(NamedTuple):
    """The last whole line: its seq and the SHA-256 of its bytes without the newline; (0, "") before the first."""

    seq: int
    sha256: str


def append(run_dir: str, run_id: str, events: Sequence[Event], *, durable: bool) -> Head:
    """Append events in one write; the caller holds the run's lock. Gives the new head.

    A line that a kill tore is closed by a newline and an event that says so; it is never taken for an entry (D53).
    """
    path = os.path.join(run_dir, FILE)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        last, torn = _tail(descriptor, size)
        seq, sha256 = _head_of(last)
        lines: list[bytes] = []
        if torn:
            note = Event("ledger.torn_line", {"bytes": len(torn), "sha256": digests.of_bytes(torn)})
            events = [note, *events]
            lines.append(b"")  # its newline closes the torn line
        for event in events:
            seq += 1
            line = _line(run_id, event, seq, sha256)
            sha256 = digests.of_bytes(line)
            lines.append(line)
        if lines:
            files.write_all(descriptor, b"".join(line + b"\n" for line in lines))
            if durable:
                os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Head(seq, sha256)


def _line(run_id: str, event: Event, seq: int, prev: str) -> bytes:
    entry: dict[str, Any] = {
        "seq": seq,
        "id": f"{seq:06d}-{os.urandom(4).hex()}",
        "ts": clock.now(),
        "run_id": run_id,
        "event": event.name,
    }
    if event.session_id:
        entry["session_id"] = event.session_id
    if event.step_id:
        entry["step_id"] = event.step_id
    entry["prev"] = prev
    entry["properties"] = dict(event.properties)
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _tail(descriptor: int, size: int) -> tuple[bytes, bytes]:
    """Give the last whole line and what stands after it (a torn line), reading from the end in growing pieces."""
    reach = 64 * 1024
    while True:
        start = max(0, size - reach)
        data = os.pread(descriptor, size - start, start)
        body, newline, torn = data.rpartition(b"\n")
        if not newline and start == 0:
            return b"", data
        before = body.rfind(b"\n")
        if newline and (before >= 0 or start == 0):
            return body[before + 1 :], torn
        reach *= 4


def _head_of(line: bytes) -> Head:
    if not line:
        return Head(0, "")
    try:
        entry = json.loads(line)
        seq = entry["seq"]
    except (ValueError, KeyError, TypeError, RecursionError):
        seq = 0
    return Head(seq if type(seq) is int else 0, digests.of_bytes(line))
