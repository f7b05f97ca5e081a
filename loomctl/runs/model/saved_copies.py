"""Of which run another one is a state that a pull saved: `saved_from` in a state, whatever stands there. Pure."""

from __future__ import annotations

from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MINE, THEIRS = "mine", "theirs"
"""Whose state was saved: the one that was here as the other was taken, or the remote's."""
KEYS = ("run_id", "whose", "machine", "by", "remote", "at")


def origin(state: Mapping[str, object]) -> dict[str, str] | None:
    """Give `{run_id, whose, machine, by, remote, at}` as texts, empty where nothing is told; None for no such run.

    machine: where the state was, or from where it was pushed; by: who pushed theirs; at: when it was saved.
    """
    told = state.get("saved_from")
    if not isinstance(told, dict):
        return None
    return {key: str(told.get(key) or "") for key in KEYS}


def said(found: Mapping[str, str]) -> str:
    """Say on one line of which run it is a copy, as it was where, and since when."""
    machine, remote = masked_line(found["machine"], 40), masked_line(found["remote"], 60)
    if found["whose"] == THEIRS:
        by = f" by {masked_line(found['by'], 40)}" if found["by"] else ""
        how = f"as it was pushed{by}{f' on {machine}' if machine else ''}{f' to {remote}' if remote else ''}"
    else:
        how = f"as it was{f' on {machine}' if machine else ' here'}"
        how += f" before {remote}'s took its place" if remote else ""
    return f"{one_line(found['run_id'], 120)} {how}; saved {one_line(found['at'], 30)}"
