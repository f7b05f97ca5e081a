"""A run that is put away takes its blobs along, and brings them back into another store (D42, D56)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.care import keep
from loomctl.kit import files
from loomctl.runs import context_values, run_blobs
from loomctl.runs.store.blobs import Blobs, ref_of
from tests.helpers.scenes import SESSION, Json, Scene

LARGE = "x" * 102_400
UNKNOWN = f"blob://sha256/{'a' * 64}"


@pytest.fixture
def over(scene: Scene) -> Scene:
    """A completed run with a value in a blob, and another blob that only that value names."""
    scene.workflow()
    scene.begin()
    space = scene.space()
    inner, _ = context_values.stored(space, {"k": LARGE})
    values, _ = context_values.stored(space, {"report": {"see": inner["k"], "fill": "y" * 102_400}, "small": 1})
    scene.edit(status="completed", context=values)
    scene.space().local.mark_ended(SESSION)
    return scene


def collected(scene: Scene) -> int:
    """Remove every blob that no run refers to, however young; gives how many went."""
    for blob in run_blobs.stored(str(scene.store)):
        os.utime(blob.path, (1, 1))
    now = time.time()
    return len(run_blobs.collect(scene.space(), run_blobs.look(scene.space(), now=now), now=now).removed)


def read(scene: Scene) -> Json:
    space = scene.space()
    values, troubles = context_values.read_all(space, space.store.read(scene.run_dir.name))
    assert troubles == []
    return values


def test_an_archive_brings_its_blobs_back(over: Scene) -> None:
    before = read(over)
    run_id, target = over.run_dir.name, over.root.parent / "a.tar.gz"
    count, lost = keep.archive(over.space(), run_id, str(target))
    assert (lost, collected(over)) == ((), 2)
    elsewhere = Scene(over.root.parent / "elsewhere")
    (elsewhere.root / ".loom").mkdir()
    for scene in (over, elsewhere):
        back = keep.bring_back(scene.space(), str(target))
        assert (back.files, back.lost, back.trouble) == (count, (), None)
        assert read(scene) == before
        stored = {blob.ref for blob in run_blobs.stored(str(scene.store))}
        assert ref_of(json.dumps(LARGE).encode()) in stored
        assert all(Blobs(str(scene.store)).get(ref) for ref in stored)
        assert collected(scene) == 0


def test_any_tar_gets_the_values_out(over: Scene, tmp_path: Path) -> None:
    ref = over.state["context"]["report"]
    run_id, target = over.run_dir.name, tmp_path / "a.tar.gz"
    keep.archive(over.space(), run_id, str(target))
    subprocess.run(["tar", "-xzf", str(target), "-C", str(tmp_path)], check=True)
    assert ref_of((tmp_path / run_id / "blobs" / f"{ref[14:]}.json").read_bytes()) == ref


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_what_an_archive_could_not_take_along_is_said(over: Scene, damage: str) -> None:
    ref = over.state["context"]["report"]
    path = Path(Blobs(str(over.store)).path(ref))
    path.unlink() if damage == "gone" else path.write_bytes(b"rubbish")
    target = over.root.parent / "a.tar.gz"
    assert keep.archive(over.space(), over.run_dir.name, str(target))[1] == (ref,)
    assert keep.bring_back(over.space(), str(target)).lost == (ref,)
    assert path.exists() == (damage == "damaged")


def test_a_copy_that_is_not_what_its_name_says_gets_into_no_store(over: Scene) -> None:
    """Nothing in an archive is believed: other bytes under a hash, other names, are no blobs."""
    folder = over.run_dir / "blobs"
    folder.mkdir()
    (folder / f"{'a' * 64}.json").write_text("forged")
    (folder / "notes.json").write_text("forged")
    (folder / f"{'A' * 64}.json").write_text("forged")
    over.edit(context={"a": UNKNOWN})
    target = over.root.parent / "a.tar.gz"
    keep.archive(over.space(), over.run_dir.name, str(target))
    collected(over)
    assert keep.bring_back(over.space(), str(target)).lost == (UNKNOWN,)
    assert list(run_blobs.stored(str(over.store))) == []


def test_a_full_disk_keeps_the_run_where_it_is(over: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """No archive without its blobs for want of room: the run stays, and so does its archive when it is unpacked."""
    target = over.root.parent / "a.tar.gz"
    run_id = over.run_dir.name

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", fails)
        with pytest.raises(OSError, match="No space left"):
            keep.archive(over.space(), run_id, str(target))
    assert not target.exists()
    assert over.run_dir.name == run_id
    keep.archive(over.space(), run_id, str(target))
    collected(over)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", fails)
        with pytest.raises(OSError, match="No space left"):
            keep.bring_back(over.space(), str(target))
    assert (over.run_dirs, keep.bring_back(over.space(), str(target)).lost) == ([], ())


VALUES = st.one_of(st.text(max_size=20), st.sampled_from([LARGE, LARGE + "é", "z" * 102_399]), st.integers())


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(context=st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=4))
def test_any_context_comes_back_from_an_archive(over: Scene, context: Json) -> None:
    """Large and small values, whatever they are: put away, collected, brought back, read."""
    space = over.space()
    values, warnings = context_values.stored(space, {**context, "command.output": ""})
    assert warnings == []
    over.edit(context=values)
    target = over.root.parent / "property.tar.gz"
    target.unlink(missing_ok=True)
    keep.archive(space, over.run_dir.name, str(target))
    collected(over)
    assert list(run_blobs.stored(str(over.store))) == []
    keep.bring_back(over.space(), str(target))
    assert read(over) == {**context, "command.output": ""}
