"""What `loomctl drive` notes in a run's state: since when, with which assistant, how many turns, at what cost. Pure."""

from __future__ import annotations

from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import counted, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

KEY = "driving"


def told(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give it for documents, `{host, since, turns, cost}`; None of a run that was never driven so. cost: in USD."""
    known = as_object(state.get(KEY))
    if not known:
        return None
    turns, cost = known.get("turns"), known.get("cost")
    return {
        "host": one_line(str(known.get("host") or ""), 80),
        "since": one_line(str(known.get("since") or ""), 20),
        "turns": turns if type(turns) is int else 0,
        "cost": float(cost) if isinstance(cost, (int, float)) else 0.0,
    }


def rows(known: Mapping[str, Any] | None, handle: str, *, goes_on: bool) -> list[tuple[str, str, int]]:
    """Give labels, what stands beside them, and in how many lines; 0: in one piece, to be pasted."""
    if known is None:
        return []
    if not goes_on:
        return [("drive", line(known), 2)]
    return [
        ("drive", f"turn {known['turns'] + 1} of {known['host']} runs{_cost(known, '; {} so far')}", 2),
        ("stop it", f"loomctl stop {handle}", 0),
    ]


def line(known: Mapping[str, Any]) -> str:
    """Say it in a line: `3 turns of HOST, 1.20 USD`."""
    return f"{counted(known['turns'], 'turn')} of {known['host']}{_cost(known, ', {}')}"


def _cost(known: Mapping[str, Any], form: str) -> str:
    return form.format(f"{known['cost']:.2f} USD") if known["cost"] else ""
