"""A run that branches and loops, driven as commands and hooks do: its files, its log, its preambles (D45, D46)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from loomctl.flow import advance, decide, preambles, resume, route
from loomctl.flow.commands import command_steps
from loomctl.runs import stages
from loomctl.runs.store.blobs import Blobs
from loomctl.simulate import play
from tests.helpers.scenes import Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import begin, done, events, go_on, read, status_of, stop, take_back

FIX: Json = {"to": "fix", "label": "[F] Fix", "fidelity": "summary:low"}
APPROVE: Json = {"to": "end", "label": "[A] Approve", "weight": 1}
MEND: Json = {"id": "fix", "transitions": [{"to": "review"}]}
LOOP: list[Json] = [{"id": "make"}, {"id": "review", "transitions": [FIX, APPROVE]}, MEND]
ASK, REVIEW = "001-build.ask@1", "002-build.review@1"


def routed(scene: Scene, *transitions: Json, **more: Any) -> Scene:
    asks = {"id": "ask", "transitions": list(transitions), **more}
    return begin(scene, asks, {"id": "no", "transitions": [{"to": "end"}]}, "yes")


def says(label: str, **context: Any) -> str:
    return json.dumps({"preferred_next_label": label, "context_updates": context})


def test_a_label_leads_back_and_another_one_out(scene: Scene) -> None:
    """Each visit has a stage of its own; the way is in the state, in status.json and in the log, the same in all."""
    begin(scene, *LOOP)
    for label in ("[F] Fix", "[A] Approve"):
        assert label not in read(scene, "001-build.make@1", "prompt.md")
    done(scene)
    told = read(scene, REVIEW, "prompt.md")
    assert "result's JSON to one of “[F] Fix”, “[A] Approve”" in told
    assert "`preferred_next_label`" in told
    driven = done(scene, says("fix"))
    assert (driven.move.step, driven.line) == ("build/fix", "Next: build/fix, because the choice is “[F] Fix”")
    done(scene)
    assert done(scene, says("A")).move.kind == "completed"
    names = [one["stage"] for one in scene.state["steps"]]
    assert names == ["001-build.make@1", REVIEW, "003-build.fix@1", "004-build.review@2"]
    ways = [one["next"] for one in scene.state["steps"]]
    way = {"step_id": "build/fix", "reason": "label", "by": "label", "transition": 0}
    assert ways[1] == {**way, "label": "[F] Fix", "fidelity": "summary:low"}
    assert ways[3]["reason"] == "end"
    assert [status_of(scene, name)["next"] for name in names] == ways
    assert [one["next"] for one in events(scene, "stage.completed")] == ways
    chosen = events(scene, "transition.chosen")
    assert [tuple(one[key] for key in ("stage", "step_id", "reason", "by")) for one in chosen] == [
        (REVIEW, "build/fix", "label", "label"),
        ("003-build.fix@1", "build/review", "unconditional", "unconditional"),
        ("004-build.review@2", None, "end", "label"),
    ]
    assert chosen[0]["weighed"] == [
        {"to": "build/fix", "label": "[F] Fix", "why": "chosen: label"},
        {"to": "end", "label": "[A] Approve", "why": "the given label goes first"},
    ]


def test_the_fidelity_of_the_transition_opens_the_step(scene: Scene) -> None:
    """Before the step's own and the workflow's; another way to the same step has another (D46)."""
    begin(scene, *LOOP[:2], {**MEND, "fidelity": "full"}, default_fidelity="summary:high")
    space = scene.space()
    for answer, expected in (
        ("Made.", ("summary:high", "workflow")),
        (says("fix"), ("summary:low", "transition")),
        ("Mended.", ("summary:high", "workflow")),
    ):
        done(scene, answer)
        made = preambles.of(space, space.store.read(scene.run_dir.name))
        assert (made.fidelity, made.source) == expected


CONDITIONS: list[tuple[str, str, str]] = [
    # a condition, the answer, where it leads
    ("context.coverage >= 80", '{"context_updates": {"coverage": 81}}', "yes"),
    ("context.coverage >= 80", '{"context_updates": {"coverage": 79}}', "no"),
    ("context.tests.passed", '{"context_updates": {"tests.passed": true}}', "yes"),
    ("outcome == 'partially_succeeded'", '{"outcome": "partially_succeeded"}', "yes"),
    ("preferred_label == 'go'", '{"preferred_next_label": "go"}', "yes"),
    ("preferred_label == null", "{}", "yes"),
    ("state.steps[0].status == 'succeeded'", "{}", "yes"),
    ("context['response.build/ask'].includes('well')", "All is well.", "yes"),
    ("context['response.build/ask'].includes('well')", "All is lost.", "no"),
    ("context.words.map(one => one.length).some(n => n > 3)", '{"context_updates": {"words": ["a", "long"]}}', "yes"),
    ("context.last_response.length > 3 && /done/.test(context.last_response)", "It is done.", "yes"),
]


@each(("condition", "answer", "wanted"), CONDITIONS)
def test_a_condition_decides(scene: Scene, condition: str, answer: str, wanted: str) -> None:
    """Over the context as it is after the step, simple or not; with the values, not with their references."""
    routed(scene, {"to": "yes", "condition": condition}, {"to": "no"})
    assert done(scene, answer).move.step == f"build/{wanted}"
    (chosen,) = events(scene, "transition.chosen")
    weighed = chosen["weighed"][0]
    assert (weighed["truth"], weighed["condition"]) == (wanted == "yes", condition)


PRIME: Json = {"id": "prime", "prompt": "/loom:prime-context"}
BUILT_IN = [
    *("context._pipeline_name == 'tiny'", "context['_pipeline_name'].startsWith('ti')"),
    *("state.workflow_id == context._pipeline_name", "context._current_node == 'build/ask'"),
    *("context._previous_node == 'build/prime'", "context._previous_node == null", "context._retry_count == 1"),
    *("context._retry_count > 0 || outcome == 'failed'", "context._run_id == state.run_id"),
    "context._run_id.length > 0 && [1, 2].includes(2)",
    *("context._start_time && context._node_start_time >= context._start_time", "'_retry_count' in context"),
    *("context._mine == 1", "context.last_stage == 'build/ask'", "state.context.last_stage == 'build/ask'"),
    "state.context._run_id",
]


@each("failures", [0, 1])
@each("primes", [False, True])
def test_a_simulation_weighs_ways_as_the_run_does(scene: Scene, failures: int, primes: bool) -> None:  # D44
    ways = [{"to": "yes", "condition": one, "on_failure": True} for one in BUILT_IN]
    steps = [{"id": "ask", "prompt": "Ask.", "max_retries": 1, "transitions": ways}, {"id": "yes", "prompt": "Go on."}]
    scene.workflow(phases={"build": {"pre_steps": [PRIME] * primes, "steps": steps}})
    scene.begin()
    said: list[Json] = [{"outcome": "failed"}] * failures + [{"outcome": "succeeded"}]
    for one in said:
        go_on(scene)
        done(scene, json.dumps(one))
    plan = scene.space().store.read(scene.run_dir.name).plan
    script, _ = play.read({"build/ask": said}, plan)
    played = play.play(plan, script, judge=play.without_disk(None))
    weighed = [one["weighed"] for one in played.stages if one["weighed"]]
    assert [one["weighed"] for one in events(scene, "transition.chosen") if one["step_id"]] == weighed
    assert {one["truth"] for one in weighed[-1]} == {True, False}


@each("condition", ["[1, 2].includes(2)", "[1, 2].includes(3)", "state.goal.startsWith('add')"])
def test_the_way_on_from_a_priming_is_judged_as_any_other(scene: Scene, condition: str) -> None:
    ways = [{"to": "yes", "condition": condition}, {"to": "no"}]
    steps = [{"id": one, "prompt": "Go on."} for one in ("no", "yes")]
    scene.workflow(phases={"build": {"pre_steps": [{**PRIME, "transitions": ways}], "steps": steps}})
    scene.begin()
    go_on(scene)
    plan = scene.space().store.read(scene.run_dir.name).plan
    script, _ = play.read(None, plan)
    played = play.play(plan, script, judge=play.without_disk(None), goal=scene.state["goal"])
    assert scene.state["current_step"] == played.stages[1]["step_id"]


def test_a_condition_reads_a_blob_that_it_names(scene: Scene) -> None:
    """A large value stands in the state by its reference, and is a value to a condition."""
    routed(scene, {"to": "yes", "condition": "context.report.length == 200000"}, {"to": "no"})
    driven = done(scene, json.dumps({"context_updates": {"report": "x" * 200_000}}))
    assert str(scene.state["context"]["report"]).startswith("blob://")
    assert driven.move.step == "build/yes"


def test_a_blob_that_is_gone_is_warned_of(scene: Scene) -> None:
    ways = [{"to": "end", "condition": "context.report.size > 3"}, {"to": "first"}]
    begin(scene, "first", {"id": "ask", "transitions": ways})
    done(scene, json.dumps({"context_updates": {"report": {"size": 4, "text": "x" * 200_000}}}))
    os.remove(Blobs(str(scene.store)).path(scene.state["context"]["report"]))
    shutil.rmtree(scene.run_dir / "blobs", ignore_errors=True)  # the copy that the preamble was made with
    assert done(scene).move.step == "build/first"
    (warning,) = status_of(scene, "002-build.ask@1")["warnings"]
    assert warning["code"] == "CONDITION"
    assert "cannot read the context key report" in warning["message"]


THROWS = ["context.a.b.c == 1", "context.nothing()", "undefinedName > 1"]


@each("condition", THROWS)
def test_a_condition_that_throws_is_false_and_named(scene: Scene, condition: str) -> None:
    routed(scene, {"to": "yes", "condition": condition}, {"to": "no"})
    assert done(scene).move.step == "build/no"
    (warning,) = status_of(scene, ASK)["warnings"]
    assert condition in warning["message"]
    assert warning["message"].count("counts as false")


def test_a_stop_decides_with_the_standard_library_alone(scene: Scene) -> None:
    """A simple condition leads on from a hook; one that takes an engine there is none of is false, and named."""
    words = {"to": "yes", "condition": "context.words.some(one => one)", "weight": 5}
    routed(scene, words, {"to": "yes", "condition": "context.coverage > 80"}, {"to": "no"})
    answer = '{"outcome": "succeeded", "context_updates": {"coverage": 81, "words": [1]}}'
    told = scene.hook("stop", last_assistant_message=answer, prompt_id="p1", environ={"LOOM_ENV_PYTHON": ""})
    assert told.code == 0, told.stderr
    assert [one["step_id"] for one in scene.state["steps"]] == ["build/ask", "build/yes"]
    assert scene.state["steps"][0]["next"]["transition"] == 1
    (warning,) = status_of(scene, ASK)["warnings"]
    assert "context.words.some" in warning["message"]


def test_a_stop_asks_the_made_environment_for_the_rest(scene: Scene) -> None:
    routed(scene, {"to": "yes", "condition": "context.words.some(one => one)"}, {"to": "no"})
    answer = '{"outcome": "succeeded", "context_updates": {"words": [1]}}'
    environ = {"LOOM_ENV_PYTHON": sys.executable}
    scene.hook("stop", last_assistant_message=answer, prompt_id="p1", environ=environ)
    assert [one["step_id"] for one in scene.state["steps"]] == ["build/ask", "build/yes"]


def test_a_success_that_nothing_applies_to_fails_the_run_and_says_so(scene: Scene) -> None:
    routed(scene, {"to": "yes", "condition": "context.coverage > 80"})
    driven = done(scene, "Well.")
    assert scene.state["status"] == "failed"
    assert driven.line.startswith("The run failed: no transition of build/ask applies, because it ended succeeded.")
    assert (
        events(scene, "run.failed")[0]["failure_reason"]
        == "no transition of build/ask applies, because it ended succeeded"
    )
    assert resume.resume(scene.space()).move.step == "build/ask"
    assert done(scene, '{"context_updates": {"coverage": 81}}').move.step == "build/yes"


def test_a_step_visited_too_often_fails_the_run_and_a_resume_visits_it_once_more(scene: Scene) -> None:
    begin(scene, "a", {"id": "b", "transitions": [{"to": "a"}, {"to": "end", "label": "out"}]}, max_visits=1)
    done(scene)
    said = "The run failed: build/a has run 1 time, its max_visits. To try once more: loomctl resume "
    assert done(scene).line == said + scene.handle
    (chosen,) = [one for one in events(scene, "transition.chosen") if one["reason"] == "max_visits"]
    assert (chosen["step_id"], chosen["to"], chosen["by"]) == (None, "build/a", "unconditional")
    assert resume.resume(scene.space()).move.step == "build/a"
    assert scene.state["status"] == "in_progress"


def test_a_failure_goes_to_the_retry_target(scene: Scene) -> None:
    begin(scene, *LOOP, retry_target="build/make")
    done(scene)
    driven = done(scene, outcome="failed", note="it is broken")
    assert (driven.move.step, driven.line) == ("build/make", "Next: build/make, because the step failed")
    (chosen,) = events(scene, "transition.chosen")
    assert (chosen["reason"], [one["why"] for one in chosen["weighed"]]) == (
        "retry_target",
        ["the step failed, and this is not for failures"] * 2,
    )


def test_a_session_is_told_once_by_which_way_a_step_came(scene: Scene) -> None:
    """After a stop that went on, `next` is the first to show the step: it says the way, and only then."""
    begin(scene, *LOOP, autonomy="autonomous")
    done(scene)
    assert "The next step is build/fix" in stop(scene, says("fix"), blocks_left=3).block
    shown = [go_on(scene).line for _ in range(2)]
    assert shown == ["Next: build/fix, because the choice is “[F] Fix”", "Next: build/fix"]
    done(scene)
    assert go_on(scene).line == "Next: build/review"


def test_the_way_that_a_command_opened_is_told_with_what_it_came_to(scene: Scene) -> None:
    """Whoever called `next`: a session that is bound, and a terminal, which is noted nowhere."""
    steps: list[Json] = [{"id": "make", "prompt": "x"}, {"id": "check", "run": "true"}, {"id": "yes", "prompt": "x"}]
    steps[1]["transitions"] = [{"to": "yes", "condition": "outcome == 'succeeded'"}, {"to": "make"}]
    scene.workflow(phases={"build": {"steps": steps}})
    scene.begin()
    space = scene.space(None)
    run = space.store.read(scene.run_dir.name)
    command_steps.trust(space, run, command_steps.listed(space, run))
    done(scene)
    scene.let_go()
    driven = advance.next_step(space, run.run_id)
    assert [one.status for one in driven.ran] == ["succeeded"]
    assert driven.line == "Next: build/yes, because outcome == 'succeeded'"
    assert advance.next_step(space, run.run_id).line == "Next: build/yes"


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_a_failed_visit_says_what_kind_of_failure_it_is(scene: Scene) -> None:
    """In the state and in its status; a retry of what passes waits, and `next` says until when, in local time."""
    begin(scene, {"id": "ask", "max_retries": 2})
    driven = done(scene, outcome="failed", note="HTTP 503")
    error = {"type": "TRANSIENT", "message": "HTTP 503", "retryable": True, "details": {}}
    first, second = scene.state["steps"]
    assert first["error"] == error == status_of(scene, ASK)["error"]
    assert second["attempt"] == 2
    waits = first["next"]["not_before"]
    here = f"{(int(waits[11:13]) + 9) % 24:02}{waits[13:19]}"
    assert driven.line == f"Next: build/ask, again, not before {here}"
    assert go_on(scene).line.endswith(f"not before {here}")
    done(scene)
    assert status_of(scene, "002-build.ask@2")["attempt"] == 2
    assert status_of(scene, "002-build.ask@2")["error"] is None


def test_an_answer_that_never_fits_is_not_tried_again(scene: Scene) -> None:  # D36
    asks = {"id": "ask", "max_retries": 3, "output_schema": "routing", "output_retries": 0}
    begin(scene, {**asks, "transitions": [{"to": "end"}, {"to": "mend", "on_failure": True}]}, "mend")
    assert done(scene, "no JSON").move.step == "build/mend"
    assert scene.state["steps"][0]["error"]["type"] == "TERMINAL"


def test_an_undo_takes_the_way_back(scene: Scene) -> None:
    begin(scene, *LOOP)
    done(scene)
    done(scene, says("fix"))
    take_back(scene)
    assert [one["step_id"] for one in scene.state["steps"]] == ["build/make", "build/review"]
    assert "next" not in scene.state["steps"][1]
    assert done(scene, says("approve")).move.kind == "completed"


def test_a_way_back_sets_phases_back_and_says_so(scene: Scene) -> None:
    """In the log, and in the sessions, which have not completed them any more; what was approved is asked again."""
    ways = [{"to": "plan/think", "label": "rethink"}, {"to": "end", "weight": 1}]
    build = {"require_approval": True, "steps": [{"id": "make", "prompt": "Make.", "transitions": ways}]}
    scene.workflow(phases={"plan": {"steps": [{"id": "think", "prompt": "Think."}]}, "build": build})
    scene.begin()
    done(scene)
    decide.approve(scene.space(), scene.run_dir.name)
    assert scene.state["sessions"]["session_history"][0]["phases_completed"] == ["plan"]
    done(scene, says("rethink"))
    assert [scene.state["phases"][name]["status"] for name in ("plan", "build")] == ["in_progress", "pending"]
    assert [one["phase"] for one in events(scene, "phase.set_back")] == ["build"]
    assert [one["id"] for one in events(scene, "approval.lapsed")] == ["phase:build"]
    assert done(scene).move.kind == "approval"
    decide.approve(scene.space(), scene.run_dir.name)
    assert done(scene).move.kind == "completed"


def test_a_preamble_of_what_comes_next_is_that_of_the_way(scene: Scene) -> None:
    begin(scene, {"id": "a", "transitions": [{"to": "c"}]}, "b", {"id": "c", "require_approval": True}, skip_steps=[])
    done(scene)
    space = scene.space()
    assert preambles.of(space, space.store.read(scene.run_dir.name)).step_id == "build/c"


def test_killed_after_any_stage_the_way_is_the_same(scene: Scene) -> None:
    """What is on disk after each end is all that it takes: another process goes on where the visit says."""
    begin(scene, *LOOP)
    answers = ["Made.", says("fix"), "Mended.", says("fix"), "Mended.", says("approve")]
    for answer in answers:
        go_on(scene)
        go_on(scene)  # asked again by others meanwhile
        done(scene, answer)
    run = scene.space().store.read(scene.run_dir.name)
    names = [one["step_id"].partition("/")[2] for one in stages.entries(run)]
    assert names == ["make", "review", "fix", "review", "fix", "review"]
    assert run.state["status"] == "completed"
    assert route.onward(run.state, run.plan) is None


def test_a_stop_in_a_driven_turn_hands_the_chosen_step_on(scene: Scene) -> None:
    begin(scene, *LOOP, autonomy="autonomous")
    done(scene)
    answer = '{"outcome": "succeeded", "preferred_next_label": "fix"}'
    assert "The next step is build/fix" in stop(scene, answer, on_hook_path=True, blocks_left=3).block
