"""The bundle installs from its marketplace file, validates strictly, and offers what the README names."""

import json
from pathlib import Path

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import state_of
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
