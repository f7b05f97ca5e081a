"""How the phases of a run are marked as it enters one, forward or back, and what is asked again then (D31, D45)."""

from __future__ import annotations

from loomctl.runs.model import frozen_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State


def left_behind(state: State, plan: Mapping[str, Any], phase_id: str | None, *, at: str) -> dict[str, Any]:
    """Give the phases with those before `phase_id` (None: all) marked: completed, or skipped if nothing was done there.

    In a plan without routes nothing is done only where there is no step; in one with them also where none was come to.
    """
    phases, routed = dict(state["phases"]), frozen_plan.is_routed(plan)
    for phase in plan["phases"]:
        if phase["id"] == phase_id:
            break
        known = phases.get(phase["id"], {})
        status = "completed" if phase["steps"] else "skipped"
        if routed and known.get("status", "pending") in ("pending", "skipped"):
            status = "skipped"
        if known.get("status") != status:
            phases[phase["id"]] = {**known, "status": status, **({"completed_at": at} if status == "completed" else {})}
    return phases


def set_back(phases: Mapping[str, Any], plan: Mapping[str, Any], phase_id: str) -> tuple[dict[str, Any], list[str]]:
    """Give the phases with those behind `phase_id` pending again, and their names: a run has gone back before them."""
    found, names = dict(phases), []
    for name in behind(plan, phase_id):
        known = found.get(name)
        if known is not None and known.get("status") != "pending":
            kept = {key: value for key, value in known.items() if key not in ("started_at", "completed_at")}
            found[name] = {**kept, "status": "pending"}
            names.append(name)
    return found, names


def undone(
    state: State, plan: Mapping[str, Any], phase_id: str, left: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Give the phases as they were while a visit of `phase_id` was open, and the names of those that are open again.

    left: the visits before that one. In a plan with routes, what the run had gone back to is done again.
    """
    taken_back = [name for name in state["phases"] if name in (phase_id, *behind(plan, phase_id))]
    phases = dict(state["phases"])
    for name in taken_back:
        gone = ("completed_at",) if name == phase_id else ("started_at", "completed_at")
        kept = {key: value for key, value in phases[name].items() if key not in gone}
        phases[name] = {**kept, "status": "in_progress" if name == phase_id else "pending"}
    if frozen_plan.is_routed(plan):
        before = [str(phase["id"]) for phase in plan["phases"]]
        ended = {entry["phase"]: entry.get("completed_at") for entry in left}
        for name in before[: before.index(phase_id)] if phase_id in before else ():
            if phases.get(name, {}).get("status") in ("pending", "in_progress"):
                done = {"status": "completed", "completed_at": ended[name]} if name in ended else {"status": "skipped"}
                phases[name] = {**phases[name], **done}
    return phases, taken_back


def behind(plan: Mapping[str, Any], phase_id: str) -> list[str]:
    """Name the phases that come after one; none where the plan has no such phase."""
    order = [str(phase["id"]) for phase in plan["phases"]]
    return order[order.index(phase_id) + 1 :] if phase_id in order else []


def lapsed(state: State, names: list[str]) -> list[Any]:
    """Give the approvals, those for phases that a run went back before marked as lapsed: they are asked for again.

    The mark is the rank of the newest visit, by which an undo finds it.
    """
    rank = max((entry["rank"] for entry in state["steps"]), default=0)
    asked = {*(f"phase:{name}" for name in names)}
    steps = tuple(f"step:{name}/" for name in names)
    return [
        {**item, "lapsed": rank}
        if not is_lapsed(item) and "rejected_at" not in item and (item["id"] in asked or item["id"].startswith(steps))
        else item
        for item in state.get("approvals", [])
    ]


def is_lapsed(approval: Mapping[str, Any]) -> bool:
    """Tell whether an approval holds no more."""
    return approval.get("lapsed") is not None


def kept_by_undo(state: State, rank: int) -> list[Any]:
    """Give the approvals as they were before a visit: what was granted since goes, what lapsed since holds again."""
    kept = (item for item in state.get("approvals", []) if item.get("after_rank", 0) < rank)
    return [
        {key: value for key, value in item.items() if key != "lapsed"}
        if is_lapsed(item) and item["lapsed"] >= rank
        else item
        for item in kept
    ]
