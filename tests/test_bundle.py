"""The bundle that hosts load: manifests, marketplace, hooks, commands and skills."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from loomctl import __version__
from loomctl.runs.machine.launcher_files import EVENTS
from loomctl.runs.machine.launcher_files import MOST_PARTS as MOST
from tests.helpers.tables import each

CHECKOUT = Path(__file__).resolve().parents[1]
COMMANDS = sorted((CHECKOUT / "commands").glob("*.md"))
SKILLS = sorted((CHECKOUT / "skills").glob("*/SKILL.md"))
TOLD = re.compile(r"```!\n(.*?)\n```", re.DOTALL)
# The open standard's fields; what is Claude's alone stands in commands.
SKILL_FIELDS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
COMMAND_FIELDS = {"description", "argument-hint", "allowed-tools", "disable-model-invocation"}


def read(name: str) -> Any:
    """Read a JSON file of the checkout."""
    return json.loads((CHECKOUT / name).read_text(encoding="utf-8"))


def parts(path: Path) -> tuple[dict[str, Any], str]:
    """Split a Markdown file into its frontmatter and its body."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("---\n"), path
    head, mark, body = text[4:].partition("\n---\n")
    assert mark, path
    fields = yaml.safe_load(head)
    assert isinstance(fields, dict)
    return fields, body


def test_both_manifests_are_one_file() -> None:
    """A host that reads the root's manifest and one that reads the hidden one see the same; neither is a link."""
    root, hidden = CHECKOUT / "plugin.json", CHECKOUT / ".claude-plugin" / "plugin.json"
    assert root.read_bytes() == hidden.read_bytes()
    assert not root.is_symlink()
    assert not hidden.is_symlink()


# Other hosts' manifests, and the variable in which each has the bundle's folder.
OTHERS = {
    "codex": (".codex-plugin/plugin.json", "PLUGIN_ROOT"),
    "copilot": (".plugin/plugin.json", "COPILOT_PLUGIN_ROOT"),
}


@pytest.mark.parametrize("host", OTHERS)
def test_another_hosts_manifest_says_the_same_and_names_hooks_of_its_own(host: str) -> None:
    """Its hooks say whose they are (D71); one empty matcher can cost a host all of them."""
    manifest, root = OTHERS[host]
    said = read(manifest)
    own = read("plugin.json")
    assert {**own, "hooks": said["hooks"]}.items() <= said.items()
    assert said["hooks"] != own["hooks"]
    assert (CHECKOUT / said["skills"]).is_dir()
    for event, groups in read(said["hooks"])["hooks"].items():
        (group,) = groups
        (hook,) = group["hooks"]
        word = re.sub(r"(?<!^)(?=[A-Z])", "-", event).lower()
        called = f'"${{{root}}}/bin/loomctl" hook --host {host} {word}'
        # Where a call is denied for a hook that fails, none does, whatever becomes of the launcher.
        assert hook["command"] == (f"LOOM_CALLER=$PPID {called} || :" if host == "copilot" else called)
        assert word in EVENTS
        assert group.get("matcher", "*") == "*"
        assert 0 < hook["timeout"] <= 60


def test_the_version_is_one() -> None:
    """Manifest and package carry the same version, and the changelog has a word on it."""
    assert read("plugin.json")["version"] == __version__
    changelog = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## .*({re.escape(__version__)}|[Uu]nreleased)", changelog, re.MULTILINE)


def test_the_marketplace_offers_the_plugin() -> None:
    """`claude plugin install loom@loom` finds it beside the marketplace file."""
    market = read(".claude-plugin/marketplace.json")
    (entry,) = market["plugins"]
    assert (market["name"], entry["name"], entry["source"]) == ("loom", read("plugin.json")["name"], "./")
    assert entry["description"] == read("plugin.json")["description"]


def test_every_hook_is_answered_and_bounded() -> None:
    """Each entry calls the launcher with an event that the package answers, quoted, with a timeout in seconds."""
    entries = [
        (event, group, hook)
        for event, groups in read("hooks/claude-code.json")["hooks"].items()
        for group in groups
        for hook in group["hooks"]
    ]
    words = []
    for event, group, hook in entries:
        match = re.fullmatch(
            r'"\$\{CLAUDE_PLUGIN_ROOT\}/bin/loomctl" hook --host claude-code ([a-z-]+)( [1-4]/4)?', hook["command"]
        )
        assert match, hook
        assert bool(match[2]) == (event == "SessionStart")
        assert match[1] == re.sub(r"(?<!^)(?=[A-Z])", "-", event).lower()
        assert match[1] in EVENTS
        assert hook["type"] == "command"
        longest = 60 if hook["command"].endswith(" stop") else 10  # a step's end asks git and copies assets
        assert 1 <= hook["timeout"] <= longest
        assert group.get("matcher") == ("*" if "ToolUse" in event else None)
        words.append(match[1] + (match[2] or ""))
    starts = [f"session-start {number}/{MOST}" for number in range(1, MOST + 1)]
    assert sorted(words) == sorted([*starts, *(event for event in EVENTS if event != "session-start")])
    assert (CHECKOUT / "bin" / "loomctl").stat().st_mode & 0o111


def test_the_names_are_the_promised_ones() -> None:
    """Commands are what people type, skills what assistants choose: a command of a skill's name would hide it."""
    assert [path.stem for path in COMMANDS] == [
        *("approve", "doctor", "prime-context", "report", "resume", "run", "status")
    ]
    assert [path.parent.name for path in SKILLS] == ["loom-prime-context", "loom-resume", "loom-run"]


def test_what_the_model_is_offered_says_when_to_use_it() -> None:
    """A command that has a skill, or decides, is the user's to type; the host does not list it to the model."""
    offered = [path for path in COMMANDS if not parts(path)[0].get("disable-model-invocation")]
    assert [path.stem for path in offered] == ["status"]
    assert all("Use when" in parts(path)[0]["description"] for path in (*offered, *SKILLS))
    assert not any("Use when" in parts(path)[0]["description"] for path in COMMANDS if path not in offered)


def test_a_command_whose_answer_would_age_is_called_as_a_tool() -> None:
    """A host gives a body again after each compaction, as it was; the result of a tool call is gone (D79)."""
    _, body = parts(CHECKOUT / "commands" / "prime-context.md")
    assert TOLD.findall(body) == []
    assert body.count("$ARGUMENTS") == 1


RUNNING = [path for path in COMMANDS if path.stem not in ("prime-context", "doctor")]


@each("path", RUNNING)
def test_a_command_hands_its_arguments_over_unread(path: Path) -> None:
    """The arguments go through a quoted heredoc with an end mark, and a failing command does not abort the text."""
    fields, body = parts(path)
    assert set(fields) <= COMMAND_FIELDS
    assert all(isinstance(fields[name], str) for name in fields if name != "disable-model-invocation")
    assert fields["allowed-tools"] == "Bash(loomctl:*)"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    (block,) = TOLD.findall(body)
    assert block.splitlines() == [
        f"loomctl {path.stem} --arguments-from-stdin <<'LOOM_ARGUMENTS_END'",
        "$ARGUMENTS",
        "--end-of-arguments--",
        "LOOM_ARGUMENTS_END",
        "true",
    ]
    assert "$ARGUMENTS" not in TOLD.sub("", body)
    assert "!`" not in TOLD.sub("", body)


@each("path", SKILLS)
def test_a_skill_keeps_to_the_open_standard(path: Path) -> None:
    """Six fields at most, its folder's name, a capability with words that users type, and every part that helps."""
    fields, body = parts(path)
    assert set(fields) <= SKILL_FIELDS
    assert fields["name"] == path.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert 0 < len(fields["description"]) <= 1024
    assert "Use when" in fields["description"]
    headings = re.findall(r"^## (.*)$", body, re.MULTILINE)
    for heading in ("When not to use it", "Steps", "An example", "When something goes wrong"):
        assert heading in headings
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 200


@each("path", SKILLS)
def test_a_skill_is_valid_by_the_standards_own_tool(path: Path) -> None:
    """`agentskills validate` of skills-ref accepts it."""
    validator = pytest.importorskip("skills_ref.validator", reason="skills-ref needs Python 3.11")
    assert validator.validate(path.parent) == []


@each("name", ["workflow", "plan", "state", "tool_step", "status", "changes", "report"])
def test_the_schemas_are_schemas(name: str) -> None:
    """Each has its dialect and name, and a description and an example for editors."""
    import jsonschema

    schema = read(f"config/{name}.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["title"]
    assert schema["description"]


def test_what_the_bundle_names_is_there() -> None:
    """Documents that skills, commands, workflows and the README point to exist."""
    named = re.compile(r"(?:\]\(|`|\{plugin_root\}/)(docs/[a-z/-]+\.md|skills/[a-z/-]+|[A-Z]+\.md)")
    texts = [*COMMANDS, *SKILLS, CHECKOUT / "README.md", *(CHECKOUT / "config" / "workflows").glob("*.json")]
    found = {match for path in texts for match in named.findall(path.read_text(encoding="utf-8"))}
    assert "docs/workflow-orchestration-protocol.md" in found
    for name in found:
        assert (CHECKOUT / name).exists(), name


def test_no_path_of_a_machine_is_in_the_bundle() -> None:
    """What is shipped says nothing of the place where it was written."""
    shipped = ("commands", "skills", "hooks", "hosts", "config", "docs", "bin", "loomctl", ".claude-plugin")
    files = [path for folder in shipped for path in (CHECKOUT / folder).rglob("*") if path.is_file()]
    for path in files:
        if path.suffix != ".pyc":
            assert not re.search(rb"/(home|root|Users)/[a-z]", path.read_bytes()), path
