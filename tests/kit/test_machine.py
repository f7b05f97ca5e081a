"""A session record says where it was worked, and nothing that is secret (D25)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from loomctl.kit import machine
from loomctl.runs.machine import run_notes
from tests.helpers import repositories
from tests.helpers.tables import each


def test_an_environment_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-a")
    top = repositories.make(tmp_path / "p")
    described = machine.environment(str(top), str(top / "x"), on_hook_path=True)
    assert list(described) == [
        *("hostname", "platform", "cwd", "project_root", "git_branch", "git_commit", "dirty", "python", "loom"),
    ]
    assert (described["hostname"], described["git_branch"]) == ("machine-a", "main")
    assert described["git_commit"] == repositories.git(top, "rev-parse", "HEAD")
    assert described["dirty"] in (False, None)  # 100 ms may be too little for a busy machine
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))
    more = machine.environment(str(top), str(top), on_hook_path=False)
    assert more["cores"] >= 1
    assert more["memory"] > 2**20


def test_a_project_below_the_repositorys_top_has_its_commit(tmp_path: Path) -> None:
    top = repositories.make(tmp_path / "p")
    (top / "packages" / "api").mkdir(parents=True)
    described = machine.environment(str(top / "packages" / "api"), str(top), on_hook_path=True)
    assert described["git_commit"] == repositories.git(top, "rev-parse", "HEAD")


def test_without_a_repository_git_is_unknown(tmp_path: Path) -> None:
    described = machine.environment(str(tmp_path), str(tmp_path), on_hook_path=True)
    assert (described["git_branch"], described["git_commit"], described["dirty"]) == (None, None, None)


@pytest.mark.shows("No variable is written into a run")
def test_no_environment_variable_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    described = json.dumps(machine.environment(str(tmp_path), str(tmp_path), on_hook_path=False))
    assert "s3cr3t" not in described
    assert "MY_TOKEN" not in described


@pytest.mark.parametrize(("named", "expected"), [("machine-b", "machine-b"), ("", os.uname().nodename)])
def test_a_machine_can_be_given_a_name(monkeypatch: pytest.MonkeyPatch, named: str, expected: str) -> None:
    monkeypatch.setenv("LOOM_HOSTNAME", named)
    assert machine.hostname() == expected


@each(("system", "expected"), [("linux", "linux"), ("darwin", "darwin"), ("win32", "win32"), ("cygwin", "win32")])
def test_a_platform_has_one_name(monkeypatch: pytest.MonkeyPatch, system: str, expected: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert machine.platform() == expected


VARIABLES = ("LOOM_STATE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")


@pytest.mark.parametrize(("platform", "authority"), [("linux", Unix), ("darwin", MacOS)])
def test_the_folders_are_those_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, platform: str, authority: type[Unix | MacOS]
) -> None:
    """Hooks have lines of their own for them; variables may be set, unset, empty or relative."""
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/h")
    for value in (None, "", "relative", "/x", "/x/"):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
            if value is not None and name.startswith("XDG"):
                monkeypatch.setenv(name, value)
        folder = authority("loom", appauthor=False)
        expected = (folder.user_state_dir, folder.user_config_dir, folder.user_cache_dir)
        assert (machine.state_home(), machine.config_home(), machine.cache_home()) == expected, value


def test_without_a_home_there_is_a_folder_only_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each system; LOOM_STATE_HOME counts before all else, if it is absolute: a relative one lies in the project."""
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        for home in ("", "relative"):
            monkeypatch.setenv("HOME", home)
            for name in VARIABLES:
                monkeypatch.delenv(name, raising=False)
            assert (machine.state_home(), machine.config_home(), machine.cache_home()) == ("", "", "")
            for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
                monkeypatch.setenv(name, "/x")
            assert (machine.state_home(), machine.config_home(), machine.cache_home()) == ("/x/loom",) * 3
            for named, expected in {"": "/x/loom", "relative": "/x/loom", "/s": "/s"}.items():
                monkeypatch.setenv("LOOM_STATE_HOME", named)
                assert machine.state_home() == expected


def test_a_user_without_a_home_variable_has_one_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert machine.home() == str(Path("~").expanduser())


NOBODYS = {"owner": (0o700, 12345), "everybody": (0o757, None)}
HOMES: dict[str, Callable[[], str]] = {
    "LOOM_STATE_HOME": machine.state_home,
    "XDG_STATE_HOME": machine.state_home,
    "XDG_CONFIG_HOME": machine.config_home,
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to somebody else")
@pytest.mark.parametrize("way", [*NOBODYS, "link"])
@pytest.mark.parametrize("variable", HOMES)
@pytest.mark.shows("is read where another user owns it, or everybody may write to it")
def test_what_others_could_have_filled_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, way: str
) -> None:
    """A record of trust there would be theirs; a link is as much its owner's as what it leads to."""
    monkeypatch.delenv("LOOM_STATE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv(variable, str(tmp_path / "loom" if variable.startswith("LOOM") else tmp_path))
    folder = tmp_path / "loom"
    give = HOMES[variable]
    assert give() == str(folder)
    if way == "link":
        (tmp_path / "mine").mkdir()
        folder.symlink_to(tmp_path / "mine")
        assert give() == str(folder)
        os.chown(folder, 12345, 12345, follow_symlinks=False)
    else:
        folder.mkdir()
        assert give() == str(folder)
        mode, owner = NOBODYS[way]
        folder.chmod(mode)
        os.chown(folder, -1 if owner is None else owner, -1)
    assert give() == ""
    assert machine.foreign_folders() == [str(folder)]


def test_trust_in_such_a_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was noted before somebody opened the folder to everybody, and is not believed after."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "state"))
    assert run_notes.note_known("r1", str(tmp_path), trusted="abc") == ""
    (tmp_path / "state").chmod(0o777)
    assert run_notes.known("r1", str(tmp_path)) == {}
    assert not run_notes.is_known("r1", str(tmp_path))
    assert "LOOM_STATE_HOME" in run_notes.note_known("r1", str(tmp_path))


def test_a_folder_that_a_umask_left_open_to_a_group_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path))
    tmp_path.chmod(0o775)
    assert machine.state_home() == str(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works in a home of somebody else's")
def test_root_believes_whose_home_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, folder = tmp_path / "home", tmp_path / "home/.local/state/loom"
    folder.mkdir(parents=True)
    monkeypatch.delenv("LOOM_STATE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(home))
    for path in (home, folder):
        os.chown(path, 12345, 12345)
    assert machine.state_home() == str(folder)
