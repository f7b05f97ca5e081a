"""Any workflow that a check accepts comes to an end, whatever its steps answer (D45)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.kit.problems import errors
from loomctl.runs.model import frozen_plan, visits
from loomctl.simulate import play
from loomctl.workflows import branches, graph_checks
from loomctl.workflows.workflow import build_plan, parse

Json = dict[str, Any]
LABELS = ("fix", "[A] Approve", "Again")
CONDITIONS = (
    "context.score >= 50", "outcome == 'failed'", "preferred_label == 'fix'", "context.flag",
    "state.goal.length", "context._retry_count > 0",
    "context._pipeline_name == 'any' && context._previous_node != null",
)  # fmt: skip
JUDGE = play.without_disk(None)


@st.composite
def workflows(draw: st.DrawFn) -> Json:
    """Make workflows of one or two phases, some with routes, loops, retries and approvals."""
    phases: Json = {}
    for name in ("one", "two")[: draw(st.integers(1, 2))]:
        ids = [f"s{number}" for number in range(draw(st.integers(1, 4)))]
        phases[name] = {"steps": [draw(steps(one, ids)) for one in ids], "require_approval": draw(st.booleans())}
    more: Json = {"max_visits": draw(st.integers(1, 4))} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        more["retry_target"] = draw(st.sampled_from([f"one/{one['id']}" for one in phases["one"]["steps"]]))
    return {"id": "any", "phases": phases, **more}


@st.composite
def steps(draw: st.DrawFn, name: str, ids: list[str], *, inner: bool = False) -> Json:
    """Make a step whose ways lead to its phase's steps or out; some have branches. inner: it is in one."""
    step: Json = {"id": name, "prompt": draw(st.sampled_from(("Do it.", "/loom:prime-context")))}
    if draw(st.booleans()):
        step["transitions"] = draw(st.lists(transitions(ids), min_size=1, max_size=4))
    for key, values in (("max_visits", st.integers(1, 3)), ("max_retries", st.integers(0, 3))):
        if draw(st.booleans()):
            step[key] = draw(values)
    if draw(st.booleans()):
        step["retry_target"] = draw(st.sampled_from(ids))
    if draw(st.booleans()):
        word = draw(st.sampled_from(("continue", "prompt", "stop")))
        step["result_handling"] = {draw(st.sampled_from(("on_failure", "on_warning"))): word}
    step["require_approval"] = draw(st.booleans())
    kind = draw(st.sampled_from(("agent", "agent", "agent", "human" if inner else "parallel", "human")))
    if kind == "human":
        step["kind"] = "human"
    if kind == "parallel":
        step["parallel"] = draw(fans(name))
        step.pop("prompt")
    return step


@st.composite
def fans(draw: st.DrawFn, name: str) -> Json:
    """Make one to three branches of one or two steps, with ids that no other step has."""
    held = []
    for branch in "abc"[: draw(st.integers(1, 3))]:
        ids = [f"{name}{branch}{number}" for number in range(draw(st.integers(1, 2)))]
        held.append({"id": branch, "steps": [draw(steps(one, ids, inner=True)) for one in ids]})
    return {"join": draw(st.sampled_from(visits.JOINS)), "branches": held}


@st.composite
def transitions(draw: st.DrawFn, ids: list[str]) -> Json:
    found: Json = {"to": draw(st.sampled_from([*ids, visits.END]))}
    choices = {
        "label": st.sampled_from(LABELS),
        "condition": st.sampled_from(CONDITIONS),
        "weight": st.integers(0, 3),
        "on_failure": st.just(True),
    }
    for key, values in choices.items():
        if draw(st.booleans()):
            found[key] = draw(values)
    return found


OUTCOMES = st.fixed_dictionaries({}, optional={
    "outcome": st.sampled_from(visits.OUTCOMES), "failure_reason": st.sampled_from(("it broke", "rate limit")),
    "preferred_next_label": st.sampled_from((*LABELS, "a", "nothing like it")),
    "suggested_next_ids": st.lists(st.sampled_from(("s0", "s1", "two/s2", "s0a1")), max_size=2),
    "context_updates": st.fixed_dictionaries({"score": st.integers(0, 99), "flag": st.booleans()}),
})  # fmt: skip


def accepted(raw: Json) -> Json | None:
    """Give the plan of a workflow that a check accepts, None for every other."""
    workflow, found = parse(raw)
    if workflow is None or errors(found) or errors(graph_checks.dangling(workflow, workflow, raw)):
        return None
    plan = build_plan(raw, plan_id="any", created_at=play.AT, sources=[])
    return None if errors(graph_checks.problems(plan)) else plan


def scripted(plan: Json) -> list[str]:
    """Name the steps of a plan that a script speaks for: all but those that end as their branches do."""
    return [place.key for place in frozen_plan.with_branches(plan) if not branches.is_parallel(place.step)]


def asked(plan: Json, stages: list[Json]) -> Iterator[str]:
    """Name the steps among these stages, and among those of their branches, that a person decided, in their order."""
    for stage in stages:
        place = frozen_plan.find(plan, stage["step_id"])
        assert place is not None
        if frozen_plan.is_human(place.step):
            yield place.key
        for branch in stage.get("branches", ()):
            yield from asked(plan, branch["stages"])


def hold(plan: Json, stages: list[Json]) -> None:
    """Hold that a line of stages, and each branch's, is one way: each leads to the next, the last to its end, and no
    step has more visits than it may. A retry is a visit, so that its bound holds for both; a branch's step has its own
    for each visit of the parallel step.
    """
    for key, count in Counter(stage["step_id"] for stage in stages).items():
        place = frozen_plan.place_of(plan, key)
        assert place is not None
        most = (
            frozen_plan.most_visits(plan, place) if frozen_plan.is_routed(plan) else 1 + int(place.step["max_retries"])
        )
        assert count <= most, key
    for stage, following in itertools.pairwise(stages):
        assert stage["next"]["step_id"] == following["step_id"]
        assert stage["next"]["reason"] in visits.REASONS
    assert stages[-1]["next"]["step_id"] is None
    for stage in stages:
        _hold_branches(plan, stage)


def _hold_branches(plan: Json, stage: Json) -> None:
    place = frozen_plan.place_of(plan, stage["step_id"])
    assert place is not None
    assert ("branches" in stage) == branches.is_parallel(place.step)
    if "branches" not in stage:
        return
    declared = dict(branches.plans(plan, place))
    assert [(one["id"], one["index"]) for one in stage["branches"]] == [(name, n) for n, name in enumerate(declared)]
    join, every = place.step["parallel"]["join"], [one["status"] for one in stage["branches"]]
    ended = list(itertools.takewhile(lambda status: status != branches.CANCELLED, every))
    assert every[len(ended) :] == [branches.CANCELLED] * (len(every) - len(ended))
    came = [visits.joined(join, [*ended[:n], *[None] * (len(every) - n)]) for n in range(len(ended) + 1)]
    assert came[:-1] == [None] * len(ended)
    assert came[-1] is not None
    assert came[-1].outcome == stage["outcome"]
    for branch in stage["branches"]:
        assert bool(branch["stages"]) == (branch["status"] != branches.CANCELLED)
        assert bool(branch.get("why")) == (branch["status"] == "failed")
        if branch["stages"]:
            hold(declared[branch["id"]], branch["stages"])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(raw=workflows(), data=st.data())
def test_every_run_ends_within_its_bounds(raw: Json, data: st.DataObject) -> None:
    plan = accepted(raw)
    if plan is None:
        return
    said = {key: data.draw(st.lists(OUTCOMES, min_size=1, max_size=3), label=key) for key in scripted(plan)}
    script, found = play.read(said, plan)
    assert not errors(found)
    played = play.play(plan, script, judge=JUDGE)
    assert played.state["status"] in ("completed", "failed")
    assert bool(played.why) == (played.state["status"] == "failed")
    hold(plan, played.stages)
    ranks = [one["rank"] for one in visits.every(played.state) if one["rank"]]
    assert ranks == list(range(1, len(ranks) + 1))
    assert [one["step_id"] for one in played.approvals if "choices" in one] == list(asked(plan, played.stages))
    assert play.play(plan, script, judge=JUDGE) == played
