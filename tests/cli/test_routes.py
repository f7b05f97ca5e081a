"""Runs that branch and loop through `loomctl`: the way is told, waited for, checked before anything begins (D45)."""

import json
from typing import Any

import pytest

from loomctl.kit import clock
from loomctl.kit.errors import EXIT_INVALID, EXIT_OK
from tests.cli.commands import AT_ONCE, PATIENT, begin, status
from tests.cli.conftest import Cli
from tests.helpers.scenes import Json, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds
from tests.helpers.waiting import until

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

REVIEW: list[Json] = [
    {"id": "make", "prompt": "Make it."},
    {
        "id": "review",
        "prompt": "Review it.",
        "transitions": [{"to": "fix", "label": "[F] Fix"}, {"to": "end", "label": "[A] Approve", "weight": 1}],
    },
    {"id": "fix", "prompt": "Mend it.", "transitions": [{"to": "review"}]},
]


def phases(*steps: Json) -> Json:
    return {"build": {"steps": list(steps)}}


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Cli:
    scene.workflow(phases=phases(*REVIEW))
    assert cli("run", "x", "--workflow", "tiny").code == EXIT_OK
    return cli


def says(label: str) -> str:
    return json.dumps({"preferred_next_label": label})


def test_the_way_is_told_with_the_next_step(begun: Cli) -> None:
    assert "reason" not in begun("next", "--json").json["next"]
    told = begun("done", "--json", given="Made.").json
    assert (told["next"]["id"], told["next"]["reason"]) == ("build/review", "order")
    assert told["way"] == {"step_id": "build/review", "reason": "order"}
    told = begun("done", "--json", given=says("fix")).json
    assert told["next"]["id"] == "build/fix"
    assert (told["next"]["reason"], told["next"]["label"]) == ("label", "[F] Fix")
    assert told["way"]["step_id"] == "build/fix"
    assert begun("next", "--json").json["next"]["reason"] == "label"
    assert "Next: build/review, by its transition" in begun("done", given="Mended.").stdout
    told = begun("done", "--json", given=says("approve")).json
    assert (told["next"], told["status"]) == (None, "completed")
    assert told["way"] == {"step_id": None, "reason": "end", "by": "label", "transition": 1, "label": "[A] Approve"}


def test_stages_and_events_and_a_stage_tell_the_way(begun: Cli) -> None:
    begun("done", given="Made.")
    assert "NEXT" not in begun("stages").stdout
    begun("done", given=says("f"))
    assert "build/fix because the choice is “[F] Fix”" in begun("stages").stdout
    listed = begun("stages", "--json").json["stages"]
    assert [one["next"] and one["next"]["reason"] for one in listed] == ["order", "label", None]
    assert [one["attempt"] for one in listed] == [1, 1, 1]
    assert "next      build/fix because the choice is “[F] Fix”" in begun("show", "2").stdout
    log = begun("events").stdout
    holds(log, "002-build.review@1 → build/fix (label, of 2 ways)", "then build/fix because the choice is “[F] Fix”")


def test_a_run_that_nothing_applies_to_says_so(scene: Scene, cli: Cli) -> None:
    ways = [{"to": "end", "condition": "context.coverage > 80"}]
    scene.workflow(phases=phases({"id": "a", "prompt": "A.", "transitions": ways}))
    cli("run", "x", "--workflow", "tiny")
    told = cli("done", given="Done.")
    assert "The run failed: no transition of build/a applies, because it ended succeeded." in told.stdout
    assert "To try the step again: loomctl resume" in told.stdout


BAD: list[tuple[str, list[Json], str]] = [
    ("a way to nowhere", [{"id": "a", "prompt": "A.", "transitions": [{"to": "b"}]}], "UNKNOWN_STEP"),
    ("a loop", [{"id": "a", "prompt": "A.", "transitions": [{"to": "a"}]}], "LOOP_WITHOUT_END"),
    (
        "a condition that is none",
        [{"id": "a", "prompt": "A.", "transitions": [{"to": "end", "condition": "context.x >"}]}],
        "CONDITION_SYNTAX",
    ),
    (
        "one label twice",
        [
            {"id": "a", "prompt": "A.", "transitions": [{"to": "b", "label": "Go"}, {"to": "end", "label": "[G] go"}]},
            {"id": "b", "prompt": "B."},
        ],
        "SAME_LABEL",
    ),
]


@each("steps, code", [pytest.param(steps, code, id=name) for name, steps, code in BAD])
def test_what_cannot_be_gone_is_refused_before_it_begins(scene: Scene, cli: Cli, steps: list[Json], code: str) -> None:
    scene.workflow(phases=phases(*steps))
    found: list[dict[str, Any]] = cli("check", ".loom/workflows/tiny.json", "--json").json["files"][0]["problems"]
    (problem,) = [one for one in found if one["severity"] == "error"]
    assert problem["code"] == code
    assert problem["where"].startswith("$.phases.build.steps[0]")
    cli("run", "x", "--workflow", "tiny").ends(EXIT_INVALID)
    assert not (scene.store / "runs").exists()


def test_a_warning_stops_nothing_and_names_the_ancestors_file(scene: Scene, cli: Cli) -> None:
    """A step that a child's transition passes over stands in the parent's file."""
    scene.workflow(name="parent", phases=phases({"id": "a", "prompt": "A."}, {"id": "b", "prompt": "B."}))
    child = {
        "id": "tiny",
        "extends": "project:parent",
        "phases": {"build": {"pre_steps": [REVIEW[0] | {"transitions": [{"to": "b"}]}]}},
    }
    scene.write(".loom/workflows/tiny.json", json.dumps(child))
    found = cli("check", ".loom/workflows/tiny.json", "--json").json["files"][0]["problems"]
    (problem,) = [one for one in found if one["code"] == "UNREACHABLE_STEP"]
    assert problem["where"] == "{project_root}/.loom/workflows/parent.json: $.phases.build.steps[0]"
    assert cli("run", "x", "--workflow", "tiny").code == EXIT_OK


@pytest.mark.slow
def test_a_command_that_failed_for_a_passing_reason_waits(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    once = {"run": "test -e here && exit 0; touch here; exit 75", "max_retries": 1}
    begin(scene, once)
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    told: list[Json] = []

    def tried() -> bool:  # it goes on by itself, and is awaited for no time
        told[:] = [scene.loomctl("next", "--json").json]
        return len(scene.state["steps"]) == 2

    until(tried)
    first = scene.state["steps"][0]
    waits = first["next"]["not_before"]
    assert first["error"]["type"] == "TRANSIENT"
    pending = told[0]["pending"]
    assert (pending["kind"], pending["not_before"]) == ("not_begun", waits)
    assert f"Loom retries it after {clock.day_and_time(waits)[1]}." in scene.loomctl("next").stdout
    assert not (scene.run_dir / "stages/002-build.c1@2/command.json").exists()
    steps = scene.state["steps"]
    scene.edit(steps=[{**steps[0], "next": {**steps[0]["next"], "not_before": "2026-01-01T00:00:00Z"}}, *steps[1:]])
    monkeypatch.setenv("LOOM_COMMAND_WAIT", PATIENT)
    assert scene.loomctl("next").code == EXIT_OK
    assert [one["status"] for one in scene.state["steps"]] == ["failed", "succeeded", "in_progress"]
    assert status(scene, "002-build.c1@2")["attempt"] == 2


def test_a_command_that_cannot_run_at_all_is_not_tried_again(scene: Scene) -> None:
    begin(scene, {"run": "no-such-program-here", "max_retries": 5})
    scene.loomctl("next")
    assert [one["status"] for one in scene.state["steps"]] == ["failed"]
    assert (scene.state["steps"][0]["error"]["type"], scene.state["status"]) == ("TERMINAL", "failed")
