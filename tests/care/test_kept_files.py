"""What Loom alone writes into a run's folder is held against the log, which has a hash of each (D54)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import file_checks
from loomctl.flow import resume
from loomctl.kit import digests
from loomctl.runs.model.state import UNCHECKED
from loomctl.runs.store import events
from tests.helpers.faber import RUN_ID, lay
from tests.helpers.machines import SECRET, Machine, server_of
from tests.helpers.repositories import git
from tests.helpers.scenes import Ended, Scene
from tests.helpers.tables import each

FIRST, SECOND = "001-frame.ask@1", "002-build.make@1"
OF_STAGES = ("prompt.md", "status.json", "changes.json", "changes.patch")


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run with two stages that have ended, each with a patch, in a repository; the third is open."""
    git(scene.root, "init", "-q", "-b", "main")
    scene.workflow()
    scene.begin()
    for name in ("a", "b"):
        scene.write(f"{name}.txt", name)
        assert scene.loomctl("done", given=f"{name} is made").code == 0
    return scene


def green(scene: Scene) -> str:
    told = scene.loomctl("prove", "--log", "--all")
    assert told.code == 0, told.stdout
    return told.stdout


def edited(data: bytes) -> bytes:
    """Change a letter of a text, or a value of a JSON object, as an editor does."""
    try:
        value = json.loads(data)
    except ValueError:
        return data.replace(b"e", b"3", 1) if b"e" in data else data + b"x"
    key = next((key for key in ("goal", "note", "files_unknown") if key in value), "workflow_id")
    return json.dumps({**value, key: "another"}).encode()


def changed(scene: Scene, path: Path, kind: str) -> None:
    data = path.read_bytes()
    if kind == "edit":
        path.write_bytes(edited(data))
    elif kind == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "delete":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    else:
        twin = path.parent.parent / (SECOND if path.parent.name == FIRST else FIRST) / path.name
        other = scene.run_dir / ("plan.json" if path.name == "state.json" else "state.json")
        path.write_bytes((twin if twin.exists() else other).read_bytes())


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize("file", ["state.json", "plan.json", *OF_STAGES])
@each("kind", ["edit", "truncate", "empty", "delete", "folder", "swap"])
def test_a_changed_file_is_named_with_its_stage(begun: Scene, file: str, kind: str) -> None:
    """Whatever was done to it, in whichever stage: exit code 1, or 5 where no state can be read, and its name."""
    green(begun)
    whole = file in ("state.json", "plan.json")
    for stage in ("",) if whole else (FIRST, SECOND):
        path = begun.run_dir / file if whole else begun.run_dir / "stages" / stage / file
        data, run_id = path.read_bytes(), begun.run_dir.name
        changed(begun, path, kind)
        told = begun.loomctl("prove", "--log", run_id)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(data)
        assert told.code == (5 if file == "state.json" and kind != "edit" else 1), told.stdout
        assert file in told.stdout + told.stderr
        assert stage in told.stdout


@pytest.mark.slow
def test_what_hooks_change_without_an_event_may_differ(begun: Scene) -> None:
    """The sessions, what was loaded, the lease and the times stand outside of the checksum; all other keys within."""
    for key, value in begun.state.items():
        state = begun.state
        begun.edit(**{key: {} if key in UNCHECKED and isinstance(value, dict) and key != "sessions" else value})
        held = file_checks.check(begun.space(), begun.run_dir.name)
        assert held.ok or key == "ledger_head", key
        begun.edit(**state)
    others = {
        "goal": "another",
        "status": "paused",
        "artifacts": {"a": "b.txt"},
        "errors": [{"message": "x"}],
        "mine": 1,
    }
    more = {"context": {**begun.state["context"], "k": 1}, "steps": begun.state["steps"][:-1]}
    for key, value in {**others, **more}.items():
        state = begun.state
        begun.edit(**{key: value})
        held = file_checks.check(begun.space(), begun.run_dir.name)
        assert [(one.file, one.stage) for one in held.faults] == [("state.json", "003-build.polish@1")], key
        (begun.run_dir / "state.json").write_text(json.dumps(state))
    green(begun)


def test_a_fault_says_which_file_and_what_to_do(begun: Scene) -> None:
    begun.edit(goal="another goal")
    told = begun.loomctl("prove", "--log")
    assert "CHANGED_FILE: state.json of 003-build.polish@1: it differs from what Loom wrote" in told.stdout
    assert "hint: loomctl" in told.stdout
    (fault,) = begun.loomctl("prove", "--log", "--json").json["files"]["faults"]
    assert (fault["file"], fault["code"]) == ("state.json", "CHANGED_FILE")


def walk(scene: Scene, *arguments: str, code: int = 0, **more: Any) -> Ended:
    ended = scene.loomctl(*arguments, **more)
    assert ended.code == code, ended.stdout + ended.stderr
    green(scene)
    return ended


@pytest.mark.slow
def test_whatever_a_run_goes_through_its_files_are_proven(scene: Scene, tmp_path: Path) -> None:
    """Each verb that writes into a run, one behind the other; only what a fork brings along is not covered."""
    git(scene.root, "init", "-q", "-b", "main")
    fan = [{"id": name, "steps": [{"id": "a", "prompt": "A."}]} for name in ("api", "web")]
    gate = {"steps": [{"id": "ask", "kind": "human", "prompt": "Well?"}]}
    commands = {"steps": [{"id": "count", "run": "echo 5"}, {"id": "fan", "parallel": {"branches": fan}}]}
    work = {"steps": [{"id": "one", "prompt": "1"}, {"id": "two", "prompt": "2", "output_schema": "routing"}]}
    last = {"steps": [{"id": "z", "prompt": "Z"}]}
    scene.workflow(phases={"work": work, "commands": commands, "gate": gate, "end": last})
    run_id = scene.begin().run.run_id
    green(scene)
    scene.write("one.txt", "1")
    walk(scene, "done", "--for", "1", "--artifact", "one=one.txt", given="One.")
    walk(scene, "context", "set", "k", "v")
    walk(scene, "done", "--for", "2", given="no object", code=1)
    walk(scene, "undo")
    walk(scene, "done", "--for", "1", given="One, again.")
    walk(scene, "pause", session=None)
    walk(scene, "resume", run_id)
    for event in ("session-start", "pre-compact", "user-prompt-submit", "stop", "session-end"):
        scene.hook(event, source="compact", trigger="auto", prompt="x", last_assistant_message="x", reason="other")
        assert "not covered" not in green(scene), event
    walk(scene, "resume", run_id)
    large = json.dumps({"outcome": "succeeded", "context_updates": {"x": "y" * 120_000}})
    for answer in (large, '{"outcome": "succeeded"}'):
        if answer != large:
            walk(scene, "rewind", "--to", "2")
        walk(scene, "done", "--for", "2", given=answer)
        walk(scene, "trust", run_id, "--yes", session=None)
        walk(scene, "next")
        for name in ("api", "web"):
            walk(scene, "next", "--branch", name)
            walk(scene, "done", "--branch", name, given=f"{name} done")
    walk(scene, "approve", run_id, session=None)
    walk(scene, "done", "--for", str(scene.state["steps"][-1]["rank"]), given="Z.")
    assert "not covered" not in green(scene)
    assert scene.state["status"] == "completed"
    assert walk(scene, "fork", run_id, "--at", "1", session=None).stdout
    assert "not covered: 001-work.one@1" in green(scene)
    archive = str(tmp_path / "a.tar.gz")
    walk(scene, "runs", "archive", run_id, "--to", archive)
    walk(scene, "runs", "restore", archive)


@pytest.mark.slow
@pytest.mark.parametrize("said", ["Made it.", f"The key is {SECRET}"])
def test_a_run_that_goes_to_another_machine_and_back_is_proven_on_both(tmp_path: Path, said: str) -> None:
    """With a secret in an answer and a value, too: what was masked is unproven there, and proven again here."""
    server = server_of(tmp_path)
    here, there = Machine(tmp_path / "läptop", server), Machine(tmp_path / "desk", server)
    here.workflow()
    run_id = here.begin().run.run_id
    here.done(run_id, said)
    here.loomctl("context", "set", "k", said)
    here.push(run_id)
    there.pull(run_id)
    for one in (here, there):
        assert file_checks.check(one.space(), run_id).ok
    resume.resume(there.space(), run_id)
    assert file_checks.check(there.space(), run_id).ok
    there.done(run_id, "There.")
    there.push(run_id)
    here.pull(run_id)
    for one in (here, there):
        held = file_checks.check(one.space(), run_id)
        assert held.ok, held.faults


def of_an_older_loom(folder: Path) -> None:
    """Take the hashes out of a log, and chain it anew, as a Loom wrote it that took none down."""
    prev, lines = "", []
    for line in (folder / events.FILE).read_text().splitlines():
        entry = {key: value for key, value in json.loads(line).items() if key != "state"}
        entry["properties"].pop("files_sha256", None)
        entry["properties"].get("plan", {}).pop("sha256", None)
        lines.append(json.dumps({**entry, "prev": prev}))
        prev = digests.of_text(lines[-1])
    (folder / events.FILE).write_text("".join(f"{line}\n" for line in lines))
    state = json.loads((folder / "state.json").read_text())
    state["ledger_head"]["sha256"] = prev
    (folder / "state.json").write_text(json.dumps(state))


def test_an_older_run_is_proven_as_far_as_its_log_goes(begun: Scene) -> None:
    of_an_older_loom(begun.run_dir)
    assert f"not covered: {FIRST}, {SECOND}, plan.json, state.json" in green(begun)
    begun.edit(goal="another")
    green(begun)
    walk(begun, "done", "--for", "3", given="polished")
    assert f"not covered: {FIRST}, {SECOND}, plan.json: the log" in green(begun)


def test_a_state_of_fabers_is_not_loom_s_to_hold(scene: Scene) -> None:
    lay(scene)
    assert scene.loomctl("resume", RUN_ID).code == 0
    assert "not covered: state.json: " in green(scene)
    path = scene.store / "runs" / RUN_ID / "plan.json"
    path.write_text(path.read_text().replace('"phases"', '"phrases"'))
    assert scene.loomctl("prove", "--log", RUN_ID).code == 1


def test_a_kept_value_of_another_shape_breaks_nothing(begun: Scene) -> None:
    wrong: list[Any] = [None, 5, [], "x", {"prompt.md": 5}, {"../../state.json": "0" * 64}, {"x\0": "0" * 64}]
    told = [
        events.Event(name, {"stage": stage, "files_sha256": one, "plan": one})
        for name in ("stage.started", "stage.completed", "plan.frozen", "run.created")
        for stage in ("../../x", "099-x@1", None)
        for one in wrong
    ]
    events.append(str(begun.run_dir), begun.run_dir.name, told, durable=False)
    assert file_checks.check(begun.space(), begun.run_dir.name).ok
