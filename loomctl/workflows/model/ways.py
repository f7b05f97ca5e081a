"""The way on from an ended visit of a routed plan, decided once: retry, transition, retry target, order (D45)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.counts import counted
from loomctl.runs.model import frozen_plan, visits
from loomctl.workflows.model import failures, routing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from loomctl.runs.model.frozen_plan import Place

    # Says what the conditions of a step's transitions come to, None for those without, and what is to be warned of.
    # It is given the state with the visit ended, the step, and that visit.
    Judge: TypeAlias = Callable[
        [Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], tuple[Sequence[bool | None], Sequence[str]]
    ]

FAILED = visits.FAILED
ON_SUCCESS, ON_WARNING, ON_FAILURE = "on_success", "on_warning", "on_failure"


class Way(NamedTuple):
    """How a run goes on after a visit.

    next: as the visit keeps it, `{step_id, reason, by?, to?, transition?, label?, fidelity?, not_before?}`; step_id
    None: it ends or fails. asks: somebody is to be asked before it goes on. why: why it fails, else empty. weighed:
    what became of each transition; warnings: of their conditions.
    """

    next: dict[str, Any]
    asks: bool = False
    why: str = ""
    weighed: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


def handling(step: Mapping[str, Any], outcome: str) -> str:
    """Give what the plan says of an outcome: `continue`, `prompt` or `stop`."""
    word = {FAILED: ON_FAILURE, "partially_succeeded": ON_WARNING}.get(outcome, ON_SUCCESS)
    said = (step.get("result_handling") or {}).get(word)
    return str(said or ("stop" if outcome == FAILED else "continue"))


def retry(ended: Mapping[str, Any], attempt: int, at: str) -> Way:
    """Give the way of a visit that is tried again. attempt: which try it was, from 1."""
    waits = failures.not_before(ended.get("error"), attempt, at)
    found = {"step_id": ended["step_id"], "reason": visits.RETRY}
    return Way({**found, "not_before": waits} if waits else found)


def routed(
    state: Mapping[str, Any], plan: Mapping[str, Any], place: Place, ended: Mapping[str, Any], judge: Judge
) -> Way:
    """Decide on the way on from a visit that is not tried again.

    state: with the visit ended in it, and the context as it is then.
    """
    failed, said = ended["status"] == FAILED, handling(place.step, ended["status"])
    if said == "stop" and not failed:
        return Way({"step_id": None, "reason": visits.NOWHERE, "by": "result_handling"}, why=_stopped(ended))
    transitions = place.step.get("transitions") or ()
    truths, warnings = judge(state, place.step, ended) if transitions else ((), ())
    label = ended.get("preferred_next_label")
    choice = routing.choose(
        place.step,
        outcome=ended["status"],
        label=label,
        suggested=ended.get("suggested_next_ids") or (),
        truths=truths,
    )
    if choice is not None:
        return _taken(state, plan, ended, choice, warnings, asks=said == "prompt" and not failed)
    weighed = routing.weighed(transitions, outcome=FAILED, label=label, truths=truths) if transitions else ()
    way = Way({}, weighed=weighed, warnings=warnings)
    if not failed:
        return _in_order(state, plan, place, way, asks=said == "prompt")
    target = place.step.get("retry_target") or plan.get("retry_target")
    if target:
        return _to(state, plan, way, {"step_id": target, "reason": visits.RETRY_TARGET})
    if said in ("continue", "prompt"):
        return _in_order(state, plan, place, way, asks=said == "prompt")
    why = f"{place.key} failed, and nothing says where to go on from that"
    return way._replace(next={"step_id": None, "reason": visits.NOWHERE}, why=why)


def _stopped(ended: Mapping[str, Any]) -> str:
    return f"{ended['step_id']} ended {ended['status']}, and its result_handling stops the run"


def _taken(
    state: Mapping[str, Any],
    plan: Mapping[str, Any],
    ended: Mapping[str, Any],
    choice: routing.Choice,
    warnings: Sequence[str],
    *,
    asks: bool,
) -> Way:
    """Give the way of a choice among transitions."""
    way = Way({}, asks, weighed=choice.weighed, warnings=warnings)
    if choice.reason == visits.NOWHERE:
        why = f"no transition of {ended['step_id']} applies: it {_words(ended)}"
        return Way({"step_id": None, "reason": visits.NOWHERE}, False, why, choice.weighed, warnings)
    said = {"by": choice.by, "transition": choice.transition, "label": choice.label, "fidelity": choice.fidelity}
    found = {"step_id": choice.step_id, "reason": choice.reason, **{k: v for k, v in said.items() if v is not None}}
    return _to(state, plan, way, found)


def _words(ended: Mapping[str, Any]) -> str:
    label = ended.get("preferred_next_label")
    return f"ended {ended['status']}" + (f" with the label {label!r:.60}" if label else "")


def _in_order(state: Mapping[str, Any], plan: Mapping[str, Any], place: Place, way: Way, *, asks: bool) -> Way:
    behind = frozen_plan.after(plan, place.key)
    if behind is None:
        found = {"step_id": None, "reason": visits.END, "by": visits.ORDER}
    else:
        found = {"step_id": behind.key, "reason": visits.ORDER}
    return _to(state, plan, way._replace(asks=asks), found)


def _to(state: Mapping[str, Any], plan: Mapping[str, Any], way: Way, found: dict[str, Any]) -> Way:
    """Go where a way leads, unless that step was visited as often as it may be."""
    place = frozen_plan.place_of(plan, found["step_id"])
    if place is None:
        return way._replace(next=found)
    most = frozen_plan.most_visits(plan, place)
    if [entry["step_id"] for entry in state["steps"]].count(found["step_id"]) < most:
        return way._replace(next=found)
    why = f"{place.key} was visited {counted(most, 'time')}, its max_visits"
    found = {**found, "step_id": None, "reason": visits.MAX_VISITS, "by": found["reason"], "to": place.key}
    return way._replace(next=found, asks=False, why=why)


_SAID = {
    visits.CONDITION: "by its condition",
    visits.SUGGESTED: "as it was suggested",
    visits.UNCONDITIONAL: "by its transition",
    visits.ON_FAILURE: "for it failed",
    visits.RETRY_TARGET: "for it failed",
    visits.RETRY: "tried again",
}


def how(way: Mapping[str, Any]) -> str:
    """Say in some words how a way was chosen, as a visit keeps it; empty where it is the next in the plan's order."""
    by = way.get("by") if way.get("reason") == visits.END else way.get("reason")
    if by == visits.LABEL:
        return f"by the label “{way.get('label') or ''}”"
    waits = f", not before {way['not_before']}" if way.get("not_before") else ""
    return _SAID.get(str(by), "") + waits


def onward(state: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Give the step that a routed run is at or goes on to, and whether that is known; None: it is at its end.

    It is what the last visit says of the way on. A visit that says of none is done again; where its way was refused for
    its visits, that step is visited once more: who takes such a run up again has decided so.
    """
    if not state["steps"]:
        first = frozen_plan.places(plan)
        return (first[0].key if first else None), True
    again = _to_be_done_again(state)
    if again is not None:
        return again, True
    last = state["steps"][-1]
    said = last.get("next")
    if not isinstance(said, dict):
        return None, False
    if said.get("step_id"):
        return str(said["step_id"]), True
    if said.get("reason") == visits.END:
        return None, True
    return str(said.get("to") or last["step_id"]), True


def _to_be_done_again(state: Mapping[str, Any]) -> str | None:
    """Give the step of a visit that was reopened; what the engine did by itself after it is passed over."""
    for entry in reversed(state["steps"]):
        if entry.get("reopened"):
            return str(entry["step_id"])
        if entry.get("by") != "engine":
            return None
    return None
