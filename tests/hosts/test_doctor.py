"""What the doctor can tell of Claude Code from its settings, and that it looks at nothing else in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loomctl import __version__
from loomctl.care import project_checks
from loomctl.hosts.setup import claude as installed
from loomctl.kit.errors import quoted
from loomctl.kit.trouble import FAIL, PASS, WARN
from tests.helpers.patients import patient
from tests.helpers.scenes import SESSION, Json, Scene

USER, SHARED, OWN = "user", "shared", "own"
ON: Json = {"enabledPlugins": {"loom@loom": True, "other@x": False}}
OFF: Json = {"enabledPlugins": {"loom@loom": False}}
NO_HOOKS: Json = {"disableAllHooks": True}


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def place(scene: Scene, home: Path, where: str) -> Path:
    """Give the file of settings of the user, of the project, or of the project and this user."""
    return {
        USER: home / ".claude/settings.json",
        SHARED: scene.root / ".claude/settings.json",
        OWN: scene.root / ".claude/settings.local.json",
    }[where]


def say(scene: Scene, home: Path, where: str, value: Json | str) -> None:
    path = place(scene, home, where)
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


SETTINGS: list[tuple[dict[str, Json | str], str, str]] = [
    ({}, WARN, "do not say"),
    ({USER: ON}, PASS, "the plugin is enabled"),
    ({SHARED: ON}, PASS, "the plugin is enabled"),
    ({USER: OFF}, FAIL, "the plugin is disabled"),
    ({USER: ON, OWN: OFF}, FAIL, "the plugin is disabled"),
    ({USER: OFF, SHARED: OFF, OWN: ON}, PASS, "the plugin is enabled"),
    ({USER: {**ON, **NO_HOOKS}}, FAIL, "disableAllHooks"),
    ({USER: ON, SHARED: NO_HOOKS}, FAIL, "disableAllHooks"),
    ({USER: {"enabledPlugins": {"other@x": True}}}, WARN, "do not say"),
    ({USER: {"enabledPlugins": ["loom@loom"]}}, WARN, "do not say"),
    ({USER: {"enabledPlugins": {"loom@loom": "yes"}, "disableAllHooks": "no"}}, WARN, "do not say"),
    ({USER: "{", SHARED: "[]"}, WARN, "do not say"),
]


@pytest.mark.usefixtures("claude")
def test_settings_tell_whether_hooks_run(scene: Scene, user_folders: Path) -> None:
    """The project's own word comes before the user's; what is no word at all tells nothing."""
    scene.workflow()
    for settings, status, words in SETTINGS:
        for where in (USER, SHARED, OWN):
            place(scene, user_folders, where).unlink(missing_ok=True)
        for where, value in settings.items():
            say(scene, user_folders, where, value)
        found = installed.assistant(patient(scene))
        assert (found.status, words in found.found) == (status, True), found
        assert bool(found.hint) == (status != PASS)


@pytest.mark.usefixtures("claude", "user_folders")
def test_the_marketplace_is_added_before_the_plugin_is_installed(scene: Scene) -> None:
    """From a clone alone the assistant does not know where loom@loom comes from."""
    scene.workflow()
    root = patient(scene).bundle
    hint = installed.assistant(patient(scene)).hint
    assert hint == f"claude plugin marketplace add {quoted(root)} && claude plugin install loom@loom"


def test_hooks_that_fired_are_proof_enough(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.workflow()
    scene.begin()
    monkeypatch.setenv("PATH", "/nonexistent")
    found = installed.assistant(patient(scene))
    assert (found.status, found.hint, "nothing to do" in found.found) == (WARN, "", True)
    (scene.store / "local/hooks/stop").write_text(f"{__version__} {SESSION} x\n")
    found = installed.assistant(patient(scene))
    assert (found.status, found.found.startswith("no claude on PATH")) == (PASS, True)


def test_who_uses_another_assistant_does_not_lack_this_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene.workflow()
    for name in ("codex", "gemini"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = installed.assistant(patient(scene))
    assert (found.status, found.found) == (PASS, "no claude on PATH, but Codex CLI and Gemini CLI")


def test_a_sandbox_that_shuts_the_users_folders_is_no_failure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Outside of it hooks note which runs are known."""
    scene.workflow()
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "state/loom"))
    here = patient(scene)
    assert project_checks.known(here).status == FAIL
    here.shut_in = True
    assert project_checks.known(here).status == PASS


def test_the_folder_that_the_user_named_counts(
    scene: Scene, user_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.workflow()
    say(scene, user_folders, USER, OFF)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/settings.json").write_text(json.dumps(ON))
    assert installed.assistant(patient(scene)).status == PASS
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", "")
    assert installed.assistant(patient(scene)).status == WARN


def test_nothing_else_of_the_settings_is_shown(scene: Scene, user_folders: Path) -> None:
    """Keys that stand beside the two are not repeated, and a pipe in the file's place holds nobody up."""
    scene.workflow()
    say(scene, user_folders, USER, {**ON, "env": {"TOKEN": "heliotrope"}, "apiKeyHelper": "heliotrope"})
    assert "heliotrope" not in repr(installed.assistant(patient(scene)))
    (user_folders / ".claude/settings.json").unlink()
    os.mkfifo(user_folders / ".claude/settings.json")
    assert installed.assistant(patient(scene)).status == WARN
