"""Any file that a check accepts, JSON, YAML or DOT, is played to an end within its bounds, the same in each form (D45).

The files go the way of a user's: written, checked, resolved, frozen into a plan, simulated. LOOM_TEST_GRAPHS says how
many of a kind are drawn, 60 otherwise.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from loomctl.engine import simulating
from loomctl.engine.check import check_file
from loomctl.engine.resolve import resolve_file
from loomctl.model import graph_dot, graph_text, places, routing, scripts
from loomctl.model.plan import build_plan
from loomctl.model.problems import errors
from tests.engine.test_simulating import JUDGE, LABELS, OUTCOMES, workflows
from tests.scenes import CHECKOUT, Json

EXAMPLES = int(os.environ.get("LOOM_TEST_GRAPHS") or 60)
IN_FOLDERS = settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
UNKNOWN = {"suggested_next_ids": ["nobody"], "preferred_next_label": "\u200b"}


def planned(folder: Path, name: str, text: str) -> Json | None:
    """Write a workflow and give its plan; None where the check refuses the file."""
    store = folder / ".loom"
    path = store / "workflows" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    own, bundle = str(folder), str(CHECKOUT)
    refused = errors(check_file(str(path), project_dir=own, store=str(store), bundle=bundle))
    resolved = resolve_file(str(path), project_dir=own, store=str(store), bundle=bundle)
    assert bool(errors(resolved.problems)) <= bool(refused)
    if refused:
        assert all(one.where and one.message for one in refused)
        return None
    return build_plan(resolved.checked(), plan_id="any", created_at=simulating.AT, sources=[])


def played(plan: Json, said: Json) -> simulating.Played:
    """Play a plan by a script, and hold that it came to its end within its bounds."""
    script, found = scripts.read(said, plan)
    assert not errors(found)
    come = simulating.play(plan, script, judge=JUDGE, goal="x")
    assert come.state["status"] in ("completed", "failed")
    assert bool(come.why) == (come.state["status"] == "failed")
    bounds = {place.key: _bound(plan, place) for place in places.places(plan)}
    made = Counter(stage["step_id"] for stage in come.stages)
    assert {key: count for key, count in made.items() if count > bounds[key]} == {}
    for stage, following in itertools.pairwise(come.stages):
        assert stage["next"]["step_id"] == following["step_id"]
        assert stage["next"]["reason"] in routing.REASONS
    assert come.stages[-1]["next"]["step_id"] is None
    return come


def _bound(plan: Json, place: places.Place) -> int:
    """Give the visits that a step may have: a retry is a visit, so its bound holds for both."""
    return places.most_visits(plan, place) if places.is_routed(plan) else 1 + int(place.step["max_retries"])


def way(come: simulating.Played) -> list[tuple[Any, ...]]:
    """Give what is the same in each form of one workflow: the visits, their outcomes and reasons.

    A drawing has one plain arrow to the next step, whether that is written as a transition or follows in order.
    """
    plain = {routing.UNCONDITIONAL: routing.ORDER}
    return [
        (one["step_id"], one["visit"], one["outcome"], one["next"]["step_id"], plain.get(reason, reason))
        for one in come.stages
        if (reason := one["next"]["reason"])
    ]


def said_of(data: st.DataObject, plan: Json) -> Json:
    """Draw what the steps of a plan say at their visits."""
    answers = st.lists(OUTCOMES | st.just(UNKNOWN), min_size=1, max_size=3)
    return {place.key: data.draw(answers, label=place.key) for place in places.places(plan)}


@IN_FOLDERS
@given(raw=workflows(), data=st.data())
def test_json_and_yaml_are_one_workflow(tmp_path: Path, raw: Json, data: st.DataObject) -> None:
    """Accepted or refused alike, and played the same way."""
    plan = planned(tmp_path, "any.json", json.dumps(raw))
    other = planned(tmp_path, "same.yaml", yaml.safe_dump(raw, sort_keys=False))
    assert (plan is None) == (other is None)
    if plan is None or other is None:
        return
    assert other["phases"] == plan["phases"]
    said = said_of(data, plan)
    assert played(other, said) == played(plan, said)


def drawable(raw: Json) -> Json:
    """Give a workflow without what no drawing holds: result handling, a phase's approval, what the engine does."""
    for phase in raw["phases"].values():
        phase["require_approval"] = False
        for step in phase["steps"]:
            step.pop("result_handling", None)
            step["prompt"] = "Do it."
    return raw


@IN_FOLDERS
@given(raw=workflows().map(drawable), data=st.data())
def test_a_workflow_and_its_drawing_go_the_same_way(tmp_path: Path, raw: Json, data: st.DataObject) -> None:
    """What `graph --format dot` writes is read back as a workflow that visits the same steps for the same reasons.

    Two arrows that say the same to the same step are one, so the reasons are compared and not which arrow it was.
    """
    plan = planned(tmp_path, "any.json", json.dumps(raw))
    assume(plan is not None)
    assert plan is not None
    drawn = planned(tmp_path, "drawn.dot", graph_dot.written(graph_text.drawing(plan)))
    assert drawn is not None
    keys = [place.key for place in places.places(plan)]
    assume([place.key for place in places.places(drawn)] == keys)  # an id that stands in two phases gets another
    said = said_of(data, plan)
    assert way(played(drawn, said)) == way(played(plan, said))


NODES = ("plan", "build", "review", "fix", "tests")
GRAMMAR = (
    "outcome=succeeded",
    "outcome=fail",
    "outcome!=succeeded && score>50",
    "context.flag=true || score <= 10",
    "!flag",
    "missing=''",
    "score contains 7",
    "score matches ^[0-4]",
    "js: context.score > 20 && outcome !== 'failed'",
)
NODE_SAYS = (
    'prompt="Do it."',
    "shape=tab",
    "shape=diamond",
    "output_schema=routing",
    "max_visits=2",
    "max_retries=1",
    "retry_target=plan",
    "require_approval=true",
    "fidelity=full",
    "phase=later",
    'label="A step"',
)
EDGE_SAYS = (*(f'label="{one}"' for one in LABELS), *(f'condition="{one}"' for one in GRAMMAR), "weight=3", "weight=-1")
HEADS = ("retry_target=fix", "max_node_visits=3", "default_max_retries=1", "default_fidelity=compact")


@st.composite
def digraphs(draw: st.DrawFn) -> str:
    """Write a digraph of a few steps and arrows in the words that other engines' files have."""
    used = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True))
    lines = [f"graph [{', '.join(draw(st.lists(st.sampled_from(HEADS), max_size=2, unique=True)))}]"]
    lines += [f"{name} [{', '.join(draw(st.lists(st.sampled_from(NODE_SAYS), max_size=3)))}]" for name in used]
    lines.append(f"start -> {used[0]}")
    for tail in used:
        for head in draw(st.lists(st.sampled_from([*used, "exit"]), min_size=1, max_size=3)):
            says = draw(st.lists(st.sampled_from(EDGE_SAYS), max_size=2))
            lines.append(f"{tail} -> {head} [{', '.join(says)}]")
    return "digraph any {\n" + "\n".join(f"    {line}" for line in lines) + "\n}\n"


@IN_FOLDERS
@given(text=digraphs(), data=st.data())
def test_any_digraph_that_a_check_accepts_comes_to_an_end(tmp_path: Path, text: str, data: st.DataObject) -> None:
    """Loops, decisions, both kinds of conditions, labels in any form: completed or failed, within its bounds."""
    plan = planned(tmp_path, "any.dot", text)
    assume(plan is not None)
    assert plan is not None
    said = said_of(data, plan)
    come = played(plan, said)
    assert played(plan, said) == come
