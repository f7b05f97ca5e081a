"""`loomctl prove --log` says what of a run's log is proven, what is not, and where it first does not fit (D54)."""

from pathlib import Path

import pytest

from loomctl.runs.store import events
from loomctl.runs.store.events import Event
from tests.helpers.faber import RUN_ID, lay
from tests.helpers.scenes import Scene, handle
from tests.helpers.texts import holds


def begun(scene: Scene) -> str:
    scene.workflow()
    return scene.begin().run.run_id


def log(scene: Scene) -> Path:
    return scene.run_dir / events.FILE


def test_a_whole_log_is_proven_and_of_a_changed_one_is_said_what_can_be_done(scene: Scene) -> None:
    run_id = begun(scene)
    told = scene.loomctl("prove", "--log")
    count = len(scene.events())
    assert (told.code, told.stdout) == (
        0,
        f"✓ {handle(run_id)}: {count} events proven, up to the last checkpoint\n  files: 3 proven\n",
    )
    log(scene).write_bytes(b"")
    told = scene.loomctl("prove", "--log")
    assert "next: the run was never pushed from here" in told.stdout
    assert told.stdout.endswith(f"  hint: loomctl show --stages {handle(run_id)}\n")
    assert scene.loomctl("show", "--stages", run_id).code == 0


@pytest.mark.slow
def test_a_changed_log_is_a_finding_with_its_place(scene: Scene) -> None:
    run_id = begun(scene)
    data = log(scene).read_bytes()
    at = data.index(b'"run_id"', data.index(b"\n"))
    log(scene).write_bytes(data[:at] + b" " + data[at:])
    told = scene.loomctl("prove", "--log", run_id).ends(1)
    second = data.index(b"\n") + 1
    assert f"first: line 2, byte {second:,} (CHANGED_ENTRY)" in told.stdout
    document = scene.loomctl("prove", "--log", "--json")
    assert (document.code, document.json["ok"], document.json["proven"]) == (1, False, False)
    assert (document.json["fault"]["line"], document.json["fault"]["at"]) == (2, second)
    assert "CHANGED_ENTRY at line 2" in scene.loomctl("check", str(log(scene))).ends(5).stdout
    (doctor,) = [one for one in scene.loomctl("doctor", "--json").json["checks"] if one["id"] == "ledgers"]
    assert (doctor["status"], doctor["hint"]) == ("WARN", f"loomctl prove --log {handle(run_id)}")
    assert "line 2" in doctor["found"]


@pytest.mark.slow
def test_what_is_unproven_and_torn_is_said_and_no_finding(scene: Scene) -> None:
    run_id = begun(scene)
    lines = len(scene.events())
    events.append(str(scene.run_dir), run_id, [Event("a", {}), Event("b", {})], durable=False)
    with log(scene).open("ab") as file:
        file.write(b'{"seq":')
    told = scene.loomctl("prove", "--log").ends()
    assert f"unproven: 2 events after the last checkpoint, from line {lines + 1}" in told.stdout
    assert f"torn: line {lines + 3} is incomplete (7 bytes)" in told.stdout
    assert scene.loomctl("check", str(log(scene))).code == 0
    scene.loomctl("done", "--outcome", "failed")
    again = scene.loomctl("prove", "--log")
    assert (again.code, "torn before: 1 line" in again.stdout, "unproven" in again.stdout) == (0, True, False)


def test_every_run_is_verified_and_one_that_cannot_be_read_is_named(scene: Scene) -> None:
    begun(scene)
    scene.begin("another")
    assert scene.loomctl("prove", "--log", "--all").stdout.count("✓") == 2
    first, second = scene.run_dirs
    (first / events.FILE).write_bytes(b"")
    assert scene.loomctl("prove", "--log", "--all").code == 1
    (second / "state.json").write_text("{", encoding="utf-8")
    told = scene.loomctl("prove", "--log", "--all", "--json").ends(5)
    assert [one["run_id"] for one in told.json["unreadable"]] == [second.name]
    assert [one["ok"] for one in told.json["runs"]] == [False]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["undo", "rewind", "fork", "restored", "archived", "over"])
def test_whatever_became_of_a_run_its_log_is_proven(scene: Scene, what: str, tmp_path: Path) -> None:
    run_id = begun(scene)
    for _ in range(2):
        assert scene.loomctl("done", "--outcome", "succeeded", "--response-file", "-", given="x").code == 0
    if what == "undo":
        assert scene.loomctl("undo").code == 0
    if what == "rewind":
        assert scene.loomctl("rewind", "--to", "1").code == 0
    if what == "fork":
        assert scene.loomctl("fork", "--at", "1", session=None).code == 0
    if what == "restored":
        (scene.run_dir / "state.json").write_text("{", encoding="utf-8")
        assert scene.loomctl("prove", "--log", run_id).code == 5
        assert scene.loomctl("debug", "state", "restore", run_id, "--yes").code == 0
    if what == "archived":
        scene.loomctl("cancel", session=None)
        archive = str(tmp_path / "a.tar.gz")
        assert scene.loomctl("runs", "archive", run_id, "--to", archive).code == 0
        assert scene.loomctl("runs", "restore", archive).code == 0
    if what == "over":
        for _ in range(2):
            scene.loomctl("done", "--outcome", "succeeded", "--response-file", "-", given="x")
        assert scene.state["status"] == "completed"
    found = scene.loomctl("prove", "--log", "--all", "--json").json
    assert [(one["proven"], one["faults"]) for one in found["runs"]] == [(True, [])] * len(scene.run_dirs), found


@pytest.mark.slow
def test_what_a_stage_showed_is_told_and_simulated_as_there(scene: Scene) -> None:
    steps = [{"id": "make", "prompt": "Make it.", "evidence": ["x.md", {"file": "y.md", "changed": False}]}]
    scene.workflow(phases={"build": {"steps": steps}})
    run_id = scene.begin().run.run_id
    scene.write("y.md", "y")
    refused = scene.loomctl("done", "--response-file", "-", "--json", given="Made.")
    assert (refused.code, refused.json["outcome"]) == (1, None)
    assert refused.json["repair"].startswith("EVIDENCE_MISSING: step build/make is not done")
    assert "x.md" in scene.loomctl("done", "--response-file", "-", given="Made.").stdout
    scene.write("x.md", "x")
    assert scene.loomctl("done", "--response-file", "-", given="Made.").code == 0
    shown = scene.loomctl("show", run_id, "make").stdout
    holds(shown, "evidence  ✓ file x.md (2d711642b726…)", "evidence  ✓ file y.md (")
    assert scene.loomctl("simulate", "tiny", "--json").json["status"] == "completed"
    assert scene.loomctl("prove", "--log", run_id).code == 0


@pytest.mark.slow
def test_a_run_of_fabers_is_verified_where_loom_keeps_its_log(scene: Scene) -> None:
    """Its state is FABER's own file, which holds the checkpoint; the log lies in the store. Before Loom it has none."""
    lay(scene)
    assert (scene.loomctl("prove", "--log", RUN_ID).code, scene.loomctl("resume").code) == (0, 0)
    told = scene.loomctl("prove", "--log", "--json")
    assert (told.code, told.json["proven"], told.json["run_id"]) == (0, True, RUN_ID)
    path = scene.store / "runs" / RUN_ID / events.FILE
    path.write_bytes(path.read_bytes().replace(b"run.", b"ran.", 1))
    assert scene.loomctl("prove", "--log").code == 1


@pytest.mark.slow
def test_a_changed_answer_is_a_finding_with_the_next_step(scene: Scene) -> None:
    run_id = begun(scene)
    assert scene.loomctl("done", "--response-file", "-", given="Asked.").code == 0
    assert "files: 7 proven\n" in scene.loomctl("prove", "--log").stdout
    (path,) = (scene.run_dir / "stages").glob("*/response.md")
    path.write_text("Another.", encoding="utf-8")
    told = scene.loomctl("prove", "--log")
    stage = path.parent.name
    assert told.code == 1
    assert told.stdout.startswith(f"✗ {handle(run_id)}: ")
    assert f"CHANGED_FILE: response.md of {stage}: it differs from what Loom wrote" in told.stdout
    assert told.stdout.endswith(f"  hint: loomctl show {handle(run_id)} {stage}\n")
    document = scene.loomctl("prove", "--log", "--json")
    assert (document.code, document.json["ok"], document.json["proven"]) == (1, False, True)
    assert [one["file"] for one in document.json["files"]["faults"]] == ["response.md"]
    assert scene.loomctl(*document.json["hint"].split()[1:]).code == 0
