"""A run's way through its plan, step by step: what is current, what ends it, what comes next (D7).

A plan without routes is done in its order, and goes on at the first step that is not done. In one with routes each
ended visit says where the run goes on (D45). Pure: the time comes in, and what conditions come to.
"""

from __future__ import annotations

from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import run_context, sessions, visits
from loomctl.runs.model.frozen_plan import Place, is_routed, most_visits, place_of, places
from loomctl.runs.model.state import TERMINAL
from loomctl.workflows import gates, routing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.workflows.routing import Judge, Way

    # Gives the context of a state as values, as far as conditions name its keys, and what is to be warned of.
    Reader: TypeAlias = Callable[[Mapping[str, Any], Sequence[str]], tuple[dict[str, Any], list[str]]]


WELL = (visits.SUCCEEDED, visits.PARTIAL)
# What an ended visit keeps of its directive.
SAID = ("failure_reason", "preferred_next_label", "suggested_next_ids")


class Move(NamedTuple):
    """Where a run stands after a change.

    kind: `step` (a step is current and may be worked on), `approval` (somebody must approve first),
    `completed`, `failed`; else the status of a run that stands still or is over. before/after: the phases of a
    transition that the move made, `after` empty if none.
    """

    kind: str
    step: str | None = None
    before: str | None = None
    after: str | None = None


def first_open(state: Mapping[str, Any], plan: Mapping[str, Any]) -> Place | None:
    """Give the first step that is not done: where a run goes on after any interruption."""
    last = visits.last_of_each(state)
    steps = ((phase, step) for phase in plan["phases"] for step in phase["steps"])
    return next((Place(phase, step) for phase, step in steps if not visits.is_done(last.get(step["key"]))), None)


def onward(state: Mapping[str, Any], plan: Mapping[str, Any]) -> Place | None:
    """Give the step that a run is at or goes on to; None: none is left to do.

    In a plan with routes it is where the last visit leads; in every other the first step that is not done.
    """
    if is_routed(plan):
        current = visits.open_visit(state)
        key, known = (current["step_id"], True) if current is not None else routing.onward(state, plan)
        if known and (key is None or place_of(plan, key) is not None):
            return place_of(plan, key)
    return first_open(state, plan)


def way_to(state: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
    """Give the way by which a run came to a step, or comes to it, as the visit before keeps it; empty if none leads.

    key: None for the run's end, or for where it stopped.
    """
    for entry in reversed(state["steps"]):
        if entry["status"] not in visits.OPEN:
            said = entry.get("next")
            return said if isinstance(said, dict) and said.get("step_id") == key else {}
    return {}


def advance(state: State, plan: Mapping[str, Any], *, at: str) -> tuple[State, Move]:
    """Make the step current at which the run goes on, unless its phase or itself must be approved first.

    For a run that is pending or in progress. The move names a phase transition only when this call makes it; phases
    that are passed without a step done are skipped, those that the run goes back before are pending again.
    """
    place = onward(state, plan)
    if place is None:
        return _completed(state, plan, at=at), Move("completed", before=state.get("current_phase"))
    phase_id, key = str(place.phase["id"]), place.key
    gate = gates.needed_before(state, plan, place)
    if gate is not None:
        waiting = {**state, "status": "awaiting_feedback", "current_step": key}
        if not any(item.get("id") == gate["id"] for item in state["pending_approvals"]):
            waiting["pending_approvals"] = [*state["pending_approvals"], {**gate, "requested_at": at}]
        return waiting, Move("approval", step=key)
    before = state.get("current_phase")
    changed = before != phase_id
    state = _entered(state, plan, phase_id, at=at, changed=changed)
    state = {**state, "status": "in_progress", "current_phase": phase_id, "current_step": key}
    return state, Move("step", step=key, before=before if changed else None, after=phase_id if changed else None)


def _entered(state: State, plan: Mapping[str, Any], phase_id: str, *, at: str, changed: bool) -> State:
    """Mark the phases as they are when a phase is worked on; what a run goes back before is to be done again."""
    phases = gates.leave_phases(state, plan, phase_id, at=at)
    if changed and is_routed(plan):
        phases, names = gates.reset_phases(phases, plan, phase_id)
        if names:
            state = sessions.uncompleted_phases(state, names)
            state = {**state, "approvals": gates.lapse(state, names)}
    phase = {name: value for name, value in phases.get(phase_id, {}).items() if name != "completed_at"}
    phases[phase_id] = {**phase, "status": "in_progress", **({"started_at": at} if changed else {})}
    return {**state, "phases": phases}


class VisitEnd(NamedTuple):
    """A state with a visit ended. follows: `done`, `retry`, `prompt` or `stop`; way: how the run goes on (D45)."""

    state: State
    follows: str
    way: Way


def end_visit(
    state: State,
    plan: Mapping[str, Any],
    *,
    outcome: str,
    at: str,
    note: str = "",
    artifacts: Mapping[str, str] | None = None,
    directive: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
    judge: Judge | None = None,
    has_next_task: bool = False,
) -> VisitEnd:
    """End the open visit with an outcome, and decide where the run goes on: the visit keeps it as `next` (D45).

    A failed visit is retried while the step has retries and visits left, unless its error says that it may not; then
    its transitions decide, the retry target, `result_handling`. A run that is over stays so (D4). artifacts: what the
    step registers, `{name: portable path}`; kept with what they replaced, for an undo. directive: what the step said
    of the way on (D33). error: of a failed one, as `routing.error_of` gives it; None: it is told from the reason.
    judge: says what the conditions come to; None: `simple_truths`. has_next_task: another task of the step's list is
    left, to which one that ended well leads before all else (D65). Raises BAD_OUTCOME and NO_OPEN_STEP.
    """
    if outcome not in visits.OUTCOMES:
        why = f"expected one of {', '.join(visits.OUTCOMES)}"
        raise LoomError("BAD_OUTCOME", f"unknown outcome {outcome!r:.60}", why=why, hint="loomctl done --help")
    entry = visits.open_visit(visits.without_closing(state))
    if entry is None:
        raise visits.nothing_open()
    ended = {**entry, "status": outcome, "completed_at": at}
    ended.update({key: value for key, value in (directive or {}).items() if key in SAID and value})
    if note:
        ended["note"] = note
    if outcome == "failed":
        reason = str(ended.get("failure_reason") or note)
        ended["error"] = dict(error) if error is not None else routing.error_of(reason)
    if artifacts:
        before = {name: state["artifacts"].get(name) for name in artifacts}
        ended["artifacts"] = {"set": dict(artifacts), "before": before}
        state = {**state, "artifacts": {**state["artifacts"], **artifacts}}
    state = visits.replaced(state, ended)
    state, way, follows = _way_on(
        state, plan, ended, judge or simple_truths, at=at, has_next_task=has_next_task and outcome in WELL
    )
    state = _with_error(state, ended, follows, way, at=at)
    if state["status"] in TERMINAL:
        return VisitEnd(state, follows, way)
    if follows == "stop":
        state = {**state, "status": "failed", "phases": _phase_marked(state, entry["phase"], "failed")}
    if follows == "prompt":
        gate = {
            "id": f"result:{entry['stage'] or entry['step_id']}",
            "reason": f"{entry['step_id']} ended {outcome}",
            "requested_at": at,
        }
        state = {**state, "status": "awaiting_feedback", "pending_approvals": [*state["pending_approvals"], gate]}
    return VisitEnd(state, follows, way)


def _way_on(
    state: State, plan: Mapping[str, Any], ended: dict[str, Any], judge: Judge, *, at: str, has_next_task: bool
) -> tuple[State, Way, str]:
    place = place_of(plan, ended["step_id"])
    failed = ended["status"] == "failed"
    same = routing.to_next_task(place.step, ended) if has_next_task and place is not None else None
    if same is not None:
        return visits.replaced(state, _with_next(plan, ended, same)), same, "prompt" if same.asks else "done"
    if failed and place is not None and _is_retried(state, plan, place, ended):
        way = routing.retry(ended, visits.attempt_of(state, ended), at)
        way.next.update(_as_come_to(state, ended))
        return visits.replaced(state, _with_next(plan, ended, way)), way, "retry"
    if place is not None and is_routed(plan):
        way = routing.choose_way(state, plan, place, ended, judge)
        follows = "stop" if way.why else "prompt" if way.asks else "done"
    else:
        said = routing.handling(place.step if place is not None else {}, ended["status"])
        follows = {"continue": "done", "prompt": "prompt"}.get(said, "stop")
        way = routing.Way({})
    if failed and follows in ("done", "prompt"):
        ended["passed"] = True
    if follows == "stop" and way.next.get("reason") != visits.MAX_VISITS:
        ended["stopped"] = True
    if not way.next:
        way = _in_order(visits.replaced(state, ended), plan, follows)
    return visits.replaced(state, _with_next(plan, ended, way)), way, follows


def _as_come_to(state: State, ended: Mapping[str, Any]) -> dict[str, Any]:
    before = {"steps": [entry for entry in state["steps"][-2:] if entry is not state["steps"][-1]]}
    fidelity = way_to(before, ended["step_id"]).get("fidelity")
    return {"fidelity": fidelity} if fidelity is not None else {}


def _is_retried(state: State, plan: Mapping[str, Any], place: Place, ended: Mapping[str, Any]) -> bool:
    if (ended.get("error") or {}).get("retryable") is False:
        return False
    retries = int(place.step.get("max_retries") or 0)
    if not retries or visits.attempt_of(state, ended) > retries:
        return False
    return visits.count_bounded(state, place.key) < most_visits(plan, place)


def _in_order(state: State, plan: Mapping[str, Any], follows: str) -> Way:
    if follows == "stop":
        return routing.Way({"step_id": None, "reason": visits.NOWHERE})
    place = first_open(state, plan)
    if place is None:
        return routing.Way({"step_id": None, "reason": visits.END, "by": visits.ORDER})
    return routing.Way({"step_id": place.key, "reason": visits.ORDER})


def _with_next(plan: Mapping[str, Any], ended: Mapping[str, Any], way: Way) -> dict[str, Any]:
    if "faber" in plan:
        return {key: value for key, value in ended.items() if key != "error"}
    return {**ended, "next": way.next}


def _with_error(state: State, ended: Mapping[str, Any], follows: str, way: Way, *, at: str) -> State:
    if ended["status"] != "failed" and follows != "stop":
        return state
    own = str(ended.get("note") or ended.get("failure_reason") or f"the step ended {ended['status']}")
    message = way.why if ended["status"] != "failed" or way.next.get("reason") == visits.MAX_VISITS else own
    error = {"at": at, "step_id": ended["step_id"], "stage": ended["stage"], "message": message or own}
    return {**state, "errors": [*state["errors"], error]}


def reopened_step(state: State, plan: Mapping[str, Any]) -> State:
    """For `resume --reopen` of a completed run: its last step is open to a new visit; all else stays.

    In a plan with routes that is the one that was worked on last.
    """
    if is_routed(plan):
        worked = next((entry for entry in reversed(state["steps"]) if entry.get("by") != "engine"), None)
        return state if worked is None or onward(state, plan) else visits.replaced(state, {**worked, "reopened": True})
    last = next((place for place in reversed(places(plan)) if not place.step.get("engine")), None)
    if last is None or first_open(state, plan) is not None:
        return state
    return visits.replaced(state, {**visits.last_of_each(state)[last.key], "reopened": True})


def _completed(state: State, plan: Mapping[str, Any], *, at: str) -> State:
    phases = gates.leave_phases(state, plan, None, at=at)
    completed_at = state.get("completed_at") or at
    return {**state, "status": "completed", "current_step": None, "completed_at": completed_at, "phases": phases}


def _phase_marked(state: Mapping[str, Any], phase_id: object, status: str) -> dict[str, Any]:
    return {name: {**phase, "status": status} if name == phase_id else phase for name, phase in state["phases"].items()}


# ---- What the conditions of transitions come to: simple ones here, others in the sandbox's child (D12, D45).


def judge(space: Workspace, run: Run) -> Judge:
    """Make what says of a run's transitions what their conditions come to, for `end_visit`."""
    return judge_with(lambda state, sources: _context(space, run, state, sources), space.caller.environment_python)


def judge_with(read: Reader, python: str | None) -> Judge:
    """Make the same of what reads the context. python: the made environment's, None: this one if it has the engine.

    A condition that throws, or cannot be evaluated here, is false, and a warning names it.
    """
    return lambda state, step, ended: _truths(
        state, step, ended, read, lambda sources, seen: _by_engine(sources, seen, python)
    )


def simple_truths(
    state: Mapping[str, Any], step: Mapping[str, Any], ended: Mapping[str, Any]
) -> tuple[Sequence[bool | None], Sequence[str]]:
    """Judge without an engine: what is not simple is false, with a warning."""
    return _truths(state, step, ended, values_held, lambda sources, _: ["it needs a JavaScript engine"] * len(sources))


def values_held(state: Mapping[str, Any], _: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Read a context that holds plain values."""
    return run_context.scope(state), []


def _truths(
    state: Mapping[str, Any],
    step: Mapping[str, Any],
    ended: Mapping[str, Any],
    read: Reader,
    ask: Callable[[list[str], Mapping[str, Any]], Sequence[bool | str]],
) -> tuple[Sequence[bool | None], Sequence[str]]:
    """Say what each condition comes to, None where a transition has none. ask: gives a truth, or why there is none."""
    transitions = step.get("transitions") or ()
    sources = [one.get("condition") for one in transitions]
    truths: list[bool | None] = [None if source is None else False for source in sources]
    if not any(truth is False for truth in truths):
        return truths, ()
    from loomctl.expressions.conditions import evaluate  # most hooks weigh no way on
    from loomctl.expressions.javascript import ConditionThrew, NeedsEngine

    context, warnings = read(state, [source for source in sources if source is not None])
    seen, left = scope(state, ended, context), []
    for index, source in enumerate(sources):
        code = transitions[index].get("condition_code")
        try:
            if source is not None and code is not None:
                truths[index] = evaluate(code, seen)
            elif source is not None:
                left.append(index)
        except NeedsEngine:
            left.append(index)
        except ConditionThrew as threw:
            warnings.append(_warning(source, str(threw)))
    for index, answer in zip(left, ask([sources[index] for index in left], seen) if left else (), strict=True):
        truths[index] = answer is True
        warnings += [_warning(sources[index], answer)] if isinstance(answer, str) else []
    return truths, warnings


def _by_engine(sources: list[str], seen: Mapping[str, Any], python: str | None) -> list[bool | str]:
    from loomctl.expressions import engine
    from loomctl.expressions.conditions import Question

    questions = [Question("condition", source) for source in sources]
    answers = engine.answer(questions, seen, environment_python=python)
    return [bool(one.value) if one.status == "ok" else one.message for one in answers]


def _warning(source: Any, why: str) -> str:
    from loomctl.kit.text.secrets import masked_line  # most conditions come to something

    return f"{masked_line(str(source), 200)} counts as false: {masked_line(why, 200)}"


def _context(
    space: Workspace, run: Run, state: Mapping[str, Any], sources: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Give the context, with what references stand for where a condition names their key; others stay references."""
    from loomctl.kit.text.secrets import masked_line
    from loomctl.runs import context_values

    context, warnings = run_context.scope(state), []
    for key, value in context.items():
        if not any(all(part in source for part in key.split(".")) for source in sources):
            continue
        try:
            context[key] = context_values.value_of(space, run, value)
        except (LoomError, OSError) as error:
            what = error.what if isinstance(error, LoomError) else str(error)
            warnings.append(f"Loom cannot read the context key {masked_line(key, 80)}: {masked_line(what, 200)}")
    return context, warnings


def scope(state: Mapping[str, Any], ended: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Give what conditions see after a visit. ended: the visit, with its status; context: values, not references."""
    label, task = ended.get("preferred_next_label"), visits.task_of(ended)
    known = {"outcome": ended["status"], "context": nested(context), "preferred_label": label, "task": task}
    return {"state": state, **known}


def nested(context: Mapping[str, Any]) -> dict[str, Any]:
    """Give a flat context whose dotted keys can be reached as members too, where they do not collide.

    `{"tests.passed": true}` is `context["tests.passed"]` and `context.tests.passed`. A key that is there itself is
    never changed: beside `tests`, or `tests.passed`, what is longer stays flat.
    """
    found = dict(context)
    made: dict[str, dict[str, Any]] = {}  # objects that are not the context's own, by the name that they stand under
    for key in sorted(context, key=lambda one: (one.count("."), one)):
        parts = key.split(".")
        heads = [".".join(parts[:end]) for end in range(1, len(parts))]
        if not heads or not all(parts) or any(head in context for head in heads):
            continue
        at = found
        for head, part in zip(heads, parts, strict=False):
            if head not in made:
                made[head] = at[part] = {}
            at = made[head]
        at[parts[-1]] = context[key]
    return found
