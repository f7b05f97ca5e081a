"""What is lost where one state takes another's place: visits, sessions, keys. Pure."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.runs.model.visits import every

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# What changes with each write, or is told by itself.
_APART = (
    *("revision", "updated_at", "ledger_head", "lease", "steps", "sessions", "context_metadata", "schema_version"),
)


class Losses(NamedTuple):
    """How two states differ.

    steps: `{step_id, visit, was, now}`, None for a visit that is not there; sessions: `{session_id, was, now}`, each
    `open` or how it ended; keys: the other top-level keys whose values differ.
    """

    steps: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    keys: list[str]

    @property
    def any(self) -> bool:
        """Tell whether the two say anything different."""
        return bool(self.steps or self.sessions or self.keys)


def losses(before: Mapping[str, Any], after: Mapping[str, Any]) -> Losses:
    """Compare two accepted states of one run: the one that goes and the one that takes its place."""
    return Losses(
        [
            {"step_id": key[0], "visit": key[1], "was": was, "now": now}
            for key, was, now in _changes(_visits(before), _visits(after))
        ],
        [
            {"session_id": key, "was": was, "now": now}
            for key, was, now in _changes(_sessions(before), _sessions(after))
        ],
        sorted(key for key in {*before, *after} if key not in _APART and before.get(key) != after.get(key)),
    )


def _visits(state: Mapping[str, Any]) -> dict[Any, str]:
    return {(entry["step_id"], entry["visit"]): entry["status"] for entry in every(state)}


def _sessions(state: Mapping[str, Any]) -> dict[Any, str]:
    records = state["sessions"].get("session_history", [])
    return {
        record["session_id"]: str(record.get("end_reason") or "ended") if record.get("ended_at") else "open"
        for record in records
    }


def _changes(before: Mapping[Any, str], after: Mapping[Any, str]) -> list[tuple[Any, str | None, str | None]]:
    keys = [*before, *(key for key in after if key not in before)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]
