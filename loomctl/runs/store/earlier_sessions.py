"""The records of sessions that a run's state holds no more: `sessions.jsonl` beside it (D24)."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.runs.store.session_file import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Store


def every(store: Store, run_id: str) -> list[dict[str, Any]]:
    """Give the session records that the run's state holds no more, oldest first; torn lines are left out.

    Raises BAD_ID, UNSAFE_LINK, OSError.
    """
    path = os.path.join(store.run_dir(run_id), FILE)
    files.refuse_links(store.folder, path)
    try:
        lines = files.read_bytes(path).splitlines()
    except FileNotFoundError:
        return []
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        try:
            record = files.parse_json(line, where=path)
        except LoomError:
            continue
        if isinstance(record, dict) and isinstance(record.get("session_id"), str):
            found.pop(record["session_id"], None)  # it came back meanwhile: its last record counts
            found[record["session_id"]] = record
    return list(found.values())


def one(store: Store, state: State, session_id: str) -> dict[str, Any] | None:
    """Give the record of a session that the state holds no more, or None. Raises nothing but BAD_ID, UNSAFE_LINK."""
    path = os.path.join(store.run_dir(state["run_id"]), FILE)
    try:
        files.refuse_links(store.folder, path)
        if session_id.encode() not in files.read_bytes(path):
            return None
        found = every(store, state["run_id"])
    except (OSError, LoomError):
        return None
    return next((record for record in found if record["session_id"] == session_id), None)
