"""A run's files are held against the hashes that its log took down: what differs is named, the rest is unproven."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import file_checks
from loomctl.care.file_checks import Files
from loomctl.flow import advance, rewind
from loomctl.handoff import copies
from loomctl.runs import context_values
from loomctl.runs.machine import run_notes
from loomctl.runs.store import blobs, events
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Store
from tests.helpers.machines import SECRET, Machine, server_of
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

STAGE = "001-b.s@1"


def begun(scene: Scene, *evidence: object) -> str:
    step = {"id": "s", "prompt": "x", **({"evidence": list(evidence)} if evidence else {})}
    scene.workflow(phases={"b": {"steps": [step, {"id": "t", "prompt": "y"}]}})
    return scene.begin().run.run_id


def held(scene: Scene) -> Files:
    """Check the only run; its plan, state and prompts, and two files of each end, are held besides."""
    return file_checks.check(scene.space(), scene.run_dir.name)


def response(scene: Scene) -> Path:
    return scene.run_dir / "stages" / STAGE / "response.md"


def capture(scene: Scene, stored: str, data: bytes) -> None:
    told = {"stage": STAGE, "path": "a.png", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    events.append(
        str(scene.run_dir), scene.run_dir.name, [Event("asset.captured", {**told, "stored": stored})], durable=False
    )


@each("text", ["Mäde it.", "a\r\nb\n", "lone \udc80 half"])
def test_an_answer_is_proven_byte_for_byte(scene: Scene, text: str) -> None:
    """Its hash stands in the log as it is written; any other byte is a fault that names stage and file."""
    run_id = begun(scene)
    advance.done(scene.space(), run_id, response=text)
    assert held(scene)[:4] == (1 + 6, 0, 0, 0)
    data = response(scene).read_bytes()
    response(scene).write_bytes(data + b" ")
    (fault,) = held(scene).faults
    assert (fault.stage, fault.file, fault.code) == (STAGE, "response.md", "CHANGED_FILE")
    response(scene).write_bytes(data)
    assert held(scene).ok


def test_an_answer_that_is_gone_is_a_fault_and_one_that_is_no_file_unproven(scene: Scene) -> None:
    run_id = begun(scene)
    advance.done(scene.space(), run_id, response="Made it.")
    data = response(scene).read_bytes()
    response(scene).unlink()
    assert [(one.file, one.why) for one in held(scene).faults] == [("response.md", "it is gone")]
    note: dict[str, Any] = {"left_out": [[f"run/stages/{STAGE}/response.md", "too large"]]}
    run_notes.note_handoff(scene.space().store.local, run_id, note)
    assert [(one.file, one.why) for one in held(scene).open] == [("response.md", "it is missing")]
    response(scene).mkdir()
    assert held(scene)[:3] == (6, 1, 0)
    response(scene).rmdir()
    other = scene.write("elsewhere.md", data)
    response(scene).symlink_to(other)
    assert held(scene)[:3] == (6, 1, 0)


def test_an_answer_that_was_undone_is_proven_where_it_was_put(scene: Scene) -> None:
    run_id = begun(scene)
    advance.done(scene.space(), run_id, response="First.")
    rewind.undo(scene.space(), run_id)
    assert held(scene)[:3] == (1 + 3, 0, 0)
    advance.done(scene.space(), run_id, response="Second.")
    assert held(scene)[:3] == (1 + 6, 0, 0)


def test_an_answer_of_an_older_log_is_counted_as_unproven(scene: Scene) -> None:
    run_id = begun(scene)
    told = {"stage": STAGE, "status": "succeeded", "response_source": "done"}
    events.append(str(scene.run_dir), run_id, [Event("stage.completed", told)], durable=False)
    assert held(scene)[:4] == (3, 0, 0, 1)


def test_an_asset_is_held_against_its_hash_and_never_looked_for_outside(scene: Scene) -> None:
    begun(scene)
    path = scene.run_dir / "assets" / "a.png"
    path.parent.mkdir()
    path.write_bytes(b"png")
    capture(scene, "assets/a.png", b"png")
    assert held(scene)[:3] == (1 + 3, 0, 0)
    path.write_bytes(b"other")
    assert [one.file for one in held(scene).faults] == ["assets/a.png"]
    path.unlink()
    scene.write("spec.md", "png")
    for stored in ("../../../spec.md", str(scene.root / "spec.md"), "x\0y", "assets/" + "y" * 5000):
        capture(scene, stored, b"png")
    found = held(scene)
    assert (found.proven, found.unproven, found.faulty) == (3, 5, 0)


def test_evidence_that_changed_since_is_unproven(scene: Scene) -> None:
    """A file of the project is the work's: a later step may change it. What a command printed stays."""
    run_id = begun(scene, "out.md")
    scene.write("out.md", "found")
    advance.done(scene.space(), run_id, response="Made it.")
    assert held(scene)[:3] == (2 + 6, 0, 0)
    scene.write("out.md", "others")
    (one,) = held(scene).open
    assert (one.file, one.code, "may have changed" in one.why) == ("out.md", "", True)


def test_a_damaged_blob_is_a_fault_and_one_that_is_gone_is_unproven(scene: Scene) -> None:
    run_id = begun(scene)
    large, _ = context_values.stored(scene.space(), {"notes": "x" * 200_000})
    assert blobs.is_ref(large["notes"])
    Store(str(scene.store)).update(run_id, lambda state: ({**state, "context": large}, []))
    assert file_checks.check(scene.space(), run_id)[:3] == (1 + 3, 0, 0)
    path = Path(Blobs(str(scene.store)).path(large["notes"]))
    path.chmod(0o600)
    path.write_bytes(b"y")
    assert [one.code for one in held(scene).faults] == ["DAMAGED_BLOB"]
    path.unlink()
    assert held(scene)[:3] == (3, 1, 0)


@each("wrong", [None, 5, [], "x", {"stage": 5}, {"stage": "../../x", "response_sha256": "0" * 64}])
def test_whatever_a_log_says_is_judged_without_a_fall(scene: Scene, wrong: Any) -> None:
    entry = {"seq": 99, "id": "x", "ts": "x", "run_id": begun(scene), "prev": "", "properties": wrong}
    with (scene.run_dir / events.FILE).open("a", encoding="utf-8") as log:
        for name in ("stage.completed", "asset.captured", "evidence.checked"):
            log.write(json.dumps({**entry, "event": name}) + "\n")
    assert held(scene).faulty == 0


def test_a_file_that_was_masked_on_its_way_is_unproven_and_the_pushed_copy_is_named(tmp_path: Path) -> None:
    """Masking makes another file of it, honestly; and what was pushed is the copy that a person can look at."""
    machine = Machine(tmp_path / "läptop", server_of(tmp_path))
    machine.workflow()
    run_id = machine.begin().run.run_id
    machine.done(run_id, f"The key is {SECRET}")
    space = machine.space()
    machine.push(run_id)
    path = next((machine.run_dir / "stages").glob("*/response.md"))
    way = copies.way_on(space, run_id, f"stages/{path.parent.name}/response.md", otherwise="none")
    assert way.hint == f"git show refs/loom/remotes/origin/{run_id}:run/stages/{path.parent.name}/response.md"
    path.write_text(path.read_text().replace(SECRET, "[masked: GitHub token]"))
    (fault,) = file_checks.check(space, run_id).faults
    assert fault.file == "response.md"  # nothing is masked where it was written
    run_notes.note_handoff(space.store.local, run_id, {"machine": "laptop"})
    (one,) = file_checks.check(space, run_id).open
    assert "masked" in one.why
    assert copies.way_on(space, run_id, "nowhere.md", otherwise="none").hint == "none"


@pytest.mark.slow
def test_a_copy_that_is_damaged_as_well_is_passed_over_for_an_earlier_one(tmp_path: Path) -> None:
    """Of a log by its own chain, of another file where it is what stands here; where none is left, that is said."""
    machine = Machine(tmp_path / "laptop", server_of(tmp_path))
    machine.workflow()
    run_id = machine.begin().run.run_id
    machine.done(run_id, "Asked.")
    whole = machine.push(run_id).commit
    log = machine.run_dir / "events.jsonl"
    response = next((machine.run_dir / "stages").glob("*/response.md"))
    name = f"stages/{response.parent.name}/response.md"
    kept = f"refs/loom/remotes/origin/{run_id}"

    def way(path: str) -> copies.WayOn:
        return copies.way_on(machine.space(), run_id, path, otherwise="none")

    log.write_bytes(log.read_bytes().replace(b'"run.created"', b'"run.creates"', 1))
    response.write_text("Forged.")
    assert way("events.jsonl").hint == f"git show {kept}:run/events.jsonl"
    assert way(name).hint == f"git show {kept}:run/{name}"
    for _ in range(2):
        machine.push(run_id)  # damaged as it is
        (machine.run_dir / "stages" / "note.md").write_text(f"{_}")
    assert way("events.jsonl").hint == f"git show {whole}:run/events.jsonl"
    assert "earlier" in way("events.jsonl").said
    assert way(name).hint == f"git show {whole}:run/{name}"
    other = Machine(tmp_path / "other", tmp_path / "server.git")
    other.workflow()
    forged = other.begin("forged").run.run_id
    path = other.run_dir / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"run.created"', b'"run.creates"', 1))
    other.push(forged)
    found = copies.way_on(other.space(), forged, "events.jsonl", otherwise="none")
    assert (found.hint, "pushes and pulls are damaged, too" in found.said) == ("none", True)
