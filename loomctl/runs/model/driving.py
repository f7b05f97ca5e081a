"""What `loomctl drive` notes in a run's state: since when, with which assistant, at what cost, how it ended. Pure."""

from __future__ import annotations

from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import counted, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.model.state import State

KEY = "driving"
FLEET = "fleet"  # of a run that a fleet drives: `loomctl.fleet.runs` says what stands there
LONGEST = 300  # UTF-16 units of why it ended


def begun(state: State, host: str, session_id: str | None, at: str) -> tuple[State, dict[str, Any]]:
    """Note that a drive begins, and forget how the one before ended, which is given with it.

    So is forgotten, of a run of a fleet, that it failed, and was to go on again.
    """
    known, fleet = dict(as_object(state.get(KEY))), as_object(state.get(FLEET))
    if fleet:
        state = {**state, FLEET: {key: held for key, held in fleet.items() if key not in ("again", "failed")}}
    before = as_object(known.pop("ended", None))
    # Who drives makes it another state, also within the second in which an earlier driver was killed.
    return {**state, KEY: {**known, "host": host, "since": at, "by": session_id}}, before


def ended(state: State, session_id: str | None, how: Mapping[str, Any]) -> State:
    """Note how a session's drive ended, unless another one has begun since.

    how: {code, kind, why, at, until?, cause?}; cause: of a wait for a time.
    """
    known = as_object(state.get(KEY))
    return {**state, KEY: {**known, "ended": dict(how)}} if known.get("by") == session_id else state


def end(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Tell how the last drive ended, {code, kind, why, at, until}; None where one goes on, was killed, or never was."""
    known = as_object(as_object(state.get(KEY)).get("ended"))
    if not known:
        return None
    code, until = known.get("code"), known.get("until")
    return {
        "code": code if type(code) is int else None,
        "kind": one_line(str(known.get("kind") or ""), 40),
        "why": one_line(str(known.get("why") or ""), LONGEST),
        "at": one_line(str(known.get("at") or ""), 20),
        "until": one_line(str(until), 20) if until else None,
    }


def told(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give it for documents, `{host, since, turns, cost, ended}`; None of a run that was never driven so.

    cost: in USD; ended: as `end` tells.
    """
    known = as_object(state.get(KEY))
    if not known:
        return None
    turns, cost = known.get("turns"), known.get("cost")
    return {
        "host": one_line(str(known.get("host") or ""), 80),
        "since": one_line(str(known.get("since") or ""), 20),
        "turns": turns if type(turns) is int else 0,
        "cost": float(cost) if isinstance(cost, (int, float)) else 0.0,
        "ended": end(state),
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
