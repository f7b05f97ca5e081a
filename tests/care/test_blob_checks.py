"""What the doctor finds of the blobs that runs refer to (D38)."""

from __future__ import annotations

from pathlib import Path

import pytest

from loomctl.care import project_checks
from loomctl.kit.trouble import FAIL, PASS, WARN
from loomctl.runs import context_values
from loomctl.runs.store.blobs import Blobs
from tests.helpers.patients import patient
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

LARGE = "x" * 102_400


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    values, _ = context_values.stored(scene.space(), {"report": LARGE, "command.output": "", "small": 1})
    scene.edit(context=values)
    return scene


def blob(scene: Scene) -> Path:
    return Path(Blobs(str(scene.store)).path(scene.state["context"]["report"]))


def test_blobs_that_are_whole_pass(begun: Scene, tmp_path: Path) -> None:
    found = project_checks.blobs(patient(begun))
    assert (found.status, found.found) == (PASS, "all blobs that were read are intact (2)")
    begun.edit(context={})
    assert project_checks.blobs(patient(begun)).found == "no run has blobs"
    (tmp_path / "empty").mkdir()
    assert project_checks.blobs(patient(tmp_path / "empty")).status == PASS


def test_a_text_within_a_value_is_no_reference(begun: Scene) -> None:
    begun.edit(context={**begun.state["context"], "n": {"x": f"blob://sha256/{'a' * 64}"}})
    found = project_checks.blobs(patient(begun))
    assert (found.status, found.found) == (PASS, "all blobs that were read are intact (2)")


@each("damage", ["gone", "damaged", "a link"])
@each("status, told", [("in_progress", FAIL), ("completed", WARN)])
def test_what_is_missing_or_damaged_is_named(begun: Scene, damage: str, status: str, told: str) -> None:
    """With its run and its file: red for a run under way, a warning for one that is over."""
    path, ref = blob(begun), begun.state["context"]["report"]
    path.rename(path.with_name("aside"))
    if damage == "damaged":
        path.write_bytes(b"rubbish")
    elif damage == "a link":
        path.symlink_to("aside")
    begun.edit(status=status)
    found = project_checks.blobs(patient(begun))
    assert found.status == told
    assert begun.handle in found.found
    assert ref in found.found or damage == "a link"
    assert str(path) in found.details
    assert found.hint == f"loomctl show {begun.handle}"


def test_a_whole_copy_in_the_runs_folder_is_enough(begun: Scene) -> None:
    space = begun.space()
    run = space.store.read(begun.run_dir.name)
    context_values.materialised(space, run, begun.state["context"]["report"])
    blob(begun).unlink()
    assert project_checks.blobs(patient(begun)).status == PASS


def test_more_than_it_reads_is_only_looked_for(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays cheap: over the limit a damaged one is not seen, and that is said; a missing one is."""
    monkeypatch.setattr(project_checks, "MOST_READ", 1 << 10)
    blob(begun).write_bytes(b"rubbish " * 1000)
    found = project_checks.blobs(patient(begun))
    assert found.status == PASS
    assert "; 1 beyond" in found.found
    blob(begun).unlink()
    assert project_checks.blobs(patient(begun)).status == FAIL


def test_a_state_that_cannot_be_read_is_another_checks(begun: Scene) -> None:
    (begun.run_dir / "state.json").write_text("{")
    assert project_checks.blobs(patient(begun)).status == PASS
