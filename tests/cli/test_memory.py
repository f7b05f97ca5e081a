"""`loomctl memory`: shown first, asked at a terminal, switched on and off, and its standing (D62)."""

import subprocess
import sys

import pytest

from loomctl.kit.errors import EXIT_OK, EXIT_USAGE
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.helpers.scenes import MAIN, Scene, artifact, fingerprint
from tests.helpers.texts import holds

PRICE = (
    "Every session that starts in this folder reads it, also for other work: now ",
    "Claude Code reads it at a start, /clear and compaction, not between prompts.",
    "In a folder below this one it does not read the imported files.",
    "Claude Code treats it as your instructions, while it treats what hooks give as data.",
)


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md"), artifact("gone", "gone.md")])
    scene.begin()
    return scene


def test_what_would_be_written_is_shown_first_and_then_how_it_stands(begun: Scene, cli: Cli) -> None:
    cli("paths")  # compiles the settings
    before = fingerprint(begun.root)
    ended = cli("memory", "on").ends(EXIT_USAGE)
    assert "CLAUDE.local.md  a new file with the line @.loom/now.md" in ended.stderr
    assert all(line in ended.stderr for line in PRICE)
    holds(ended.stderr, "NOT_CONFIRMED", "hint: loomctl memory on --yes")
    assert cli("memory", "on", "--in", "rule", "--json").json["error"]["hint"] == "loomctl memory on --in rule --yes"
    assert fingerprint(begun.root) == before
    assert "Loom: memory is off; `loomctl memory on` would write:" in cli("memory").stdout
    cli("memory", "on", "--yes")
    told = cli("memory").stdout
    assert "Loom: memory is on: CLAUDE.local.md imports .loom/now.md (@.loom/now.md)" in told
    assert "✓ spec: spec.md, 11 bytes" in told
    assert "✗ gone: gone.md: missing: no such file" in told
    assert all(line in told for line in PRICE)
    document = cli("memory", "--json").json
    assert document["imports"] == [{"id": "spec", "path": "spec.md", "bytes": 11}]
    assert [one["id"] for one in document["left_out"]] == ["gone"]
    assert document["bytes"] == 11 + len((begun.store / "now.md").read_bytes())
    (begun.root / "CLAUDE.local.md").unlink()
    assert "CLAUDE.local.md has lost its line. To restore it: loomctl memory on" in cli("memory").stdout
    assert (cli("memory", "on", "--yes").code, cli("memory", "off").code) == (EXIT_OK, EXIT_OK)
    assert not (begun.root / "CLAUDE.local.md").exists()


@pytest.mark.parametrize(("word", "written"), [("y\n", True), ("n\n", False), ("\x04", False)])
def test_a_person_is_asked_at_a_terminal(begun: Scene, word: str, written: bool) -> None:
    terminal = Terminal([sys.executable, "-I", str(MAIN), "memory", "on"], begun)
    terminal.until("Loom would write:", "The price:", "Switch memory on?")
    terminal.type(word)
    terminal.end()
    assert terminal.child.returncode == (EXIT_OK if written else EXIT_USAGE)
    assert (begun.root / "CLAUDE.local.md").exists() is written


def test_memory_is_switched_on_once_in_one_place_and_fails_no_command(cli: Cli, begun: Scene) -> None:
    assert cli("memory", "off", "--json").json == {"schema_version": 1, "on": False, "changed": False}
    first = cli("memory", "on", "--yes", "--json").json
    assert (first["on"], first["changed"], first["has_line"]) == (True, True, True)
    assert cli("memory", "on", "--json").json["changed"] is False
    assert "already" not in cli("memory", "off").stdout
    assert "already" in cli("memory", "off").stdout
    cli("memory", "on", "--yes")
    error = cli("memory", "on", "--in", "rule", "--yes", "--json")
    assert (error.code, error.json["error"]["code"]) == (EXIT_USAGE, "MEMORY_IS_ON")
    assert error.json["error"]["hint"] == "loomctl memory off && loomctl memory on --in rule"
    (begun.store / "now.md").unlink()
    (begun.store / "now.md").mkdir()
    assert "could not update .loom/now.md: " in cli("pause").ends().stderr


def test_a_file_that_git_does_not_ignore_is_told_and_a_first_run_too(scene: Scene, cli: Cli) -> None:
    (scene.root / ".git").rmdir()
    assert cli("memory", "--json").json["ignored_by_git"] is None
    subprocess.run(["git", "init", "-q", str(scene.root)], check=True)
    assert "! git does not ignore CLAUDE.local.md: a commit would contain the line" in cli("memory").stdout
    scene.write(".gitignore", "*.local.md\n")
    assert cli("memory", "--json").json["ignored_by_git"] is True
    assert "!" not in cli("memory").stdout
    assert cli("memory", "on", "--yes").code == EXIT_OK
    assert (scene.store / "now.md").read_text() == "Loom: no run is active in this project.\n"
    scene.workflow()
    assert cli("run", "add dark mode", "--workflow", "tiny").code == EXIT_OK
    assert "goal: add dark mode" in (scene.store / "now.md").read_text()


def test_memory_of_another_assistant_is_named_and_priced_as_what_it_is(cli: Cli, begun: Scene) -> None:
    refused = cli("memory", "on", "--host", "codex").ends(EXIT_USAGE)
    holds(refused.stderr, "AGENTS.md", "hint: loomctl memory on --host codex --yes")
    told = cli("memory", "on", "--host", "codex", "--yes").stdout
    holds(told, "Loom: memory is on: AGENTS.md points to .loom/now.md", "The line alone is in the conversation")
    assert (begun.root / "AGENTS.md").read_text().startswith("Loom: read .loom/now.md")
    again = cli("memory", "on", "--host", "gemini", "--yes", "--json").json["error"]
    assert again["hint"] == "loomctl memory off && loomctl memory on --host gemini"
    cli("memory", "off")
    assert not (begun.root / "AGENTS.md").exists()
    assert "GEMINI.md imports .loom/now.md (@.loom/now.md)" in cli("memory", "on", "--host", "gemini", "--yes").stdout
