"""The bundle installs from its marketplace file, validates strictly, and offers what the README names."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.assistant import Assistant, Machine
from tests.e2e.scenes import state_of
from tests.e2e.scripted_api import ScriptedApi
from tests.helpers import wheels
from tests.helpers.scenes import handle

AFTER = ["PostToolUse", "PostToolUseFailure"]
EVENTS = ["PostCompact", *AFTER, "PreCompact", "PreToolUse", "SessionEnd", "SessionStart", "Stop", "UserPromptSubmit"]
SKILLS = ["loom:loom-prime-context", "loom:loom-resume", "loom:loom-run"]
NAMES = ["approve", "doctor", "prime-context", "report", "resume", "run", "status"]
COMMANDS = [f"loom:{name}" for name in NAMES]


@pytest.mark.quick
def test_validates_and_provides_what_it_should(assistant: Assistant, bundle: Path) -> None:
    """The one thing that it warns of is a file of another host's, whose events it passes over."""
    report = json.loads(assistant.plugin("validate", "--json", str(bundle)))
    assert report["success"]
    warned = [(Path(part["file"]).name, one["message"]) for part in report["contents"] for one in part["warnings"]]
    others = ("BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent")
    assert warned == [("hooks.json", f"hooks.{name}: unknown hook event; entry ignored at runtime") for name in others]
    provides = report["provides"]
    assert sorted({hook["event"] for hook in provides["hooks"]}) == EVENTS
    assert (sorted(provides["commands"]), sorted(provides["skills"])) == (COMMANDS, SKILLS)
    assert provides["bin"] == ["loomctl"]
    blocking = [finding["code"] for finding in report["directory"]["findings"] if finding["blocking"]]
    assert blocking == []


@pytest.mark.quick
def test_every_hook_has_a_short_timeout_of_its_own(bundle: Path) -> None:
    hooks = json.loads((bundle / "hooks" / "claude-code.json").read_text(encoding="utf-8"))["hooks"]
    entries = [hook for matchers in hooks.values() for matcher in matchers for hook in matcher["hooks"]]
    assert len(entries) == len(EVENTS) + 3  # a session start has four (D62)
    at_a_steps_end = [entry for entry in entries if entry["command"].endswith(" stop")]  # it asks git
    assert all(0 < entry["timeout"] <= (60 if entry in at_a_steps_end else 15) for entry in entries)


def test_an_installed_bundle_is_loaded_and_runs(installed: Assistant) -> None:
    turn = installed.run("/loom:run 258", watch_hooks=True)
    (opening,) = [event for event in turn.events if event.get("subtype") == "init"]
    assert {*COMMANDS, *SKILLS} <= set(opening["slash_commands"])
    assert "loom" in [plugin["name"] for plugin in opening["plugins"]]
    assert handle(state_of(installed.project)) in turn.conversation[0].seen()


def test_a_bundle_that_was_installed_by_name_is_loaded_and_runs(
    claude: str, machine: Machine, api: ScriptedApi, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As after `pipx install loomctl`: the plugin is a folder of the package, and its hooks need no set-up."""
    dist, venv = wheels.build(tmp_path_factory.mktemp("dist")), machine.root / "venv"
    index = wheels.with_packages(dist, tmp_path_factory.mktemp("index"))
    machine.command(sys.executable, "-m", "venv", str(venv), cwd=machine.root)
    words = ("install", "--quiet", "--no-index", "--find-links", str(index), "loomctl")
    machine.command(str(venv / "bin" / "pip"), *words, cwd=machine.root)
    plugin = machine.command(str(venv / "bin" / "loomctl"), "plugin", "path", cwd=machine.root).strip()
    alone = replace(machine, cache=machine.root / "cache")
    assistant = Assistant(binary=claude, machine=alone, project=machine.project(), api=api, plugin_dir=None)
    assistant.plugin("marketplace", "add", plugin)
    assistant.plugin("install", "loom@loom")
    turn = assistant.run("/loom:run 258")
    assert handle(state_of(assistant.project)) in turn.conversation[0].seen()
    assert not list(alone.cache.rglob("env-*"))
