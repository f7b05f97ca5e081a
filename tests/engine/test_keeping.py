"""Putting runs away: removing one, archiving one; never a run that is under way unless forced."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from loomctl.disk import known
from loomctl.engine import finding, keeping
from loomctl.model.errors import EXIT_HELD, EXIT_NO_RUN, LoomError
from tests.scenes import OTHER, SESSION, Scene, fingerprint


@pytest.fixture
def over(scene: Scene) -> Scene:
    """A completed run that nobody works on."""
    scene.workflow()
    scene.begin()
    scene.edit(status="completed")
    scene.space().local.mark_ended(SESSION)
    return scene


def test_a_run_under_way_is_not_put_away(scene: Scene) -> None:
    """An active run is refused, with who holds it, unless it is forced."""
    scene.workflow()
    run_id = scene.begin().run.run_id
    with pytest.raises(LoomError) as caught:
        keeping.removable(scene.space(OTHER), run_id, force=False)
    assert (caught.value.code, caught.value.exit_code) == ("RUN_IS_ACTIVE", EXIT_HELD)
    assert SESSION in caught.value.what
    assert keeping.removable(scene.space(OTHER), run_id, force=True) == run_id


def test_a_run_whose_state_is_broken_can_be_put_away(over: Scene) -> None:
    """What cannot be read is not active; removing it is what is left to do."""
    (over.run_dir / "state.json").write_text("{")
    assert keeping.removable(over.space(), over.run_dir.name, force=False) == over.run_dir.name


def test_removing_leaves_nothing_of_the_run_and_all_of_the_project(over: Scene) -> None:
    """Folder, bindings and what this machine knew are gone; the project's own files stay."""
    over.write("specs/x.md", "# x\n")
    run_id = over.run_dir.name
    keeping.remove(over.space(), run_id)
    assert over.run_dirs == []
    assert over.space().local.bindings() == []
    assert not known.is_known(run_id, str(over.store))
    assert (over.root / "specs" / "x.md").exists()
    assert (over.store / "workflows" / "tiny.json").exists()
    assert not list((over.store / "local").glob("removed-*"))
    assert finding.find(over.space()).how == "none"


def test_another_run_stays_whole(over: Scene) -> None:
    """Removing one run touches no file of the other."""
    first = over.run_dir
    second = over.begin("another").run
    before = fingerprint(Path(second.folder))
    keeping.remove(over.space(), first.name)
    assert fingerprint(Path(second.folder)) == before
    binding = over.space().local.binding(SESSION)
    assert binding is not None
    assert binding["run_id"] == second.run_id


def test_an_archive_brings_the_run_back(over: Scene) -> None:
    """What was packed and unpacked again is the run as it was, and it is announced until it is resumed (D23)."""
    (over.run_dir / "assets").mkdir()
    (over.run_dir / "assets" / "empty").mkdir()
    (over.run_dir / "assets" / "link").symlink_to("../stages")
    (over.run_dir / "assets" / "ümlaut 😀.bin").write_bytes(bytes(range(256)))
    run_id = over.run_dir.name
    before = {path.relative_to(over.run_dir): path.read_bytes() for path in over.run_dir.rglob("*") if path.is_file()}
    target = over.store / "archive" / "a.tar.gz"
    count = keeping.archive(over.space(), run_id, str(target))
    assert over.run_dirs == []
    assert count == len([name for name in before if "link" not in name.parts]) + 1
    subprocess.run(["tar", "-xzf", str(target), "-C", str(over.store / "runs")], check=True)
    after = {path.relative_to(over.run_dir): path.read_bytes() for path in over.run_dir.rglob("*") if path.is_file()}
    assert after == before
    assert not known.is_known(run_id, str(over.store))


def test_an_archive_is_its_owners_alone(over: Scene) -> None:
    """It holds responses and outputs, so nobody else may read it (D56)."""
    target = over.root / "a.tar.gz"
    keeping.archive(over.space(), over.run_dir.name, str(target))
    assert target.stat().st_mode & 0o077 == 0


def test_an_archive_is_never_overwritten(over: Scene) -> None:
    """A file that is there stays, and so does the run."""
    target = over.write("a.tar.gz", "precious")
    with pytest.raises(LoomError) as caught:
        keeping.archive(over.space(), over.run_dir.name, str(target))
    assert caught.value.code == "ARCHIVE_EXISTS"
    assert target.read_text() == "precious"
    assert len(over.run_dirs) == 1


@pytest.mark.parametrize("place", ["{run}/a.tar.gz", "{run}/stages/new/a.tar.gz", "{root}/link/a.tar.gz"])
def test_an_archive_cannot_lie_in_the_folder_that_goes(over: Scene, place: str) -> None:
    """Inside the run's own folder it would be removed along with the run."""
    (over.root / "link").symlink_to(over.run_dir)
    with pytest.raises(LoomError) as caught:
        keeping.archive(over.space(), over.run_dir.name, place.format(run=over.run_dir, root=over.root))
    assert caught.value.code == "BAD_TARGET"
    assert (over.run_dir / "state.json").exists()


def test_a_failed_archive_leaves_the_run_and_no_rest(over: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If what was written does not hold every file, the run stays and the torn archive goes."""

    def forgetful(self: tarfile.TarFile, name: str, arcname: str) -> None:
        self.addfile(tarfile.TarInfo(f"{arcname}/{Path(name).name}"))

    monkeypatch.setattr(tarfile.TarFile, "add", forgetful)
    target = over.root / "out" / "a.tar.gz"
    with pytest.raises(LoomError) as caught:
        keeping.archive(over.space(), over.run_dir.name, str(target))
    assert caught.value.code == "ARCHIVE_BAD"
    assert (over.run_dir / "state.json").stat().st_size > 0
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["nowhere", "../..", ""])
def test_only_a_run_can_be_put_away(over: Scene, name: str) -> None:
    """No other folder is ever removed (D10)."""
    with pytest.raises(LoomError) as caught:
        keeping.removable(over.space(), name, force=True)
    assert caught.value.exit_code in (2, EXIT_NO_RUN)
    assert (over.run_dir / "state.json").exists()
