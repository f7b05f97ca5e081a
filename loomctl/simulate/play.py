"""A run played without an assistant and without a disk: the model decides, scripted outcomes stand for the work (D45).

The clock stands at AT, approvals are taken as given, and commands are not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.flow import route
from loomctl.flow.outcomes.directives import Reading
from loomctl.kit.errors import LoomError
from loomctl.runs.model import frozen_plan, run_context, standing, visits
from loomctl.runs.model.state import new_state
from loomctl.workflows import branches, gates, routing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.model.state import State
    from loomctl.simulate.scripts import Script
    from loomctl.workflows.routing import Judge

AT = "2000-01-01T00:00:00Z"


class Played(NamedTuple):
    """stages: in their order, as `loomctl simulate --json` gives them; approvals: what somebody would have been asked.

    A parallel step is one stage, with its branches' stages inside. warnings: `{code, where, message}`; why: why the run
    failed, empty where it did not.
    """

    state: State
    stages: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    warnings: list[dict[str, str]]
    why: str


def until(
    plan: Mapping[str, Any],
    script: Script,
    state: State,
    *,
    judge: Judge,
    step: str | None = None,
    visit: int = 1,
) -> tuple[State, list[dict[str, Any]]]:
    """Play a plan until a step is open; gives the state there and the approvals taken as given on the way.

    Where the play ends before, no visit is open in the state. step: its key, one of the run's own line; None: the first
    that is not the engine's. visit: which of its visits.
    """
    player = _Player(script, judge, [], [], _Goal(step, visit))
    state, _ = player.line(state, plan)
    return state, player.approvals


def without_disk(python: str | None) -> Judge:
    """Make what evaluates conditions over a context that holds plain values. python: as `judge_with` takes it."""
    return route.judge_with(route.values_held, python)


def play(
    plan: Mapping[str, Any],
    script: Script,
    *,
    judge: Judge,
    context: Mapping[str, Any] | None = None,
    goal: str = "",
) -> Played:
    """Play a plan to its end. context: what the run begins with; judge: says what conditions come to.

    Branches are played one after the other, as declared, until the join of their parallel step is met. It ends, for
    each step has a bound: its visits in a plan with routes, its retries in every other; in a branch, for each visit of
    the parallel step.
    """
    state = new_state(plan, run_id="simulation", work_id=None, goal=goal, at=AT)
    player = _Player(script, judge, [], [])
    state, stages = player.line({**state, "context": dict(context or {})}, plan)
    player.warnings.extend(_left_over(state, script))
    why = _why(state["errors"], stages) if state["status"] == "failed" else ""
    return Played(state, stages, player.approvals, player.warnings, why)


class _Goal(NamedTuple):
    """Where a play stops: at a visit of a step, or of the first that is not the engine's."""

    step: str | None
    visit: int

    def is_met(self, state: State, place: Place) -> bool:
        """Tell whether the visit that is about to begin is the one."""
        if self.step is None:
            return not place.step.get("engine")
        return place.key == self.step and len(visits.of_step(state, self.step)) + 1 == self.visit


class _Player(NamedTuple):
    """Plays a run, and each branch of a parallel step as the run that it is seen as (D43)."""

    script: Script
    judge: Judge
    approvals: list[dict[str, Any]]
    warnings: list[dict[str, str]]
    goal: _Goal | None = None

    def line(self, state: State, plan: Mapping[str, Any]) -> tuple[State, list[dict[str, Any]]]:
        """Play to the end; gives the stages too."""
        stages: list[dict[str, Any]] = []
        while standing.goes_on(state):
            state, move = route.advance(state, plan, at=AT)
            place = frozen_plan.place_of(plan, move.step) if move.kind == "step" else None
            if place is not None and self.goal is not None and self.goal.is_met(state, place):
                return _opened(state, plan, place), stages
            if place is not None:
                state = self._visit(state, plan, place, stages)
            if state["pending_approvals"]:
                self.approvals.extend(
                    _asked(state, {**one, "step_id": move.step}) for one in state["pending_approvals"]
                )
                state = gates.approve(state, at=AT)[0]
        return state, stages

    def _visit(self, state: State, plan: Mapping[str, Any], place: Place, stages: list[dict[str, Any]]) -> State:
        """Begin and end a visit, and tell of it; gives the state after it."""
        by_engine = bool(place.step.get("engine"))
        state, entry = visits.start_visit(state, place.key, str(place.phase["id"]), at=AT, by_engine=by_engine)
        came_by = stages[-1]["next"] if stages else {}
        chosen = routing.choose_fidelity(
            transition=came_by.get("fidelity"), step=place.step.get("fidelity"), workflow=plan.get("default_fidelity")
        )
        if branches.is_parallel(place.step):
            end = self._joined(state, plan, place)
        else:
            end = self._said(state, plan, place, entry["visit"])
        directive = _directive(end.said)
        came = route.end_visit(
            end.state, plan, outcome=end.outcome, at=AT, note=end.note, directive=directive, judge=self.judge
        )
        where = f"{place.key}@{entry['visit']}"
        self.warnings.extend(_warning("CONDITION", where, text) for text in came.way.warnings)
        self.warnings.extend(_warning("FIDELITY", where, text) for text in chosen.warnings)
        told: dict[str, Any] = {
            "step_id": place.key,
            "visit": entry["visit"],
            "rank": entry["rank"],
            **{word: entry[word] for word in ("attempt", "by") if word in entry},
            "outcome": end.outcome,
            **{word: value for word, value in directive.items() if value},
            "fidelity": chosen.fidelity,
            **({"branches": end.branches} if end.branches else {}),
            "next": dict(came.way.next),
            "weighed": [dict(one) for one in came.way.weighed],
        }
        stages.append(told)
        return _bare(came.state, entry) if end.branches else came.state

    def _said(self, state: State, plan: Mapping[str, Any], place: Place, visit: int) -> _End:
        """End a visit as the script says."""
        said = self.script.of(place.key, visit)
        end = _End(state, said, said.outcome or "succeeded")
        if place.step.get("engine"):
            return end
        own: dict[str, Any] = {"last_stage": place.key}
        if frozen_plan.is_human(place.step):
            state = self._decided(state, plan, said)
            own |= {gates.LABEL_KEY: _label(place, said), gates.TEXT_KEY: ""}
        context = run_context.changed(state["context"], own, said.context_updates, output="").context
        return end._replace(state={**state, "context": context})

    def _decided(self, state: State, plan: Mapping[str, Any], said: Reading) -> State:
        """Tell of a human step's gate, and warn of a label that nobody could choose; gives the state going on."""
        state = gates.ask(state, plan, at=AT)
        request = state["pending_approvals"][-1]
        self.approvals.append(_asked(state, request))
        label, offered = said.preferred_next_label, request["choices"]
        if label and not any(routing.matches(label, one) for one in offered):
            told = f"there are {', '.join(offered)}" if offered else "its transitions have no labels"
            self.warnings.append(_warning("UNKNOWN_LABEL", request["step_id"], f"{label!r:.60} is no choice: {told}"))
        elif not label and said.outcome in (None, "succeeded"):
            try:
                gates.decision(state, plan, gates.APPROVE)
            except LoomError as error:  # a person would have to choose
                self.warnings.append(_warning(error.code, request["step_id"], f"{error.what}: {error.why}"))
        return {**state, "pending_approvals": [], "status": "in_progress"}

    def _joined(self, state: State, plan: Mapping[str, Any], place: Place) -> _End:
        """Play the branches of the open visit as far as the join waits for them, and join them."""
        state = branches.fan_out(state, place.step)
        played: dict[str, dict[str, Any]] = {}
        made = None
        for declared in place.step["parallel"]["branches"]:
            name = str(declared["id"])
            view = branches.view(state, plan, name)
            seen, stages = self.line(view.state, view.plan)
            why = _why(seen["errors"][len(state["errors"]) :], stages) if seen["status"] == "failed" else ""
            played[name] = {**({"why": why} if why else {}), "stages": stages}
            state = branches.fold(state, seen)
            made = branches.fan_in(state, place.step)
            if made is not None:
                break
        assert made is not None  # every branch has ended by now
        state = branches.cancel_open(state)
        own = {"last_stage": place.key, **made.own, **made.told}
        changed = run_context.changed(state["context"], own, made.updates, output="", dropped=made.changes.gone)
        told = [{**branches.short(one), **played.get(one["id"], {"stages": []})} for one in made.results]
        state = {**state, "context": changed.context, "status": "in_progress"}
        failed = made.outcome == "failed"
        return _End(state, Reading(failure_reason=made.note if failed else ""), made.outcome, made.note, told)


def _opened(state: State, plan: Mapping[str, Any], place: Place) -> State:
    """Begin a visit, as far as its step waits for a person."""
    state, _ = visits.start_visit(state, place.key, str(place.phase["id"]), at=AT)
    return gates.ask(state, plan, at=AT) if frozen_plan.is_human(place.step) else state


class _End(NamedTuple):
    """How a visit ends. state: with its context; branches: of a parallel step, as its stage tells of them."""

    state: State
    said: Reading
    outcome: str
    note: str = ""
    branches: Sequence[Mapping[str, Any]] = ()


def _bare(state: State, entry: Mapping[str, Any]) -> State:
    """Give a state in which a parallel step's visit has ended."""
    ended = next(one for one in reversed(state["steps"]) if one["stage"] == entry["stage"])
    return visits.replaced(state, branches.without_contexts(ended))


def _asked(state: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Give what somebody would have been asked, with the branch that it is asked in, if any."""
    branch = visits.seen_from(state).name
    return {**asked, **({"branch": branch} if branch else {})}


def _why(errors: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]) -> str:
    """Say why a run failed, or a branch, naming the step. errors: its own; stages: that it made."""
    if not errors:
        return ""
    last, way = errors[-1], stages[-1]["next"]
    names_it = way["reason"] == visits.MAX_VISITS or last["step_id"] in last["message"]
    return str(last["message"]) if names_it else f"{last['step_id']}: {last['message']}"


def _directive(said: Reading) -> dict[str, Any]:
    """Give what a visit keeps of its directive."""
    return {
        "failure_reason": said.failure_reason,
        "preferred_next_label": said.preferred_next_label,
        "suggested_next_ids": list(said.suggested_next_ids),
    }


def _label(place: Place, said: Reading) -> str | None:
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
