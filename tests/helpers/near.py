"""What the engine's tests share: a project whose commands run in this process, ten times faster than in their own."""

from pathlib import Path
from typing import Any

import pytest

from loomctl.runs import artifact_paths
from tests.cli.conftest import Cli
from tests.helpers.machines import Machine, server_of
from tests.helpers.scenes import SESSION, Ended, Scene


class NearScene(Scene):
    """A scene for claims about files and words; that a process does the same is shown in tests/cli and tests/smoke."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self._cli = Cli(self, monkeypatch, capfd)

    def loomctl(
        self, *arguments: str, session: str | None = SESSION, given: str | bytes | None = None, cwd: Path | None = None
    ) -> Ended:
        artifact_paths._REAL.clear()  # it lives as long as a process
        return self._cli(*arguments, session=session, given=given, cwd=cwd)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Scene:
    return NearScene(tmp_path / "shop", monkeypatch, capfd)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Give the bare repository between the machines; `a.txt` stands in it."""
    return server_of(tmp_path)


@pytest.fixture
def near_machines(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Let machines run their commands in this process, too."""

    def loomctl(machine: Machine, *arguments: str, **named: Any) -> Ended:
        artifact_paths._REAL.clear()  # it lives as long as a process
        return Cli(machine, monkeypatch, capfd)(*arguments, **named)

    monkeypatch.setattr(Machine, "loomctl", loomctl)
