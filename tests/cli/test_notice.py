"""The call for a user who is elsewhere: a bell, or a command of their own settings, and of nobody else's."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loomctl.cli.unattended import notice
from loomctl.cli.unattended.notice import Notice
from loomctl.kit import clock
from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene

STEPS = [{"id": "gate", "kind": "human", "prompt": "Is it good?"}]


def settings(home: Path, command: str) -> None:
    (home / "config" / "loom").mkdir(parents=True, exist_ok=True)
    (home / "config" / "loom" / "config.yaml").write_text(f"notify: {command!r}\n", encoding="utf-8")


@pytest.fixture
def gated(scene: Scene) -> Scene:
    scene.workflow(phases={"build": {"steps": STEPS}})
    scene.begin(session=None)
    return scene


def test_the_users_command_gets_the_sentence_and_the_next_command(gated: Scene, cli: Cli, user_folders: Path) -> None:
    settings(user_folders, "cat > called; pwd > where")
    cli("drive", gated.handle, session=None).ends(9)
    told = (user_folders / "called").read_text(encoding="utf-8")
    assert told == f"Loom: {gated.handle}: the run waits for your decision\nloomctl approve {gated.handle}\n"
    assert (user_folders / "where").read_text(encoding="utf-8").strip() == str(user_folders)


def test_a_drive_that_ends_by_an_error_calls_too(
    scene: Scene, cli: Cli, user_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(user_folders, "cat > called")
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make it."}]}})
    scene.begin(session=None)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert "NO_ASSISTANT" in cli("drive", scene.handle, session=None).ends(1).stderr
    called, command = (user_folders / "called").read_text(encoding="utf-8").splitlines()
    assert called.startswith(f"Loom: {scene.handle}: the assistant could not be started: claude")
    assert command == f"loomctl drive {scene.handle}"


def test_its_failure_is_said_and_harmless(gated: Scene, cli: Cli, user_folders: Path) -> None:
    settings(user_folders, "echo no such channel >&2; exit 3")
    said = cli("drive", gated.handle, session=None).ends(9)
    assert said.stderr.endswith("loomctl: your notify command failed with 3: no such channel\n")


def test_one_that_hangs_is_ended(gated: Scene, cli: Cli, user_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "PATIENCE", 0.2)
    settings(user_folders, "sleep 77 & sleep 77")
    said = cli("drive", gated.handle, session=None).ends(9)
    assert "your notify command was ended after 0 s" in said.stderr


@pytest.mark.shows("`notify`, which your own settings alone may name")
def test_a_project_cannot_say_it(gated: Scene, cli: Cli) -> None:
    gated.write(".loom/config.yaml", "notify: touch sprung\n")
    cli("drive", gated.handle, session=None).ends(9)
    assert not list(gated.root.rglob("sprung"))
    (warning,) = gated.space().settings.warnings
    assert "'notify' is allowed in your own config.yaml only" in warning[1]


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def waiting(seconds: float, why: str = "the API's limit is reached") -> Any:
    told = {"until": clock.stamp(time.time() + seconds), "why": why}
    return SimpleNamespace(what="waiting", told=told, run=SimpleNamespace(handle="shop-1"))


def test_a_terminal_rings_for_a_long_wait_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen()
    monkeypatch.setattr("sys.stderr", screen)
    call = Notice(None)
    call(waiting(30))
    call(SimpleNamespace(what="", told={}))  # type: ignore[arg-type]
    assert screen.getvalue() == ""
    call(waiting(3600, why="limit\a\033]0;x\a"))
    rung = screen.getvalue()
    assert rung.startswith("\a\033]9;Loom: shop-1 waits until ")
    assert rung.count("\a") == 2
    assert rung.count("\033") == 1
    monkeypatch.setattr("sys.stderr", io.StringIO())
    call(waiting(3600))
    Notice("")(waiting(3600))
    assert screen.getvalue() == rung
