"""Where no start follows a compaction, the first event after it that can primes, once (`Host.primes_at`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from loomctl.hosts import asking, table
from loomctl.kit import clock
from tests.helpers.scenes import MAIN, SESSION, Json, Scene, artifact, run

HOST = table.COPILOT
ENVIRON = {asking.NAMED: HOST.name, "COPILOT_PROJECT_DIR": ""}
RESULT: Json = {"result_type": "success", "text_result_for_llm": "two\n<shellId: 1 completed with exit code 0>"}


@pytest.fixture
def primed(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    assert scene.hook("session-start", source="new", environ=ENVIRON).code == 0
    return scene


def compact(scene: Scene, trigger: str = "auto") -> None:
    ended = scene.hook("pre-compact", trigger=trigger, environ=ENVIRON)
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "")
    assert note(scene).is_file()


def note(scene: Scene) -> Path:
    return scene.store / "local/primed" / f"{SESSION}.compacted"


def prompt(scene: Scene) -> str:
    return scene.hook("user-prompt-submit", prompt="go on", environ=ENVIRON).stdout


def called(scene: Scene, result: Json | None = None, number: int = 1, **more: str) -> Json:
    """Give what a tool's call is answered, as the launcher asks for it after a compaction."""
    event: Json = {"session_id": SESSION, "cwd": str(scene.root), "hook_event_name": "PostToolUse", "tool_name": "Bash"}
    event |= {"tool_input": {"command": "echo two"}, "tool_result": result or RESULT, **more}
    path = scene.store / "local/spool" / f"{SESSION}-{number}.json"
    path.write_text(json.dumps(event), encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path), "compacted"]
    ended = run(command, cwd=scene.root, environ=scene.environ(**ENVIRON), given=b"")
    assert (ended.code, ended.stderr) == (0, "")
    last = ended.stdout.split("\n")[-1]
    return json.loads(last) if last else {}


def test_the_first_result_after_a_compaction_primes_once(primed: Scene) -> None:
    """The text stands behind the tool's own output, whole: beside it the host would cut it."""
    compact(primed)
    told = called(primed)["modifiedResult"]
    assert told["resultType"] == "success"
    assert told["textResultForLlm"].startswith(RESULT["text_result_for_llm"] + "\n\n")
    assert f"the run {primed.handle}" in told["textResultForLlm"]
    assert "session.compacted" in primed.event_names()
    assert not note(primed).exists()
    assert called(primed, number=2) == {}


def test_the_next_prompt_primes_where_no_tool_was_called(primed: Scene) -> None:
    compact(primed, "manual")
    lines = prompt(primed).split("\n")
    assert json.loads(lines[0])["type"] == "progress"
    assert f"the run {primed.handle}" in json.loads(lines[1])["additionalContext"]
    assert f"the run {primed.handle}" not in prompt(primed)


def test_a_result_without_text_is_told_beside(primed: Scene) -> None:
    compact(primed)
    told = called(primed, {"result_type": "success", "text_result_for_llm": ""})
    assert f"the run {primed.handle}" in told["additionalContext"]
    assert "modifiedResult" not in told


def test_a_subagents_call_takes_nothing(primed: Scene) -> None:
    compact(primed)
    assert called(primed, agent_id="a1") == {}
    assert note(primed).is_file()


def test_a_start_makes_it_void(primed: Scene) -> None:
    compact(primed)
    primed.hook("session-start", source="resume", environ=ENVIRON)
    assert not note(primed).exists()


def test_no_link_is_followed(primed: Scene, tmp_path: Path) -> None:
    compact(primed)
    kept = tmp_path / "kept"
    kept.write_text("kept", encoding="utf-8")
    folder = note(primed).parent
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    called(primed)
    assert (tmp_path / "moved" / note(primed).name).exists()


def test_other_hosts_leave_no_note(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    scene.hook("session-start", source="startup")
    scene.hook("pre-compact", trigger="auto")
    assert not note(scene).exists()


# ---- A compaction that goes on beside the turn.


def says(scene: Scene, *kinds: str, result: str = "") -> None:
    """Write down what the host's file of events says since PreCompact."""
    place = scene.root / "host/session-state" / SESSION / "events.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a", encoding="utf-8") as out:
        for kind in kinds:
            data: Json = {"success": True, "outcome": "applied", "summaryContent": "A short text.", "result": {}}
            data["result"]["content"], data["hookType"] = result, "agentStop"
            at = "2026-11-26T10:00:00.000Z"
            out.write(json.dumps({"type": kind, "timestamp": at, "data": data}) + "\n")


@pytest.fixture
def beside(primed: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("COPILOT_HOME", str(primed.root / "host"))
    compact(primed)
    says(primed, "session.compaction_start")
    return primed


def test_what_was_given_is_looked_for_when_the_compaction_is_over(beside: Scene) -> None:
    told = called(beside)["modifiedResult"]["textResultForLlm"]
    assert note(beside).read_text() == "given"
    assert called(beside, number=2) == {}
    assert note(beside).read_text() == "given"
    says(beside, "tool.execution_complete", "session.compaction_complete", result=told)
    assert called(beside, number=3) == {}
    assert not note(beside).exists()


def test_what_went_to_the_summariser_is_given_again_once(beside: Scene) -> None:
    """It may call a tool of its own, whose hook is the conversation's."""
    called(beside)
    says(beside, "session.compaction_complete")
    told = called(beside, number=2)["modifiedResult"]["textResultForLlm"]
    assert f"the run {beside.handle}" in told
    assert not note(beside).exists()
    assert called(beside, number=3) == {}


def test_a_turn_that_ends_before_a_call_leaves_it_to_the_prompt(beside: Scene) -> None:
    says(beside, "session.compaction_complete", "hook.start")
    assert beside.hook("stop", environ=ENVIRON).code == 0
    assert f"the run {beside.handle}" in prompt(beside)
    assert not note(beside).exists()


@pytest.mark.parametrize("noted", [True, False])
def test_a_prompt_leaves_to_a_start_what_that_gives_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """The host asks both at once, of a conversation that a compaction has emptied; also what that alone brings back."""
    monkeypatch.setenv("COPILOT_HOME", str(scene.root / "host"))
    scene.write("a.md", "at any start\n")
    scene.write("b.md", "after a compaction\n")
    scene.workflow([artifact("a", "a.md"), artifact("b", "b.md", reload_triggers=["compaction_detected"])])
    scene.begin()
    assert scene.hook("session-start", source="new", environ=ENVIRON).code == 0
    if noted:
        compact(scene, "manual")
    over = {"success": True, "outcome": "applied", "summaryContent": "A short text."}
    writes(scene, ("session.compaction_start", {}), ("session.compaction_complete", over), ("session.resume", {}))
    texts = ("at any start", "after a compaction")

    def given(word: str, **told: str) -> list[bool]:
        answer = scene.hook(word, environ=ENVIRON, **told).stdout
        return [text in answer for text in texts]

    assert given("session-start", source="resume") == [True, True]
    assert given("user-prompt-submit", prompt="go on") == [False, False]
    assert given("user-prompt-submit", prompt="go on") == [True, True]  # of the start nothing can be seen


def writes(scene: Scene, *lines: tuple[str, Json]) -> None:
    place = scene.root / "host/session-state" / SESSION / "events.jsonl"
    place.parent.mkdir(parents=True)
    now = clock.now()
    raw = [{"type": kind, "timestamp": now, "data": data} for kind, data in lines]
    place.write_text("".join(json.dumps(one) + "\n" for one in raw), encoding="utf-8")


def test_a_start_where_no_run_was_primed_leaves_no_file(scene: Scene) -> None:
    scene.workflow()
    before = sorted(scene.root.rglob("*"))
    assert scene.hook("session-start", source="new", environ=ENVIRON).code == 0
    assert sorted(scene.root.rglob("*")) == before
