"""A run's way through a plan with transitions: forth, back, round and out again (D45)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loomctl.expressions.conditions import compile_condition
from loomctl.flow import route
from loomctl.kit.problems import errors
from loomctl.runs.model import frozen_plan, visits
from loomctl.workflows import graph_checks, routing
from tests.helpers.tables import each
from tests.helpers.walks import Walk, plan, step

SCHEMA = json.loads((Path(__file__).parents[2] / "config" / "state.schema.json").read_text(encoding="utf-8"))
VALID = Draft202012Validator(SCHEMA)


def to(*targets: str, **more: Any) -> list[dict[str, Any]]:
    return [{"to": target, **more} for target in targets]


def when(condition: str, target: str, **more: Any) -> dict[str, Any]:
    return {"to": target, "condition": condition, "condition_code": compile_condition(condition), **more}


REVIEW = plan({"build": [
    step("build/make"),
    step(
        "build/review", transitions=[{"to": "build/fix", "label": "[F] Fix"}, {"to": "end", "label": "Approve"}],
        max_visits=3,
    ),
    step("build/fix", transitions=to("build/review")),
]})  # fmt: skip
STRICT = plan({"build": [
    step("build/review", transitions=[when("outcome == 'skipped'", "build/b")], max_retries=1),
    step("build/b"),
]})  # fmt: skip
RETRIED = plan({"build": [
    step("build/a", max_retries=1, transitions=[*to("build/b"), *to("build/mend", on_failure=True)]),
    step("build/b", transitions=[when("state.steps.length < 6", "build/a"), *to("end", weight=1)], max_retries=1),
    step("build/mend", transitions=to("build/a")),
]})  # fmt: skip
TARGET = {
    **plan({"build": [step("build/a"), step("build/b", retry_target="build/b", max_visits=2), step("build/c")]}),
    "retry_target": "build/a",
}
CAUGHT = plan({"build": [
    step("build/a", on_failure="continue", transitions=to("build/c")),
    step("build/b", on_failure="prompt"),
    step("build/c", on_warning="stop"),
]})  # fmt: skip
PHASES = plan({
    "frame": [step("frame/a")], "hole": [],
    "build": [
        step("build/b"),
        step("build/c", transitions=[{"to": "frame/a", "label": "back"}, *to("release/d", weight=1)]),
    ],
    "test": [step("test/t")],
    "release": [step("release/d", transitions=[{"to": "build/b", "label": "redo"}, *to("end", weight=1)])],
}, ask=("build", "release"))  # fmt: skip
ASSIST = plan(
    {"a": [step("a/x")], "b": [step("b/y", transitions=[{"to": "a/x", "label": "back"}, *to("end", weight=1)])]},
    level="assist",
)
GATE = plan(
    {
        "a": [step("a/x")],
        "b": [step("b/y", require_approval=True, transitions=[{"to": "a/x", "label": "back"}, *to("end", weight=1)])],
    }
)
ENGINE = plan(
    {
        "a": [step("a/prime", engine="prime-context"), step("a/x", transitions=[{"to": "a/prime", "label": "again"}])],
        "b": [step("b/prime", engine="prime-context")],
    }
)
ENGINE["phases"][0]["steps"][1]["transitions"] += to("b/prime", weight=1)
ASKED = plan({"a": [step("a/x", on_success="prompt", transitions=to("a/z")), step("a/y"), step("a/z")]})
SELF = plan({"a": [step("a/x", transitions=[{"to": "a/x", "label": "again"}, *to("end", weight=1)], max_retries=1)]})
ORDER = {**plan({"a": [step("a/x"), step("a/y", transitions=to("a/x"))]}), "max_visits": 2}

WALKS: list[tuple[str, dict[str, Any], str]] = [
    ("a label leads back, another out", REVIEW,
     "next:build/make@1 done:build/review@1 done+fix:build/fix@1 done:build/review@2 done+approve:completed"),
    ("a step that was visited as often as it may be ends the loop, and a resume visits it once more", REVIEW,
     ("next:build/make@1 done:build/review@1 done+f:build/fix@1 done:build/review@2 done+f:build/fix@2 "
      "done:build/review@3 done+f:build/fix@3 done:failed resume:build/review@4 done+f:build/fix@4 done:failed "
      "undo:build/fix@4 done:failed resume:build/review@5 done+approve:completed")),
    ("a success that no transition applies to fails the run, and a resume does the step again", STRICT,
     "next:build/review@1 done:failed resume:build/review@2 skip:build/b@1 done:completed"),
    ("a failed step is tried again, but none that ended well", STRICT,
     "next:build/review@1 failed:build/review@2 failed:failed resume:build/review@3 partial:failed"),
    ("each coming has its own tries", RETRIED,
     ("next:build/a@1 failed:build/a@2 failed:build/mend@1 done:build/a@3 failed:build/a@4 "
      "done:build/b@1 done:completed")),
    ("a step that was passed well in a loop has its tries again", RETRIED,
     ("next:build/a@1 done:build/b@1 failed:build/b@2 done:build/a@2 failed:build/a@3 done:build/b@3 "
      "failed:build/b@4 failed:failed resume:build/b@5 done:completed")),
    ("the retry target of the step, then of the workflow", TARGET,
     ("next:build/a@1 done:build/b@1 failed:build/b@2 failed:failed resume:build/b@3 done:build/c@1 "
      "failed:build/a@2 done:failed")),
    ("what result_handling says of a failure leads on in order", CAUGHT,
     ("next:build/a@1 failed:build/b@1 failed:awaiting_feedback#result:002-build.b@1 approve:build/c@1 "
      "partial:failed resume:build/c@2 done:completed")),
    ("a transition passes steps over", CAUGHT, "next:build/a@1 done:build/c@1 done:completed"),
    ("an approval before a phase is asked again when the run went back before it", PHASES,
     ("next:frame/a@1 done:awaiting_feedback#phase:build approve:build/b@1 done:build/c@1 done+back:frame/a@2 "
      "done:awaiting_feedback#phase:build approve:build/b@2 done:build/c@2 done:awaiting_feedback#phase:release "
      "approve:release/d@1 done+redo:build/b@3 done:build/c@3 done:awaiting_feedback#phase:release "
      "approve:release/d@2 done:completed")),
    ("an undo of the way back takes that back too", PHASES,
     ("next:frame/a@1 done:awaiting_feedback#phase:build approve:build/b@1 done:build/c@1 done+back:frame/a@2 "
      "undo:build/c@1 done:awaiting_feedback#phase:release undo:build/c@1 done+back:frame/a@2 "
      "done:awaiting_feedback#phase:build undo:frame/a@2 undo:build/c@1 undo:build/b@1 undo:frame/a@1 "
      "done:awaiting_feedback#phase:build")),
    ("assist asks once for each phase that is entered, again after a way back", ASSIST,
     ("next:a/x@1 done:awaiting_feedback#phase:b approve:b/y@1 done+back:awaiting_feedback#phase:a approve:a/x@2 "
      "done:awaiting_feedback#phase:b approve:b/y@2 done:completed")),
    ("a step's own approval likewise", GATE,
     ("next:a/x@1 done:awaiting_feedback#step:b/y approve:b/y@1 done+back:a/x@2 done:awaiting_feedback#step:b/y "
      "approve:b/y@2 done:completed undo:b/y@2 done:completed")),
    ("what the engine does is done again on the way", ENGINE,
     "next:a/x@1 done+again:a/x@2 undo:a/x@1 done+again:a/x@2 done:completed reopen:a/x@3 done:completed"),
    ("a prompt asks before the way that was chosen is gone", ASKED,
     ("next:a/x@1 done:awaiting_feedback#result:001-a.x@1 next:awaiting_feedback#result:001-a.x@1 approve:a/z@1 "
      "done:completed")),
    ("a step may lead to itself: that is no retry", SELF,
     "next:a/x@1 failed:a/x@2 done+again:a/x@3 failed:a/x@4 failed:failed resume:a/x@5 done:completed"),
    ("the bound of the workflow holds for steps that are come to in order", ORDER,
     "next:a/x@1 done:a/y@1 done:a/x@2 done:a/y@2 done:failed resume:a/x@3 done:failed resume:a/y@3 done:failed"),
    ("a reopened run visits anew what was worked on last", SELF,
     "next:a/x@1 done:completed reopen:a/x@2 done:completed"),
    ("a pause keeps the way", REVIEW,
     "next:build/make@1 paused:paused#build/make@1 done:paused resume:build/review@1"),
    ("closing keeps the way", REVIEW, "next:build/make@1 closing:build/make@1#closing done:build/review@1"),
]  # fmt: skip


@each(("of", "walked"), [pytest.param(of, walked, id=name) for name, of, walked in WALKS])
def test_walks(of: dict[str, Any], walked: str) -> None:
    """Each verb leads to where the table says; the state is one of its schema's throughout."""
    walk = Walk(of)
    for one in walked.split():
        said, _, wanted = one.partition(":")
        verb, _, label = said.partition("+")
        more = {"directive": {"preferred_next_label": label}} if label else {}
        assert walk.do(verb, **more) == wanted.replace("#", " "), one
        assert list(VALID.iter_errors(walk.state)) == [], one


def nexts(walk: Walk) -> list[dict[str, Any] | None]:
    return [entry.get("next") for entry in walk.state["steps"]]


def walked(of: dict[str, Any], *verbs: str) -> Walk:
    """Walk so far; `done+LABEL` says a label."""
    walk = Walk(of)
    for verb in ("next", *verbs):
        word, _, label = verb.partition("+")
        walk.do(word, **({"directive": {"preferred_next_label": label}} if label else {}))
    return walk


def test_each_visit_keeps_its_way_on_also_in_order_and_none_in_a_run_of_fabers() -> None:
    walk = walked(REVIEW, "done", "done+f", "done", "done+approve")
    assert nexts(walk) == [
        {"step_id": "build/review", "reason": "order"},
        {"step_id": "build/fix", "reason": "label", "by": "label", "transition": 0, "label": "[F] Fix"},
        {"step_id": "build/review", "reason": "unconditional", "by": "unconditional", "transition": 0},
        {"step_id": None, "reason": "end", "by": "label", "transition": 1, "label": "Approve"},
    ]
    assert nexts(walked(REVIEW)) == [None]
    line = plan({"a": [step("a/x", max_retries=1), step("a/y")]})
    assert nexts(walked(line, "failed", "done", "done")) == [
        {"step_id": "a/x", "reason": "retry"},
        {"step_id": "a/y", "reason": "order"},
        {"step_id": None, "reason": "end", "by": "order"},
    ]
    assert nexts(walked(line, "failed", "failed"))[-1] == {"step_id": None, "reason": "none"}
    line = {**plan({"a": [step("a/x", max_retries=1), step("a/y")]}), "faber": {}}
    for entry in walked(line, "failed", "done").state["steps"]:
        assert not {"next", "error"} & set(entry)


def test_what_the_run_failed_of_is_said_and_a_routed_step_that_says_no_bound_has_one() -> None:
    walk = walked(ORDER, "done", "done", "done", "done")
    assert walk.state["errors"][-1]["message"] == "a/x has run 2 times, its max_visits"
    assert nexts(walk)[-1] == {
        "step_id": None, "reason": "max_visits", "by": "unconditional", "transition": 0, "to": "a/x",
    }  # fmt: skip
    walk = walked(STRICT, "done")
    assert walk.state["errors"][-1]["message"] == "no transition of build/review applies, because it ended succeeded"
    walk = walked(STRICT, "partial+ship it")
    assert walk.state["errors"][-1]["message"].endswith("ended partially_succeeded with the label 'ship it'")
    loop = plan({"a": [step("a/x", transitions=[{"to": "a/x", "label": "again"}, *to("end", weight=1)])]})
    walk = walked(loop, *["done+again"] * 20)
    assert walk.state["status"] == "failed"
    assert walk.state["errors"][-1]["message"] == "a/x has run 20 times, its max_visits"
    assert (
        frozen_plan.most_visits(plan({"a": [step("a/x")]}), frozen_plan.places(plan({"a": [step("a/x")]}))[0]) > 10**6
    )


def test_the_tries_are_counted_since_the_step_was_come_to_and_what_may_not_be_tried_again_is_not() -> None:
    walk = walked(RETRIED, "failed", "failed", "done", "failed", "done")
    assert [(one["step_id"], one.get("attempt")) for one in walk.state["steps"]] == [
        ("build/a", None), ("build/a", 2), ("build/mend", None), ("build/a", None), ("build/a", 2),
        ("build/b", None),
    ]  # fmt: skip
    walk = walked(RETRIED)
    error = {"type": "TERMINAL", "message": "no", "retryable": False, "details": {}}
    assert walk.do("failed", error=error) == "build/mend@1"


def test_a_retry_of_what_passes_waits_longer_each_time() -> None:
    of = plan({"a": [step("a/x", max_retries=3)]})
    walk = Walk(of)
    walk.do("next")
    walk.do("failed", note="rate limit")
    walk.do("failed", note="rate limit")
    walk.do("failed", note="a bug")
    ends = [entry["completed_at"] for entry in walk.state["steps"][:2]]
    seconds = [int(end[-3:-1]) for end in ends]
    found = [way["not_before"] for way in nexts(walk)[:2] if way]
    assert [int(one[-3:-1]) - second for one, second in zip(found, seconds, strict=True)] == [5, 10]
    assert nexts(walk)[2] == {"step_id": "a/x", "reason": "retry"}
    assert [entry["error"]["type"] for entry in walk.state["steps"][:3]] == ["TRANSIENT", "TRANSIENT", "FAILURE"]


def test_the_fidelity_of_a_transition_goes_with_the_retries() -> None:
    of = plan({"a": [step("a/x", transitions=to("a/y", fidelity="full")), step("a/y", max_retries=1), step("a/z")]})
    walk = walked(of, "done")
    assert route.way_to(walk.state, "a/y")["fidelity"] == "full"
    walk.do("failed")
    assert (route.way_to(walk.state, "a/y")["fidelity"], route.way_to(walk.state, "a/z")) == ("full", {})
    walk.do("done")
    assert "fidelity" not in route.way_to(walk.state, "a/z")


def statuses(walk: Walk) -> dict[str, str]:
    return {name: phase["status"] for name, phase in walk.state["phases"].items()}


def test_phases_are_marked_and_approvals_lapse_as_the_run_goes() -> None:
    """Gone back before: pending again; passed without a step: skipped; left: completed. Lapsed approvals are kept."""
    there = ("done", "approve", "done")
    walk = walked(PHASES, *there)
    assert list(statuses(walk).values()) == ["completed", "skipped", "in_progress", "pending", "pending"]
    forward = walked(PHASES, *there, "done", "approve")
    assert list(statuses(forward).values()) == ["completed", "skipped", "completed", "skipped", "in_progress"]
    back = walked(PHASES, *there, "done+back")
    assert list(statuses(back).values()) == ["in_progress", "pending", "pending", "pending", "pending"]
    assert "started_at" not in back.state["phases"]["build"]
    back.do("undo")
    assert list(statuses(back).values()) == ["completed", "skipped", "in_progress", "pending", "pending"]
    forward.do("done")
    assert list(statuses(forward).values()) == ["completed", "skipped", "completed", "skipped", "completed"]
    walk = walked(PHASES, "done", "approve", "done", "done+back")
    assert [(item["id"], item.get("lapsed")) for item in walk.state["approvals"]] == [("phase:build", 3)]
    walk.do("undo")
    assert [(item["id"], item.get("lapsed")) for item in walk.state["approvals"]] == [("phase:build", None)]


def test_a_visit_that_says_no_way_goes_on_at_the_first_step_that_is_not_done() -> None:
    walk = walked(REVIEW, "done")
    state = copy.deepcopy(walk.state)
    state["steps"] = state["steps"][:1]
    del state["steps"][0]["next"]
    place = route.onward(state, REVIEW)
    assert place is not None
    assert place.key == "build/review"
    state["steps"][0]["next"] = {"step_id": "build/gone", "reason": "order"}
    place = route.onward(state, REVIEW)
    assert place is not None
    assert place.key == "build/review"


HOW = [
    ({"step_id": "a/x", "reason": "order"}, ""),
    ({"step_id": None, "reason": "end", "by": "order"}, ""),
    ({"step_id": None, "reason": "none"}, ""),
    ({"step_id": "a/x", "reason": "label", "by": "label", "label": "[F] Fix"}, "because the choice is “[F] Fix”"),
    ({"step_id": None, "reason": "end", "by": "label", "label": "Go"}, "because the choice is “Go”"),
    ({"step_id": "a/x", "reason": "condition"}, "because its condition is true"),
    ({"step_id": "a/x", "reason": "retry"}, "again"),
    ({"step_id": "a/x", "reason": "retry", "not_before": "T"}, "again, not before T"),
    ({"step_id": "a/x", "reason": "retry_target"}, "because the step failed"),
]


@each(("way", "wanted"), HOW)
def test_a_way_in_words(way: dict[str, Any], wanted: str) -> None:
    """Nothing is said of the plain order."""
    assert routing.how(way) == wanted


def test_a_way_says_its_short_condition_and_its_time_as_the_reader_knows_it() -> None:
    way, ways = {"step_id": "a/x", "reason": "condition", "transition": 0}, [{"condition": "outcome == 'failed'"}]
    assert routing.how(way, ways) == "because outcome == 'failed'"
    unsaid: list[list[dict[str, Any]]] = [[], [{"condition": "x" * 61}], [{}]]
    for others in unsaid:
        assert routing.how(way, others) == "because its condition is true"
    waits = {"step_id": "a/x", "reason": "retry", "not_before": "T"}
    assert routing.how(waits, at=str.lower) == "again, not before t"


# ---- Any plan, any outcomes.

KEYS = [f"{phase}/{name}" for phase in ("p", "q", "r") for name in "ab"]
OUTCOMES = ["done", "failed", "partial", "skip"]
CONDITIONS = [
    "outcome == 'failed'", "context.n > 3", "state.steps.length < 9", "preferred_label == 'go'", "context.x.y",
]  # fmt: skip
one_transition = st.fixed_dictionaries({"to": st.sampled_from([*KEYS, "end"])}, optional={
    "label": st.sampled_from(["go", "[S] Stop"]), "weight": st.integers(-1, 2), "on_failure": st.booleans(),
    "fidelity": st.just("full"),
})  # fmt: skip
conditioned = st.builds(
    lambda made, source: {**made, "condition": source, "condition_code": compile_condition(source)},
    one_transition,
    st.sampled_from(CONDITIONS),
)
a_step = st.fixed_dictionaries({"max_retries": st.integers(0, 2)}, optional={
    "transitions": st.lists(one_transition | conditioned, max_size=3), "retry_target": st.sampled_from(KEYS),
    "max_visits": st.integers(1, 4), "on_failure": st.sampled_from(["stop", "prompt", "continue"]),
    "on_warning": st.sampled_from(["stop", "prompt", "continue"]),
    "on_success": st.sampled_from(["continue", "prompt"]), "require_approval": st.booleans(),
    "engine": st.just("prime-context"),
})  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a plan of three phases with two steps each; what a check refuses is not drawn."""
    phases: dict[str, list[dict[str, Any]]] = {}
    for key in KEYS:
        phases.setdefault(key[0], []).append(step(key, **draw(a_step)))
    of = {**plan(phases, ask=tuple(draw(st.sets(st.sampled_from("qr"))))), "max_visits": draw(st.integers(1, 5))}
    if draw(st.booleans()):
        of["retry_target"] = draw(st.sampled_from(KEYS))
    return of


said = st.lists(
    st.tuples(
        st.sampled_from(OUTCOMES), st.sampled_from([None, "go", "s", "x"]), st.sampled_from([(), ("a",), ("end",)])
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=250)
@given(plans(), said)
def test_every_plan_that_a_check_accepts_ends_within_its_bounds(of: dict[str, Any], script: list[Any]) -> None:
    """Whatever its steps come to: it completes or fails, and no step was visited more often than it may be."""
    if errors(graph_checks.problems(of)):
        return
    walk = Walk(of)
    walk.do("next")
    bound = (
        sum(frozen_plan.most_visits(of, place) for place in frozen_plan.places(of))
        if frozen_plan.is_routed(of)
        else 100
    )
    for turn in range(2 * bound + 2):
        if walk.state["status"] in ("completed", "failed"):
            break
        if walk.state["status"] == "awaiting_feedback":
            walk.do("approve")
            continue
        outcome, label, suggested = script[turn % len(script)]
        walk.state["context"] = {"n": turn}
        walk.do(outcome, directive={"preferred_next_label": label, "suggested_next_ids": list(suggested)})
    assert walk.state["status"] in ("completed", "failed")
    assert list(VALID.iter_errors(walk.state)) == []
    for key, count in visits.counts(walk.state).items():
        place = frozen_plan.place_of(of, key)
        assert place is not None
        assert count <= frozen_plan.most_visits(of, place)
    for entry, following in zip(walk.state["steps"], walk.state["steps"][1:], strict=False):
        assert entry["next"]["step_id"] == following["step_id"]


@pytest.mark.slow
@settings(max_examples=150)
@given(plans(), said, st.integers(0, 6))
def test_undo_takes_back_any_way(of: dict[str, Any], script: list[Any], length: int) -> None:
    walk = Walk(of)
    walk.do("next")
    for turn in range(length):
        if walk.state["status"] != "in_progress" or visits.open_visit(walk.state) is None:
            return
        walk.do(script[turn % len(script)][0], directive={"preferred_next_label": script[turn % len(script)][1]})
    before = copy.deepcopy(walk.state)
    entry = visits.open_visit(before)
    if entry is None:
        return
    outcome, label, suggested = script[-1]
    walk.do(outcome, directive={"preferred_next_label": label, "suggested_next_ids": list(suggested)}, note="x")
    walk.do("undo")
    assert visits.open_visit(walk.state) == entry
    for key in ("errors", "approvals", "steps", "status", "current_phase", "current_step"):
        assert walk.state[key] == before[key], key
    assert statuses(walk) == {name: phase["status"] for name, phase in before["phases"].items()}
