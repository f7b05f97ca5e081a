"""A drawing shows phases, kinds, ways and progress; in DOT it is the workflow that was drawn (D61)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.workflows import draw
from loomctl.workflows.dot_workflow import convert
from loomctl.workflows.draw import LONGEST_LABEL, each_node, lay_out, mermaid
from tests.helpers import drawings, graphviz

LOOPING = drawings.frozen(drawings.LOOPING)


def simple(*steps: dict[str, Any]) -> dict[str, Any]:
    return drawings.frozen({"id": "w", "phases": {"main": {"steps": list(steps)}}})


def read_back(plan: dict[str, Any], state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write a plan in DOT and read it as a workflow."""
    made = convert(draw.dot(lay_out(plan, state)), name="x")
    assert made.raw is not None, made.problems
    assert {problem.severity for problem in made.problems} <= {"note"}
    return drawings.frozen(made.raw)


@pytest.mark.parametrize("state", [None, drawings.UNDER_WAY])
def test_a_drawing_in_dot_is_the_workflow_that_was_drawn(state: dict[str, Any] | None) -> None:
    assert read_back(LOOPING, state) == LOOPING


def test_what_stands_nowhere_but_in_the_workflow_comes_back_too() -> None:
    way = {"to": "end", "condition": "state.artifacts.spec_path != null && outcome != 'failed'", "weight": 2.5}
    plan = simple(
        {"id": "a", "name": "A", "prompt": 'Say "{run_id}".\n\nThen `stop\\` $5.', "output_schema": "routing",
         "produces": ["spec_path", {"n-2": "{run_dir}/n=2.md"}], "output_retries": 0, "fidelity": "summary:low",
         "max_visits": 3, "max_retries": 1, "transitions": [way]},
        {"id": "start", "skill": "review", "description": "D", "require_approval": True, "retry_target": "a"},
        {"id": "exit", "command": "/x:y", "transitions": [{"to": "a", "label": "Again and\nagain"[:9]}]},
    )  # fmt: skip
    plan |= {"retry_target": "main/a", "max_visits": 7}
    assert read_back(plan) == plan


def test_of_a_path_that_dot_cannot_hold_the_name_is_drawn() -> None:
    plan = simple({"id": "a", "prompt": "A.", "produces": [{"spec_path": "a, b.md"}]})
    (phase,) = read_back(plan)["phases"]
    assert phase["steps"][0]["produces"] == ["spec_path"]


def test_the_same_id_in_two_phases_gets_two_names() -> None:
    ways = [{"to": "one/check"}, {"to": "end"}]
    plan = drawings.frozen(
        {
            "id": "w",
            "phases": {
                "one": {"steps": [{"id": "check", "prompt": "One."}]},
                "two": {"steps": [{"id": "check", "prompt": "Two.", "transitions": ways}]},
            },
        }
    )
    back = read_back(plan)
    assert [step["key"] for phase in back["phases"] for step in phase["steps"]] == ["one/one-check", "two/two-check"]
    assert [way["to"] for way in back["phases"][1]["steps"][0]["transitions"]] == ["one/one-check", "end"]


def test_mermaid_is_written_by_phases_and_kinds() -> None:
    """Shapes, marks, visits, dashes: one line each."""
    text = mermaid(lay_out(LOOPING, drawings.UNDER_WAY))
    for line in (
        'title: "run-8ny1: in_progress"',
        'subgraph p1 ["build"]',
        's0(["✓ Plan"]):::done',
        's1[["✓ Look from two sides"]]:::done',
        'subgraph b1_0 ["api"]',
        'j1{{"wait#95;all"}}',
        's5["▸ Implement ×2"]:::current',  # noqa: RUF001 - times
        's6[/"✗ Run the tests"/]:::failed',
        's7{{"Approve?"}}',
        "start_ --> s0",
        "s1 --> s2",
        "s2 --> j1",
        's4 -.->|"on failure"| s3',
        's6 -->|"Pass<br/>outcome=succeeded"| s7',
        's8 -.->|"retry"| s7',
        's8 -->|"context#46;tests#95;passed=true"| end_',
    ):
        assert f"{line}\n" in text.replace("    ", ""), line


def test_what_the_engine_does_itself_is_not_drawn_and_an_empty_plan_is() -> None:
    plan = simple({"id": "prime", "prompt": "x", "engine": "prime-context"}, {"id": "a", "prompt": "x"})
    drawn = lay_out(plan)
    assert [node.name for node in each_node(drawn.groups)] == ["a"]
    assert [(arrow.tail, arrow.head) for arrow in drawn.arrows] == [("start_", "s0"), ("s0", "end_")]
    assert "flowchart" in mermaid(lay_out(simple()))
    assert graphviz.rendered(draw.dot(lay_out(simple())))


def test_a_run_that_is_over_has_reached_its_end_and_long_texts_are_cut() -> None:
    over = {**drawings.UNDER_WAY, "status": "completed"}
    assert [node.mark for node in lay_out(LOOPING, over).loose] == ["", "done"]
    assert not any(node.mark for node in each_node(lay_out(LOOPING).groups))
    way = {"to": "end", "condition": "context.x == " + "1" * 900}
    plan = simple({"id": "a", "name": "n" * 300, "prompt": "x", "transitions": [way]})
    drawn = lay_out(plan)
    assert drawn.groups[0].nodes[0].title.endswith("…")
    assert all(len(line) <= LONGEST_LABEL for arrow in drawn.arrows for line in arrow.lines)
    assert read_back(plan)["phases"] == plan["phases"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.text(max_size=30))
def test_graphviz_reads_any_names(names: list[str], label: str) -> None:
    """And what is read back has the same prompts."""
    steps = [
        {"id": f"s{n}", "name": name, "prompt": name, "transitions": [{"to": "end", "label": label}]}
        for n, name in enumerate(names)
    ]
    text = draw.dot(lay_out(simple(*steps)))
    assert graphviz.is_read(text)
    assert convert(text, name="x").raw is not None
