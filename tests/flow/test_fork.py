"""A run that goes on from a stage of another: as that one was then, and nothing of that one is changed (D31)."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.care import keep
from loomctl.changes import stage_changes, track
from loomctl.flow import advance, contexts, decide, resume, rewind
from loomctl.flow import fork as forking
from loomctl.flow.commands import command_steps
from loomctl.flow.fork import Forked
from loomctl.runs import context_history, context_values, find, run_blobs, stages
from loomctl.runs.machine import run_notes
from loomctl.runs.store import arrivals, blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.store import Store
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from loomctl.workflows import check, refreeze
from loomctl.workflows.workflow_files import Places
from tests.helpers.errors import refused
from tests.helpers.routed import answers, begun, essence, plans, play, says, stages_of, worked
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, Scene, fingerprint, handle
from tests.helpers.tables import each
from tests.helpers.verbs import done, stand


def fork(scene: Scene, at: str, run_id: str = "", session: str | None = SESSION) -> Forked:
    return forking.fork(scene.space(session), run_id or scene.run_dirs[0].name, at)


def events_of(folder: str | Path) -> list[Json]:
    return [json.loads(line) for line in (Path(folder) / "events.jsonl").read_text().splitlines()]


def problems(scene: Scene, folder: str) -> list[str]:
    top, store, bundle = str(scene.root), str(scene.store), scene.space().project.plugin_root
    paths = [os.path.join(folder, name) for name in ("state.json", "plan.json", "events.jsonl")]
    found = [check.check_file(path, Places(top, store, bundle)) for path in paths]
    return [one.code for each in found for one in each]


LOOK = [{"id": name, "steps": [{"id": "look", "prompt": "Look."}]} for name in ("api", "web")]
FAN: Json = {"id": "fan", "parallel": {"branches": LOOK}}

# ---- What a fork is.


@each(
    ("at", "stage", "context", "following"),
    [
        ("1", "001-build.make@1", {"a": 1, "b": "made"}, "build/review"),
        ("review@1", "002-build.review@1", {"a": 2, "b": "made"}, "build/fix"),
        ("fix", "003-build.fix@1", {"a": 2, "b": "made", "c": [3]}, "build/review"),
        ("review", "004-build.review@2", {"a": 2, "b": "good", "c": [3]}, "ship/send"),
    ],
)
def test_a_fork_is_as_the_run_was_when_the_stage_had_ended(
    scene: Scene, at: str, stage: str, context: Json, following: str
) -> None:
    """Its stages, its context, the way on that the stage had chosen; the other run is the same to the byte."""
    worked(scene)
    first = scene.run_dir
    before = fingerprint(first)
    forked = fork(scene, at)
    assert fingerprint(first) == before
    state = scene.state_of(Path(forked.run.folder))
    names = stages_of(scene.state_of(first))
    assert stages_of(state) == list(forked.stages) == names[: names.index(stage) + 1]
    assert state["steps"] == scene.state_of(first)["steps"][: len(state["steps"])]
    assert {key: value for key, value in state["context"].items() if key in "abc"} == context
    assert state["forked_from"] == {"run_id": first.name, "stage": stage, "at": state["created_at"]}
    assert (state["status"], state["run_id"], state["plan_id"]) == ("pending", forked.run.run_id, "shop-add-dark-mode")
    assert (Path(forked.run.folder) / "plan.json").read_bytes() == (first / "plan.json").read_bytes()
    assert state["sessions"]["session_history"] == []
    assert problems(scene, forked.run.folder) == []
    assert resume.resume(scene.space(OTHER), forked.run.run_id).move.step == following


def test_what_its_drives_cost_and_ended_for_stays_with_the_other_run(scene: Scene) -> None:
    worked(scene)
    ended = {"code": 10, "kind": "cost", "why": "5.00 of 5.00 USD are spent", "at": "2026-01-01T00:00:00Z"}
    scene.edit(driving={"host": "claude-code", "cost": 5.0, "turns": 3, "ended": ended})
    scene.edit(waits_for={"kind": "limit", "what": "5.00 of 5.00 USD are spent", "until": None, "at": ended["at"]})
    state = scene.state_of(Path(fork(scene, "fix").run.folder))
    assert not {"driving", "waits_for"} & state.keys()


def test_the_files_of_its_stages_come_along_and_no_others(scene: Scene) -> None:
    """Prompt, response and status of each, byte for byte; nothing that was set aside, nothing of later stages."""
    worked(scene)
    rewind.rewind(scene.space(), scene.run_dir.name, "fix")
    done(scene, says(c=[4]))
    done(scene, says("approve"))
    (scene.run_dir / "work.md").write_text("notes of a step")
    (scene.run_dir / "plan.md").write_text("a step's own")
    first = scene.run_dir
    folder = Path(fork(scene, "fix").run.folder)
    names = ["001-build.make@1", "002-build.review@1", "003-build.fix@1"]
    assert sorted(path.name for path in (folder / "stages").iterdir()) == names
    for path in (folder / "stages").rglob("*"):
        if path.is_file():
            assert ".undone-" not in path.name
            assert path.read_bytes() == (first / path.relative_to(folder)).read_bytes()
    assert "response.undone-1.md" in {path.name for path in (first / "stages" / "003-build.fix@1").iterdir()}
    assert json.loads((folder / "stages/003-build.fix@1/response.md").read_text())["context_updates"] == {"c": [4]}
    assert (folder / "work.md").read_text() == "notes of a step"
    assert (folder / "plan.md").read_text() == "a step's own"
    assert not {"state.backup.json", "sessions.jsonl", "reads.json"} & {path.name for path in folder.iterdir()}


def test_an_open_stage_is_refused_with_one_that_has_ended(scene: Scene) -> None:
    worked(scene)
    with refused("STAGE_OPEN", hint=f"loomctl fork {scene.handle} --at 004-build.review@2"):
        fork(scene, "send")
    assert (list((scene.store / "local").glob("arriving-*")), len(scene.run_dirs)) == ([], 1)


@each("status", ["in_progress", "paused", "failed", "cancelled", "completed"])
def test_from_every_status(scene: Scene, status: str) -> None:
    worked(scene)
    if status == "completed":
        done(scene)
    elif status == "failed":
        done(scene, outcome="failed", note="no")
    elif status != "in_progress":
        stand(scene, status)
    forked = fork(scene, "fix")
    state = forked.run.state
    assert (state["status"], state["errors"], "completed_at" in state) == ("pending", [], False)
    assert {name: one["status"] for name, one in state["phases"].items()} == {"build": "in_progress", "ship": "pending"}
    assert resume.resume(scene.space(OTHER), forked.run.run_id).move.step == "build/review"


def test_what_the_stages_own_end_asked_for_is_asked_again(scene: Scene) -> None:
    """A person had let it pass there; here nobody has. What was approved before the stage holds."""
    x = {"id": "x", "prompt": "X.", "result_handling": {"on_failure": "prompt"}}
    scene.workflow(phases={"a": {"require_approval": True, "steps": [x, {"id": "y", "prompt": "Y."}]}})
    scene.begin()
    decide.approve(scene.space(), scene.run_dir.name)
    done(scene, outcome="failed", note="no")
    decide.approve(scene.space(), scene.run_dir.name)
    done(scene)
    forked = fork(scene, "x")
    assert [one["id"] for one in forked.run.state["pending_approvals"]] == ["result:001-a.x@1"]
    assert [one["id"] for one in forked.run.state["approvals"]] == ["phase:a"]
    space = scene.space(OTHER)
    assert resume.resume(space, forked.run.run_id).move.kind == "approval"
    assert decide.approve(space, forked.run.run_id).move.step == "a/y"


@each("reopened", [False, True])
def test_a_fork_at_the_last_stage_of_a_completed_run_is_completed_when_it_is_taken_up(
    scene: Scene, reopened: bool
) -> None:
    worked(scene)
    done(scene)
    if reopened:
        resume.resume(scene.space(), scene.run_dir.name, reopen=True)
        done(scene)
    forked = fork(scene, "send@1")
    assert "reopened" not in forked.run.state["steps"][-1]
    assert resume.resume(scene.space(OTHER), forked.run.run_id).move.kind == "completed"


# ---- Who finds it.


def test_the_session_stays_with_its_run(scene: Scene) -> None:  # D1
    worked(scene)
    first = scene.run_dir.name
    forked = fork(scene, "fix")
    assert (scene.space().local.binding(SESSION) or {})["run_id"] == first
    assert find.find(scene.space(None)).run_id == first
    assert find.active_runs(scene.space()) == [first]
    assert run_notes.is_known(forked.run.run_id, str(scene.store))
    resume.resume(scene.space(OTHER), forked.run.run_id)
    assert find.find(scene.space(OTHER)).run_id == forked.run.run_id


def test_a_strangers_run_makes_a_strangers_fork(scene: Scene) -> None:  # D23
    worked(scene)
    run_notes.forget_known(scene.run_dir.name, str(scene.store))
    assert not run_notes.is_known(fork(scene, "fix").run.run_id, str(scene.store))


@each("trusted", [True, False])
def test_trust_comes_along_where_there_was_some(scene: Scene, trusted: bool) -> None:
    """The same plan has the same commands; with another run's name in them they are told apart by their hash."""
    steps = [{"id": "x", "prompt": "X."}, {"id": "run", "kind": "command", "run": "echo {run_id}"}]
    scene.workflow(phases={"a": {"steps": steps}})
    scene.begin()
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    if trusted:
        command_steps.trust(space, run, command_steps.listed(space, run))
    done(scene)
    forked = fork(scene, "x")
    assert command_steps.is_trusted(space, space.store.read(forked.run.run_id)) is trusted
    plan = (scene.run_dirs[0] / "plan.json").read_text().replace("echo ", "rm ")
    (Path(forked.run.folder) / "plan.json").write_text(plan)
    assert not command_steps.is_trusted(space, space.store.read(forked.run.run_id))


# ---- What it can tell of itself.


def test_a_fork_explains_its_context(scene: Scene) -> None:
    """Each key by the stage or the person that set it, without a gap; also of a fork of a fork, and after an undo."""
    worked(scene)
    contexts.put(scene.space(), scene.run_dir.name, {"a": 7, "mine": "x" * 3000})
    rewind.undo(scene.space(), scene.run_dir.name)
    contexts.put(scene.space(), scene.run_dir.name, {"d": 1})
    done(scene, says("approve", b="better"))
    space = scene.space()
    run_id, expected = scene.run_dir.name, {"d": "user", "mine": "user", "b": "step", "c": "step"}
    for at in ("4", "4", "3"):
        run_id = fork(scene, at, run_id).run.run_id
        found = context_history.of_run(space.store.read(run_id))
        assert "unknown" not in {one.by for one in found}, found
        made = context_history.setters(found)
        assert {key: made[key].by for key in expected} == expected
        assert made["c"].stage == "003-build.fix@1"
        assert all(one.at for one in found)
    resume.resume(scene.space(OTHER), run_id)
    rewind.undo(scene.space(OTHER), run_id)
    advance.done(scene.space(OTHER), run_id, response=says(c=[9]))
    found = context_history.of_run(space.store.read(run_id))
    assert "unknown" not in {one.by for one in found}, found


def test_what_was_set_by_hand_since_stays_and_is_named(scene: Scene) -> None:
    worked(scene)
    contexts.put(scene.space(), scene.run_dir.name, {"mine": 1})
    forked = fork(scene, "3")
    assert forked.run.state["context"]["mine"] == 1
    assert all(words in forked.notes[0] for words in ("by hand", "mine"))


def test_its_log_begins_with_where_it_came_from(scene: Scene) -> None:
    """A chain of its own, whose first entries say of what plan and of what run it was made."""
    worked(scene)
    forked = fork(scene, "2")
    created, told = events_of(forked.run.folder)
    assert (created["event"], created["seq"], created["prev"]) == ("run.created", 1, "")
    assert created["properties"] == events_of(scene.run_dirs[0])[0]["properties"]
    stages = ["001-build.make@1", "002-build.review@1"]
    assert (told["event"], told["properties"]["from"]) == ("run.forked", scene.run_dirs[0].name)
    assert (told["properties"]["at"], told["properties"]["stages"]) == (stages[-1], stages)
    # its plan can be made anew (D53)
    whole = (Path(forked.run.folder) / "plan.json").read_bytes()
    (Path(forked.run.folder) / "plan.json").write_text("{")
    assert refreeze.refreeze(scene.space(), forked.run.run_id).same
    assert json.loads((Path(forked.run.folder) / "plan.json").read_bytes()) == json.loads(whole)


# ---- What it refers to.


def record(scene: Scene, name: str, at: str, stage: str, size: int = 60_000) -> bytes:
    output = f"{name}\n" * (size // (len(name) + 1))
    reducer = StepReducer(DataOffloader(scene.run_dir))
    step = reducer.reduce("Bash", {"command": name}, {"stdout": output}, step_id=f"toolu_{name}")
    tool_log.append(str(scene.run_dir), [step._replace(more={**step.more, "at": at, "stage": stage})])
    assert step.outcome_ref is not None
    return (scene.run_dir / step.outcome_ref).read_bytes()


@pytest.mark.slow
def test_tool_steps_until_the_stages_end_come_along_with_their_outputs(scene: Scene) -> None:
    """Each reference in the fork leads to the same bytes; what came later stays behind; nothing dangles."""
    worked(scene)
    entries = scene.state["steps"]
    ended = entries[1]["completed_at"]
    one, two, three, four = (entry["stage"] for entry in entries[:4])
    kept = {"first": ("2001-01-01T00:00:00Z", one), "within": (ended, two), "unknown": ("", one)}
    later = {"same": (ended, three), "later": ("2101-01-01T00:00:00Z", four), "nowhere": ("", four)}
    outputs = {name: record(scene, name, *told) for name, told in {**kept, **later}.items()}
    first = scene.run_dir
    forked = fork(scene, "2")
    folder = Path(forked.run.folder)
    steps = list(tool_log.read(str(folder)))
    assert ([step.id for step in steps], forked.tool_steps) == ([f"toolu_{name}" for name in kept], 3)
    originals = {step.id: step for step in tool_log.read(str(first))}
    for step in steps:
        assert step == originals[step.id]
        assert (folder / str(step.outcome_ref)).read_bytes() == outputs[step.id.removeprefix("toolu_")]
    assert len(list((folder / "outputs").iterdir())) == len(list((first / "outputs").iterdir())) // 2
    keep.remove(scene.space(), first.name, force=True)
    assert all((folder / str(step.outcome_ref)).is_file() for step in steps)


def test_large_values_and_responses_are_read_without_the_other_run(scene: Scene) -> None:
    """Blobs are the project's; a response is read from the fork's own folder; so is a blob's own copy."""
    begun(scene)
    done(scene, says(big="y" * 200_000))
    done(scene, says("approve"))
    first = scene.run_dir
    space = scene.space()
    ref = scene.state["context"]["big"]
    assert blobs.is_ref(ref)
    run_blobs.put_in(space, str(first))
    Path(Blobs(str(scene.store)).path(ref)).unlink()
    forked = fork(scene, "1")
    keep.remove(space, first.name, force=True)
    run = space.store.read(forked.run.run_id)
    assert context_values.value_of(space, run, run.state["context"]["big"]) == "y" * 200_000
    said = context_values.value_of(space, run, run.state["context"]["response.build/make"])
    assert json.loads(said)["context_updates"]["big"] == "y" * 200_000


def test_assets_of_its_stages_come_along(scene: Scene) -> None:
    worked(scene)
    first = scene.run_dir
    for stage, name in (("001-build.make@1", "shot.png"), ("004-build.review@2", "late.png")):
        stored = f"assets/{stage[4:-2]}/retry_1/{name}"
        path = first / stored
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
        record_path = first / "stages" / stage / "changes.json"
        told = json.loads(record_path.read_text())
        sha256 = hashlib.sha256(name.encode()).hexdigest()
        told["assets"] = [{"path": name, "bytes": len(name), "sha256": sha256, "stored": stored}]
        record_path.write_text(json.dumps(told))
    forked = fork(scene, "2")
    found = [asset for one in stage_changes.of_run(forked.run) for asset in one.assets]
    assert [(asset.path, asset.there) for asset in found] == [("shot.png", True)]
    assert [path.name for path in (Path(forked.run.folder) / "assets").rglob("*.png")] == ["shot.png"]


def test_no_link_is_followed(scene: Scene, tmp_path: Path) -> None:  # D10
    worked(scene)
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    (scene.run_dir / "notes.md").symlink_to(secret)
    response = scene.run_dir / "stages" / "001-build.make@1" / "response.md"
    response.unlink()
    response.symlink_to(secret)
    (scene.run_dir / "more").symlink_to(tmp_path)
    folder = Path(fork(scene, "2").run.folder)
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert not [path for path in folder.rglob("*") if path.is_file() and b"hidden" in path.read_bytes()]


@each("content", ["{", None])
def test_what_cannot_be_taken_back_is_said(scene: Scene, content: str | None) -> None:
    """A later stage's own change of the context stays in the fork, and is named; the run stays what it is."""
    worked(scene)
    path = scene.run_dir / "stages" / "004-build.review@2" / "status.json"
    path.unlink() if content is None else path.write_text(content)
    forked = fork(scene, "2")
    assert "004-build.review@2" in forked.notes[0]
    context = forked.run.state["context"]
    assert (context["b"], "c" in context) == ("good", False)


def test_a_stage_of_a_branch_is_refused(scene: Scene) -> None:
    """A parallel step is one stage; a fork after it has all of its branches, with their files, and goes on."""
    begun(scene, {"build": {"steps": [FAN, {"id": "sum", "prompt": "Sum it up."}]}})
    space, run_id = scene.space(), scene.run_dir.name
    for name in ("api", "web"):
        advance.next_step(space, run_id, branch=name)
        advance.done(space, run_id, branch=name, response=json.dumps({"context_updates": {name: 1}}))
    advance.next_step(space, run_id)
    done(scene, "summed")
    with refused("IN_PARALLEL", hint=f"loomctl fork {handle(run_id)} --at 001-build.fan@1"):
        fork(scene, "fan.api.look")
    forked = fork(scene, "fan")
    assert (Path(forked.run.folder) / "stages/002-build.fan.api.look@1/response.md").exists()
    assert "003-build.fan.web.look@1" in forked.stages
    assert len(forked.stages) == len(set(forked.stages))
    assert {key: forked.run.state["context"][key] for key in ("api", "web")} == {"api": 1, "web": 1}
    resume.resume(space, forked.run.run_id)
    assert advance.next_step(space, forked.run.run_id).move.step == "build/sum"


def test_files_of_branches_that_are_worked_on_count_as_changed_later(scene: Scene) -> None:
    begun(scene, {"build": {"steps": [{"id": "plan", "prompt": "Plan."}, FAN]}})
    done(scene, "planned")
    space, run_id = scene.space(), scene.run_dir.name
    advance.next_step(space, run_id, branch="api")
    advance.done(space, run_id, branch="api", response="Looked.")
    made = {"files": [{"path": "api.py", "by": ["tool"]}], "count": 1}
    scene.write(f".loom/runs/{run_id}/stages/003-build.fan.api.look@1/{track.CHANGES}", json.dumps(made))
    assert fork(scene, "plan").changed == ["api.py"]


# ---- Any plan; and whatever comes between.

SLOW = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_numbers = itertools.count()


@pytest.mark.slow
@SLOW
@given(phases=plans(), script=st.lists(answers, min_size=1, max_size=7), cut=st.integers(0, 100))
def test_a_fork_that_is_played_on_ends_where_its_origin_ended(
    tmp_path: Path, phases: Json, script: list[Json], cut: int
) -> None:
    """Any plan, any answers, after any stage: with the same answers it comes to the same state and explains itself."""
    scene = Scene(tmp_path / str(next(_numbers)))
    begun(scene, phases, max_visits=3)
    first = scene.run_dir
    play(scene, first.name, script, 6)
    before = fingerprint(first)
    goal = essence(scene.state_of(first))
    run = scene.space().store.read(first.name)
    ended = [one["stage"] for one in stages.entries(run) if one["status"] not in ("in_progress", "closing")]
    at = ended[cut % len(ended)]
    forked = fork(scene, at, first.name)
    assert fingerprint(first) == before
    assert problems(scene, forked.run.folder) == []
    play(scene, forked.run.run_id, script, 6)
    if scene.state_of(Path(forked.run.folder))["status"] == "pending":  # there was nothing to play
        if goal["status"] == "failed":  # to take it up is to try again
            return
        resume.resume(scene.space(), forked.run.run_id)
    after = essence(scene.state_of(Path(forked.run.folder)))
    after.pop("forked_from")
    assert {**after, "run_id": goal["run_id"]} == goal
    found = context_history.of_run(scene.space().store.read(forked.run.run_id))
    assert "unknown" not in {one.by for one in found}


@pytest.mark.slow
def test_forks_at_once_are_runs_of_their_own(scene: Scene) -> None:
    worked(scene)
    command = [sys.executable, "-I", str(MAIN), "fork", scene.run_dir.name, "--json", "--at", "2"]
    how: Json = {"cwd": scene.root, "env": scene.environ(), "stdout": subprocess.PIPE}
    children = [subprocess.Popen(command, **how) for _ in range(4)]
    made = {json.loads(child.communicate(timeout=60)[0])["run_id"] for child in children}
    assert len(made) == 4
    for run_id in made:
        run = scene.space().store.read(run_id)
        assert stages_of(run.state) == ["001-build.make@1", "002-build.review@1"]
        assert problems(scene, run.folder) == []
    assert not list((scene.store / "local").glob("arriving-*"))


def test_a_name_that_is_taken_in_the_same_moment(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    worked(scene)
    taken: list[str] = []
    into_place = arrivals.into_place

    def late(store: Store, folder: str, run_id: str) -> str:
        if not taken:
            taken.append(run_id)
            (scene.store / "runs" / run_id).mkdir()
        return into_place(store, folder, run_id)

    monkeypatch.setattr(arrivals, "into_place", late)
    forked = fork(scene, "2")
    assert forked.run.run_id != taken[0]
    assert {one["run_id"] for one in events_of(forked.run.folder)} == {forked.run.run_id}
    assert [one["seq"] for one in events_of(forked.run.folder)] == [1, 2]
    assert problems(scene, forked.run.folder) == []


def test_a_killed_forks_rest_is_tidied(scene: Scene) -> None:
    worked(scene)
    staging = scene.store / "local" / "arriving-fork-999999999"
    (staging / "run").mkdir(parents=True)
    (staging / "run" / "state.json").write_text("{}")
    assert scene.loomctl("runs", "--json").json["runs"][0]["run_id"] == scene.run_dir.name
    assert scene.loomctl("clean").code == 0
    assert not staging.exists()
