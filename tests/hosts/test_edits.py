"""Edited files, told by real hook processes through the launcher: when, and to whom (D80)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.text.fences import utf16_units
from tests.helpers.compactions import compact, hook
from tests.helpers.scenes import CHECKOUT, MAIN, PYTHON, SESSION, Ended, Json, Scene, TranscriptFile, artifact, run

LAUNCHER = CHECKOUT / "bin" / "loomctl"
SPEC = "".join(f"Line {number} of the specification.\n" for number in range(60))
CHANGED = SPEC.replace("Line 30 of", "Line thirty of")
PLUS = "+Line thirty of the specification."
BASH: Json = {"tool_name": "Bash", "tool_input": {"command": "sed -i s/30/thirty/ spec.md"}}


@pytest.fixture
def file(tmp_path: Path) -> TranscriptFile:
    return TranscriptFile(tmp_path / "t.jsonl")


@pytest.fixture
def given(scene: Scene, file: TranscriptFile) -> Scene:
    """A session that drives a run and was given a spec at its start, an hour after that was written."""
    scene.write("spec.md", SPEC)
    os.utime(scene.root / "spec.md", (1_600_000_000, 1_600_000_000))
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    file.hook_text(hook(scene, "session-start", file, source="resume").context)
    assert started(scene, file) == (True, "")
    return scene


def launch(scene: Scene, event: str, told: Json) -> tuple[bool, Ended]:
    cache = scene.root.parent / "cache" / "loom"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "python").write_text(f"{PYTHON}\n")
    body = {"session_id": SESSION, "cwd": str(scene.root), "hook_event_name": event, **told}
    work = scene.store / "local/hooks" / f"{event}.work"
    work.unlink(missing_ok=True)
    environ = {**scene.environ(), "XDG_CACHE_HOME": str(cache.parent), "CLAUDE_PID": str(os.getpid())}
    ended = run([str(LAUNCHER), "hook", event], cwd=scene.root, environ=environ, given=json.dumps(body))
    assert (ended.code, ended.stderr) == (0, "")
    return work.exists(), ended


def started(scene: Scene, file: TranscriptFile, prompt: str = "go on") -> tuple[bool, str]:
    """Submit a prompt; tells whether it started Python, and what the assistant was told."""
    python, ended = launch(scene, "user-prompt-submit", {"prompt": prompt, "transcript_path": str(file.path)})
    return python, ended.context


def after(scene: Scene, call: Json = BASH, **more: Any) -> Ended:
    response = {"stdout": "ok", "stderr": "", "interrupted": False, "isImage": False}
    return launch(scene, "post-tool-use", {**call, "tool_response": response, "tool_use_id": "toolu_1", **more})[1]


def told(ended: Ended, event: str) -> None:
    """Hold that assistant and user were told of the edit, in the answer to this event."""
    assert PLUS in ended.context
    assert ended.message == "Loom: spec.md changed; Loom told the assistant."
    assert ended.json["hookSpecificOutput"]["hookEventName"] == event


def test_a_prompt_with_nothing_to_tell_starts_no_python_until_the_next_compaction(
    given: Scene, file: TranscriptFile
) -> None:
    assert started(given, file) == (False, "")
    compact(given, file)
    assert [started(given, file) for _ in range(2)] == [(True, ""), (False, "")]


def test_a_compaction_that_nobody_restored_is_restored_by_the_prompts_after_it(
    given: Scene, file: TranscriptFile
) -> None:
    launch(given, "pre-compact", {"trigger": "manual", "transcript_path": str(file.path)})
    file.compacts()
    assert [SPEC in started(given, file)[1] for _ in range(3)] == [True, True, False]
    assert started(given, file) == (False, "")


def test_an_edit_between_prompts_is_told_with_the_next_one_once(given: Scene, file: TranscriptFile) -> None:
    given.write("spec.md", CHANGED)
    _, ended = launch(given, "user-prompt-submit", {"prompt": "go on", "transcript_path": str(file.path)})
    told(ended, "UserPromptSubmit")
    file.hook_text(ended.context, "UserPromptSubmit")
    assert started(given, file)[1] == ""
    assert after(given).stdout == ""
    assert hook(given, "session-start", file, source="resume").context == ""


def test_an_edit_whose_notice_was_rewound_is_given_again(given: Scene, file: TranscriptFile) -> None:  # D15
    file.prompt("first")
    at = file.says("ok")
    given.write("spec.md", CHANGED)
    file.prompt("second")
    file.hook_text(started(given, file)[1], "UserPromptSubmit")
    file.says("told")
    file.prompt("other", parent=at)
    file.says("ok")
    assert "Line thirty of" in hook(given, "session-start", file, source="resume").context


def test_an_edit_in_a_turn_is_told_with_the_next_tool_result_once(given: Scene, file: TranscriptFile) -> None:
    assert after(given).stdout == ""
    given.write("spec.md", CHANGED)
    ended = after(given)
    told(ended, "PostToolUse")
    assert (after(given).stdout, started(given, file)[1]) == ("", "")


WRITERS: list[Json] = [
    {"tool_name": "Edit", "tool_input": {"file_path": "{}", "old_string": "30", "new_string": "thirty"}},
    {"tool_name": "Write", "tool_input": {"file_path": "{}", "content": CHANGED}},
    {"tool_name": "MultiEdit", "tool_input": {"file_path": "{}", "edits": []}},
    {"tool_name": "NotebookEdit", "tool_input": {"notebook_path": "{}", "new_source": "x"}},
]


@pytest.mark.parametrize("call", WRITERS, ids=[str(one["tool_name"]) for one in WRITERS])
def test_the_assistants_own_edit_is_not_told(given: Scene, file: TranscriptFile, call: Json) -> None:
    path = given.write("spec.md", CHANGED)
    named = {key: str(path) if value == "{}" else value for key, value in call["tool_input"].items()}
    assert after(given, {**call, "tool_input": named}).stdout == ""
    assert started(given, file)[1] == ""
    given.write("spec.md", CHANGED + "By hand.\n")
    context = after(given).context
    assert ("+By hand." in context, "thirty" in context) == (True, False)


@pytest.mark.parametrize("call", [BASH, WRITERS[0]], ids=["Bash", "Edit"])
def test_a_subagents_edit_is_told_to_the_main_conversation(given: Scene, file: TranscriptFile, call: Json) -> None:
    path = given.write("spec.md", CHANGED)
    named = {**call["tool_input"], "file_path": str(path)}
    assert after(given, {**call, "tool_input": named}, agent_id="a1", agent_type="general-purpose").stdout == ""
    assert PLUS in started(given, file)[1]


def test_a_large_output_is_replaced_and_the_edit_told_in_one_answer(given: Scene) -> None:  # D48
    given.write("spec.md", CHANGED)
    lines = "\n".join(f"test {number} ... ok, as it was in the run before" for number in range(1500))
    ended = after(given, tool_response={"stdout": lines, "stderr": "", "interrupted": False, "isImage": False})
    assert PLUS in ended.context
    assert "shortened by Loom" in ended.json["hookSpecificOutput"]["updatedToolOutput"]["stdout"]


def test_what_changed_before_a_compaction_comes_with_it_and_is_not_told(given: Scene, file: TranscriptFile) -> None:
    given.write("spec.md", CHANGED)
    hook(given, "pre-compact", file, trigger="auto")
    file.compacts()
    text = hook(given, "session-start", file, source="compact").context
    assert CHANGED in text
    file.hook_text(text)
    assert (after(given).stdout, started(given, file)[1]) == ("", "")


@pytest.mark.slow
def test_what_is_owed_goes_first(given: Scene, file: TranscriptFile) -> None:
    given.edit(must_survive=["The heliotrope switch survives a reload."])
    compact(given, file, compact_summary="Nothing of it.")
    given.write("spec.md", CHANGED)
    first, second = after(given).context, after(given).context
    assert ["heliotrope" in first, PLUS in first, PLUS in second] == [True, False, True]
    assert utf16_units(second) < 9500


def test_python_alone_tells_it_too(given: Scene, file: TranscriptFile) -> None:
    given.write("spec.md", CHANGED)
    body = {"session_id": SESSION, "cwd": str(given.root), "prompt": "go on", "transcript_path": str(file.path)}
    command = [PYTHON, "-I", "-S", str(MAIN), "hook", "user-prompt-submit"]
    assert PLUS in run(command, cwd=given.root, environ=given.environ(), given=json.dumps(body)).context
