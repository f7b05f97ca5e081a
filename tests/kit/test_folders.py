"""What is the user's lies in the user's folders, never where a project could bring it along (D23)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from loomctl.kit import folders
from loomctl.runs.machine import run_notes

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
        assert (folders.state_home(), folders.config_home(), folders.cache_home()) == expected, value


def test_without_a_home_there_is_a_folder_only_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each system; LOOM_STATE_HOME counts before all else, if it is absolute: a relative one lies in the project."""
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        for home in ("", "relative"):
            monkeypatch.setenv("HOME", home)
            for name in VARIABLES:
                monkeypatch.delenv(name, raising=False)
            assert (folders.state_home(), folders.config_home(), folders.cache_home()) == ("", "", "")
            for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
                monkeypatch.setenv(name, "/x")
            assert (folders.state_home(), folders.config_home(), folders.cache_home()) == ("/x/loom",) * 3
            for named, expected in {"": "/x/loom", "relative": "/x/loom", "/s": "/s"}.items():
                monkeypatch.setenv("LOOM_STATE_HOME", named)
                assert folders.state_home() == expected


def test_a_user_without_a_home_variable_has_one_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HOME the system's own list of users is asked."""
    monkeypatch.delenv("HOME")
    assert folders.home() == str(Path("~").expanduser())


NOBODYS = {"owner": (0o700, 12345), "everybody": (0o757, None)}
HOMES: dict[str, Callable[[], str]] = {
    "LOOM_STATE_HOME": folders.state_home,
    "XDG_STATE_HOME": folders.state_home,
    "XDG_CONFIG_HOME": folders.config_home,
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
    assert folders.foreign_folders() == [str(folder)]


def test_trust_in_such_a_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was noted before somebody opened the folder to everybody, and is not believed after."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "state"))
    assert run_notes.note_known("r1", str(tmp_path), trusted="abc") == ""
    (tmp_path / "state").chmod(0o777)
    assert run_notes.known("r1", str(tmp_path)) == {}
    assert not run_notes.is_known("r1", str(tmp_path))
    assert "LOOM_STATE_HOME" in run_notes.note_known("r1", str(tmp_path))


def test_a_folder_that_a_umask_left_open_to_a_group_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each user has a group of their own, that is how each folder of theirs is."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path))
    tmp_path.chmod(0o775)
    assert folders.state_home() == str(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works in a home of somebody else's")
def test_root_believes_whose_home_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that has a user's home mounted, or behind sudo -E."""
    home, folder = tmp_path / "home", tmp_path / "home/.local/state/loom"
    folder.mkdir(parents=True)
    monkeypatch.delenv("LOOM_STATE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(home))
    for path in (home, folder):
        os.chown(path, 12345, 12345)
    assert folders.state_home() == str(folder)
