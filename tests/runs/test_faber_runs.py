"""A run of FABER's is found, primed, resumed and worked on where it stands, in every layout and era (D5)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import faber
from tests.helpers.faber import ERAS, HANDLE, LAYOUTS, RUN_ID, in_list, lay, unknown_is_kept
from tests.helpers.scenes import OTHER, Scene, fingerprint

EVERY = list(zip(LAYOUTS, itertools.cycle(ERAS), strict=False))  # where it stands says nothing of what is in it


def read(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


@pytest.mark.parametrize(("layout", "era"), EVERY)
def test_a_run_goes_on_where_it_stands_and_loses_no_key(scene: Scene, layout: str, era: str) -> None:
    """From resume to the end of the workflow, by commands: the file stays FABER's, and every key is there."""
    path = lay(scene, layout, ERAS[era]())
    before = read(path)
    (listed,) = scene.loomctl("runs", "--json").json["runs"]
    assert (listed["run_id"], listed["status"]) == (RUN_ID, "in_progress")
    resumed = scene.loomctl("resume", "--json")
    assert resumed.code == 0, resumed.stderr
    assert resumed.json["step"]["id"] == "build/implement"
    loaded = {entry["id"]: entry["form"] for entry in resumed.json["slip"]["artifacts"] if entry["decision"] == "load"}
    assert loaded["workflow-state"] == loaded["workflow-plan"] == loaded["specification"] == "full"
    for _ in range(2):
        ended = scene.loomctl("done", given="built, tested")
        assert ended.code == 0, ended.stderr
    waits = read(path)
    assert waits["status"] == "awaiting_feedback"  # guarded: the release asks
    approved = scene.loomctl("approve")
    assert approved.code == 0, approved.stderr
    assert scene.loomctl("done", given="merged").code == 0
    after = read(path)
    assert (after["status"], unknown_is_kept(before, after)) == ("completed", [])
    assert not (scene.store / "runs" / RUN_ID / "state.json").exists()
    assert (scene.store / "runs" / RUN_ID / "events.jsonl").exists()
    assert path.read_text(encoding="utf-8").startswith('{\n  "run_id"')
    assert "schema_version" not in after


@pytest.mark.parametrize("era", ERAS)
def test_what_a_step_did_stands_in_fabers_own_words(scene: Scene, era: str) -> None:
    """FABER reads its state again after Loom worked on it: its own words, its own counters, its own forms."""
    path = lay(scene, "runs", ERAS[era]())
    assert (scene.loomctl("resume").code, scene.loomctl("done", given="built").code) == (0, 0)
    state = read(path)
    (entry,) = [one for one in state["steps"] if one["step_id"] == "implement" and one["phase"] == "build"]
    assert entry["status"] == "success"
    if era == "list":
        assert state["current_step"] == "push-build"
        assert "current_step_id" not in state
        assert state["sessions"]["total_sessions"] == len(state["sessions"]["session_history"]) == 2
    else:
        assert state["current_step_id"] == "build:push-build"
        assert "current_step" not in state
    if era == "object":
        assert state["phases"]["build"]["completed_steps"] == ["implement"]
        assert state["phases"]["build"]["completed_step_ids"] == ["build:implement"]
    if era == "below":
        below = state["phases"]["build"]["steps"]
        assert (below["implement"]["status"], below["implement"]["result"]) == ("completed", "success")
        assert below["push-build"]["status"] == "in_progress"
        assert state["steps_completed"][-1] == "build:implement"


def test_compactions_and_sessions_are_recorded_where_faber_keeps_them(scene: Scene) -> None:
    path = lay(scene)
    assert scene.loomctl("resume").code == 0
    primed = scene.hook("session-start", source="compact")
    assert "A switch in the header." in primed.context
    metadata = read(path)["context_metadata"]
    assert (len(metadata["compaction_events"]), metadata["compaction_events"][1]["phase"]) == (2, "build")
    assert scene.loomctl("resume", RUN_ID[:30], "--take-over", session=OTHER).code == 0
    records = read(path)["sessions"]["session_history"]
    assert [one["session_id"] for one in records] == ["claude-session-1", "5f0c9a52-0000-4000-8000-000000000001", OTHER]
    assert records[0]["odd"] == 2


def test_a_run_that_was_not_taken_up_here_is_announced_read_by_name_and_not_written(scene: Scene) -> None:
    """A repository may bring a run along: one line, nothing primed, nothing made (D23). Its user's own word, the
    name, is enough to be given it; nothing is written of that, for nobody took the run up here.
    """
    path = lay(scene)
    before = fingerprint(scene.root)
    told = scene.hook("session-start", source="startup")
    assert told.context == told.message or not told.context.count("\n")
    assert f"/loom:resume {HANDLE}" in told.message
    refused = scene.loomctl("prime-context", session=None)
    assert (refused.code, "NOT_KNOWN_HERE" in refused.stderr) == (3, True)
    assert fingerprint(scene.root) == before
    state = path.read_bytes()
    primed = scene.loomctl("prime-context", "--run-id", RUN_ID, "--json", session=None)
    assert primed.code == 0, primed.stderr
    given = {entry["id"] for entry in primed.json["artifacts"] if entry["form"] == "full"}
    assert given >= {"workflow-state", "specification"}
    assert path.read_bytes() == state


@pytest.mark.parametrize("pointer", [".fractary/faber/runs/.active-run-id", ".fractary/faber/.active-run-id"])
def test_a_pointer_decides_between_several_and_revives_nothing(scene: Scene, pointer: str) -> None:
    """FABER's pointer file is a hint: trimmed, for runs that are active; one that is over stays over (D4)."""
    lay(scene)
    second = RUN_ID.replace("10-05", "11-05")
    scene.write(f".fractary/runs/{second}/state.json", json.dumps({**in_list(), "run_id": second}))
    several = scene.loomctl("show", session=None)
    assert (several.code, "AMBIGUOUS_RUN" in several.stderr) == (3, True)
    scene.write(pointer, f"  {second}\r\n\n")
    shown = scene.loomctl("show", "--json", session=None)
    assert shown.json["run_id"] == second
    scene.write(
        f".fractary/runs/{second}/state.json", json.dumps({**in_list(), "run_id": second, "status": "completed"})
    )
    assert scene.loomctl("show", "--json", session=None).json["run_id"] == RUN_ID
    for hostile in ("../../../etc/passwd", "\x1b[31m", "x" * 5000, second + "\n" + RUN_ID):
        scene.write(pointer, hostile)
        assert scene.loomctl("show", "--json", session=None).json["run_id"] == RUN_ID


def test_without_a_plan_file_the_workflow_is_followed(scene: Scene) -> None:
    lay(scene, plan=None)
    scene.write(".fractary/faber/workflows/default.json", workflow_of_fabers())
    resumed = scene.loomctl("resume", "--json")
    assert resumed.code == 0, resumed.stderr
    assert resumed.json["step"]["id"] == "build/implement"
    assert resumed.json["slip"]["artifacts"] == []  # this workflow declares none


def test_a_workflow_that_declares_nothing_is_primed_with_nothing(scene: Scene) -> None:
    """That is no error (D5)."""
    lay(scene)
    scene.write(".fractary/faber/workflows/default.json", json.dumps({"id": "default", "phases": {}}))
    assert scene.loomctl("resume").code == 0
    primed = scene.loomctl("prime-context", "--run-id", RUN_ID)
    assert primed.code == 0
    assert "this workflow declares no critical artifacts" in primed.stdout


def workflow_of_fabers(phases: dict[str, list[dict[str, Any]]] = faber.PHASES) -> str:
    steps = {
        name: {"steps": [{k: v for k, v in step.items() if k != "position"} for step in listed]}
        for name, listed in phases.items()
    }
    return json.dumps({"id": "default", "phases": steps})


@pytest.mark.parametrize("named", ["fractary-faber:default", "default", "gone:nowhere"])
def test_a_run_whose_steps_nobody_knows_is_shown_and_not_driven(scene: Scene, named: str) -> None:
    path = lay(scene, plan=None, state={**in_list(), "workflow_id": named})
    before = path.read_bytes()
    for command in (["resume"], ["resume", RUN_ID], ["resume", RUN_ID, "--json"]):
        refused = scene.loomctl(*command)
        told = refused.stderr + refused.stdout
        assert (refused.code, "BAD_PLAN" in told, "it can only show the run" in told) == (5, True, True), told
        assert (named in told, str(path) in told) == (True, True)
        assert f".fractary/faber/runs/{faber.PLAN_ID}/plan.json" in told
        assert (".fractary/faber/workflows/default.json" in told) is (named != "gone:nowhere")
    shown = scene.loomctl("show", RUN_ID)
    assert shown.code == 0, shown.stderr
    assert "Loom can show this run but not continue it: its plan and its workflow " in shown.stdout
    assert "loomctl next" not in shown.stdout
    primed = scene.loomctl("prime-context", "--run-id", RUN_ID, "--json")
    assert primed.code == 0, primed.stderr
    given = {entry["id"] for entry in primed.json["artifacts"] if entry["form"] == "full"}
    stand_in = {"workflow-state", "orchestration-protocol", "specification"}
    assert given == (set() if named == "gone:nowhere" else stand_in)
    for command in (["runs"], ["state", "show", RUN_ID], ["sessions", RUN_ID], ["paths", RUN_ID]):
        assert scene.loomctl(*command).code == 0, command
    assert path.read_bytes() == before
    assert not (scene.store / "runs" / RUN_ID).exists()


@pytest.mark.parametrize("comes", ["plan", "workflow"])
def test_a_run_can_be_driven_once_fabers_files_are_there(scene: Scene, comes: str) -> None:
    lay(scene, plan=None)
    assert scene.loomctl("resume").code == 5
    if comes == "plan":
        scene.write(LAYOUTS["runs"][1], json.dumps(faber.PLAN))
    else:
        scene.write(".fractary/faber/workflows/default.json", workflow_of_fabers())
    resumed = scene.loomctl("resume", "--json")
    assert (resumed.code, resumed.json["step"]["id"]) == (0, "build/implement")


def test_a_workflow_that_faber_changed_is_followed_from_the_next_command_on(scene: Scene) -> None:
    """Where there is no plan the workflow is what was frozen: a change of it counts, its loss takes nothing away."""
    lay(scene, plan=None)
    place = scene.write(".fractary/faber/workflows/default.json", workflow_of_fabers())
    assert scene.loomctl("resume").code == 0
    lint = {"id": "lint", "name": "Lint", "prompt": "Lint it."}
    build = [faber.PHASES["build"][0], lint, *faber.PHASES["build"][1:]]
    place.write_text(workflow_of_fabers({**faber.PHASES, "build": build}))
    assert scene.loomctl("done", "--json", given="built").json["next"]["id"] == "build/lint"
    place.unlink()
    assert scene.loomctl("done", "--json", given="linted").json["next"]["id"] == "build/push-build"


@pytest.mark.parametrize("first", ["plan", "workflow"])
def test_a_plan_without_the_open_step_gives_it_up(scene: Scene, first: str) -> None:
    """The files came or changed while a step was open that they do not have: the run goes on with what they say."""
    if first == "plan":
        lay(scene)
    else:
        lay(scene, plan=None)
        scene.write(".fractary/faber/workflows/default.json", workflow_of_fabers())
    assert scene.loomctl("resume").code == 0
    changed = with_steps({"id": "code", "name": "Code", "prompt": "Code it."})
    scene.write(LAYOUTS["runs"][1], json.dumps(changed))
    went = scene.loomctl("next", "--json")
    assert went.code == 0, went.stderr
    assert (went.json["next"]["id"], scene.loomctl("done", given="coded").code) == ("build/code", 0)


def test_a_stand_in_for_what_must_be_in_context_is_said_in_the_slip(scene: Scene) -> None:
    lay(scene)
    resumed = scene.loomctl("resume", "--json")
    told = [one for one in resumed.json["slip"]["warnings"] if one["code"] == "STAND_IN"]
    assert len(told) == 1
    assert "fractary-faber:default is not here" in told[0]["message"]
    scene.write(".fractary/faber/workflows/default.json", workflow_of_fabers())
    resumed = scene.loomctl("resume", "--json")
    assert (resumed.json["slip"]["warnings"], resumed.json["slip"]["artifacts"]) == ([], [])


def test_a_plan_that_faber_changed_is_followed_from_the_next_command_on(scene: Scene) -> None:
    lay(scene)
    assert scene.loomctl("resume").code == 0
    plan = json.loads(json.dumps(faber.PLAN))
    plan["workflow"]["phases"]["build"]["steps"].insert(1, {"id": "lint", "name": "Lint", "prompt": "Lint it."})
    scene.write(LAYOUTS["runs"][1], json.dumps(plan))
    ended = scene.loomctl("done", "--json", given="built")
    assert ended.json["next"]["id"] == "build/lint"


def test_faber_going_on_meanwhile_is_where_loom_goes_on(scene: Scene) -> None:
    """Both write one file: what FABER did since stands, and Loom's own open visit is given up."""
    path = lay(scene)
    assert scene.loomctl("resume").code == 0
    state = read(path)
    state.update(current_step="push-build")
    state["steps"].append({"step_id": "implement", "phase": "build", "status": "success", "message": "by FABER"})
    path.write_text(json.dumps(state, indent=2), encoding="utf-8")
    assert scene.loomctl("next", "--json").json["next"]["id"] == "build/push-build"
    assert scene.loomctl("done", given="pushed").code == 0
    assert [one for one in read(path)["steps"] if one.get("message") == "by FABER"]


def test_what_loom_did_is_taken_back_and_nothing_of_fabers(scene: Scene) -> None:
    """Undo reopens Loom's own visit; where FABER did the last step there is nothing to undo (D31)."""
    path = lay(scene)
    assert scene.loomctl("resume").code == 0
    steps = read(path)["steps"]
    refused = scene.loomctl("undo")
    assert (refused.code, "NOTHING_TO_UNDO" in refused.stderr) == (2, True)
    assert (scene.loomctl("done", given="built").code, scene.loomctl("undo").code) == (0, 0)
    assert (read(path)["steps"], read(path)["current_step"]) == (steps, "implement")
    for _ in range(2):
        assert scene.loomctl("done", given="built").code == 0
    assert (scene.loomctl("rewind", "--to", "1").code, read(path)["steps"]) == (0, steps)
    assert (read(path)["current_step"], scene.loomctl("done", given="built").code) == ("implement", 0)
    state = read(path)
    state["steps"].append({"step_id": "push-build", "phase": "build", "status": "success", "message": "by FABER"})
    path.write_text(json.dumps(state, indent=2), encoding="utf-8")
    kept = path.read_bytes()
    refused = scene.loomctl("rewind", "--to", "1")
    assert (refused.code, "NOT_LOOMS" in refused.stderr) == (2, True), refused
    assert path.read_bytes() == kept


def test_a_new_run_in_a_project_of_fabers_is_looms_and_gets_its_own_state(scene: Scene) -> None:
    lay(scene)
    critical = {
        "always_load": [
            {
                "id": name, "type": "json", "path": path, "description": "d", "required": True,
                "reload_triggers": ["session_start"],
            }
            for name, path in (
                ("state-1", ".fractary/runs/{run_id}/state.json"),
                ("state-2", ".fractary/faber/runs/{plan_id}/state-{run_suffix}.json"),
                ("plan-1", "logs/fractary/plugins/faber/plans/{plan_id}.json"),
            )
        ]
    }  # fmt: skip
    steps = {"frame": {"steps": [{"id": "a", "prompt": "Do it."}]}}
    raw = {"id": "mine", "extends": "fractary-faber:core", "phases": steps, "critical_artifacts": critical}
    scene.write(".fractary/faber/workflows/mine.json", json.dumps(raw))
    started = scene.loomctl("run", "8", "--workflow", "mine", "--json")
    assert started.code == 0, started.stderr
    forms = {entry["id"]: entry["form"] for entry in started.json["slip"]["artifacts"]}
    assert forms["state-1"] == forms["state-2"] == forms["plan-1"] == "full"
    assert (scene.store / "runs" / started.json["run_id"] / "state.json").exists()


def test_a_link_in_a_states_place_is_refused_unread(scene: Scene) -> None:
    outside = scene.root.parent / "outside.json"
    outside.write_text(json.dumps(in_list()), encoding="utf-8")
    before = outside.read_bytes()
    path = scene.root / LAYOUTS["runs"][0]
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    refused = scene.loomctl("resume", RUN_ID)
    assert (refused.code, "UNSAFE_LINK" in refused.stderr) == (5, True)
    assert outside.read_bytes() == before


def test_a_damaged_state_of_fabers_is_refused_and_kept(scene: Scene) -> None:
    """It is said, with its path, and neither replaced nor taken for none."""
    path = lay(scene)
    path.write_text('{"run_id": "', encoding="utf-8")
    listed = scene.loomctl("runs")
    assert "BAD_JSON" in listed.stdout
    for command in (["show", RUN_ID], ["resume", RUN_ID], ["state", "show", RUN_ID]):
        refused = scene.loomctl(*command)
        assert refused.code == 5
        assert str(path) in refused.stderr
    assert path.read_text(encoding="utf-8") == '{"run_id": "'
    scene.write(LAYOUTS["runs"][0], json.dumps({**in_list(), "run_id": "another-run"}))
    assert "RUN_ID_MISMATCH" in scene.loomctl("show", RUN_ID).stderr


def test_the_users_home_is_no_project(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / ".fractary" / "faber").mkdir(parents=True)
    (home / "work").mkdir()
    monkeypatch.setenv("HOME", str(home))
    told = scene.loomctl("runs", cwd=home / "work")
    assert "No runs here yet" in told.stdout


def test_check_looks_at_fabers_workflows_too(scene: Scene) -> None:
    scene.write(".fractary/faber/workflows/workflows.yaml", "workflows: [{id: default}]\n")
    scene.write(".fractary/faber/workflows/good.json", json.dumps({"id": "good", "extends": "fractary-faber:core"}))
    checked = scene.loomctl("check", "--json")
    assert [Path(one["target"]).name for one in checked.json["files"]] == ["good.json"]
    assert checked.code == 0
    scene.write(".fractary/faber/workflows/bad.json", '{"id": ')
    assert scene.loomctl("check").code == 5


def test_what_is_to_be_done_again_is_not_shown_as_done(scene: Scene) -> None:
    state = {**in_list("release"), "current_phase": "build", "current_step": "implement"}
    lay(scene, state=state)
    resumed = scene.loomctl("resume")
    assert "- build/push-build: to be done again" in resumed.stdout
    assert "build/push-build  to be done again" in scene.loomctl("show").stdout


def with_steps(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Give FABER's plan with other steps of its phase `build`."""
    plan: dict[str, Any] = json.loads(json.dumps(faber.PLAN))
    plan["workflow"]["phases"]["build"].update(steps=list(steps), **more)
    return plan


@pytest.mark.parametrize("comes", ["plan", "workflow"])
def test_a_prompt_gets_what_the_state_says_plainly(scene: Scene, comes: str) -> None:
    text = "PR {pr_number} of {branch} for {work_id}: {nothing_such} {odd} {lines} {{branch}}"
    if comes == "workflow":
        text = text.replace("{branch}", "{pr_id}", 1).replace("{nothing_such} {odd} {lines} ", "")
    steps = [{"id": "implement", "prompt": "Go."}, {"id": "pr", "prompt": text}]
    path = lay(scene, state={**in_list(), "lines": "a\nb"}, plan=with_steps(*steps) if comes == "plan" else None)
    if comes == "workflow":
        phases = {**faber.PHASES, "build": steps}
        scene.write(".fractary/faber/workflows/default.json", workflow_of_fabers(phases))
    assert scene.loomctl("resume").code == 0
    state = read(path)
    path.write_text(json.dumps({**state, "pr_number": 43, "pr_id": "x-1"}), encoding="utf-8")
    ended = scene.loomctl("done", "--json", given="built")
    assert ended.code == 0, ended.stderr
    wanted = {
        "plan": "PR 43 of feat/7-dark-mode for 7: {nothing_such} {odd} {lines} {branch}",
        "workflow": "PR 43 of x-1 for 7: {branch}",
    }[comes]
    assert wanted in ended.json["next"]["prompt"]
    (prompt,) = (scene.store / "runs" / RUN_ID / "stages").glob("*build.pr@1/prompt.md")
    assert wanted in prompt.read_text(encoding="utf-8")
    assert wanted in scene.loomctl("show").stdout


def test_what_of_fabers_plan_is_not_acted_on_is_said_by_name(scene: Scene) -> None:
    """A guard that would have skipped a step does not; the check and whoever takes the run up are told."""
    guarded = {"id": "implement", "prompt": "Go.", "guards": {"skip_if": "state.done"}, "context": {}}
    lay(scene, plan=with_steps(guarded, {"name": "later", "prompt": "x", "timeout": 5}, validation=["lint"]))
    resumed = scene.loomctl("resume", "--json")
    assert resumed.code == 0, resumed.stderr
    (note,) = [one for one in resumed.json["notes"] if "Loom ignores" in one]
    assert note.endswith("validation of build, guards of build/implement, timeout of build/later")
    checked = scene.loomctl("check", LAYOUTS["runs"][1], "--json")
    assert checked.code == 0
    (file,) = checked.json["files"]
    told = {one["where"] for one in file["problems"] if one["code"] == "IGNORED_FIELD"}
    at = "$.workflow.phases.build"
    assert told == {f"{at}.validation", f"{at}.steps[0].guards", f"{at}.steps[1].timeout"}
