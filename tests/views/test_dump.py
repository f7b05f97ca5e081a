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

from loomctl.flow import advance, finish_records, resume, rewind
from loomctl.flow.commands import command_steps
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.views import dump
from loomctl.workflows import check
from tests.helpers.errors import refusal
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Json, Scene, fingerprint

LARGE = "grün ✓ " * 20_000


@pytest.fixture
def finished(scene: Scene) -> Scene:
    """A completed run: large values and responses, one that was replaced."""
    scene.workflow()
    scene.begin()
    space, run_id = scene.space(), scene.run_dir.name
    update = json.dumps({"context_updates": {"small": {"a": [1]}, "large": {"text": LARGE}}}, ensure_ascii=False)
    advance.done(space, run_id, response=f"asked\n{update}")
    advance.done(space, run_id, response=LARGE * 2)
    advance.done(space, run_id, response='polished\n{"context_updates": {"large": 7}}')
    advance.done(space, run_id, response="sent")
    assert scene.state["status"] == "completed"
    return scene


def read(path: Path) -> Json:
    value: Json = json.loads(path.read_text(encoding="utf-8"))
    return value


def below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def dumped(scene: Scene, path: Path, *, force: bool = False) -> dump.Dumped:
    return dump.dump(scene.space(), scene.run_dir.name, str(path), force=force)


def test_the_context_has_its_values_and_the_list_each_file_with_size_and_hash(finished: Scene, tmp_path: Path) -> None:
    """Large values in full; nothing else stands there, all of it is its owner's alone, nothing is this machine's."""
    leftover = finished.run_dir / "stages" / "001-frame.ask@1" / "status.json.tmp"
    leftover.write_text("half")
    (leftover.parent / "command.lock").write_text("")
    told = dumped(finished, tmp_path / "out")
    out = tmp_path / "out"
    context = read(out / "context.json")
    assert context.keys() == finished.state["context"].keys()
    assert (context["response.build/make"], context["response.ship/send"]) == (LARGE * 2, "sent")
    assert (context["small"], context["large"], blobs.refs_of(context)) == ({"a": [1]}, 7, [])
    listed = read(out / "dump.json")
    assert sorted([*listed["files"], "dump.json"]) == below(out)
    assert told.files == len(below(out))
    for name, one in listed["files"].items():
        data = (out / name).read_bytes()
        assert one == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}, name
    assert (listed["run_id"], listed["troubles"], listed["events"]) == (finished.run_dir.name, [], told.events)
    assert not [name for name in below(out) if any(word in name for word in (".tmp", "backup", "local", ".lock"))]
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_cannot_be_brought_along_is_named_and_the_rest_is_there(finished: Scene, tmp_path: Path) -> None:
    store = Blobs(str(finished.store))
    make = finished.state["context"]["response.build/make"]
    made_up = blobs.ref_to("0" * 64)  # which is none in a text
    (finished.run_dir / "stages" / "004-ship.send@1" / "response.md").write_text(f"see {made_up}")
    os.replace(store.path(make), finished.run_dir / "blobs" / f"{blobs.sha256_of(make)}.json")
    assert dumped(finished, tmp_path / "served").troubles == []  # by the copy, as after an archive was unpacked by hand
    assert read(tmp_path / "served" / "context.json")["response.build/make"] == LARGE * 2
    shutil.rmtree(finished.run_dir / "blobs")
    (status,) = blobs.refs_of_status(read(finished.run_dir / "stages" / "001-frame.ask@1" / "status.json"))
    Path(store.path(make)).write_bytes(b"damaged")
    Path(store.path(status)).unlink()
    (finished.run_dir / "stages" / "002-build.make@1" / "status.json").unlink()
    shutil.rmtree(finished.run_dir / "stages" / "003-build.polish@1")
    (finished.run_dir / "assets").mkdir()
    (finished.run_dir / "assets" / "link").symlink_to("/etc/passwd")
    (finished.run_dir / "stages" / "004-ship.send@1" / "response.md").unlink()
    with (finished.run_dir / "events.jsonl").open("ab") as file:
        file.write(b'{"torn')
    told = dumped(finished, tmp_path / "out")
    assert sorted(one.code for one in told.troubles) == [
        *("DAMAGED_BLOB", "NOT_A_FILE", "NO_SUCH_BLOB", "RESPONSE_GONE", "RESPONSE_GONE", "STATUS_GONE", "STATUS_GONE"),
    ]
    assert "stages/002-build.make@1/status.json is not in the dump: it is missing" in [
        one.what for one in told.troubles
    ]
    assert told.stages == 3
    listed = read(tmp_path / "out" / "dump.json")
    assert (listed["broken_lines"], listed["blobs"], len(listed["troubles"])) == (1, 1, 7)
    assert all(one["message"] and one["code"] for one in listed["troubles"])
    assert read(tmp_path / "out" / "context.json")["response.build/make"] == make
    assert not (tmp_path / "out" / "assets" / "link").exists()


def test_a_dump_of_everything_awkward_is_read_back(scene: Scene, tmp_path: Path) -> None:
    scene.write("test-results/x", "x")
    scene.workflow(phases={"a": {"steps": [
        {"id": "test", "run": f"printf '\\377\\000' > 'test-results/a\nü'; head -c {len(LARGE)} /dev/zero"},
        {"id": "ask", "prompt": "Ask.", "output_schema": "routing", "output_retries": 2},
        {"id": "make", "prompt": "Make.", "max_retries": 1},
        {"id": "send", "prompt": "Send."},
    ]}})  # fmt: skip
    run = scene.begin().run
    space, run_id = scene.space(), run.run_id
    command_steps.trust(space, run, command_steps.listed(space, run))
    advance.next_step(space, run_id)
    for _ in range(2):
        advance.done(space, run_id, response='{"outcome": 7} \x00 \ud800')
    advance.done(space, run_id, response=json.dumps({"outcome": "succeeded", "context_updates": {"l": LARGE}}))
    resume.resume(scene.space(OTHER), run_id, take_over=True)
    other = scene.space(OTHER)
    inner = scene.state["context"]["l"]
    nested = {"context_updates": {"n": {"of": [inner, LARGE]}, "\x1b": "\u2028"}}
    advance.done(other, run_id, response=json.dumps(nested), outcome="failed", note="again")
    rewind.undo(other, run_id)
    advance.done(other, run_id, response=json.dumps(nested))
    before = fingerprint(scene.run_dir)
    told = dumped(scene, tmp_path / "out")
    assert (told.troubles, fingerprint(scene.run_dir)) == ([], before)
    out = tmp_path / "out"
    for name in below(scene.run_dir):
        is_copied = name.startswith(("stages/", "assets/")) and not name.endswith("command.lock")
        if is_copied or name in ("state.json", "plan.json", "events.jsonl"):
            assert (out / name).read_bytes() == (scene.run_dir / name).read_bytes(), name
    state, listed = read(out / "state.json"), read(out / "dump.json")
    names = [entry["stage"] for entry in state["steps"]]
    assert (listed["stages"], told.stages, len(names)) == (4, 4, 4)
    assert {path.name for path in (out / "stages").iterdir()} == {*names, "004-a.make@2"}
    for entry in state["steps"][:-1]:
        folder = out / "stages" / entry["stage"]
        status = read(folder / "status.json")
        for kind, held in (("status", status), ("changes", read(folder / "changes.json"))):
            schema = check.schema(kind, bundle=str(CHECKOUT))
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
    assert [one["session_id"] for one in state["sessions"]["session_history"]] == [SESSION, OTHER]
    lines = [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, listed["events"] + 1))
    assert lines == scene.events()


def test_a_text_of_a_models_is_no_reference_to_miss(scene: Scene, tmp_path: Path) -> None:
    """Deep in a value, as a reason, alone: nothing is missed, and what was stored is counted once."""
    made_up = blobs.ref_to("a" * 64)
    scene.workflow()
    scene.begin()
    update = {"outcome": "failed", "failure_reason": made_up, "context_updates": {"n": {"x": made_up}, "t": made_up}}
    advance.done(scene.space(), scene.run_dir.name, response=json.dumps(update))
    assert dumped(scene, tmp_path / "out").troubles == []
    context = read(tmp_path / "out" / "context.json")
    assert (context["n"], context["t"]) == ({"x": made_up}, made_up)
    assert finish_records.offloaded(str(scene.run_dir), scene.state) == 1
    assert scene.state["context"]["t"] != made_up


def test_a_run_that_was_only_begun_is_dumped(scene: Scene, tmp_path: Path) -> None:
    scene.workflow()
    scene.begin()
    told = dumped(scene, tmp_path / "deep" / "er" / "out")
    assert (told.stages, told.blobs, told.troubles) == (1, 0, [])
    assert read(tmp_path / "deep" / "er" / "out" / "context.json") == scene.state["context"]


# ---- Its place.


def test_an_empty_folder_is_taken_or_a_dump_by_force_and_nothing_else(finished: Scene, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    dumped(finished, tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    before = fingerprint(tmp_path)
    for name in ("file", "full", "link"):
        for force in (False, True):
            assert refusal(dumped, finished, tmp_path / name, force=force).code == "FOLDER_TAKEN"
    assert refusal(dumped, finished, tmp_path / "empty").code == "FOLDER_TAKEN"
    for path in (finished.run_dir / "out", finished.store / "runs" / "x", finished.store):
        assert refusal(dumped, finished, path).code == "BAD_TARGET"
    assert fingerprint(tmp_path) == before
    (tmp_path / "empty" / "old").write_text("old")
    dumped(finished, tmp_path / "empty", force=True)
    assert not (tmp_path / "empty" / "old").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("empty")] == ["empty"]


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


def test_a_kill_leaves_no_half_dump_and_the_next_one_clears_up(finished: Scene, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import os, signal, sys
        sys.path.insert(0, {str(CHECKOUT)!r})
        from loomctl.views import dump
        from loomctl.cli.main import main
        honest, calls = dump._created, []
        def created(path):
            calls.append(path)
            if len(calls) == int(sys.argv[1]):
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(path)
        dump._created = created
        main(["dump", {finished.run_dir.name!r}, {str(tmp_path / "out")!r}])
    """)
    for call in ("1", "5", "12"):
        line = [sys.executable, "-c", program, call]
        ended = subprocess.run(line, cwd=finished.root, env=finished.environ(), check=False)
        assert ended.returncode == -signal.SIGKILL
        assert not (tmp_path / "out").exists()
        assert [path.name for path in tmp_path.glob("out*")] != []
    dumped(finished, tmp_path / "out")
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


# ---- How many values were offloaded.


def test_a_completed_run_says_how_many_values_were_offloaded_but_for_what_cannot_be_read(finished: Scene) -> None:
    (told,) = [
        json.loads(line)
        for line in (finished.run_dir / "events.jsonl").read_text().splitlines()
        if '"run.completed"' in line
    ]
    assert told["properties"] == {"artifact_count": 3}
    state = finished.state
    folder = finished.run_dir / "stages"
    (folder / "001-frame.ask@1" / "status.json").write_text('["blob://sha256/' + "0" * 64 + '"]')
    (folder / "003-build.polish@1" / "status.json").write_text('{"blob://sha256/')
    (folder / "004-ship.send@1" / "status.json").unlink()
    state["steps"].append({**state["steps"][0], "stage": "../../x"})
    assert finish_records.offloaded(str(finished.run_dir), state) == 2
