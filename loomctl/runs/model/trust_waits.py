"""A run that waits for its user's trust in its commands: what its state holds of that, and in which words (D23)."""

from __future__ import annotations

from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

_KIND = "trust"
_SHOWN = 3


def waits(state: Mapping[str, Any]) -> bool:
    """Tell whether a run waits for trust."""
    feedback = state.get("feedback")
    return state["status"] == "awaiting_feedback" and isinstance(feedback, dict) and feedback.get("kind") == _KIND


def waiting(state: State, entry: Mapping[str, Any], commands: Sequence[Mapping[str, str]], *, at: str) -> State:
    """Let a run wait for trust at its open visit. commands: what is to be trusted."""
    asked = standing.awaiting(state, entry, f"trust in its commands: {named(commands)}", at=at)
    return {**asked, "feedback": {**asked["feedback"], "kind": _KIND}}


def named(commands: Sequence[Mapping[str, str]]) -> str:
    """Name commands in a line, masked: `build/test (pytest -q) and 2 more`."""
    first = [f"{masked_line(one['step'], 80)} ({masked_line(one['run'].strip(), 60)})" for one in commands[:_SHOWN]]
    more = len(commands) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def line(run_id: str, commands: Sequence[Mapping[str, str]]) -> str:
    """Ask a run's user for trust, in a line."""
    return f"the run {run_id} waits for your trust in its commands: {named(commands)}. To decide: {command(run_id)}"


def command(run_id: str) -> str:
    """Give the command that shows a run's commands, and asks."""
    return f"loomctl trust {run_id}"
