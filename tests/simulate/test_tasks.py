"""Task lists in a simulation: as many tasks as are said, and the ways that a run would take (D65)."""

from __future__ import annotations

from typing import Any

import pytest

from loomctl.simulate import play
from loomctl.workflows.workflow import build_plan

EACH: dict[str, Any] = {"id": "each", "prompt": "{task}", "for_each": "artifacts.spec"}
PARTS = {**EACH, "for_each": "context.parts"}


def played(*steps: dict[str, Any], outcomes: Any = None, **context: Any) -> play.Played:
    raw = {"id": "w", "phases": {"p": {"steps": [*steps, {"id": "after", "prompt": "After."}]}}}
    plan = build_plan(raw, plan_id="w", created_at=play.AT, sources=[])
    script, problems = play.read(outcomes, plan)
    assert problems == []
    return play.play(plan, script, judge=play.without_disk(None), context=context)


def way(found: play.Played) -> list[str]:
    return [f"{one['step_id']}@{one['visit']} {one['outcome']} {one['next']['reason']}" for one in found.stages]


def test_without_a_number_a_list_has_one_task() -> None:
    found = played(EACH)
    assert way(found) == ["p/each@1 succeeded order", "p/after@1 succeeded end"]
    assert found.stages[0]["task"] == {"text": "task 1", "number": 1, "of": 1}


def test_as_many_tasks_are_played_as_are_said() -> None:
    found = played(EACH, outcomes={"each": {"tasks": 3}})
    assert way(found)[:3] == [
        "p/each@1 succeeded next_task",
        "p/each@2 succeeded next_task",
        "p/each@3 succeeded order",
    ]
    assert [one["task"]["number"] for one in found.stages[:3]] == [1, 2, 3]


def test_a_list_of_the_context_has_its_own_length() -> None:
    assert way(played(PARTS, parts=["a", "b"]))[:2] == ["p/each@1 succeeded next_task", "p/each@2 succeeded order"]


def test_a_task_that_failed_is_the_same_task_again() -> None:
    outcomes = {"each": [{"tasks": 2}, {"outcome": "failed"}, {}]}
    found = played({**EACH, "max_retries": 1}, outcomes=outcomes)
    assert [(one["task"]["number"], one["next"]["reason"]) for one in found.stages[:3]] == [
        *((1, "next_task"), (2, "retry"), (2, "order")),
    ]


def test_a_round_is_one_visit_of_those_that_are_bounded() -> None:
    step = {**EACH, "max_visits": 1, "transitions": [{"to": "after"}]}
    assert played(step, outcomes={"each": {"tasks": 50}}).state["status"] == "completed"


@pytest.mark.parametrize(("allow", "expected"), [(True, "skipped"), (False, "failed")])
def test_an_empty_list_ends_as_in_a_run(*, allow: bool, expected: str) -> None:
    found = played({**PARTS, "for_each": {"list": "context.parts", "allow_empty": allow}, "max_retries": 2}, parts=[])
    assert (found.stages[0]["outcome"], found.stages[0]["by"]) == (expected, "engine")
    assert len(found.stages) == (2 if allow else 1)


@pytest.mark.parametrize("tasks", [-1, True, "3", 10_001])
def test_what_is_no_number_of_tasks_is_refused(tasks: object) -> None:
    raw = {"id": "w", "phases": {"p": {"steps": [EACH]}}}
    _, problems = play.read({"each": {"tasks": tasks}}, build_plan(raw, plan_id="w", created_at=play.AT, sources=[]))
    assert [(one.code, one.where) for one in problems] == [("BAD_OUTCOMES", "$.each.tasks")]


@pytest.mark.parametrize("said", [None, {"after": {}}, {"green": {}}, {"red": {"outcome": "succeeded"}}])
def test_a_loop_that_nobody_ends_says_how_to_end_it(said: Any) -> None:
    red = {"id": "red", "prompt": "x", "max_visits": 3, "transitions": [{"to": "green"}]}
    green = {"id": "green", "prompt": "x", "transitions": [{"to": "red"}]}
    found = played(red, green, outcomes=said)
    told = [(one["code"], one["where"]) for one in found.warnings]
    assert found.state["status"] == "failed"
    left_over = [("NOT_PLAYED", "p/after")] if said and "after" in said else []
    assert told == [*left_over, *([] if said and not left_over else [("NO_OUTCOMES", "p/red")])]
