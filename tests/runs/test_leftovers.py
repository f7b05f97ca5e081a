"""What lies about is found by its name and age, below Loom's own folders alone, and no link is followed (D56)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loomctl.care import clean
from loomctl.kit.files import write_atomically
from loomctl.kit.processes import Lock
from loomctl.runs.store import leftovers
from tests.helpers.tables import each

DAY = 86400.0


@each(
    ("name", "left"),
    [
        ("state.json.tmp", True), ("state.backup.json.tmp", True), ("plan.json.4711.0a1b2c3d.tmp", True),
        ("a.tar.gz.4711.0a1b2c3d.tmp", True), ("response.md.1.ffffffff.tmp", True), ("state.json", False),
        ("report.tmp", False), ("x.4711.tmp", False), ("x.4711.0a1b2c3.tmp", False),
        ("x.4711.0a1b2c3g.tmp", False), ("x.pid.0a1b2c3d.tmp", False), ("4711.0a1b2c3d.tmp", False),
        ("x.4711.0a1b2c3d.tmp.md", False),
    ],
)  # fmt: skip
def test_a_leftover_is_known_by_its_name(name: str, left: bool) -> None:
    assert leftovers.is_leftover(name) is left


@pytest.mark.parametrize("locked", [True, False])
def test_what_a_writer_leaves_is_a_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool) -> None:
    """The name is the writer's own: a killed one's file is found."""
    seen: list[str] = []
    monkeypatch.setattr(os, "replace", lambda beside, _: seen.append(beside))
    write_atomically(str(tmp_path / "state.json"), b"x", locked=locked)
    assert [leftovers.is_leftover(os.path.basename(path)) for path in seen] == [True]


@pytest.mark.shows("they follow no link")
def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither a link in a folder nor the folder itself, if it is one; removing a link leaves what it leads to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.json").write_text("mine")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "file.json").symlink_to(outside / "mine.json")
    assert (list(leftovers.below(str(inside))), list(leftovers.below(str(inside / "link")))) == ([], [])
    assert list(leftovers.folders(str(inside), "link")) == []
    (inside / "deep").mkdir()
    (inside / "deep" / "link").symlink_to(outside)
    assert leftovers.discard(str(inside / "deep"))
    assert leftovers.discard(str(inside / "link"))
    assert (outside / "mine.json").read_text() == "mine"
    assert not leftovers.discard(str(inside / "gone"))


def test_a_held_lock_stays(tmp_path: Path) -> None:
    """A lock's file goes only while nobody holds it, and never where a link stands."""
    path = tmp_path / "x.lock"
    with Lock(str(path)):
        assert not leftovers.discard_lock(str(path))
        assert path.exists()
    assert leftovers.discard_lock(str(path))
    assert not path.exists()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.symlink_to(victim)
    assert not leftovers.discard_lock(str(path))
    assert victim.read_text() == "mine"


def test_the_owner_of_a_folder_is_known_by_its_number() -> None:
    assert leftovers.owner_lives(f"/x/removed-shop-run-1-{os.getpid()}")
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert not leftovers.owner_lives(f"/x/removed-shop-run-1-{done.stdout.decode().strip()}")
    assert not leftovers.owner_lives("/x/removed-shop")


def test_compiled_modules_without_sources_are_found(tmp_path: Path) -> None:
    prefix, sources = tmp_path / "pycache", tmp_path / "plugins"
    for version in ("1.0", "2.0"):
        for folder in ("", "/model"):
            place = Path(f"{prefix}{sources}/{version}/loomctl{folder}")
            place.mkdir(parents=True)
            (place / "x.cpython-311.pyc").write_bytes(b"x" * 10)
            os.utime(place / "x.cpython-311.pyc", (DAY, DAY))
    (sources / "2.0" / "loomctl" / "model").mkdir(parents=True)
    found = list(leftovers.orphaned_bytecode(str(prefix), older_than=time.time()))
    assert [(one.path, one.bytes) for one in found] == [(f"{prefix}{sources}/1.0", 20)]
    assert list(leftovers.orphaned_bytecode(str(prefix), older_than=DAY)) == []


def environment(base: Path, name: str, *, used: float) -> Path:
    folder = base / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for path in (folder / "pyvenv.cfg", folder):
        os.utime(path, (used, used))
    return folder


def test_environments_of_other_versions_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = environment(tmp_path, "env-aaaa-3.11", used=DAY)
    environment(tmp_path, "env-bbbb-3.11", used=DAY)
    running = environment(tmp_path, "env-cccc-3.11", used=DAY)
    environment(tmp_path, "making-123", used=DAY)
    monkeypatch.setattr(sys, "prefix", str(running))
    (found,) = clean.others(str(tmp_path), "bbbb")
    assert (found.path, found.changed) == (str(old), DAY)
    os.utime(old / "pyvenv.cfg", (5 * DAY, DAY))
    (found,) = clean.others(str(tmp_path), "bbbb")
    assert (found.changed, list(clean.others(str(tmp_path), ""))) == (5 * DAY, [])


def test_an_environment_that_runs_is_seen_and_none_goes_while_one_is_made(tmp_path: Path) -> None:
    folder = environment(tmp_path, "env-aaaa-3.11", used=DAY)
    assert not clean.is_running(str(folder))
    with subprocess.Popen([str(folder / "bin" / "python"), "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert clean.is_running(str(folder))
        child.communicate(b"\n")
    with open(tmp_path / "setup.lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not clean.discard(str(folder), str(tmp_path))
        assert folder.exists()
    assert clean.discard(str(folder), str(tmp_path))
    assert os.listdir(tmp_path) == ["setup.lock"]


def test_the_caches_are_where_the_launcher_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's data, then the user's cache; relative names and links count for nothing."""
    for name in ("data", "cache/loom", "home/.cache/loom", "home/Library/Caches/loom"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOOM_PLUGIN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert clean.bases() == [str(tmp_path / "data"), str(tmp_path / "cache" / "loom")]
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("LOOM_PLUGIN_DATA", "data")
    (base,) = clean.bases()
    assert base.startswith(str(tmp_path / "home"))
    os.rename(base, tmp_path / "moved")
    os.symlink(tmp_path / "moved", base)
    assert clean.bases() == []


def test_the_bundles_own_lock_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text("# lock-id: 0123abcd\nclick==8\n")
    assert (clean.lock_id(str(tmp_path)), clean.lock_id(str(tmp_path / "nowhere"))) == ("0123abcd", "")
