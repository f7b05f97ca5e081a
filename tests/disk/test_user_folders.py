"""What is the user's lies in the user's folders, never where a project could bring it along (D23)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loomctl.disk import user_folders


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
