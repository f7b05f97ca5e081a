"""Copilot CLI's events, answers and files of events, as the real client gave them (tests/hosts/fixtures/copilot)."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts import asking, subagents, table
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.dialects import copilot
from loomctl.hosts.dialects.written import Passage
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.local import Local
from loomctl.runs.tools.recording import digest
from loomctl.runs.tools.tool_log import tail
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, Scene, run

FIXTURES = Path(__file__).parent / "fixtures" / "copilot"
ID = "5f2a7d1e-0000-4000-8000-000000000020"


def read(word: str, **told: Any) -> dict[str, Any]:
    return copilot.read(word, {"session_id": ID, "cwd": "/home/user/project", **told})


def answered(**said: Any) -> list[dict[str, Any]]:
    text = written(Answer("PostToolUse", **said), table.COPILOT)
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.mark.parametrize(("source", "is_"), [("new", "startup"), ("resume", "resume"), ("other", "other")])
def test_a_new_session_is_a_startup(source: str, is_: str) -> None:
    assert read("session-start", source=source)["source"] == is_


def test_the_file_of_events_is_known_from_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.delenv("COPILOT_HOME", raising=False)
    assert read("stop")["transcript_path"] == f"/home/user/.copilot/session-state/{ID}/events.jsonl"
    monkeypatch.setenv("COPILOT_HOME", "/elsewhere")
    assert read("stop")["transcript_path"] == f"/elsewhere/session-state/{ID}/events.jsonl"
    assert read("stop", transcript_path="/said.jsonl")["transcript_path"] == "/said.jsonl"
    assert read("stop", session_id="../../etc")["transcript_path"] == ""


def test_a_tools_result_is_its_response() -> None:
    result = {"result_type": "success", "text_result_for_llm": "hi"}
    event = read("post-tool-use", tool_name="Bash", tool_result=result)
    assert event["tool_response"] == result
    assert "tool_result" not in event


def test_text_stands_at_the_top_and_in_the_usual_place() -> None:
    (told,) = answered(text="words")
    assert told["additionalContext"] == told["hookSpecificOutput"]["additionalContext"] == "words"


def test_the_users_line_is_one_of_its_own_before_the_answer() -> None:
    line, told = answered(text="words", line="run demo\nsecond line")
    assert line == {"type": "progress", "message": "Loom: run demo\nsecond line"}
    assert "systemMessage" not in told
    assert answered(line="run demo") == [{"type": "progress", "message": "Loom: run demo"}]


def test_an_output_is_replaced_with_its_kind() -> None:
    (told,) = answered(output={"result_type": "success", "text_result_for_llm": "short"})
    assert told == {"modifiedResult": {"resultType": "success", "textResultForLlm": "short"}}


def test_a_call_is_asked_about_and_a_turn_goes_on() -> None:
    (told,) = answered(decision="ask", why="it decides")
    own = told["hookSpecificOutput"]
    assert (own["permissionDecision"], own["permissionDecisionReason"]) == ("ask", "it decides")
    assert answered(goes_on="Next: step two") == [{"decision": "block", "reason": "Next: step two"}]
    assert written(Answer("Stop"), table.COPILOT) == ""


# ---- Its file of events.


def transcript(tmp_path: Path, *, until: str = "", name: str = "events.jsonl", more: str = "") -> copilot.Transcript:
    """Give the recorded conversation; until: up to the first line that holds these words."""
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    end = next((number for number, line in enumerate(lines) if until and until in line), len(lines))
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    path.write_text("\n".join([*lines[:end], *([more] if more else []), ""]), encoding="utf-8")
    return copilot.Transcript(str(path))


def every(seen: copilot.Transcript) -> list[Passage]:
    return [entry for _, entry in seen._back()][::-1]


def slips(tmp_path: Path) -> tuple[str, str]:
    """Give the slips that stand in the recording: of the run's begin, and of the tool's result after PreCompact."""
    from loomctl.hosts.protocol.transcript import marks_in

    first = transcript(tmp_path, until="session.compaction_start")
    begun = set(marks_in(entry.text for entry in every(first)))
    later = set(marks_in(entry.text for entry in every(transcript(tmp_path)))) - begun
    assert (len(begun), len(later)) == (1, 1)
    return begun.pop(), later.pop()


def test_what_came_after_a_compaction_began_is_live(tmp_path: Path) -> None:
    """The compaction works beside the turn: a result that came before it was over stays."""
    begun, later = slips(tmp_path)
    assert transcript(tmp_path, until="session.compaction_complete").holds([begun, later]) == {begun, later}
    assert transcript(tmp_path).holds([begun, later]) == {later}
    assert transcript(tmp_path).boundary() == "2026-11-26T09:51:45.382Z"
    assert transcript(tmp_path).summary() == "The user wants the till fixed."


def test_a_compaction_that_failed_takes_nothing(tmp_path: Path) -> None:
    begun, _ = slips(tmp_path)
    failed = json.dumps({
        "type": "session.compaction_complete", "timestamp": "2026-11-26T10:00:00.000Z",
        "data": {"success": False, "outcome": "failed"},
    })  # fmt: skip
    seen = transcript(tmp_path, until="session.compaction_complete", more=failed)
    assert seen.holds([begun]) == {begun}
    assert seen.boundary() is None


def test_what_a_start_gave_is_gone_with_a_resume(tmp_path: Path) -> None:
    """The host keeps it nowhere: at the hook of a resume nothing of it stands, and nothing after one that is silent."""

    def start(mark: str) -> tuple[str, str, Json]:
        text = f"words\n\nLoom slip {mark}" if mark else ""
        return "hook.end", "", {"hookType": "sessionStart", "output": {"additionalContext": text}}

    resumed: tuple[str, str, Json] = ("session.resume", "", {})
    one, two = "0" * 16, "1" * 16
    marks = [one, two]
    assert told(tmp_path, start(one)).holds(marks) == {one}
    assert told(tmp_path, start(one), resumed).holds(marks) == set()
    assert told(tmp_path, start(one), resumed, start("")).holds(marks) == set()
    assert told(tmp_path, start(one), resumed, start(two)).holds(marks) == {two}
    assert told(tmp_path, start(one), start(two)).holds(marks) == {two}
    seen = told(tmp_path, start(one))
    seen.starts()
    assert seen.holds(marks) == set()


def test_a_turn_keeps_its_key_through_its_stops(tmp_path: Path) -> None:
    """Each reason of a Stop is a prompt of its own to the host; the messages name the one that began it all."""
    seen = transcript(tmp_path, name="stops.jsonl")
    first = next(entry for entry in every(seen) if entry.kind == "prompt")
    keys = {entry.turn for entry in every(seen) if entry.kind == "said"}
    assert keys == {first.turn}
    said = [entry.text for entry in every(seen) if entry.kind == "said"]
    stop = transcript(tmp_path, until=f'"content": "{said[1]}"', name="stops.jsonl")
    assert stop._newest(("said",))[1].text == said[0]


def test_the_last_turn_is_the_one_that_stops(tmp_path: Path) -> None:
    seen = transcript(tmp_path)
    key, message = seen.last_turn()
    assert message
    assert key == next(entry.turn for entry in reversed(every(seen)) if entry.kind == "prompt")


def test_what_subagents_do_is_no_part_of_it(tmp_path: Path) -> None:
    own = json.dumps({"type": "assistant.message", "agentId": "a1", "data": {"content": "from a subagent"}})
    path = tmp_path / "events.jsonl"
    shutil.copy(FIXTURES / "events.jsonl", path)
    with path.open("a", encoding="utf-8") as out:
        out.write(own + "\n")
    assert "from a subagent" not in (copilot.Transcript(str(path)).said_since("2026-01-01T00:00:00Z") or "")


@pytest.mark.parametrize(
    "hostile", ["", "null", "[]", '{"type": 1, "data": 2}', '{"type":"hook.end","data":{"output":[]}}', "{" * 5000]
)
def test_no_line_is_believed(tmp_path: Path, hostile: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(hostile + "\n", encoding="utf-8")
    seen = copilot.Transcript(str(path))
    assert seen.boundary() is None
    assert seen.said_since("2026-01-01T00:00:00Z") is None


# ---- Subagents, whose events and shells bear ids of their own.

SUBAGENT = "9a9e9a9e-0000-4000-8000-000000000021"


def test_a_subagents_event_is_its_parents() -> None:
    event = read("pre-tool-use", session_id=SUBAGENT, agent_id=SUBAGENT, parent_agent_id=ID)
    assert (event["session_id"], event["agent_id"]) == (ID, SUBAGENT)


def test_a_subagents_call_is_recorded_with_its_parents(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    event: Json = {"session_id": SUBAGENT, "agent_id": SUBAGENT, "parent_agent_id": SESSION, "cwd": "/nowhere"}
    event |= {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "echo hi"}}
    result = {"result_type": "success", "text_result_for_llm": "hi"}
    stranger = {**event, "parent_agent_id": OTHER}
    for number, told in enumerate((event, stranger)):
        path = scene.store / "local/spool" / f"{SESSION}-{number}.json"
        path.write_text(json.dumps({**told, "tool_result": result}), encoding="utf-8")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    digest(scene.space(SESSION))
    (step,) = tail(str(scene.run_dir), 9)
    assert (step.more["session_id"], step.more["agent_id"]) == (SESSION, SUBAGENT)


def test_a_subagents_shell_belongs_to_the_session_whose_call_was_marked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path))
    scene.workflow()
    scene.begin()
    local = scene.space(SESSION).store.local
    marked = Path(local, launcher_files.HOSTS, f"{os.getppid()}.{launcher_files.CALLED}")
    marked.parent.mkdir(exist_ok=True)

    def whose(session_id: str) -> str:
        return subagents.main_session(table.COPILOT, session_id, Local(local))

    assert whose(SUBAGENT) == SUBAGENT
    marked.write_text(f"copilot {SESSION}\n")
    assert whose(SUBAGENT) == SESSION
    assert whose(SESSION) == SESSION
    marked.write_text(f"claude-code {SESSION}\n")
    assert whose(SUBAGENT) == SUBAGENT
    marked.write_text(f"copilot {SESSION}\n")
    own = tmp_path / "session-state" / SUBAGENT / "events.jsonl"
    own.parent.mkdir(parents=True)
    own.write_text("{}\n")
    assert whose(SUBAGENT) == SUBAGENT


# ---- After a clear nothing but the process links two sessions, and a process may hold several.


@pytest.mark.parametrize("ended", [True, False])
def test_a_new_session_inherits_from_one_that_has_ended(scene: Scene, ended: bool) -> None:
    scene.workflow()
    environ = {asking.NAMED: "copilot", "COPILOT_PROJECT_DIR": "", "LOOM_HOST_PID": str(os.getpid())}
    scene.begin()
    scene.hook("session-start", source="resume", environ=environ)
    scene.hook("stop", environ=environ)
    if ended:
        scene.hook("session-end", reason="user_exit", environ=environ)
    scene.hook("session-start", source="new", session=OTHER, environ=environ)
    bound = scene.store / "local/sessions" / f"{OTHER}.json"
    assert bound.exists() == ended


# ---- What the host puts away itself, above 20,480 bytes, is reduced from its file, which goes with the session.

LINES = "".join(f"{number}\n" for number in range(20_000)) + "fatal: the lamp is out\n"


def put_away(path: Path, shown: str) -> dict[str, str]:
    told = f"Output too large to read at once (106.3 KB). Saved to: {path}\nConsider using tools.\n\n"
    told += f"Preview (first 500 chars):\n{shown}\n\n<shellId: 0 completed with exit code 0>"
    return {"result_type": "success", "text_result_for_llm": told}


def answered_for(scene: Scene, result: dict[str, str]) -> str:
    event = {"session_id": SESSION, "cwd": str(scene.root), "hook_event_name": "PostToolUse", "tool_name": "Bash"}
    raw = json.dumps({**event, "tool_input": {"command": "make"}, "tool_result": result})
    path = scene.store / "local/spool" / f"{SESSION}-1.json"
    path.write_text(raw, encoding="utf-8")
    environ = scene.environ(**{asking.NAMED: "copilot"})
    return run(
        [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path)],
        cwd=scene.root, environ=environ, given=b"",
    ).stdout  # fmt: skip


def test_an_output_that_the_host_put_away_is_shortened_from_its_file(scene: Scene, tmp_path: Path) -> None:
    scene.workflow()
    scene.begin()
    path = tmp_path / "1795688483344-copilot-tool-output-29880-4ddd3092.txt"
    path.write_text(LINES, encoding="utf-8")
    told = json.loads(answered_for(scene, put_away(path, LINES[:500])))["modifiedResult"]["textResultForLlm"]
    assert told.startswith("make: 20,001 lines")
    assert "fatal: the lamp is out" in told
    kept = Path(told.split("\n")[-1].removeprefix("The whole output: "))
    assert kept.read_text(encoding="utf-8") == LINES


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("1-copilot-tool-output-2-3.txt", "another beginning " * 30),
        ("1-copilot-tool-output-2-3.txt", "1\n2\n"),
        ("shadow", LINES[:500]),
        ("x-copilot-tool-output-2-3.txt", LINES[:500]),
    ],
)
def test_a_command_cannot_name_a_file_by_what_it_prints(scene: Scene, tmp_path: Path, name: str, shown: str) -> None:
    scene.workflow()
    scene.begin()
    (tmp_path / name).write_text(LINES, encoding="utf-8")
    assert answered_for(scene, put_away(tmp_path / name, shown)) == ""


# ---- What no event tells of a turn that ends.


def told(tmp_path: Path, *lines: tuple[str, str, Json]) -> copilot.Transcript:
    path = tmp_path / "events.jsonl"
    raw = [{"type": kind, "agentId": agent, "timestamp": AT, "data": data} for kind, agent, data in lines]
    path.write_text("".join(json.dumps(one) + "\n" for one in raw), encoding="utf-8")
    return copilot.Transcript(str(path))


AT = "2026-11-26T10:29:07.414Z"
BEGINS = ("subagent.started", "a1", {"executionMode": "background"})
CASES: dict[str, tuple[bool, list[tuple[str, str, Json]]]] = {
    "none": (False, []),
    "one works": (True, [BEGINS]),
    "it has ended": (False, [BEGINS, ("subagent.completed", "a1", {})]),
    "it failed": (False, [BEGINS, ("subagent.failed", "a1", {})]),
    "another works": (True, [BEGINS, ("subagent.started", "a2", {}), ("subagent.completed", "a1", {})]),
    "broken off": (False, [BEGINS, ("abort", "", {"reason": "user_initiated"})]),
    "resumed": (False, [BEGINS, ("session.resume", "", {})]),
}


@pytest.mark.parametrize(("busy", "lines"), CASES.values(), ids=CASES)
def test_subagents_that_work_on_are_known(tmp_path: Path, busy: bool, lines: list[tuple[str, str, Json]]) -> None:
    assert told(tmp_path, *lines).is_busy() == busy


def test_calls_of_one_answer_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not written down yet is waited for; an earlier call of the same words is over."""
    monkeypatch.setattr(copilot, "_PATIENCE", 0.1)

    def answer(*calls: tuple[str, str]) -> tuple[str, str, Json]:
        requests = [{"toolCallId": name, "name": "bash", "arguments": {"command": words}} for name, words in calls]
        said = {"toolCallId": "i", "name": "report_intent", "arguments": {"intent": "approve"}}
        return "assistant.message", "", {"content": "", "toolRequests": [said, *requests] if requests else []}

    def over(name: str) -> tuple[str, str, Json]:
        return "tool.execution_complete", "", {"toolCallId": name}

    ask, other = "loomctl approve x", "sh x.sh"
    cases: list[tuple[bool, list[tuple[str, str, Json]]]] = [
        (False, [answer(("1", ask))]),
        (True, [answer(("1", ask), ("2", other))]),
        (True, [answer(("1", other), ("2", ask))]),
        (True, [answer(("1", other))]),
        (True, [answer(("1", ask)), over("1")]),
        (False, [answer(("1", ask)), over("1"), answer(("2", ask))]),
        (False, [answer(("1", other)), over("1"), answer(("2", ask)), answer()]),
        (True, []),
    ]
    for beside, lines in cases:
        assert told(tmp_path, *lines).calls_beside(ask) == beside, lines


def test_plan_mode_is_known(tmp_path: Path) -> None:
    plan = ("session.mode_changed", "", {"previousMode": "interactive", "newMode": "plan"})
    back = ("session.mode_changed", "", {"previousMode": "plan", "newMode": "interactive"})
    assert told(tmp_path, plan).is_planning()
    assert not told(tmp_path, plan, back).is_planning()
    assert not told(tmp_path).is_planning()


def test_what_was_used_is_counted_once(tmp_path: Path) -> None:
    def named(number: int) -> Json:
        return {"accounting": {"usageId": f"u{number}"}}

    def used(number: int, agent: str = "") -> tuple[str, str, Json]:
        tokens = {"inputTokens": 100, "outputTokens": 10, "cacheReadTokens": 5, "cacheWriteTokens": 0}
        return "session.usage_record", agent, {"usage": {"model": "m", **tokens, **named(number)}}

    seen = told(tmp_path, used(1), used(1), used(2, "a1"), ("session.usage_record", "", {"usage": []}))
    assert seen.usage_since(AT) == {
        "models": ["m"], "messages": 2, "input_tokens": 200, "output_tokens": 20, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 10,
    }  # fmt: skip
    assert seen.usage_since("2026-11-26T10:29:08Z") is None
