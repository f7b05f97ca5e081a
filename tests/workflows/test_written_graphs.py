"""Any file that a check accepts, JSON, YAML or DOT, is played to an end within its bounds, the same in each form (D45).

The files go the way of a user's: written, checked, resolved, frozen into a plan, simulated. LOOM_TEST_GRAPHS says how
many of a kind are drawn, 60 otherwise.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from loomctl.kit.problems import errors
from loomctl.runs.model import frozen_plan, visits
from loomctl.simulate import play
from loomctl.workflows import draw
from loomctl.workflows.check import check_file
from loomctl.workflows.resolve import resolve_file
from loomctl.workflows.workflow import build_plan
from loomctl.workflows.workflow_files import Places
from tests.helpers.scenes import CHECKOUT, Json
from tests.simulate.test_play import JUDGE, LABELS, OUTCOMES, hold, scripted, workflows

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
    refused = errors(check_file(str(path), Places(own, str(store), bundle)))
    resolved = resolve_file(str(path), Places(own, str(store), bundle))
    assert bool(errors(resolved.problems)) <= bool(refused)
    if refused:
        assert all(one.where and one.message for one in refused)
        return None
    return build_plan(resolved.checked(), plan_id="any", created_at=play.AT, sources=[])


def played(plan: Json, said: Json) -> play.Played:
    """Play a plan by a script, and hold that it came to its end within its bounds."""
    script, found = play.read(said, plan)
    assert not errors(found)
    come = play.play(plan, script, judge=JUDGE, goal="x")
    assert come.state["status"] in ("completed", "failed")
    assert bool(come.why) == (come.state["status"] == "failed")
    hold(plan, come.stages)
    return come


def way(stages: list[Json]) -> list[tuple[Any, ...]]:
    """Give what is the same in each form of one workflow: the visits, their outcomes and reasons, those of branches.

    A drawing has one plain arrow to the next step, whether that is written as a transition or follows in order.
    """
    plain = {visits.UNCONDITIONAL: visits.ORDER}
    return [
        (
            *(one["step_id"], one["visit"], one["rank"], one["outcome"], one["next"]["step_id"]),
            plain.get(one["next"]["reason"], one["next"]["reason"]),
            [(branch["id"], branch["status"], way(branch["stages"])) for branch in one.get("branches", ())],
        )
        for one in stages
    ]


def said_of(data: st.DataObject, plan: Json) -> Json:
    """Draw what the steps of a plan say at their visits."""
    answers = st.lists(OUTCOMES | st.just(UNKNOWN), min_size=1, max_size=3)
    return {key: data.draw(answers, label=key) for key in scripted(plan)}


@pytest.mark.slow
@IN_FOLDERS
@given(raw=workflows(), data=st.data())
def test_json_and_yaml_are_one_workflow(tmp_path: Path, raw: Json, data: st.DataObject) -> None:
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
            _make_drawable(step)
    return raw


def _make_drawable(step: Json) -> None:
    step.pop("result_handling", None)
    if "parallel" not in step:
        step["prompt"] = "Do it."
    for branch in step.get("parallel", {}).get("branches", ()):
        for inner in branch["steps"]:
            _make_drawable(inner)


@pytest.mark.slow
@IN_FOLDERS
@given(raw=workflows().map(drawable), data=st.data())
def test_a_workflow_and_its_drawing_go_the_same_way(tmp_path: Path, raw: Json, data: st.DataObject) -> None:
    plan = planned(tmp_path, "any.json", json.dumps(raw))
    assume(plan is not None)
    assert plan is not None
    drawn = planned(tmp_path, "drawn.dot", draw.dot(draw.lay_out(plan)))
    assert drawn is not None
    keys = [place.key for place in frozen_plan.with_branches(plan)]
    assume(
        [place.key for place in frozen_plan.with_branches(drawn)] == keys
    )  # an id that stands in two phases gets another
    said = said_of(data, plan)
    one, other = played(plan, said), played(drawn, said)
    assert (way(other.stages), other.state["context"]) == (way(one.stages), one.state["context"])


def test_a_task_list_is_drawn_and_read_again(tmp_path: Path) -> None:
    lists: list[Any] = ["context.parts", {"list": "artifacts.spec", "section": "My tasks", "allow_empty": True}]
    steps = [{"id": f"s{at}", "prompt": "Do {task}.", "for_each": each} for at, each in enumerate(lists)]
    plan = planned(tmp_path, "any.json", json.dumps({"id": "any", "phases": {"main": {"steps": steps}}}))
    assert plan is not None
    drawn = planned(tmp_path, "drawn.dot", draw.dot(draw.lay_out(plan)))
    assert drawn is not None
    kept = [[step[key] for key in ("prompt", "for_each")] for step in plan["phases"][0]["steps"]]
    assert [[step[key] for key in ("prompt", "for_each")] for step in drawn["phases"][0]["steps"]] == kept


NODES = ("plan", "build", "review", "fix", "tests")
GRAMMAR = (
    "outcome=succeeded", "outcome=fail", "outcome!=succeeded && score>50", "context.flag=true || score <= 10",
    "!flag", "missing=''", "score contains 7", "score matches ^[0-4]",
    "js: context.score > 20 && outcome !== 'failed'",
)  # fmt: skip
NODE_SAYS = (
    'prompt="Do it."', "shape=tab", "shape=diamond", "shape=hexagon", "output_schema=routing", "max_visits=2",
    "max_retries=1", "retry_target=plan", "require_approval=true", "fidelity=full", "phase=later",
    'label="A step"',
)  # fmt: skip
IN_BRANCH = tuple(one for one in NODE_SAYS if one not in ("retry_target=plan", "phase=later"))
JOIN_SAYS = ("", ', prompt="Sum it up."', ", shape=tripleoctagon, max_visits=2")
EDGE_SAYS = (*(f'label="{one}"' for one in LABELS), *(f'condition="{one}"' for one in GRAMMAR), "weight=3", "weight=-1")
HEADS = ("retry_target=fix", "max_node_visits=3", "default_max_retries=1", "default_fidelity=compact")


@st.composite
def digraphs(draw: st.DrawFn) -> str:
    """Write a digraph of a few steps and arrows in the words that other engines' files have."""
    used = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True))
    lines = [f"graph [{', '.join(draw(st.lists(st.sampled_from(HEADS), max_size=2, unique=True)))}]"]
    lines += [f"{name} [{', '.join(draw(st.lists(st.sampled_from(NODE_SAYS), max_size=3)))}]" for name in used]
    lines.append(f"start -> {used[0]}")
    if draw(st.booleans()):
        lines += draw(fan(used))
        used.append("fan")
    for tail in used:
        for head in draw(st.lists(st.sampled_from([*used, "exit"]), min_size=1, max_size=3)):
            says = draw(st.lists(st.sampled_from(EDGE_SAYS), max_size=2))
            lines.append(f"{'joined' if tail == 'fan' else tail} -> {head} [{', '.join(says)}]")
    return "digraph any {\n" + "\n".join(f"    {line}" for line in lines) + "\n}\n"


@st.composite
def fan(draw: st.DrawFn, used: list[str]) -> list[str]:
    """Write a parallel step, `fan`, up to its join; one step leads to it for sure."""
    policy = draw(st.sampled_from(("", ", join_policy=any", ", join_policy=first_success", ", join_policy=wait_all")))
    more = draw(st.sampled_from(("", ", max_visits=2", ", max_retries=1", ", require_approval=true")))
    lines = [f"fan [shape=component{policy}{more}]", f"joined [shape=tripleoctagon{draw(st.sampled_from(JOIN_SAYS))}]"]
    lines.append(f"{draw(st.sampled_from(used))} -> fan")
    for name in ("api", "web", "data")[: draw(st.integers(1, 3))]:
        held = [f"{name}{number}" for number in range(draw(st.integers(1, 2)))]
        lines += [f"{one} [{', '.join(draw(st.lists(st.sampled_from(IN_BRANCH), max_size=2)))}]" for one in held]
        lines.append(f"fan -> {held[0]}{draw(st.sampled_from(('', f' [branch={name}]', ' [fidelity=full]')))}")
        for tail in held:
            for head in draw(st.lists(st.sampled_from([*held, "joined"]), min_size=1, max_size=2)):
                says = draw(st.lists(st.sampled_from(EDGE_SAYS), max_size=2))
                lines.append(f"{tail} -> {head} [{', '.join(says)}]")
        lines.append(f"{held[-1]} -> joined")
    return lines


@pytest.mark.slow
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
    drawn = planned(tmp_path, "drawn.dot", draw.dot(draw.lay_out(plan)))
    assert drawn is not None
    if [place.key for place in frozen_plan.with_branches(drawn)] == [
        place.key for place in frozen_plan.with_branches(plan)
    ]:
        assert way(played(drawn, said).stages) == way(come.stages)


def test_a_step_of_a_branch_that_nothing_leads_to_is_not_written(tmp_path: Path) -> None:
    """In DOT a branch is what its arrows reach: what they do not would be read as a step outside of it, or refused."""
    branch = {
        "id": "web",
        "steps": [
            {"id": "draw", "prompt": "Draw.", "transitions": [{"to": "end"}]},
            {"id": "lost", "prompt": "Look.", "retry_target": "draw"},
        ],
    }
    raw = {"id": "any", "phases": {"build": {"steps": [{"id": "fan", "parallel": {"branches": [branch]}}]}}}
    plan = planned(tmp_path, "any.json", json.dumps(raw))
    assert plan is not None
    drawn = planned(tmp_path, "drawn.dot", draw.dot(draw.lay_out(plan)))
    assert drawn is not None
    assert [place.key for place in frozen_plan.with_branches(drawn)] == ["build/fan", "build/fan.web.draw"]
    assert way(played(drawn, {}).stages) == way(played(plan, {}).stages)


def test_a_step_that_only_a_retry_leads_to_is_of_its_branch(tmp_path: Path) -> None:
    """No arrow of a workflow in DOT says so, for a `retry_target` is none; it is read back where it was."""
    branch = {
        "id": "web",
        "steps": [
            {"id": "draw", "prompt": "Draw.", "retry_target": "mend", "transitions": [{"to": "end"}]},
            {"id": "mend", "prompt": "Mend it."},
        ],
    }
    steps = [{"id": "fan", "parallel": {"branches": [branch]}}, {"id": "sum", "prompt": "Sum it up."}]
    plan = planned(tmp_path, "any.json", json.dumps({"id": "any", "phases": {"main": {"steps": steps}}}))
    assert plan is not None
    drawn = planned(tmp_path, "drawn.dot", draw.dot(draw.lay_out(plan)))
    assert drawn is not None
    said = {"draw": {"outcome": "failed"}}
    come = played(drawn, said)
    assert way(come.stages) == way(played(plan, said).stages)
    assert [one["step_id"] for one in come.stages[0]["branches"][0]["stages"]] == [
        "main/fan.web.draw",
        "main/fan.web.mend",
    ]
