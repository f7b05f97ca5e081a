"""The append-only `events.jsonl` of a run: each line carries its number and the hash of the line before (D54)."""

from __future__ import annotations

import os

from loomctl.kit import clock, digests, files, quick_json
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.state import UNCHECKED
from loomctl.runs.model.visit_list import stored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FILE = "events.jsonl"
TORN, MISMATCH, DAMAGED = "ledger.torn_line", "ledger.mismatch", "ledger.damaged"
"""What a log tells of itself: a line that a kill tore off, an end that is not the known one, faults of its origin."""
_FARTHEST = 16 << 20  # bytes from the end in which an entry is looked for; no entry is as long
_KNOWN_WITHIN = 1 << 20  # bytes from the end in which the entry that the state remembers is looked for
_MOST = 1 << 62  # the highest number that an entry can have


_rendered = quick_json.dumper(ensure_ascii=False, separators=(",", ":"))


class Event(NamedTuple):
    """name: dotted (`stage.completed`, D41); properties: JSON values; session_id, step_id: whose, if anybody's."""

    name: str
    properties: Mapping[str, Any]
    session_id: str | None = None
    step_id: str | None = None


class Head(NamedTuple):
    """The last entry: its seq and the SHA-256 of its line without the newline; (0, "") before the first."""

    seq: int
    sha256: str


def of_state(state: Mapping[str, Any]) -> str:
    """Give the checksum of a state that stands in the log beside the last event of the write that made it (D54)."""
    return of_parts(files.to_parts(stored(state)))


def of_parts(parts: Mapping[str, str]) -> str:
    """Give the checksum of a state that was rendered already (`files.to_parts`)."""
    held = "\n".join(f"{key}: {part}" for key, part in parts.items() if key not in UNCHECKED)
    return digests.of_bytes(held.encode("utf-8", "backslashreplace"))


def are_told_apart(state: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two states have other checksums."""
    keys = (state.keys() | other.keys()) - UNCHECKED
    return any(state.get(key) != other.get(key) for key in keys)


def append(
    run_dir: str, run_id: str, events: Sequence[Event], *, durable: bool, known: Head | None = None, state: str = ""
) -> Head:
    """Append events in one write; the caller holds the run's lock. Gives the new head.

    state: the checksum of what is written behind them, which stands in the last line.

    What a kill tore off after the last entry is closed by a newline and an event that says so; it is never taken for an
    entry (D53). known: the head that the state remembers; a file that ends before it, or otherwise, or that has another
    line in its place, is told by an event too (D54).
    """
    descriptor = files.open_own(os.path.join(run_dir, FILE), os.O_RDWR | os.O_APPEND)
    try:
        data, head = _behind(descriptor, run_id, events, known, state)
        if data:
            files.write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
    except OSError as error:
        raise files.naming(error, os.path.join(run_dir, FILE)) from None
    finally:
        os.close(descriptor)
    return head


def foreseen(
    run_dir: str, run_id: str, events: Sequence[Event], *, known: Head | None, state: str = ""
) -> tuple[int, Head]:
    """Tell by how many bytes `append` would lengthen the log, and a head as long as the new one; nothing is written.

    Raises OSError.
    """
    try:
        descriptor = files.open_regular(os.path.join(run_dir, FILE))
    except FileNotFoundError:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data, head = _behind(descriptor, run_id, events, known, state)
    finally:
        os.close(descriptor)
    return len(data), head


def _behind(
    descriptor: int, run_id: str, events: Sequence[Event], known: Head | None, state: str
) -> tuple[bytes, Head]:
    """Give what `append` puts behind an open log, and the head that it has then."""
    found, torn = _tail(descriptor, os.fstat(descriptor).st_size)
    notes: list[Event] = []
    if torn:
        notes.append(Event("ledger.torn_line", {"bytes": len(torn), "sha256": digests.of_bytes(torn)}))
    there = found if known is None or known.seq >= found.seq else _at_known(descriptor, known)
    if known is not None and known != there:
        told = {"expected": known._asdict(), "found": there._asdict()}
        notes.append(Event("ledger.mismatch", told))
    seq, sha256 = max(found.seq, known.seq if known else 0), found.sha256
    lines = [b""] if torn and not torn.endswith(b"\n") else []  # its newline closes the torn line
    every = [*notes, *events]
    if state and not every and known is not None and found.seq > known.seq:
        every = [Event("state.changed", {})]  # what a kill left behind the state tells of another one
    for left, event in zip(range(len(every) - 1, -1, -1), every):  # noqa: B905 - as many
        seq += 1
        line = _line(run_id, event, seq, sha256, "" if left else state)
        sha256 = digests.of_bytes(line)
        lines.append(line)
    return b"".join(line + b"\n" for line in lines), Head(seq, sha256)


def _line(run_id: str, event: Event, seq: int, prev: str, state: str) -> bytes:
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
    if state:
        entry["state"] = state
    from loomctl.kit.text.secrets import masked  # most hooks write no event

    entry["properties"] = masked(dict(event.properties))  # a log is shown and sent around (D21)
    return _rendered(entry).encode("utf-8", "backslashreplace")


def _tail(descriptor: int, size: int) -> tuple[Head, bytes]:
    """Give the last entry and all that stands behind it, reading from the end in growing pieces.

    Where there is none within _FARTHEST, none is known, and that much stands for what is torn.
    """
    reach = 4 * 1024  # an entry is seldom longer
    while True:
        start = max(0, size - reach)
        data = os.pread(descriptor, size - start, start)
        first = data.find(b"\n") + 1 if start else 0  # the piece may begin within a line
        end = data.rfind(b"\n")
        while end >= first:
            begin = data.rfind(b"\n", first, end) + 1 or first
            seq = seq_of(data[begin:end])
            if seq:
                return Head(seq, digests.of_bytes(data[begin:end])), data[end + 1 :]
            end = begin - 1
        if start == 0 or reach >= _FARTHEST:
            return Head(0, ""), data
        reach *= 4


def _at_known(descriptor: int, known: Head) -> Head:
    """Give the entry that has a number the state remembers, where others were appended behind it without the state.

    One that stands too far from the end is taken for what the state remembers: `loomctl prove --log` reads it.
    """
    size = os.fstat(descriptor).st_size
    start = max(0, size - _KNOWN_WITHIN)
    lines = os.pread(descriptor, size - start, start).split(b"\n")
    for line in reversed(lines[1 if start else 0 : -1]):
        seq = seq_of(line)
        if 0 < seq <= known.seq:
            return Head(seq, digests.of_bytes(line))
    return known if start or known.seq <= 0 else Head(0, "")


def seq_of(line: bytes) -> int:
    """Give an entry's number; 0 for a line that is no entry."""
    try:
        entry = quick_json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return 0
    seq: int = entry["seq"] if is_entry(entry) else 0
    return seq


def is_entry(value: object) -> bool:
    """Tell an entry of the log, as it was parsed, from whatever else a line can hold."""
    if not isinstance(value, dict) or not isinstance(value.get("event"), str) or not isinstance(value.get("prev"), str):
        return False
    return type(value.get("seq")) is int and 0 < value["seq"] <= _MOST


def head_of(value: object) -> Head | None:
    """Read the head that a state remembers; None where it holds none."""
    seq, sha256 = (value.get("seq"), value.get("sha256")) if isinstance(value, dict) else (None, None)
    return Head(seq, sha256) if type(seq) is int and abs(seq) <= _MOST and isinstance(sha256, str) else None
