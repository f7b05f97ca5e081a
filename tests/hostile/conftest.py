"""What the tests of hostile files share: a project that is damaged and put back, made once for each module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.fake_assistant import fake
from tests.hostile.victim import Victim

__all__ = ["at_the_victims", "fake", "victim"]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("victim")
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(os.environ):
            if name.startswith(("CLAUDE", "GIT_", "XDG_", "LOOM_")):
                patch.delenv(name)
        patch.setenv("HOME", str(folder))
        patch.setenv("LOOM_STATE_HOME", str(folder / "loom-state"))
        yield Victim(folder)


@pytest.fixture
def at_the_victims(user_folders: Path, victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_folders.is_dir()
    home = victim.scene.root.parent
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOOM_STATE_HOME", str(home / "loom-state"))
