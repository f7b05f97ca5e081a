"""The run's `state.json` as plain data: how it begins, how a file is accepted, what priming leaves out of it."""

from __future__ import annotations

from loomctl.model.errors import EXIT_SKEW, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, TypeAlias

    State: TypeAlias = dict[str, Any]
    # What an object must hold, and of what type; and what it may hold, and of what type then.
    _Shape: TypeAlias = tuple[dict[str, tuple[type, ...]], dict[str, tuple[type, ...]]]

SCHEMA_VERSION = 1
ACTIVE = ("in_progress", "paused", "awaiting_feedback")
TERMINAL = ("completed", "cancelled")
STATUSES = ("pending", *ACTIVE, "completed", "failed", "cancelled")
# What priming and bookkeeping change by themselves: never part of what a priming shows or hashes (D15).
VOLATILE = ("sessions", "context_metadata", "updated_at", "revision", "ledger_head", "pending_triggers")


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
        "approvals": [],
        "sessions": {"current_session_id": None, "total_sessions": 0, "session_history": []},
        "context_metadata": {"last_artifact_reload": None, "reload_count": 0, "artifacts_in_context": []},
        "ledger_head": {"seq": 0, "sha256": ""},
    }


# The shapes that the engine relies on; everything else in a state is kept as it is.
_TEXT, _WHOLE, _LIST, _OBJECT = (str,), (int,), (list,), (dict,)
_TEXT_OR_NULL = (str, type(None))
_STATE: _Shape = (
    {
        "run_id": _TEXT,
        "plan_id": _TEXT,
        "workflow_id": _TEXT,
        "status": _TEXT,
        "phases": _OBJECT,
        "steps": _LIST,
        "artifacts": _OBJECT,
        "context": _OBJECT,
        "errors": _LIST,
        "pending_approvals": _LIST,
        "sessions": _OBJECT,
        "context_metadata": _OBJECT,
    },
    {
        "revision": _WHOLE,
        "work_id": _TEXT_OR_NULL,
        "goal": _TEXT,
        "current_phase": _TEXT_OR_NULL,
        "current_step": _TEXT_OR_NULL,
        "approvals": _LIST,
        "ledger_head": _OBJECT,
    },
)
_VISIT: _Shape = (
    {
        "step_id": _TEXT,
        "phase": _TEXT,
        "stage": _TEXT_OR_NULL,  # null for what the engine did itself
        "status": _TEXT,
        "started_at": _TEXT,
        "visit": _WHOLE,
        "rank": _WHOLE,
    },
    {},
)
_APPROVAL: _Shape = ({"id": _TEXT}, {})
_SESSIONS: _Shape = ({}, {"session_history": _LIST, "current_session_id": _TEXT_OR_NULL})
_RECORD: _Shape = (
    {"session_id": _TEXT},
    {
        "environment": _OBJECT,
        "compactions": _LIST,
        "phases_completed": _LIST,
        "artifacts_loaded": _LIST,
        "resumes": _WHOLE,
    },
)
_METADATA: _Shape = ({}, {"reload_count": _WHOLE, "artifacts_in_context": _LIST})
_IN_CONTEXT: _Shape = ({"artifact_id": _TEXT}, {})
_ANY_OBJECT: _Shape = ({}, {})


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
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise _bad(where, "$.schema_version", f"the schema version is {SCHEMA_VERSION}")
    for path, value, shape in _places(raw):
        _fit(where, path, value, shape)
    if run_id is not None and raw["run_id"] != run_id:
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the file says it is run {str(raw['run_id'])[:200]!r}, not {run_id!r}",
            where=where,
            why="a run's folder and its state carry one id (D6)",
            hint="put the folder back under its own name, or remove the copy: loomctl runs",
        )
    return raw


def _places(raw: dict[str, Any]) -> Iterator[tuple[str, object, _Shape]]:
    """Give every place whose shape counts, the outer before the inner: a place is looked into only once it was fit."""
    yield "$", raw, _STATE
    for name, phase in raw["phases"].items():
        yield f"$.phases.{name}", phase, _ANY_OBJECT
    yield "$.sessions", raw["sessions"], _SESSIONS
    yield "$.context_metadata", raw["context_metadata"], _METADATA
    for path, entries, shape in (
        ("$.steps", raw["steps"], _VISIT),
        ("$.pending_approvals", raw["pending_approvals"], _APPROVAL),
        ("$.approvals", raw.get("approvals", []), _APPROVAL),
        ("$.sessions.session_history", raw["sessions"].get("session_history", []), _RECORD),
        (
            "$.context_metadata.artifacts_in_context",
            raw["context_metadata"].get("artifacts_in_context", []),
            _IN_CONTEXT,
        ),
    ):
        for index, entry in enumerate(entries):
            yield f"{path}[{index}]", entry, shape


def _fit(where: str, path: str, value: object, shape: _Shape) -> None:
    if not isinstance(value, dict):
        raise _bad(where, path, f"it is {_NAMES[type(value)]}, not an object")
    needed, if_there = shape
    for key, types in (*needed.items(), *if_there.items()):
        if key not in value:
            if key in needed:
                raise _bad(where, f"{path}.{key}", "it is missing")
        elif type(value[key]) not in types:  # true is no whole number
            raise _bad(where, f"{path}.{key}", f"it is {_NAMES[type(value[key])]}, not {_NAMES[types[0]]}")


_NAMES: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


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
