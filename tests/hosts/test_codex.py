"""Codex CLI's terminals, all of which have one process in the background that calls the hooks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.processes import boot_id
from loomctl.runs.machine.local import Local
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Scene, run

LAUNCHER = str(CHECKOUT / "bin" / "loomctl")
THIRD = "5f2a7d1e-0000-4000-8000-000000000031"


@pytest.fixture
def terminals(scene: Scene) -> Scene:
    """A run that one terminal's session drives; its hooks have told which process that is."""
    scene.workflow()
    scene.begin()
    hook(scene, "session-start", SESSION, source="resume")
    hook(scene, "stop", SESSION)
    assert driver(scene) == SESSION
    return scene


def hook(scene: Scene, word: str, session: str, **told: Any) -> None:
    event = {"session_id": session, "cwd": str(scene.root), "hook_event_name": word, **told}
    words = [LAUNCHER, "hook", "--host", "codex", word]
    environ = {**scene.environ(), "LOOM_CALLER": str(os.getpid())}
    run(words, cwd=scene.root, environ=environ, given=json.dumps(event)).ends()


def driver(scene: Scene) -> object:
    return scene.state["sessions"]["current_session_id"]


def bound(scene: Scene, session: str) -> object:
    return Local(str(Path(scene.store, "local"))).binding(session)


def test_a_second_terminal_does_not_take_the_run_of_the_first(terminals: Scene) -> None:
    hook(terminals, "session-start", OTHER, source="startup")
    assert bound(terminals, OTHER) is None
    assert driver(terminals) == SESSION


def test_a_terminal_that_is_cleared_goes_on_with_its_run(terminals: Scene) -> None:
    hook(terminals, "session-start", OTHER, source="clear")
    assert bound(terminals, OTHER)
    assert driver(terminals) == OTHER


def test_a_terminal_that_is_cleared_does_not_take_its_neighbours_run(terminals: Scene) -> None:
    hook(terminals, "session-start", OTHER, source="startup")
    hook(terminals, "user-prompt-submit", OTHER, prompt="hello")
    hook(terminals, "session-start", THIRD, source="clear")
    assert bound(terminals, THIRD) is None
    assert driver(terminals) == SESSION


def test_a_terminal_goes_on_after_a_clear_with_a_run_that_it_began_in_its_sandbox(scene: Scene) -> None:
    """There nobody knows the process that drives; a hook of the session does, and notes it."""
    scene.workflow()
    scene.begin()
    (note,) = (scene.store / "local/drivers").iterdir()
    note.write_text(json.dumps({**json.loads(note.read_text()), "process": {"pid": None, "boot_id": boot_id()}}))
    hook(scene, "user-prompt-submit", SESSION, prompt="hello")
    hook(scene, "stop", SESSION)
    hook(scene, "session-start", OTHER, source="clear")
    assert driver(scene) == OTHER
