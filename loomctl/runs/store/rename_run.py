"""A copy of a run made into a run of its own: another id wherever its files say theirs, its log chained anew (D54)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from loomctl.kit import clock, digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.json.shapes import following
from loomctl.runs.store import event_log, events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.model.state import State
    from loomctl.runs.store.event_log import Line
    from loomctl.runs.store.events import Event


def rename(folder: str, new: str, happened: Sequence[Event], changes: dict[str, Any]) -> State:
    """Give a copy of a run, in a folder of one's own, another id; gives its state.

    happened: what its log ends with; changes: to its state. Every entry stays, with the id and a chain of its own.
    Raises OSError, and what reading its state raises.
    """
    path = os.path.join(folder, "state.json")
    state: State = files.read_json(path)
    for name in _of_stages(folder):
        _rename_in(name, new)
    head = _chained_anew(os.path.join(folder, events.FILE), new)
    state.pop("lease", None)  # nobody drives it
    state = {
        **state,
        **changes,
        "run_id": new,
        "revision": following(state.get("revision", 0)),
        "updated_at": clock.now(),
    }
    head = events.append(
        folder, new, happened, durable=False, known=head if head.seq else None, state=events.of_state(state)
    )
    state["ledger_head"] = {"seq": head.seq, "sha256": head.sha256}
    files.write_atomically(path, files.to_json(state), mode=0o644, durable=False)
    return state


def _of_stages(folder: str) -> list[str]:
    found = []
    for below, _, names in os.walk(os.path.join(folder, "stages")):
        found += [os.path.join(below, name) for name in names if name.endswith(".json")]
    return found


def _rename_in(path: str, new: str) -> None:
    """Have a file that says whose it is say so rightly; what is no JSON object is left as it is."""
    try:
        value = files.read_json(path)
    except (OSError, LoomError):
        return
    if isinstance(value, dict) and isinstance(value.get("run_id"), str):
        files.write_atomically(path, files.to_json({**value, "run_id": new}), mode=0o644, durable=False)


def _chained_anew(path: str, new: str) -> events.Head:
    """Write a log again with another run's id in each entry; gives the new head.

    What is no entry stays byte for byte, empty lines and a whole entry that a kill left without its newline, too: the
    note behind it tells exactly its bytes.
    """
    parts: list[bytes] = []
    head, end = events.Head(0, ""), 0
    lines = event_log.all_of(path)
    line = next(lines, None)
    while line is not None:
        following = next(lines, None)
        data = line.data
        if line.entry is not None and not _is_told_torn(line, following):
            data = _entry({**line.entry, "run_id": new, "prev": head.sha256})
            head = events.Head(line.entry["seq"], digests.of_bytes(data))
        parts += [b"\n" * (line.at - end), data, b"\n" if line.ended else b""]
        end = line.at + line.bytes + 1
        line = following
    files.write_atomically(path, b"".join(parts), durable=False)
    return head


def _is_told_torn(line: Line, following: Line | None) -> bool:
    """Tell whether the note behind an entry tells that entry's bytes as torn."""
    if following is None or following.entry is None or following.entry["event"] != events.TORN:
        return False
    told = following.entry.get("properties")
    if not isinstance(told, dict) or told.get("bytes") != line.bytes:
        return False
    return bool(told.get("sha256") == digests.of_bytes(line.data))


def _entry(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
