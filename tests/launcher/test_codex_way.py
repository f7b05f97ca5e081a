"""The launcher and a host that applies a patch which its shell is given itself, and calls no hook behind that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.reduction.tool_steps import paths_of, rule_for
from tests.launcher.world import SESSION, SHELLS, World, touch

PATCH = '*** Begin Patch\n*** Add File: src/new.py\n+x = "1"\n*** Update File: README.md\n@@\n-a\n+b\n*** End Patch'
BODY = f"<<'EOF'\n{PATCH}\nEOF"


@pytest.fixture
def spool(world: World, tmp_path: Path) -> Path:
    """The spool of a project in which the session is bound."""
    (world.tools / "dd").symlink_to("/usr/bin/dd")
    world.add_python()
    world.remember()
    touch(tmp_path / "project/.loom/local/sessions" / f"{SESSION}.json", "{}")
    for folder in ("spool", "primed", "hosts", "hooks"):
        (tmp_path / "project/.loom/local" / folder).mkdir()
    return tmp_path / "project/.loom/local/spool"


def told_of(world: World, spool: Path, command: str, shell: list[str]) -> list[dict[str, Any]]:
    event = {
        "session_id": SESSION, "cwd": str(spool.parents[2]), "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": {"command": command}, "tool_use_id": "call_9",
    }  # fmt: skip
    ended = world.start(
        "hook", "--host", "codex", "pre-tool-use", stdin=json.dumps(event, separators=(",", ":")).encode(),
        cwd=spool.parents[2], shell=shell,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    return [json.loads(path.read_text(encoding="utf-8")) for path in spool.iterdir()]


@pytest.mark.parametrize("shell", SHELLS, ids=[shell[0] for shell in SHELLS])
def test_a_patch_for_the_shell_is_recorded_by_what_comes_before_it(world: World, spool: Path, shell: list[str]) -> None:
    (told,) = told_of(world, spool, f"apply_patch {BODY}", shell)
    assert (told["hook_event_name"], told["tool_name"], told["tool_use_id"]) == ("PostToolUse", "apply_patch", "call_9")
    assert paths_of(rule_for(told["tool_name"]), told["tool_input"]) == ["src/new.py", "README.md"]
    assert "tells no hook how that ended" in told["tool_response"]


def test_one_for_another_folder_stays_a_command(world: World, spool: Path) -> None:
    """Its names are that folder's."""
    (told,) = told_of(world, spool, f"cd src && apply_patch {BODY}", SHELLS[0])
    assert (told["hook_event_name"], told["tool_name"]) == ("PostToolUse", "Bash")


@pytest.mark.parametrize("command", ["ls", f"touch x; apply_patch {BODY}", "cat apply_patch.txt", "cd src && ls"])
def test_of_other_commands_a_hook_behind_them_tells(world: World, spool: Path, command: str) -> None:
    assert told_of(world, spool, command, SHELLS[0]) == []


def test_a_large_one_is_kept_whole(world: World, spool: Path) -> None:
    large = BODY.replace("+b\n", "+line\n" * 40_000)
    (told,) = told_of(world, spool, f"apply_patch {large}", SHELLS[0])
    assert told["tool_input"]["command"] == f"apply_patch {large}"
