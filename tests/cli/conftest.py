"""What the command line's tests share: commands run in this process, as their own process would run them."""

import io
import os
import time
from pathlib import Path

import pytest

from loomctl.cli.main import main
from loomctl.kit import processes
from loomctl.kit.processes import Process
from tests.helpers.fake_assistant import fake, gate
from tests.helpers.scenes import SESSION, Ended, Scene, decides

__all__ = ["Cli", "cli", "fake", "gate"]


class Cli:
    """Runs commands in a project; the real processes of `Scene.loomctl` do the same, ten times slower."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.scene, self._monkeypatch, self._capfd = scene, monkeypatch, capfd

    def __call__(
        self, *arguments: str, session: str | None = SESSION, given: str | bytes | None = None, cwd: Path | None = None
    ) -> Ended:
        """Run a command. given: its standard input, a file; None for /dev/null."""
        data = given.encode() if isinstance(given, str) else given
        source = self.scene.root.parent / "stdin"
        source.write_bytes(data or b"")
        self._capfd.readouterr()
        with self._monkeypatch.context() as patch, open(os.devnull if data is None else source, "rb") as file:
            patch.chdir(cwd or self.scene.root)
            patch.setattr("sys.stdin", io.TextIOWrapper(file))
            for name, value in self.scene.environ(session).items():
                patch.setenv(name, value)
            if session is None:
                patch.delenv("CLAUDE_CODE_SESSION_ID", raising=False)
            if decides(arguments):
                self.scene.rest()
            patch.setattr(processes, "line", lambda: [Process(0, time.time()), Process(os.getpid(), 0)])
            code = main(list(arguments))
        printed = self._capfd.readouterr()
        return Ended(code, printed.out, printed.err)


@pytest.fixture
def cli(scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(scene, monkeypatch, capfd)


@pytest.fixture
def on_a_wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are told whole; `test_screens.py` cuts them."""
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A project with one run, at its first step."""
    scene.workflow()
    scene.begin()
    return scene
