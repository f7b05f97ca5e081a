"""Any workflow that a check accepts comes to an end, whatever its steps answer (D45)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.engine import simulating
from loomctl.model import graph_checks, places, routing, scripts, visits
from loomctl.model.plan import build_plan
from loomctl.model.problems import errors
from loomctl.model.workflow import parse

Json = dict[str, Any]
LABELS = ("fix", "[A] Approve", "Again")
CONDITIONS = (
    "context.score >= 50",
    "outcome == 'failed'",
    "preferred_label == 'fix'",
    "context.flag",
    "state.goal.length",
)
JUDGE = simulating.without_disk(None)


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
def steps(draw: st.DrawFn, name: str, ids: list[str]) -> Json:
    """Make a step whose ways lead to its phase's steps or out."""
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
    if draw(st.integers(0, 3)) == 0:
        step["kind"] = "human"
    return step


@st.composite
def transitions(draw: st.DrawFn, ids: list[str]) -> Json:
    """Make a transition."""
    found: Json = {"to": draw(st.sampled_from([*ids, routing.END]))}
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


OUTCOMES = st.fixed_dictionaries(
    {},
    optional={
        "outcome": st.sampled_from(visits.OUTCOMES),
        "failure_reason": st.sampled_from(("it broke", "rate limit")),
        "preferred_next_label": st.sampled_from((*LABELS, "a", "nothing like it")),
        "suggested_next_ids": st.lists(st.sampled_from(("s0", "s1", "two/s2")), max_size=2),
        "context_updates": st.fixed_dictionaries({"score": st.integers(0, 99), "flag": st.booleans()}),
    },
)


def accepted(raw: Json) -> Json | None:
    """Give the plan of a workflow that a check accepts, None for every other."""
    workflow, found = parse(raw)
    if workflow is None or errors(found) or errors(graph_checks.unknown_targets(workflow, workflow)):
        return None
    plan = build_plan(raw, plan_id="any", created_at=simulating.AT, sources=[])
    return None if errors(graph_checks.problems(plan)) else plan


def asking(plan: Json) -> list[str]:
    """Name the steps of a plan that a person decides."""
    return [place.key for place in places.places(plan) if places.is_human(place.step)]


@settings(max_examples=200, deadline=None)
@given(raw=workflows(), data=st.data())
def test_every_run_ends_within_its_bounds(raw: Json, data: st.DataObject) -> None:
    """It is completed or failed, no step has more visits than it may, and each stage is the one that the last named."""
    plan = accepted(raw)
    if plan is None:
        return
    keys = [place.key for place in places.places(plan)]
    said = {key: data.draw(st.lists(OUTCOMES, min_size=1, max_size=3), label=key) for key in keys}
    script, found = scripts.read(said, plan)
    assert not errors(found)
    played = simulating.play(plan, script, judge=JUDGE)
    assert played.state["status"] in ("completed", "failed")
    assert bool(played.why) == (played.state["status"] == "failed")
    for key, count in Counter(stage["step_id"] for stage in played.stages).items():
        place = places.place_of(plan, key)
        assert place is not None
        most = places.most_visits(plan, place) if places.is_routed(plan) else 1 + int(place.step["max_retries"])
        assert count <= most, key
    human = [stage["step_id"] for stage in played.stages if stage["step_id"] in asking(plan)]
    assert [one["step_id"] for one in played.approvals if "choices" in one] == human
    for stage, following in zip(played.stages, played.stages[1:], strict=False):
        assert stage["next"]["step_id"] == following["step_id"]
        assert stage["next"]["reason"] in routing.REASONS
    assert played.stages[-1]["next"]["step_id"] is None
    assert simulating.play(plan, script, judge=JUDGE) == played
