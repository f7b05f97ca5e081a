"""What is the user's lies in the user's folders, never where a project could bring it along (D23)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.kit import user_folders
from loomctl.runs.machine import known


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LOOM_STATE_HOME": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/loom"),
        ({"HOME": "/h"}, "/h/.local/state/loom"),
        ({"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/loom"),
        ({"HOME": "/h", "XDG_STATE_HOME": ""}, "/h/.local/state/loom"),
        ({"HOME": "/h", "LOOM_STATE_HOME": "relative"}, "/h/.local/state/loom"),
        ({"HOME": "/h", "LOOM_STATE_HOME": ""}, "/h/.local/state/loom"),
        ({"HOME": ""}, ""),
        ({"HOME": "relative"}, ""),
        ({"HOME": "", "XDG_STATE_HOME": "/x"}, "/x/loom"),
    ],
)
def test_the_state_folder_is_absolute_or_none(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str
) -> None:
    """Named, else by the XDG rules; a relative name, which would lie in the project, counts for nothing."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("LOOM_STATE_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert user_folders.state_home() == expected


@pytest.mark.parametrize(("home", "expected"), [("/Users/a", "/Users/a/Library/Application Support/loom"), ("", "")])
def test_a_mac_has_its_own_place(monkeypatch: pytest.MonkeyPatch, home: str, expected: str) -> None:
    """On macOS it is where applications keep such things."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("LOOM_STATE_HOME")
    monkeypatch.setenv("HOME", home)
    assert user_folders.state_home() == expected


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/loom"),
        ("linux", {"XDG_CONFIG_HOME": "/x", "HOME": ""}, "/x/loom"),
        ("linux", {"XDG_CONFIG_HOME": "", "HOME": "/h"}, "/h/.config/loom"),
        ("linux", {"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/loom"),
        ("linux", {"XDG_CONFIG_HOME": "relative", "HOME": ""}, ""),
        ("darwin", {"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/loom"),
        ("darwin", {"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/Library/Application Support/loom"),
        ("darwin", {"XDG_CONFIG_HOME": "", "HOME": ""}, ""),
    ],
)
def test_settings_lie_where_the_system_keeps_such_files(
    monkeypatch: pytest.MonkeyPatch, platform: str, environ: dict[str, str], expected: str
) -> None:
    """A relative name counts for nothing here either."""
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert user_folders.config_home() == expected


def test_a_user_without_a_home_variable_has_one_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HOME the system's own list of users is asked."""
    monkeypatch.delenv("HOME")
    assert user_folders.home() == str(Path("~").expanduser())


NOBODYS = {"owner": (0o700, 12345), "everybody": (0o757, None)}
HOMES: dict[str, Callable[[], str]] = {
    "LOOM_STATE_HOME": user_folders.state_home,
    "XDG_STATE_HOME": user_folders.state_home,
    "XDG_CONFIG_HOME": user_folders.config_home,
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
    assert user_folders.foreign_folders() == [str(folder)]


def test_trust_in_such_a_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was noted before somebody opened the folder to everybody, and is not believed after."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "state"))
    assert known.note("r1", str(tmp_path), trusted="abc") == ""
    (tmp_path / "state").chmod(0o777)
    assert known.entry("r1", str(tmp_path)) == {}
    assert not known.is_known("r1", str(tmp_path))
    assert "LOOM_STATE_HOME" in known.note("r1", str(tmp_path))


def test_a_folder_that_a_umask_left_open_to_a_group_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each user has a group of their own, that is how each folder of theirs is."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path))
    tmp_path.chmod(0o775)
    assert user_folders.state_home() == str(tmp_path)
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
    assert user_folders.state_home() == str(folder)
