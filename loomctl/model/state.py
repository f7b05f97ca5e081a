"""The run's `state.json` as plain data: how it begins, how a file is accepted, what priming leaves out of it."""

from __future__ import annotations

from loomctl.model.errors import EXIT_SKEW, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    State: TypeAlias = dict[str, Any]

SCHEMA_VERSION = 1
ACTIVE = ("in_progress", "paused", "awaiting_feedback")
TERMINAL = ("completed", "cancelled")
STATUSES = ("pending", *ACTIVE, "completed", "failed", "cancelled")
# What priming and bookkeeping change by themselves: never part of what a priming shows or hashes (D15).
VOLATILE = ("sessions", "context_metadata", "updated_at", "revision", "ledger_head")


def new_state(plan: Mapping[str, Any], *, run_id: str, work_id: str | None, goal: str, at: str) -> State:
    """Make the first state of a run. at: UTC, `YYYY-MM-DDTHH:MM:SSZ`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "revision": 0,
        "run_id": run_id,
        "plan_id": plan["plan_id"],
        "workflow_id": plan["workflow_id"],
        "work_id": work_id,
        "goal": goal,
        "status": "pending",
        "created_at": at,
        "updated_at": at,
        "current_phase": None,
        "current_step": None,
        "phases": {phase["id"]: {"status": "pending"} for phase in plan["phases"]},
        "steps": [],
        "context": {},
        "artifacts": {},
        "errors": [],
        "pending_approvals": [],
        "sessions": {"current_session_id": None, "total_sessions": 0, "session_history": []},
        "context_metadata": {"last_artifact_reload": None, "reload_count": 0, "artifacts_in_context": []},
        "ledger_head": {"seq": 0, "sha256": ""},
    }


# The shapes that the engine relies on; everything else in a state is kept as it is.
_SHAPES: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("run_id", str),
    ("plan_id", str),
    ("workflow_id", str),
    ("status", str),
    ("phases", dict),
    ("steps", list),
    ("artifacts", dict),
    ("context", dict),
    ("errors", list),
    ("pending_approvals", list),
    ("sessions", dict),
    ("context_metadata", dict),
)


def accepted(raw: object, *, where: str, run_id: str | None = None) -> State:
    """Check what was read from a state file and give it back as a state.

    Raises RUN_ID_MISMATCH (D6), SCHEMA_TOO_NEW (D56) or BAD_STATE with the JSON path; nothing is repaired in silence.
    """
    if not isinstance(raw, dict):
        raise _bad(where, "$", "a state is a JSON object")
    version = raw.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        raise LoomError(
            "SCHEMA_TOO_NEW",
            f"this state has schema {version}, this loomctl knows {SCHEMA_VERSION}",
            where=where,
            hint="update the plugin: claude plugin update loom@loom",
            exit_code=EXIT_SKEW,
        )
    if version != SCHEMA_VERSION:
        raise _bad(where, "$.schema_version", f"the schema version is {SCHEMA_VERSION}")
    for key, shape in _SHAPES:
        if not isinstance(raw.get(key), shape):
            raise _bad(where, f"$.{key}", f"it is {_word(raw.get(key))}, not {_NAMES[shape]}")
    for index, entry in enumerate(raw["steps"]):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("step_id", "status")):
            raise _bad(where, f"$.steps[{index}]", "an entry has the strings step_id and status")
        if not all(type(entry.get(key)) is int for key in ("visit", "rank")):
            raise _bad(where, f"$.steps[{index}]", "an entry has the whole numbers visit and rank")
    for name, phase in raw["phases"].items():
        if not isinstance(phase, dict):
            raise _bad(where, f"$.phases.{name}", "a phase is an object")
    history = raw["sessions"].get("session_history", [])
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise _bad(where, "$.sessions.session_history", "it is a list of objects")
    if run_id is not None and raw["run_id"] != run_id:
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the file says it is run {str(raw['run_id'])[:200]!r}, not {run_id!r}",
            where=where,
            why="a run's folder and its state carry one id (D6)",
            hint="put the folder back under its own name, or remove the copy: loomctl runs",
        )
    return raw


_NAMES: dict[object, str] = {str: "a string", dict: "an object", list: "a list"}


def _word(value: object) -> str:
    if value is None:
        return "missing or null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}.get(
        type(value), "an object"
    )


def _bad(where: str, path: str, why: str) -> LoomError:
    return LoomError(
        "BAD_STATE",
        "this state cannot be used",
        where=f"{where} {path}",
        why=why,
        hint="the one before lies beside it as state.backup.json; loomctl check names every problem",
    )


def steady(state: Mapping[str, Any]) -> State:
    """Give the state without what priming itself changes (D15)."""
    return {key: value for key, value in state.items() if key not in VOLATILE}


def is_active(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is under way (D1); completed and cancelled never are (D4)."""
    return state.get("status") in ACTIVE
