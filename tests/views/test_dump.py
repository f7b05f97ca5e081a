"""A dump holds the whole run: every response, status and event, and every reference in it leads to what it names."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from loomctl.flow import command_trust, drive, finish_records, resume, undo
from loomctl.kit.errors import LoomError
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.views import dump
from loomctl.workflows import schema_checks
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Json, Scene, fingerprint

LARGE = "grün ✓ " * 20_000


@pytest.fixture
def finished(scene: Scene) -> Scene:
    """A completed run: large values and responses, one that was replaced."""
    scene.workflow()
    scene.begin()
    space, run_id = scene.space(), scene.run_dir.name
    update = json.dumps({"context_updates": {"small": {"a": [1]}, "large": {"text": LARGE}}}, ensure_ascii=False)
    drive.done(space, run_id, response=f"asked\n{update}")
    drive.done(space, run_id, response=LARGE * 2)
    drive.done(space, run_id, response='polished\n{"context_updates": {"large": 7}}')
    drive.done(space, run_id, response="sent")
    assert scene.state["status"] == "completed"
    return scene


def read(path: Path) -> Json:
    """Read a JSON file."""
    value: Json = json.loads(path.read_text(encoding="utf-8"))
    return value


def below(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def dumped(scene: Scene, path: Path, *, force: bool = False) -> dump.Dumped:
    """Dump the only run."""
    return dump.dump(scene.space(), scene.run_dir.name, str(path), force=force)


LIVED: Json = {
    "build": {
        "steps": [
            {"id": "plan", "prompt": "Plan it.", "output_schema": "routing"},
            {"id": "make", "prompt": "Make it."},
            {"id": "test", "run": "mkdir test-results; echo shot > test-results/a.txt; echo tested; echo twice"},
            {"id": "send", "prompt": "Send it."},
        ]
    }
}


@pytest.fixture
def lived(scene: Scene) -> Scene:
    """A completed run of two sessions: answers that were repaired, an undo, a command with an asset, large values."""
    git(scene.root, "init", "-q")
    scene.workflow(phases=LIVED)
    run = scene.begin().run
    space = scene.space()
    command_trust.trust(space, run, command_trust.listed(space, run))
    drive.done(space, run.run_id, response="no JSON at all")
    drive.done(space, run.run_id, response='{"context_updates": 3}')
    update = json.dumps({"context_updates": {"small": {"a": [1]}, "large": {"text": LARGE}}}, ensure_ascii=False)
    drive.done(space, run.run_id, response=update)
    drive.done(space, run.run_id, response="made wrongly")
    undo.undo(space, run.run_id)
    resume.resume(scene.space(OTHER), run.run_id, take_over=True)
    scene.write("made.txt", "made")
    drive.done(scene.space(OTHER), run.run_id, response=LARGE * 2)
    drive.next_step(scene.space(OTHER), run.run_id)
    drive.done(scene.space(OTHER), run.run_id, response='{"context_updates": {"large": 7}}')
    assert scene.state["status"] == "completed"
    return scene


def test_a_dump_read_back_has_all_of_a_run_that_was_lived(lived: Scene, tmp_path: Path) -> None:
    """Every file of it as it was; every reference leads to what it names, and the context to what was said."""
    before = fingerprint(lived.run_dir)
    told = dumped(lived, tmp_path / "out")
    out = tmp_path / "out"
    assert (told.troubles, fingerprint(lived.run_dir)) == ([], before)
    kept = ("state.json", "plan.json", "events.jsonl")
    whole = [
        name
        for name in below(lived.run_dir)
        if name in kept or (name.startswith(("stages/", "assets/")) and not name.endswith("command.lock"))
    ]
    for name in whole:
        assert (out / name).read_bytes() == (lived.run_dir / name).read_bytes(), name
    assert {
        "stages/001-build.plan@1/response.repair-1.md",
        "stages/001-build.plan@1/response.repair-2.md",
        "stages/002-build.make@1/response.undone-1.md",
        "stages/002-build.make@1/changes.patch",
        "stages/003-build.test@1/command.log",
        "assets/build.test/retry_1/test-results/a.txt",
    } <= set(whole)
    state = read(out / "state.json")
    for entry in state["steps"]:
        names = {path.name for path in (out / "stages" / entry["stage"]).iterdir()}
        answer = "command.log" if entry["step_id"] == "build/test" else "response.md"
        assert {"prompt.md", answer, "status.json"} <= names
    refs = {ref for name in whole if name.endswith("status.json") for ref in blobs.refs_of_status(read(out / name))}
    refs |= set(blobs.refs_of(state["context"]))
    for ref in refs:
        sha256 = blobs.sha256_of(ref)
        data = (out / "blobs" / "sha256" / sha256[:2] / sha256).read_bytes()
        assert hashlib.sha256(data).hexdigest() == sha256
    assert (told.stages, told.blobs, len(refs)) == (4, 4, 4)
    assert told.events == len((out / "events.jsonl").read_text().splitlines())
    assert [record["session_id"] for record in state["sessions"]["session_history"]] == [SESSION, OTHER]
    context = read(out / "context.json")
    assert context["response.build/make"] == LARGE * 2
    assert context["command.output"] == "tested\ntwice\n"
    assert (context["small"], context["large"]) == ({"a": [1]}, 7)


def test_the_context_is_given_with_its_values(finished: Scene, tmp_path: Path) -> None:
    """Large ones and responses in full, whatever stands for them in the state."""
    dumped(finished, tmp_path / "out")
    context = read(tmp_path / "out" / "context.json")
    assert context.keys() == finished.state["context"].keys()
    assert context["response.build/make"] == LARGE * 2
    assert context["response.ship/send"] == "sent"
    assert context["small"] == {"a": [1]}
    assert context["large"] == 7
    assert blobs.refs_of(context) == []


def test_the_list_names_each_file_with_size_and_hash(finished: Scene, tmp_path: Path) -> None:
    """Nothing else stands in the folder, all of it is its owner's alone, and nothing of this machine's is in it."""
    leftover = finished.run_dir / "stages" / "001-frame.ask@1" / "status.json.tmp"
    leftover.write_text("half")
    (leftover.parent / "command.lock").write_text("")
    told = dumped(finished, tmp_path / "out")
    out = tmp_path / "out"
    listed = read(out / "dump.json")
    assert sorted([*listed["files"], "dump.json"]) == below(out)
    for name, one in listed["files"].items():
        data = (out / name).read_bytes()
        assert one == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}, name
    assert (listed["run_id"], listed["troubles"], listed["events"]) == (finished.run_dir.name, [], told.events)
    assert not [name for name in below(out) if any(word in name for word in (".tmp", "backup", "local", ".lock"))]
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_cannot_be_brought_along_is_named_and_the_rest_is_there(finished: Scene, tmp_path: Path) -> None:
    """A damaged blob, a missing one, a link, a response that is gone, a torn line."""
    shutil.rmtree(finished.run_dir / "blobs")  # the copies that preambles made: they would serve
    store = Blobs(str(finished.store))
    make = finished.state["context"]["response.build/make"]
    (status,) = blobs.refs_of_status(read(finished.run_dir / "stages" / "001-frame.ask@1" / "status.json"))
    Path(store.path(make)).write_bytes(b"damaged")
    Path(store.path(status)).unlink()
    (finished.run_dir / "assets").mkdir()
    (finished.run_dir / "assets" / "link").symlink_to("/etc/passwd")
    (finished.run_dir / "stages" / "004-ship.send@1" / "response.md").unlink()
    with (finished.run_dir / "events.jsonl").open("ab") as file:
        file.write(b'{"torn')
    told = dumped(finished, tmp_path / "out")
    assert sorted(one.code for one in told.troubles) == [
        *("DAMAGED_BLOB", "NOT_A_FILE", "NO_SUCH_BLOB", "RESPONSE_GONE"),
    ]
    listed = read(tmp_path / "out" / "dump.json")
    assert (listed["broken_lines"], listed["blobs"], len(listed["troubles"])) == (1, 1, 4)
    assert all(one["message"] and one["code"] for one in listed["troubles"])
    assert read(tmp_path / "out" / "context.json")["response.build/make"] == make
    assert not (tmp_path / "out" / "assets" / "link").exists()


def test_a_copy_that_the_run_brought_along_serves(finished: Scene, tmp_path: Path) -> None:
    """As after an archive was unpacked by hand."""
    store = Blobs(str(finished.store))
    ref = finished.state["context"]["response.build/make"]
    copy = finished.run_dir / "blobs" / f"{blobs.sha256_of(ref)}.json"
    os.replace(store.path(ref), copy)
    assert dumped(finished, tmp_path / "out").troubles == []
    assert read(tmp_path / "out" / "context.json")["response.build/make"] == LARGE * 2


def test_a_dump_of_everything_awkward_is_read_back(scene: Scene, tmp_path: Path) -> None:
    """A command, an answer taken back and one repaired, a value in a value, odd names, two sessions, an asset."""
    scene.write("test-results/x", "x")
    scene.workflow(
        phases={
            "a": {
                "steps": [
                    {"id": "test", "run": f"printf '\\377\\000' > 'test-results/a\nü'; head -c {len(LARGE)} /dev/zero"},
                    {"id": "ask", "prompt": "Ask.", "output_schema": "routing", "output_retries": 2},
                    {"id": "make", "prompt": "Make.", "max_retries": 1},
                    {"id": "send", "prompt": "Send."},
                ]
            }
        }
    )
    run = scene.begin().run
    space, run_id = scene.space(), run.run_id
    command_trust.trust(space, run, command_trust.listed(space, run))
    drive.next_step(space, run_id)
    for _ in range(2):
        drive.done(space, run_id, response='{"outcome": 7} \x00 \ud800')
    drive.done(space, run_id, response=json.dumps({"outcome": "succeeded", "context_updates": {"l": LARGE}}))
    resume.resume(scene.space(OTHER), run_id, take_over=True)
    other = scene.space(OTHER)
    inner = scene.state["context"]["l"]
    nested = {"context_updates": {"n": {"of": [inner, LARGE]}, "\x1b": "\u2028"}}
    drive.done(other, run_id, response=json.dumps(nested), outcome="failed", note="again")
    undo.undo(other, run_id)
    drive.done(other, run_id, response=json.dumps(nested))
    told = dumped(scene, tmp_path / "out")
    assert told.troubles == []
    out = tmp_path / "out"
    state, listed = read(out / "state.json"), read(out / "dump.json")
    names = [entry["stage"] for entry in state["steps"]]
    assert (listed["stages"], told.stages, len(names)) == (4, 4, 4)
    assert {path.name for path in (out / "stages").iterdir()} == {*names, "004-a.make@2"}
    for entry in state["steps"][:-1]:
        folder = out / "stages" / entry["stage"]
        status = read(folder / "status.json")
        for kind, held in (("status", status), ("changes", read(folder / "changes.json"))):
            schema = schema_checks.schema(kind, bundle=str(CHECKOUT))
            assert Draft202012Validator(schema).is_valid(held), (kind, held)
        assert status["status"] == entry["status"]
        for ref in blobs.refs_of_status(status):
            sha256 = blobs.sha256_of(ref)
            data = (out / "blobs" / "sha256" / sha256[:2] / sha256).read_bytes()
            assert hashlib.sha256(data).hexdigest() == sha256
        for asset in status["assets"]:
            assert hashlib.sha256((out / asset["stored"]).read_bytes()).hexdigest() == asset["sha256"]
    assert len(read(out / "stages" / names[0] / "status.json")["assets"]) == 1
    assert {"response.repair-1.md", "response.repair-2.md"} <= {p.name for p in (out / "stages" / names[1]).iterdir()}
    assert "response.undone-1.md" in {path.name for path in (out / "stages" / names[2]).iterdir()}
    context = read(out / "context.json")
    assert (context["l"], context["n"]["of"][1], context["\x1b"]) == (LARGE, LARGE, "\u2028")
    assert len(context["command.output"]) == len(LARGE)
    lines = [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, listed["events"] + 1))
    assert lines == scene.events()


def test_a_status_that_is_gone_is_named(finished: Scene, tmp_path: Path) -> None:
    """As a response is."""
    (finished.run_dir / "stages" / "002-build.make@1" / "status.json").unlink()
    shutil.rmtree(finished.run_dir / "stages" / "003-build.polish@1")
    told = dumped(finished, tmp_path / "out")
    gone = [one.what for one in told.troubles if one.code == "STATUS_GONE"]
    assert gone == [
        f"stages/{stage}/status.json is not in the dump: it is not there"
        for stage in ("002-build.make@1", "003-build.polish@1")
    ]
    assert told.stages == 3


def test_a_text_that_looks_like_a_reference_is_missed_by_nobody(finished: Scene, tmp_path: Path) -> None:
    """Only what state, statuses and events hold as a value is a reference."""
    made_up = blobs.ref_to("0" * 64)
    (finished.run_dir / "stages" / "004-ship.send@1" / "response.md").write_text(f"see {made_up}")
    assert dumped(finished, tmp_path / "out").troubles == []


def test_a_text_of_a_models_is_no_reference_to_miss(scene: Scene, tmp_path: Path) -> None:
    """Deep in a value, as a reason, alone: nothing is missed, and what was stored is counted once."""
    made_up = blobs.ref_to("a" * 64)
    scene.workflow()
    scene.begin()
    update = {"outcome": "failed", "failure_reason": made_up, "context_updates": {"n": {"x": made_up}, "t": made_up}}
    drive.done(scene.space(), scene.run_dir.name, response=json.dumps(update))
    assert dumped(scene, tmp_path / "out").troubles == []
    context = read(tmp_path / "out" / "context.json")
    assert (context["n"], context["t"]) == ({"x": made_up}, made_up)
    assert finish_records.offloaded(str(scene.run_dir), scene.state) == 1
    assert scene.state["context"]["t"] != made_up


def test_a_run_that_was_only_begun_is_dumped(scene: Scene, tmp_path: Path) -> None:
    """With what there is."""
    scene.workflow()
    scene.begin()
    told = dumped(scene, tmp_path / "deep" / "er" / "out")
    assert (told.stages, told.blobs, told.troubles) == (1, 0, [])
    assert read(tmp_path / "deep" / "er" / "out" / "context.json") == scene.state["context"]


# ---- Its place.


def test_an_empty_folder_is_taken_and_nothing_else(finished: Scene, tmp_path: Path) -> None:
    """A folder with something in it, a file, a link: refused, and left as it is."""
    (tmp_path / "empty").mkdir()
    dumped(finished, tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    before = fingerprint(tmp_path)
    for name in ("file", "full", "link"):
        for force in (False, True):
            with pytest.raises(LoomError, match="FOLDER_TAKEN"):
                dumped(finished, tmp_path / name, force=force)
    with pytest.raises(LoomError, match="FOLDER_TAKEN"):
        dumped(finished, tmp_path / "empty")
    assert fingerprint(tmp_path) == before


def test_force_replaces_a_dump(finished: Scene, tmp_path: Path) -> None:
    """Whole: what stood in the one before is gone, and nothing stands beside."""
    dumped(finished, tmp_path / "out")
    (tmp_path / "out" / "old").write_text("old")
    dumped(finished, tmp_path / "out", force=True)
    assert not (tmp_path / "out" / "old").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out"]


def test_no_dump_is_written_into_the_store(finished: Scene) -> None:
    """Nor into the run's own folder, which it would grow by."""
    for path in (finished.run_dir / "out", finished.store / "runs" / "x", finished.store):
        with pytest.raises(LoomError, match="BAD_TARGET"):
            dumped(finished, path)


def test_a_failure_leaves_nothing(finished: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the place nor beside it; the dump before stays."""
    dumped(finished, tmp_path / "out")
    before = fingerprint(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(dump._Dump, "_copy_blobs", full)
    for path in ("out", "other"):
        with pytest.raises(OSError, match="No space"):
            dumped(finished, tmp_path / path, force=True)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("call", [1, 5, 12])
def test_a_kill_leaves_no_half_dump_and_the_next_one_clears_up(finished: Scene, tmp_path: Path, call: int) -> None:
    """At any of its writes."""
    program = textwrap.dedent(f"""
        import os, signal, sys
        sys.path.insert(0, {str(CHECKOUT)!r})
        from loomctl.views import dump
        from loomctl.cli.main import main
        honest, calls = dump._Dump._open, []
        def open_(self, name):
            calls.append(name)
            if len(calls) == {call}:
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(self, name)
        dump._Dump._open = open_
        main(["dump", {finished.run_dir.name!r}, {str(tmp_path / "out")!r}])
    """)
    ended = subprocess.run([sys.executable, "-c", program], cwd=finished.root, env=finished.environ(), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.glob("out*")] != []
    dumped(finished, tmp_path / "out")
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


# ---- How many values were offloaded.


def test_a_completed_run_says_how_many_values_were_offloaded(finished: Scene) -> None:
    """Each content once, those that were replaced since among them."""
    (told,) = [
        json.loads(line)
        for line in (finished.run_dir / "events.jsonl").read_text().splitlines()
        if '"run.completed"' in line
    ]
    assert told["properties"] == {"artifact_count": 3}


def test_counting_passes_over_what_cannot_be_read(finished: Scene) -> None:
    """A status that is damaged, gone, odd; a stage whose name leads elsewhere."""
    state = finished.state
    folder = finished.run_dir / "stages"
    (folder / "001-frame.ask@1" / "status.json").write_text('["blob://sha256/' + "0" * 64 + '"]')
    (folder / "003-build.polish@1" / "status.json").write_text('{"blob://sha256/')
    (folder / "004-ship.send@1" / "status.json").unlink()
    state["steps"].append({**state["steps"][0], "stage": "../../x"})
    assert finish_records.offloaded(str(finished.run_dir), state) == 2
