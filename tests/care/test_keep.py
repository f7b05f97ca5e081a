"""Putting runs away: removing one, archiving one; never a run that is under way unless forced."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import keep
from loomctl.kit.errors import EXIT_HELD, EXIT_NO_RUN, LoomError
from loomctl.kit.processes import Lock
from loomctl.runs import archives, find, leases
from loomctl.runs.machine import run_notes
from loomctl.runs.store.match import match
from loomctl.runs.store.store import Store
from tests.care.killing import kill_after
from tests.helpers.errors import refused
from tests.helpers.scenes import OTHER, SESSION, Scene, fingerprint
from tests.helpers.tables import each


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_under_way_is_not_put_away(scene: Scene) -> None:
    scene.workflow()
    run_id = scene.begin().run.run_id
    with refused("RUN_IS_ACTIVE", exit_code=EXIT_HELD) as caught:
        keep.removable(scene.space(OTHER), run_id, force=False)
    assert SESSION in caught.value.what
    assert keep.removable(scene.space(OTHER), run_id, force=True) == run_id


@each(("status", "said"), [("paused", "is paused, and can be resumed"), ("awaiting_feedback", "waits for the user")])
def test_a_run_that_may_go_on_is_not_put_away_and_how_it_stands_is_said(scene: Scene, status: str, said: str) -> None:
    scene.workflow()
    run = scene.begin().run
    scene.let_go()
    scene.edit(status=status)
    for verb in ("archive", "rm"):
        refused = scene.loomctl("runs", verb, run.handle, session=None).stderr
        assert f"the run {run.handle} {said}\n" in refused
        assert "only a run that is over is put away; --force does it anyway" in refused
        assert refused.endswith(f"hint: loomctl cancel {run.handle}\n")


def test_a_run_that_is_cancelled_is_put_away_whoever_worked_on_it(scene: Scene) -> None:
    scene.workflow()
    run = scene.begin().run
    assert scene.loomctl("cancel", run.handle, session=None).code == 0
    assert scene.space(OTHER).local.live_sessions(run.run_id) == [SESSION]
    assert scene.loomctl("runs", "rm", run.handle, "--yes", session=None).code == 0
    assert scene.run_dirs == []


def test_a_run_whose_state_is_broken_can_be_put_away(over: Scene) -> None:
    (over.run_dir / "state.json").write_text("{")
    assert keep.removable(over.space(), over.run_dir.name, force=False) == over.run_dir.name


def test_removing_leaves_nothing_of_the_run_and_all_of_the_project(over: Scene) -> None:
    """Folder, bindings and what this machine knew are gone; the project's own files stay."""
    over.write("specs/x.md", "# x\n")
    run_id = over.run_dir.name
    keep.remove(over.space(), run_id)
    assert (over.run_dirs, over.space().local.bindings()) == ([], [])
    assert not run_notes.is_known(run_id, str(over.store))
    assert all(path.exists() for path in (over.root / "specs" / "x.md", over.store / "workflows" / "tiny.json"))
    assert not list((over.store / "local").glob("removed-*"))
    assert find.find(over.space()).how == "none"


def test_a_refused_result_goes_with_its_run_and_stays_beside_an_archive(over: Scene) -> None:
    """An archive does not hold it, so it is not lost by one; that of a run with a longer name is another's."""
    space, run_id = over.space(None), over.run_dir.name
    kept, other = (Path(leases.keep_result(space, one, "x")) for one in (run_id, f"{run_id}-2"))
    archive = keep.archive_path(space, run_id, None)
    keep.archive(space, run_id, archive)
    assert kept.exists()
    keep.bring_back(space, archive)
    keep.remove(space, run_id)
    assert (kept.exists(), other.exists()) == (False, True)


def test_another_run_stays_whole(over: Scene) -> None:
    first = over.run_dir
    second = over.begin("another").run
    before = fingerprint(Path(second.folder))
    keep.remove(over.space(), first.name)
    assert fingerprint(Path(second.folder)) == before
    assert (over.space().local.binding(SESSION) or {})["run_id"] == second.run_id


def test_an_archive_brings_the_run_back(over: Scene) -> None:
    """What was packed and brought back is the run as it was, and it is announced until it is resumed (D23)."""
    (over.run_dir / "assets" / "empty").mkdir(parents=True)
    (over.run_dir / "assets" / "ümlaut 😀.bin").write_bytes(bytes(range(256)))
    run_id, before = over.run_dir.name, files_of(over.run_dir)
    target = over.store / "archive" / "a.tar.gz"
    count, _ = keep.archive(over.space(), run_id, str(target))
    assert (over.run_dirs, count, target.stat().st_mode & 0o077) == ([], len(before), 0)  # its owner's alone (D56)
    back = keep.bring_back(over.space(), str(target))
    assert (back.run_id, back.files, back.trouble) == (run_id, count, None)
    assert files_of(over.run_dir) == before
    assert all(path.exists() for path in (over.run_dir / "assets" / "empty", target))
    assert not run_notes.is_known(run_id, str(over.store))
    assert not list((over.store / "local").glob("arriving-*"))


def test_tar_itself_reads_an_archive(over: Scene) -> None:
    run_id = over.run_dir.name
    target = over.root / "a.tar.gz"
    state = (over.run_dir / "state.json").read_bytes()
    keep.archive(over.space(), run_id, str(target))
    subprocess.run(["tar", "-xzf", str(target), "-C", str(over.root)], check=True)
    assert (over.root / run_id / "state.json").read_bytes() == state


def test_a_link_in_a_run_stops_its_archive(over: Scene) -> None:
    (over.run_dir / "link").symlink_to("stages")
    with pytest.raises(LoomError, match="NOT_A_FILE"):
        keep.archive(over.space(), over.run_dir.name, str(over.root / "out" / "a.tar.gz"))
    assert (over.run_dir / "state.json").exists()
    assert list((over.root / "out").iterdir()) == []


@each(
    "named, path",
    [
        (None, "{store}/archive/{run}.tar.gz"),
        ("{root}/here.tgz", "{root}/here.tgz"),
        ("{root}/new/", "{root}/new/{run}.tar.gz"),
        ("{root}", "{root}/{run}.tar.gz"),
    ],
)
def test_an_archive_goes_where_it_is_told(over: Scene, named: str | None, path: str) -> None:
    known_here = {"store": over.store, "root": over.root, "run": over.run_dir.name}
    given = named.format(**known_here) if named else None
    assert keep.archive_path(over.space(), over.run_dir.name, given) == path.format(**known_here)


def test_a_run_that_is_here_is_not_overwritten(over: Scene) -> None:
    """An archive of a run that is there (again) is refused, and the run stays as it is."""
    run_id = over.run_dir.name
    target = str(over.root / "a.tar.gz")
    keep.archive(over.space(), run_id, target)
    keep.bring_back(over.space(), target)
    before = fingerprint(over.run_dir)
    with pytest.raises(LoomError, match="RUN_EXISTS"):
        keep.bring_back(over.space(), target)
    assert fingerprint(over.run_dir) == before
    for name in os.listdir(over.run_dir):
        path = over.run_dir / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(LoomError, match="RUN_EXISTS"):  # even where nothing is in the folder
        keep.bring_back(over.space(), target)


def test_the_id_in_an_archive_is_the_runs_own(over: Scene) -> None:
    """An archive whose folder bears another name than its state is refused (D6); nothing arrives."""
    renamed = over.run_dir.rename(over.root / "another-run")
    archives.pack(str(renamed), "another-run", str(over.root / "a.tar.gz"))
    with pytest.raises(LoomError, match="RUN_ID_MISMATCH"):
        keep.bring_back(over.space(), str(over.root / "a.tar.gz"))
    assert over.run_dirs == []
    assert not list((over.store / "local").glob("arriving-*"))


@each("left, code", [(["state.backup.json"], "NO_STATE"), (["plan.json"], "BAD_ARCHIVE"), ([], "BAD_ARCHIVE")])
def test_what_holds_no_run_is_no_archive_of_one(over: Scene, left: list[str], code: str) -> None:
    """Without any state it is refused; with the backup alone the run is back and says what mends it."""
    run_id = over.run_dir.name
    for path in over.run_dir.iterdir():
        if path.is_file() and path.name not in left:
            path.unlink()
    archives.pack(str(over.run_dir), run_id, str(over.root / "a.tar.gz"))
    shutil.rmtree(over.run_dir)
    if code == "BAD_ARCHIVE":
        with pytest.raises(LoomError, match=code):
            keep.bring_back(over.space(), str(over.root / "a.tar.gz"))
        assert over.run_dirs == []
        return
    trouble = keep.bring_back(over.space(), str(over.root / "a.tar.gz")).trouble
    assert (trouble and trouble.code) == code
    assert over.space().store.run_ids() == [run_id]


def test_an_archive_is_found_by_its_beginning_or_handle(over: Scene) -> None:
    """A file is meant if there is one; else the one archive whose name begins so; several and none are said."""
    run_id, handle = over.run_dir.name, over.space().store.handle(over.run_dir.name)
    path = keep.archive_path(over.space(), run_id, None)
    with pytest.raises(LoomError, match="NO_SUCH_ARCHIVE"):
        archives.named_archive(over.space().store.folder, "shop")
    keep.archive(over.space(), run_id, path)
    for named in ("shop", run_id, handle, path):
        assert archives.named_archive(over.space().store.folder, named) == path
    Path(path).with_name("shop-other.tar.gz").write_text("x")
    for named in ("shop", "", "nowhere", "../x"):
        with refused("NO_SUCH_ARCHIVE", exit_code=EXIT_NO_RUN):
            archives.named_archive(over.space().store.folder, named)


def test_an_archive_is_never_overwritten(over: Scene) -> None:
    target = over.write("a.tar.gz", "precious")
    with refused("ARCHIVE_EXISTS"):
        keep.archive(over.space(), over.run_dir.name, str(target))
    assert (target.read_text(), len(over.run_dirs)) == ("precious", 1)


@each("place", ["{run}/a.tar.gz", "{run}/stages/new/a.tar.gz", "{root}/link/a.tar.gz"])
def test_an_archive_cannot_lie_in_the_folder_that_goes(over: Scene, place: str) -> None:
    (over.root / "link").symlink_to(over.run_dir)
    with refused("BAD_TARGET"):
        keep.archive(over.space(), over.run_dir.name, place.format(run=over.run_dir, root=over.root))
    assert (over.run_dir / "state.json").exists()


@each("fault", ["changed", "lacking", "full"])
def test_a_failed_archive_leaves_the_run_and_no_rest(over: Scene, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """If what was written does not read back as what stands on disk, the run stays and the bad archive goes."""
    add = tarfile.TarFile.add

    def faulty(self: tarfile.TarFile, name: str, *more: Any, **how: Any) -> None:
        if not name.endswith("state.json"):
            add(self, name, *more, **how)
        elif fault == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        elif fault == "changed":
            add(self, name, *more, **how)
            Path(name).write_bytes(Path(name).read_bytes() + b" ")

    monkeypatch.setattr(tarfile.TarFile, "add", faulty)
    target = over.root / "out" / "a.tar.gz"
    error, said = (OSError, "No space") if fault == "full" else (LoomError, "ARCHIVE_BAD")
    with pytest.raises(error, match=said):
        keep.archive(over.space(), over.run_dir.name, str(target))
    assert over.state["status"] == "completed"
    assert list(target.parent.iterdir()) == []


@each("way", [keep.remove, lambda space, run_id: keep.archive(space, run_id, "/dev/null/x")])
def test_what_came_under_way_meanwhile_stays(over: Scene, way: Callable[[Any, str], object]) -> None:
    """Between the question and the answer somebody resumed the run: it is looked at again under its lock."""
    run_id = keep.removable(over.space(), over.run_dir.name, force=False)
    over.edit(status="in_progress")
    with pytest.raises(LoomError, match="RUN_IS_ACTIVE"):
        way(over.space(), run_id)
    assert (over.run_dir / "state.json").exists()


@each("way", [keep.remove, lambda space, run_id: keep.archive(space, run_id, f"{space.project.root}/a.tar.gz")])
def test_a_run_that_somebody_writes_to_is_not_put_away(
    over: Scene, monkeypatch: pytest.MonkeyPatch, way: Callable[[Any, str], object]
) -> None:
    run_id = over.run_dir.name
    path = str(over.store / "local" / "locks" / f"{run_id}.lock")
    monkeypatch.setattr(Store, "lock", lambda *_: Lock(path, patience=0.1))
    with Lock(path), pytest.raises(LoomError, match="HELD"):
        way(over.space(), run_id)
    assert (over.run_dir / "state.json").exists()


def test_what_is_known_of_a_run_goes_with_it(over: Scene) -> None:
    """Binding, note of what was given, lock, and the user's own note; other sessions' files stay."""
    second = over.begin("another", session=OTHER).run.run_id
    local = over.store / "local"
    keep.remove(over.space(), match(over.space().store, "shop-add"))
    assert [path.stem for path in (local / "sessions").iterdir()] == [OTHER]
    assert {path.stem for path in (local / "primed").iterdir()} == {OTHER}
    assert [path.name for path in (local / "live").iterdir()] == [OTHER]
    assert [path.name for path in (local / "locks").iterdir()] == [f"{second}.lock"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["archive", "restore", "rm"])
def test_a_kill_leaves_a_run_whole_in_one_place(over: Scene, way: str) -> None:
    """Killed at any moment of being archived or brought back, a run is there, or its archive is, byte for byte; of one
    that was being removed nothing is left in sight or all of it is.
    """
    chance = random.Random(way)
    run_id = over.run_dir.name
    (over.run_dir / "outputs").mkdir()
    for number in range(40):
        (over.run_dir / "outputs" / f"{number}.txt").write_bytes(os.urandom(20_000))
    kept = shutil.copytree(over.run_dir, over.root / "kept")
    whole = files_of(kept)
    good = over.root / "good.tar.gz"
    archives.pack(str(kept), run_id, str(good))
    target = over.root / "out" / "a.tar.gz"
    words = {
        "archive": ["runs", "archive", run_id, "--to", str(target)],
        "restore": ["runs", "restore", str(good)],
        "rm": ["runs", "rm", run_id, "--yes"],
    }[way]
    for _ in range(14):
        shutil.rmtree(over.store / "runs")
        shutil.rmtree(target.parent, ignore_errors=True)
        (over.store / "runs").mkdir()
        if way != "restore":
            shutil.copytree(kept, over.store / "runs" / run_id)
        kill_after(over, chance.random() * 0.15, *words)
        found = files_of(over.store / "runs" / run_id)
        assert found in ({}, whole)
        if not found and way == "archive":
            assert archives.unpack(str(target), str(over.root / "check")).run_id == run_id
            assert files_of(over.root / "check" / run_id) == whole
            shutil.rmtree(over.root / "check")


@each("name", ["nowhere", "../..", ""])
def test_only_a_run_can_be_put_away(over: Scene, name: str) -> None:  # D10
    with pytest.raises(LoomError) as caught:
        keep.removable(over.space(), name, force=True)
    assert caught.value.exit_code in (2, EXIT_NO_RUN)
    assert (over.run_dir / "state.json").exists()
