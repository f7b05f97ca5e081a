"""Who sits at this machine: git's name for them, else the account's, never what an environment variable says."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from loomctl.kit.git import user_name
from tests.helpers.repositories import git


@pytest.fixture
def nameless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a user who told git no name, in an environment that says others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("USER", "LOGNAME", "USERNAME", "GIT_AUTHOR_NAME"):
        monkeypatch.setenv(name, "ghp_secret")
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def test_git_knows_the_person(nameless: Path) -> None:
    git(nameless, "config", "user.name", "Grace Hopper")
    assert user_name(str(nameless)) == "Grace Hopper"


def test_else_the_account_has_a_name(nameless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_name(str(nameless)) == pwd.getpwuid(os.getuid()).pw_name

    def unknown(_: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert user_name(str(nameless)) == f"user {os.getuid()}"
