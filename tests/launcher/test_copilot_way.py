"""The launcher and a host whose hooks have their session in the event alone, and whose subagents bear other ids."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.world import SESSION, SHELLS, World, touch

SUBAGENT = "a9e17-1d"
OF_SUBAGENT = {"session_id": SUBAGENT, "agent_id": SUBAGENT, "agent_type": "explore", "parent_agent_id": SESSION}


@pytest.fixture
def project(world: World, tmp_path: Path) -> Path:
    """A project in which the session is bound; its hooks run in the bundle's folder."""
    for tool in ("dd", "wc"):
        (world.tools / tool).symlink_to(f"/usr/bin/{tool}")
    world.add_python()
    world.remember()
    touch(tmp_path / "project/.loom/local/sessions" / f"{SESSION}.json", "{}")
    for folder in ("spool", "primed", "hosts", "hooks"):
        (tmp_path / "project/.loom/local" / folder).mkdir()
    world.more["COPILOT_PROJECT_DIR"] = str(tmp_path / "project")
    return tmp_path / "project"


def hook(world: World, word: str, event: dict[str, Any], shell: list[str], **more: Any) -> dict[str, Any] | None:
    told = json.dumps({"hook_event_name": "X", "session_id": SESSION, **event}, separators=(",", ":")).encode()
    ended = world.start("hook", "--host", "copilot", word, stdin=told, cwd=world.bundle, shell=shell, **more)
    assert (ended.returncode, ended.stderr) == (0, b"")
    report: dict[str, Any] | None = json.loads(ended.stdout) if ended.stdout else None
    return report


CALL = {"tool_name": "Bash", "tool_input": {"command": "loomctl next"}}


@pytest.mark.parametrize("shell", SHELLS, ids=[shell[0] for shell in SHELLS])
def test_session_project_and_process_are_known(world: World, project: Path, shell: list[str]) -> None:
    report = hook(world, "pre-tool-use", CALL, shell, LOOM_CALLER="4711")
    assert report is not None
    assert report["arguments"] == ["hook", "pre-tool-use"]
    assert report["cwd"] == str(project)
    named = {name: report["LOOM"][f"LOOM_{name}"] for name in ("HOST", "HOST_SESSION", "HOST_PID")}
    assert named == {"HOST": "copilot", "HOST_SESSION": SESSION, "HOST_PID": "4711"}
    assert (project / ".loom/local/hosts/4711.called").read_text() == f"copilot {SESSION}\n"


@pytest.mark.parametrize("shell", SHELLS, ids=[shell[0] for shell in SHELLS])
def test_a_launcher_without_its_second_half_blocks_nothing(world: World, project: Path, shell: list[str]) -> None:
    alone = world.root / "bin" / "loomctl"
    alone.parent.mkdir()
    alone.symlink_to(world.bundle / "bin" / "loomctl")
    assert hook(world, "pre-tool-use", CALL, shell, launcher=alone, LOOM_CALLER="4711") is not None
    alone.unlink()
    shutil.copy(world.bundle / "bin" / "loomctl", alone)
    (project / ".loom/local/hosts/4711.called").unlink()
    assert hook(world, "pre-tool-use", CALL, shell, launcher=alone, LOOM_CALLER="4711") is None
    assert not list((project / ".loom/local/hosts").iterdir())


@pytest.mark.parametrize("shell", SHELLS, ids=[shell[0] for shell in SHELLS])
def test_a_subagents_calls_are_its_parents(world: World, project: Path, shell: list[str]) -> None:
    report = hook(world, "pre-tool-use", {**OF_SUBAGENT, **CALL}, shell)
    assert report is not None
    assert report["LOOM"]["LOOM_HOST_SESSION"] == SESSION
    hook(world, "post-tool-use", {**OF_SUBAGENT, **CALL, "tool_result": {}}, shell)
    (kept,) = (project / ".loom/local/spool").iterdir()
    assert kept.name.startswith(f"{SESSION}-")


@pytest.mark.parametrize("word", ["stop", "user-prompt-submit", "pre-compact", "session-start", "session-end"])
def test_other_events_of_a_subagent_leave_no_sign(world: World, project: Path, word: str) -> None:
    """Its end is no rest of its parent: a call of that is in flight."""
    touch(project / f".loom/local/primed/{SESSION}.compacted")
    assert hook(world, word, OF_SUBAGENT, SHELLS[0], LOOM_CALLER="4711") is None
    assert os.listdir(project / ".loom/local/hosts") == []


def test_a_tools_arguments_name_no_parent(world: World, project: Path) -> None:
    given = {"tool_name": "mcp__x", "tool_input": {"parent_agent_id": "other", "command": "loomctl"}}
    hook(world, "pre-tool-use", given, SHELLS[0], LOOM_CALLER="4711")
    assert (project / ".loom/local/hosts/4711.called").read_text() == f"copilot {SESSION}\n"


@pytest.mark.parametrize("shell", SHELLS, ids=[shell[0] for shell in SHELLS])
def test_a_noted_compaction_starts_python_at_the_next_result_and_prompt(
    world: World, project: Path, shell: list[str]
) -> None:
    result = {**CALL, "tool_result": {"result_type": "success", "text_result_for_llm": "hi"}}
    assert hook(world, "post-tool-use", result, shell) is None
    assert hook(world, "user-prompt-submit", {"prompt": "go on"}, shell) is None
    touch(project / f".loom/local/primed/{SESSION}.compacted")
    report = hook(world, "post-tool-use", result, shell)
    assert report is not None
    assert report["arguments"][-1] == "compacted"
    assert hook(world, "user-prompt-submit", {"prompt": "go on"}, shell) is not None


@pytest.mark.parametrize("word", ["session-start", "pre-tool-use", "stop"])
def test_hooks_that_say_another_host_are_not_answered_there(world: World, project: Path, word: str) -> None:
    """It reads Claude Code's settings of a repository, and sets that host's variables; an outer one's are inherited."""
    own: dict[str, Any] = {"CLAUDE_PROJECT_DIR": str(project), "CLAUDE_CODE_SESSION_ID": SESSION}
    more = {**own, "stdin": b"{}", "cwd": project}
    for host in (["--host", "claude-code", word], [word]):
        ended = world.start("hook", *host, **more)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert os.listdir(project / ".loom/local/hooks") == []
    world.more.pop("COPILOT_PROJECT_DIR")
    world.start("hook", "--host", "claude-code", word, **more)
    assert os.listdir(project / ".loom/local/hooks") != []
