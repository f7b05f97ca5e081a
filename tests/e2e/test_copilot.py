"""Copilot CLI, where it differs: one bundle with several readers, calls that must go on, subagents, an asked user."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.clients.copilot import TASK, Copilot
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.clients.typed import TypedTalk
from tests.e2e.promises import begun, facts, first
from tests.e2e.scenes import SENTENCE, run_folder, state_of
from tests.e2e.test_outcomes import step, workflow


@pytest.fixture
def copilot(machines: Machines) -> Copilot:
    return machines.of(Copilot)


def hooks(client: Copilot, session: str) -> list[dict[str, object]]:
    """Give what hooks answered, as the host wrote it down."""
    path = client.home / ".copilot/session-state" / session / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line["data"] for line in lines if line["type"] == "hook.end"]


def test_of_the_bundles_readers_one_answers_and_nothing_is_given_twice(copilot: Copilot) -> None:
    """It reads Claude Code's manifest, too, and a repository's settings for that: their hooks say another host."""
    begun(copilot)
    raw = (copilot.bundle / "hooks/claude-code.json").read_text(encoding="utf-8")
    assert "--host claude-code session-start" in raw
    settings = json.loads(raw.replace("${CLAUDE_PLUGIN_ROOT}", str(copilot.bundle)))
    settings["hooks"]["SessionStart"][0]["hooks"].append({"type": "command", "command": "touch called"})
    (copilot.project / ".claude").mkdir()
    (copilot.project / ".claude/settings.json").write_text(json.dumps(settings), encoding="utf-8")
    turn = copilot.tell("hello")
    assert (copilot.project / "called").exists()
    assert first(turn).seen().count(SENTENCE) == 1
    given = [one for one in hooks(copilot, turn.session_id) if one.get("output")]
    assert [one["hookType"] for one in given] == ["sessionStart"]
    marks = list((copilot.project / ".loom/local/hosts").glob("*.rested"))
    assert marks
    assert {mark.read_text(encoding="utf-8").split()[0] for mark in marks} == {"copilot"}


def test_what_a_start_gave_is_given_again_at_a_resume(copilot: Copilot) -> None:
    """The host keeps it nowhere, and takes it away with the start of a resume, whatever that gives."""
    begun(copilot)
    turn = copilot.tell("hello")
    for _ in range(2):
        assert first(copilot.tell("go on", session=turn.session_id)).seen().count(SENTENCE) == 1


def test_an_assistant_in_anothers_shell_is_itself(copilot: Copilot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the outer one's shell hands on says nothing of the inner one's hooks."""
    begun(copilot)
    outer = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "outer", "CLAUDE_PID": "1", "CLAUDE_PROJECT_DIR": "/"}
    monkeypatch.setattr(copilot, "own", {**copilot.own, **outer})
    turn = copilot.tell("hello")
    assert first(turn).seen().count(SENTENCE) == 1
    turn = copilot.tell("Please take it up.", Says(shell="loomctl resume"), "It goes on.")
    assert state_of(copilot.project)["sessions"]["current_session_id"] == turn.session_id


@pytest.mark.parametrize("how", ["gone", "killed", "failing"])
def test_no_call_is_denied_for_a_hook_that_fails(copilot: Copilot, how: str) -> None:
    launcher = copilot.bundle / "bin" / "loomctl"
    if how == "gone":
        launcher.unlink()
    else:
        launcher.write_text("#!/bin/sh\n" + {"killed": "kill -9 $$\n", "failing": "exit 1\n"}[how], encoding="utf-8")
    turn = copilot.tell("look", Says(shell="echo it went on"), "I looked.")
    assert "it went on\n<shellId" in turn.conversation[-1].seen()


def test_a_subagent_works_on_its_parents_run(copilot: Copilot) -> None:
    turn = begun(copilot)
    said: list[Says | str] = [Says(shell=TASK), Says(shell="loomctl status"), "It stands well.", "I have heard."]
    after = copilot.tell("go on", *said, session=turn.session_id)
    assert any("status    in progress" in request.seen() for request in after.conversation)
    assert "loomctl status" in copilot.loomctl("steps", "--agents")
    bound = list((copilot.project / ".loom/local/sessions").glob("*.json"))
    assert [path.stem for path in bound] == [turn.session_id]


def test_its_user_is_asked_about_a_decision(copilot: Copilot) -> None:
    """Where nobody can be asked the call is denied, whatever is allowed besides."""
    turn = begun(copilot)
    denied = copilot.tell("stop it", Says(shell="loomctl cancel"), "I could not.", session=turn.session_id)
    assert "Denied by preToolUse hook" in denied.conversation[-1].seen()
    assert state_of(copilot.project)["status"] == "in_progress"


def test_a_question_about_one_call_lets_no_other_decide(copilot: Copilot) -> None:
    """Of an answer with several calls all hooks run before any of them: what its user is asked is called alone."""
    gates = [{"id": name, "kind": "human", "prompt": f"Is the {name} good?"} for name in ("first", "second")]
    workflow(copilot.project, *gates, step("after", transitions=[{"to": "end"}]))
    turn = copilot.begin("x --workflow flow", "It waits.")
    approve = f"loomctl approve {run_folder(copilot.project).name}"
    (copilot.project / "x.sh").write_text(f"{approve} >said 2>&1; true\n", encoding="utf-8")
    with copilot.open(turn.session_id) as talk:
        assert isinstance(talk, TypedTalk)
        both = talk.say("approve it", Says(shell="sh x.sh", beside=(approve,)), "I could not.")
        assert "call it in an answer of its own" in both.conversation[-1].seen()
        assert "ASK_FIRST" in (copilot.project / "said").read_text(encoding="utf-8")
        assert state_of(copilot.project)["approvals"] == []

        copilot.model.script([Says(shell=approve), "That was it."])
        talk.type("approve it alone", len(copilot.model.requests))
        talk.terminal.wait_for("Hook permission request")
        talk.terminal.press_until_gone("Enter", "Hook permission request")
        talk.terminal.wait_for("That was it.")
    assert len(state_of(copilot.project)["approvals"]) == 1


def test_a_refused_hooks_file_is_found_by_the_doctor(copilot: Copilot) -> None:
    begun(copilot)
    (copilot.home / ".local/bin/copilot").symlink_to(copilot.binary)
    copilot.silence_hooks()
    copilot.tell("hello")
    assert "matcher cannot be empty" in copilot.loomctl("doctor", check=False)


def test_what_a_command_prints_is_not_put_away(copilot: Copilot) -> None:
    """Above 20,480 bytes the host shows 500 characters; a letter of another alphabet has two."""
    begun(copilot, "\n".join(facts("правило держится", 30_000)))
    turn = copilot.tell("Please take it up.", Says(shell="loomctl resume"), "It goes on.")
    seen = turn.conversation[-1].seen()
    assert "Output too large" not in seen
    assert "Fact 0: правило держится" in seen


def test_a_project_with_another_alphabet(copilot: Copilot) -> None:
    begun(copilot)
    there = copilot.root / "проект 🌒 with 'quotes'"
    shutil.move(copilot.project, there)
    copilot.move_to(there)
    turn = copilot.tell("Please take it up.", Says(shell="loomctl resume"), "It goes on.")
    assert SENTENCE in turn.conversation[-1].seen()
    assert SENTENCE in first(copilot.tell("hello")).seen()
