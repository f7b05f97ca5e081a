"""`loomctl show --why`: why a step came next, and why an artifact is loaded or is not."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene, artifact

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

STEPS: list[dict[str, Any]] = [
    {"id": "make", "prompt": "Make it."},
    {
        "id": "review",
        "prompt": "Review it.",
        "transitions": [
            {"to": "end", "condition": "context.score >= 9"},
            {"to": "fix", "label": "[F] Fix"},
            {"to": "end", "label": "Approve"},
        ],
    },
    {"id": "fix", "prompt": "Fix it.", "transitions": [{"to": "review"}], "retry_target": "make"},
]


@pytest.fixture
def looped(scene: Scene, cli: Cli) -> Scene:
    scene.workflow(phases={"build": {"steps": STEPS}})
    scene.begin()
    for said in ({}, {"preferred_next_label": "fix", "context_updates": {"score": 3}}, {}):
        assert cli("done", given=f"Done.\n{json.dumps({'outcome': 'succeeded', **said})}\n").code == 0
    return scene


@pytest.mark.usefixtures("looped")
def test_each_stage_and_transition_is_told_and_after_an_undo_the_newest_choice(cli: Cli) -> None:
    for named, first in [
        ("make", "The run began with build/make@1, the first step of its plan."),
        ("build/review@1", "build/review@1 came after build/make@1, which ended succeeded, the next step in order"),
        ("003", "build/fix@1 came after build/review@1, which ended succeeded, because the choice is “[F] Fix”"),
        ("review", "build/review@2 came after build/fix@1, which ended succeeded, by its transition"),
    ]:
        assert cli("show", "--why", named).stdout.splitlines()[0] == first
        for words in ([named, "shop"], ["shop", named]):  # as in `show RUN STAGE`, too
            assert cli("show", "--why", *words).stdout.splitlines()[0] == first
    assert cli("show", "--why", "fix").stdout.splitlines()[2:] == [
        "LEADS TO   LABEL    CONDITION           IS     WHY",
        "end                 context.score >= 9  false  its condition is false",
        "build/fix  [F] Fix                             chosen: label",
        "end        Approve                             the given label goes first",
    ]
    told = cli("show", "--why", "fix", "--json").json
    assert (told["step_id"], told["visit"], told["after"]["stage"]) == ("build/fix", 1, "002-build.review@1")
    assert (told["way"]["reason"], told["way"]["transition"], len(told["weighed"])) == ("label", 1, 3)
    for _ in range(2):
        assert cli("undo").code == 0
    assert cli("done", given='{"suggested_next_ids": ["fix"], "preferred_next_label": "f"}').code == 0
    assert "because the choice is" in cli("show", "--why", "fix").stdout


@pytest.mark.usefixtures("looped")
def test_a_retry_target(cli: Cli) -> None:
    cli("done", given='{"preferred_next_label": "fix"}')
    cli("done", "--outcome", "failed", given="It broke.")
    assert (
        cli("show", "--why", "make")
        .stdout.splitlines()[0]
        .endswith("after build/fix@2, which ended failed, because the step failed")
    )


def test_without_a_word_it_is_the_step_that_the_run_is_at(scene: Scene, cli: Cli) -> None:
    publish = {"id": "publish", "prompt": "Publish it.", "require_approval": True}
    scene.workflow(phases={"build": {"steps": [STEPS[0], {"id": "test", "prompt": "Test it."}, publish]}})
    scene.begin()
    assert cli("show", "--why").stdout == cli("show", "--why", "make").stdout
    assert cli("done", given="Made.").code == 0
    assert cli("show", "--why", "--json").json == cli("show", "--why", "test", "--json").json
    assert cli("done", given="Tested.").code == 0
    assert cli("show", "--why").stdout.startswith("build/publish comes next after build/test@1, which ended succeeded")
    assert cli("approve").code == 0
    assert cli("show", "--why").stdout.startswith("build/publish@1 came after build/test@1")


def test_a_run_that_is_named_alone_is_no_step(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases={"build": {"steps": STEPS}})
    runs = [scene.begin(work, session=None).run for work in ("make", "another thing")]  # `make` is a step, too
    for run in runs:
        for word in (run.handle, run.run_id):
            told = cli("show", "--why", word, "--json", session=None).ends().json
            assert (told["run_id"], told["step_id"]) == (run.run_id, "build/make")
    assert cli("show", "--why", "make", runs[1].handle, "--json", session=None).ends().json["handle"] == runs[1].handle


def test_a_step_that_was_not_come_to(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases={"build": {"steps": STEPS}})
    scene.begin()
    ended = cli("show", "--why", "fix", "--json")
    assert (ended.code, ended.json["error"]["code"]) == (3, "NOT_VISITED")
    assert (cli("show", "--why", "nothing").code, cli("show", "--why", "nothing", "--json").json["error"]["code"]) == (
        3,
        "NO_SUCH_STAGE",
    )


def test_a_run_taken_up_after_its_last_visit(scene: Scene, cli: Cli) -> None:
    ways = [{"to": "make", "weight": 1}, {"to": "end", "label": "Out"}]
    scene.workflow(phases={"build": {"steps": [{**STEPS[0], "max_visits": 1, "transitions": ways}]}})
    scene.begin()
    cli("done", given="Done.")
    cli("resume")
    assert "because somebody resumed the run there" in cli("show", "--why", "make@2").stdout


def test_an_artifact_that_was_loaded(scene: Scene, cli: Cli) -> None:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    lines = cli("show", "--why", "spec").stdout.splitlines()
    assert lines[0] == "Loom loads spec at session_start"
    assert lines[1].endswith("session_start, trigger session_start: full")


def test_an_artifact_whose_condition_is_false(scene: Scene, cli: Cli) -> None:
    scene.write("notes.md", "# Notes\n")
    condition = "state.goal == 'other' || state.context.notes"
    scene.workflow([], conditional=[artifact("notes", "notes.md", condition=condition)])
    scene.begin("the goal")
    assert cli("show", "--why", "notes").stdout.splitlines() == [
        "Loom loads notes at session_start", f"if {condition}, which is false now", '  state.goal = "the goal"',
        "  state.context.notes = null", "this run has not loaded it yet",
    ]  # fmt: skip
    told = cli("show", "--why", "notes", "--json").json
    assert (told["holds"], told["values"]["state.context.notes"], told["last"]) == ("false", None, None)
