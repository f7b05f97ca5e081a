"""Real files of FABER's, in every layout: checked, primed, resumed and worked on in place (D5).

They are data to test against, never committed; LOOM_CORPUS names the folder that holds them.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from loomctl.workflows.check import check_file
from loomctl.workflows.workflow_files import Places
from tests.helpers.faber import unknown_is_kept
from tests.helpers.scenes import CHECKOUT, Scene

CORPUS = Path(os.environ.get("LOOM_CORPUS", "no corpus"), "compat")
STATES = sorted(CORPUS.glob("run-state/*.json"))
PLANS = sorted(CORPUS.glob("plan/*.json"))
WORKFLOWS = sorted(CORPUS.glob("workflow/*.json"))
LAYOUTS = ("runs", "faber-runs", "by-plan")

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="LOOM_CORPUS names no recorded material"),
]

Json = dict[str, Any]


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """A project of FABER's, with all plans that there are."""
    for path in PLANS:
        plan = json.loads(path.read_text(encoding="utf-8"))
        scene.write(f"logs/fractary/plugins/faber/plans/{plan['id']}.json", path.read_bytes())
    return scene


def lay(scene: Scene, layout: str, state: Json) -> Path:
    """Write a state into its place in a layout, and the specification that it names."""
    run_id = state["run_id"]
    plan_id, suffix = run_id.rsplit("-run-", 1)
    place = {
        "runs": f".fractary/runs/{run_id}/state.json",
        "faber-runs": f".fractary/faber/runs/{run_id}/state.json",
        "by-plan": f".fractary/faber/runs/{plan_id}/state-{suffix}.json",
    }[layout]
    spec = state.get("artifacts", {}).get("spec_path")
    if spec:
        scene.write("specs/" + spec.rsplit("/", 1)[1], "# The specification\n\nAs it was.\n")
    return scene.write(place, json.dumps(state, indent=2, ensure_ascii=False) + "\n")


def of(path: Path) -> Json:
    value: Json = json.loads(path.read_text(encoding="utf-8"))
    return value


def test_the_corpus_is_what_these_tests_are_about() -> None:
    assert STATES
    assert PLANS
    assert WORKFLOWS


def test_real_files_are_not_refused() -> None:
    found = {
        path.name: [
            problem.code
            for problem in check_file(str(path), Places(str(path.parent), str(path.parent / ".loom"), str(CHECKOUT)))
            if problem.severity == "error"
        ]
        for path in sorted(CORPUS.glob("*/*.json"))
    }
    assert {name: codes for name, codes in found.items() if codes} == {
        "template-not-json-2026-01-20.json": ["JSON_SYNTAX"]
    }


@pytest.mark.parametrize(("layout", "path"), list(zip(itertools.cycle(LAYOUTS), STATES, strict=False)))
def test_a_real_run_is_listed_checked_shown_and_primed_in_place(scene: Scene, path: Path, layout: str) -> None:
    """Completed as it is: never active, read in place, and left as it was to the byte."""
    state = of(path)
    place = lay(scene, layout, state)
    before = place.read_bytes()
    (listed,) = scene.loomctl("runs", "--json").json["runs"]
    assert (listed["run_id"], listed["status"]) == (state["run_id"], "completed")
    assert scene.loomctl("check", str(place)).code == 0
    shown = scene.loomctl("show", state["run_id"], "--json")
    assert shown.json["state"]["pr_number" if "pr_number" in state else "branch"]
    primed = scene.loomctl("prime-context", "--run-id", state["run_id"], "--json")
    assert primed.code == 0, primed.stderr
    forms = {entry["id"]: entry["form"] for entry in primed.json["artifacts"]}
    assert forms["workflow-state"] in ("full", "head")
    if "artifacts" in state:
        assert forms["specification"] == "full"
    refused = scene.loomctl("resume", state["run_id"])
    assert (refused.code, "--reopen" in refused.stderr) == (2, True)
    assert scene.hook("session-start", source="startup").stdout == ""  # nothing is active (D4)
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    ("layout", "cut"),
    list(zip(LAYOUTS, itertools.cycle(["all that was noted stays", "what came later is taken out"]), strict=False)),
)
def test_the_run_with_sessions_goes_on_from_build(scene: Scene, layout: str, cut: str) -> None:
    (path,) = [path for path in STATES if "sessions" in of(path)]
    state = {**of(path), "status": "in_progress", "current_phase": "build"}
    assert isinstance(state["phases"], list)
    if cut == "what came later is taken out":
        state["current_step"] = "implement"
        state["steps"] = [step for step in state["steps"] if step["phase"] in ("frame", "architect")]
        for phase in state["phases"][2:]:
            phase["status"] = "in_progress" if phase["name"] == "build" else "pending"
    place = lay(scene, layout, state)
    resumed = scene.loomctl("resume", "--json")
    assert resumed.code == 0, resumed.stderr
    assert resumed.json["step"]["id"] == "build/implement"
    forms = {entry["id"]: entry["form"] for entry in resumed.json["slip"]["artifacts"]}
    assert forms["workflow-state"] == forms["specification"] == "full"
    ended = scene.loomctl("done", "--json", given="implemented, tested")
    assert ended.json["next"]["id"] == "build/core-commit-and-push-build"
    primed = scene.hook("session-start", source="compact")
    assert "As it was." in primed.context
    assert unknown_is_kept(state, of(place)) == []
    history = of(place)["sessions"]["session_history"]
    assert history[0]["session_id"] == state["sessions"]["session_history"][0]["session_id"]
    assert of(place)["sessions"]["total_sessions"] == len(history) == 2


@pytest.mark.parametrize(
    "path", [path for path in WORKFLOWS if "not-json" not in path.name], ids=lambda path: path.stem
)
def test_a_real_workflow_is_run(scene: Scene, path: Path) -> None:
    """Whatever spelling of `extends`, whatever it leaves out: it starts, and its own state is in context."""
    started = scene.loomctl("run", "41", "--workflow", str(path), "--json")
    assert started.code == 0, started.stderr
    assert started.json["step"]["id"]
    forms = {entry["id"]: entry["form"] for entry in started.json["slip"]["artifacts"]}
    if "critical_artifacts" in of(path):
        assert forms["workflow-state"] == "full"
    else:
        assert forms == {}


def test_a_template_is_told_for_what_it_is(scene: Scene) -> None:
    (path,) = [path for path in WORKFLOWS if "not-json" in path.name]
    refused = scene.loomctl("run", "41", "--workflow", str(path))
    assert refused.code == 5
    assert "line 13" in refused.stderr
    assert "template" in refused.stderr
