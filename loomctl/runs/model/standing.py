"""How a run stands: under way, waiting for its user or for trust in its commands, a copy of another (D23, D27)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

# Whose state a pull saved as a run of its own: the one that was here as the other was taken, or the remote's.
MINE, THEIRS = "mine", "theirs"
SAVED_KEYS = ("run_id", "whose", "machine", "by", "remote", "at")
_TRUST = "trust"
_SHOWN = 3


def goes_on(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is under way, so that its next step may be opened."""
    return state["status"] in ("pending", "in_progress")


def awaiting(state: State, entry: Mapping[str, Any], message: str, *, at: str) -> State:
    """Let a run wait for its user's answer: the assistant stopped twice without a result (D27).

    message: what it said last, in a line.
    """
    waits = {"stage": entry["stage"], "at": at, "message": message}
    return {**state, "status": "awaiting_feedback", "feedback": waits}


def answered(state: State) -> State:
    """Put a run under way that waited for its user's answer and for nothing else; every other stays as it is."""
    if "feedback" not in state:
        return state
    bare = {key: value for key, value in state.items() if key != "feedback"}
    waits = state["status"] == "awaiting_feedback" and not state["pending_approvals"]
    return {**bare, "status": "in_progress"} if waits else bare


def is_under_way(state: Mapping[str, Any]) -> bool:
    """Tell whether a run goes on once its user has spoken, as they have where the assistant did."""
    return goes_on(answered(dict(state)))


# ---- Trust in a run's commands.


def waits_for_trust(state: Mapping[str, Any]) -> bool:
    """Tell whether a run waits for trust in its commands."""
    feedback = state.get("feedback")
    return state["status"] == "awaiting_feedback" and isinstance(feedback, dict) and feedback.get("kind") == _TRUST


def await_trust(state: State, entry: Mapping[str, Any], commands: Sequence[Mapping[str, str]], *, at: str) -> State:
    """Let a run wait for trust at its open visit. commands: what is to be trusted."""
    asked = awaiting(state, entry, f"trust in its commands: {commands_named(commands)}", at=at)
    return {**asked, "feedback": {**asked["feedback"], "kind": _TRUST}}


def commands_named(commands: Sequence[Mapping[str, str]]) -> str:
    """Name commands in a line, masked: `build/test (pytest -q) and 2 more`."""
    from loomctl.kit.text.secrets import masked_line

    first = [f"{masked_line(one['step'], 80)} ({masked_line(one['run'].strip(), 60)})" for one in commands[:_SHOWN]]
    more = len(commands) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def trust_line(handle: str, commands: Sequence[Mapping[str, str]]) -> str:
    """Ask a run's user for trust, in a line."""
    named = commands_named(commands)
    return f"the run {handle} waits for your trust in its commands: {named}. To decide: {trust_command(handle)}"


def trust_command(handle: str) -> str:
    """Give the command that shows a run's commands, and asks."""
    return f"loomctl trust {handle}"


# ---- A copy that a pull saved.


def saved_from(state: Mapping[str, object]) -> dict[str, str] | None:
    """Read of which run this one is a copy: SAVED_KEYS as texts, empty where nothing is told; None for no copy.

    machine: where the state was, or from where it was pushed; by: who pushed theirs; at: when it was saved.
    """
    told = state.get("saved_from")
    return {key: str(told.get(key) or "") for key in SAVED_KEYS} if isinstance(told, dict) else None


def saved_from_line(copy: Mapping[str, str], of: Mapping[str, Any]) -> str:
    """Say of which run it is a copy, as it was where, and since when. of: both runs' work."""
    from loomctl.kit.text.fences import one_line
    from loomctl.kit.text.secrets import masked_line
    from loomctl.runs.model.state import handle

    machine, remote = masked_line(copy["machine"], 40), masked_line(copy["remote"], 60)
    if copy["whose"] == THEIRS:
        by = f" by {masked_line(copy['by'], 40)}" if copy["by"] else ""
        how = f"as it was pushed{by}{f' on {machine}' if machine else ''}{f' to {remote}' if remote else ''}"
    else:
        how = f"as it was{f' on {machine}' if machine else ' here'}"
        how += f" before {remote}'s took its place" if remote else ""
    return f"{handle({**of, 'run_id': copy['run_id']})} {how}; saved {one_line(copy['at'], 30)}"
