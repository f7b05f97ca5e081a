"""A run played without an assistant and without a disk: the model decides, scripted outcomes stand for the work (D45).

The clock stands at AT, approvals are taken as given, and commands are not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.engine import route_conditions
from loomctl.model import fidelity, gates, places, routing, run_context, run_life, standing, visits
from loomctl.model.state import new_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.model.places import Place
    from loomctl.model.scripts import Script
    from loomctl.model.state import State
    from loomctl.model.ways import Judge

AT = "2000-01-01T00:00:00Z"


class Played(NamedTuple):
    """stages: in their order, as `loomctl simulate --json` gives them; approvals: what somebody would have been asked.

    warnings: `{code, where, message}`; why: why the run failed, empty where it did not.
    """

    state: State
    stages: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    warnings: list[dict[str, str]]
    why: str


def without_disk(python: str | None) -> Judge:
    """Make what evaluates conditions over a context that holds plain values. python: as `judge_with` takes it."""
    return route_conditions.judge_with(lambda state, _: (dict(state["context"]), []), python)


def play(
    plan: Mapping[str, Any],
    script: Script,
    *,
    judge: Judge,
    context: Mapping[str, Any] | None = None,
    goal: str = "",
) -> Played:
    """Play a plan to its end. context: what the run begins with; judge: says what conditions come to.

    It ends, for each step has a bound: its visits in a plan with routes, its retries in every other.
    """
    state = new_state(plan, run_id="simulation", work_id=None, goal=goal, at=AT)
    played = Played({**state, "context": dict(context or {})}, [], [], [], "")
    while standing.goes_on(played.state):
        state, move = run_life.advance(played.state, plan, at=AT)
        played = played._replace(state=state)
        if move.kind == "step":
            played = played._replace(state=_visit(played, plan, places.place_of(plan, move.step), script, judge))
        if played.state["pending_approvals"]:
            played.approvals.extend({**asked, "step_id": move.step} for asked in played.state["pending_approvals"])
            played = played._replace(state=gates.approved(played.state, at=AT)[0])
    state = played.state
    played.warnings.extend(_left_over(state, script))
    return played._replace(why=_why(state))


def _why(state: State) -> str:
    """Say why a run failed, naming the step; empty where it did not."""
    if state["status"] != "failed" or not state["errors"]:
        return ""
    last, way = state["errors"][-1], state["steps"][-1].get("next", {})
    names_it = way.get("reason") == routing.MAX_VISITS or last["step_id"] in last["message"]
    return str(last["message"]) if names_it else f"{last['step_id']}: {last['message']}"


def _visit(played: Played, plan: Mapping[str, Any], place: Place | None, script: Script, judge: Judge) -> State:
    """Begin and end a visit, and tell of it; gives the state after it."""
    assert place is not None  # the plan's own
    by_engine = bool(place.step.get("engine"))
    state, entry = visits.start_visit(played.state, place.key, str(place.phase["id"]), at=AT, by_engine=by_engine)
    said = script.of(place.key, entry["visit"])
    came_by = played.stages[-1]["next"] if played.stages else {}
    chosen = fidelity.chosen(
        transition=came_by.get("fidelity"), step=place.step.get("fidelity"), workflow=plan.get("default_fidelity")
    )
    outcome = said.outcome or "succeeded"
    if places.is_human(place.step):
        state = _decided(played, state, plan, said)
    if not by_engine:
        own: dict[str, Any] = {"last_stage": place.key}
        if places.is_human(place.step):
            own |= {gates.LABEL_KEY: _label(place, said), gates.TEXT_KEY: ""}
        changed = run_context.changed(state["context"], own, said.context_updates, output="")
        state = {**state, "context": changed.context}
    came = run_life.end_visit(state, plan, outcome=outcome, at=AT, directive=_directive(said), judge=judge)
    where = f"{place.key}@{entry['visit']}"
    played.warnings.extend(_warning("CONDITION", where, text) for text in came.way.warnings)
    played.warnings.extend(_warning("FIDELITY", where, text) for text in chosen.warnings)
    told: dict[str, Any] = {
        "step_id": place.key,
        "visit": entry["visit"],
        "rank": entry["rank"],
        **{key: entry[key] for key in ("attempt", "by") if key in entry},
        "outcome": outcome,
        **{key: value for key, value in _directive(said).items() if value},
        "fidelity": chosen.fidelity,
        "next": dict(came.way.next),
        "weighed": [dict(one) for one in came.way.weighed],
    }
    played.stages.append(told)
    return came.state


def _decided(played: Played, state: State, plan: Mapping[str, Any], said: Any) -> State:
    """Tell of a human step's gate, and warn of a label that nobody could choose there; gives the state going on."""
    state = gates.asked(state, plan, at=AT)
    request = state["pending_approvals"][-1]
    played.approvals.append(dict(request))
    label, offered = said.preferred_next_label, request["choices"]
    if label and not any(routing.matches(label, one) for one in offered):
        told = f"there are {', '.join(offered)}" if offered else "its transitions have no labels"
        played.warnings.append(_warning("UNKNOWN_LABEL", request["step_id"], f"{label!r:.60} is no choice: {told}"))
    return {**state, "pending_approvals": [], "status": "in_progress"}


def _directive(said: Any) -> dict[str, Any]:
    """Give what a visit keeps of its directive."""
    return {
        "failure_reason": said.failure_reason,
        "preferred_next_label": said.preferred_next_label,
        "suggested_next_ids": list(said.suggested_next_ids),
    }


def _label(place: Place, said: Any) -> str | None:
    """Give the label that was chosen at a human step, as the workflow writes it."""
    label = said.preferred_next_label or ""
    return next((one for one in gates.choices(place.step) if routing.matches(label, one)), None)


def _left_over(state: State, script: Script) -> list[dict[str, str]]:
    """Say what of a script was not played: a test that means more visits than there were tests something else."""
    made = {key: len(seen) for key, seen in visits.by_step(state).items()}
    return [
        _warning("NOT_PLAYED", key, f"{made.get(key, 0)} visits were made, outcomes are given for {len(said)}")
        for key, said in script.visits.items()
        if made.get(key, 0) < len(said)
    ]


def _warning(code: str, where: str, message: str) -> dict[str, str]:
    return {"code": code, "where": where, "message": message}
