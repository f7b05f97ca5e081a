"""A run's own state as a priming shows it: what its head, its history and its plan do not tell (D15, D63)."""

from __future__ import annotations

from loomctl.kit.json import quick_json
from loomctl.runs.model.state import VOLATILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# What every priming says in its own head or history, and what only machines read.
_APART = (
    *(*VOLATILE, "schema_version", "run_id", "plan_id", "workflow_id", "created_at", "work_id", "goal", "status"),
    *("current_phase", "current_step", "phases", "steps", "approvals"),
)


def readable(state: Mapping[str, Any]) -> str:
    """Render a state as JSON with a line for each key.

    What a step noted and when it ended stands in the history of a priming, or in the file; what it said is for a
    preamble to tell (D46).
    """
    shown: dict[str, Any] = {key: value for key, value in state.items() if key not in _APART and value not in ([], {})}
    context = state.get("context")
    if isinstance(context, dict):
        shown["context"] = {key: value for key, value in context.items() if not _is_said(key)}
        if not shown["context"]:
            del shown["context"]
    by_faber = {entry["step_id"]: entry["status"] for entry in state["steps"] if entry.get("by") == "faber"}
    if by_faber:
        shown["steps"] = by_faber
    lines = [f"{_text(key)}: {_text(value)}" for key, value in shown.items()]
    return "{\n" + ",\n".join(lines) + "\n}" if lines else "{}"


def _is_said(key: str) -> bool:
    return key in ("last_stage", "last_response") or key.startswith("response.")


def _text(value: object) -> str:
    return quick_json.plain(value)
