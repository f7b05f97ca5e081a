"""What an assistant may run in its default approval mode: `loomctl` without a question, and nothing else for Loom.

Claude Code's is in test_permissions.py; OpenCode asks about no command by default.
"""

from __future__ import annotations

import pytest

from tests.e2e.clients.client import Client
from tests.e2e.clients.codex import Codex
from tests.e2e.clients.copilot import Copilot
from tests.e2e.clients.gemini import Gemini
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.clients.qwen import Qwen
from tests.e2e.clients.typed import TypedTalk
from tests.e2e.promises import DONE, begun, done_steps
from tests.e2e.scenes import run_folder, state_of
from tests.e2e.test_outcomes import step, workflow

NEXT, OTHER, ENDS = Says(shell="loomctl next"), Says(shell="touch made"), Says(shell=DONE.format(""))
GIVEN = "Next: architect/spec"
BOTH = ["frame/fetch-work", "architect/spec"]


@pytest.fixture
def copilot(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Copilot:
    """It allows nothing by itself."""
    client = machines.of(Copilot)
    monkeypatch.setattr(client, "mode", ())
    monkeypatch.setattr(client, "own", {key: client.own[key] for key in client.own if key != "COPILOT_ALLOW_ALL"})
    return client


@pytest.fixture
def qwen(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Qwen:
    """It is asked for no other mode than its default."""
    client = machines.of(Qwen)
    monkeypatch.setattr(client, "mode", ())
    return client


def made(client: Client) -> bool:
    return (client.project / "made").exists()


def test_in_copilot_a_hook_allows_it(copilot: Copilot, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = begun_by_its_user(copilot, monkeypatch)
    after = copilot.tell("go on", NEXT, ENDS, OTHER, "No.", session=turn)
    assert GIVEN in after.conversation[1].seen().rpartition("go on")[2]
    assert done_steps(copilot) == BOTH
    assert not made(copilot)


def begun_by_its_user(copilot: Copilot, monkeypatch: pytest.MonkeyPatch) -> str:
    """Begin a run in a session in which everything is allowed; give its id."""
    with monkeypatch.context() as here:
        here.setattr(copilot, "mode", Copilot.mode)
        here.setattr(copilot, "own", {**copilot.own, "COPILOT_ALLOW_ALL": "true"})
        return begun(copilot).session_id


def test_in_gemini_a_policy_file_allows_it(machines: Machines) -> None:
    gemini = machines.of(Gemini)
    turn = begun(gemini)
    after = gemini.tell("go on", NEXT, ENDS, OTHER, "No.", session=turn.session_id)
    assert GIVEN in after.conversation[1].seen().rpartition("go on")[2]
    assert done_steps(gemini) == BOTH
    assert not made(gemini)


def test_in_codex_the_sandbox_is_enough_for_it(machines: Machines) -> None:
    codex = machines.of(Codex)
    turn = begun(codex)
    outside = Says(shell=f"touch {codex.home}/made 2>&1")
    after = codex.tell("go on", NEXT, ENDS, outside, "No.", session=turn.session_id)
    assert GIVEN in after.conversation[1].seen().rpartition("go on")[2]
    assert done_steps(codex) == BOTH
    assert "Read-only file system" in after.conversation[-1].seen()
    assert not (codex.home / "made").exists()


def test_in_qwen_a_rule_in_the_settings_allows_it(qwen: Qwen) -> None:
    """Lines behind a `<<` are commands of their own to that rule; a hook allows them where somebody could be asked."""
    turn = begun_in_yolo(qwen)
    after = qwen.tell("go on", NEXT, ENDS, OTHER, "No.", session=turn)
    assert GIVEN in after.conversation[1].seen().rpartition("go on")[2]
    assert "non-interactive mode cannot prompt" in after.conversation[2].seen()
    assert not made(qwen)
    with qwen.open(turn) as talk:
        assert isinstance(talk, TypedTalk)
        talk.say("go on", NEXT, ENDS, "It is written.")
        assert done_steps(qwen) == BOTH
        qwen.model.script([OTHER, "No."])
        talk.type("and this", len(qwen.model.requests))
        talk.terminal.wait_for("touch made", "Allow execution")
    assert not made(qwen)


def begun_in_yolo(qwen: Qwen) -> str:
    qwen.mode = Qwen.mode
    turn = begun(qwen)
    qwen.mode = ()
    return turn.session_id


def test_qwens_user_is_asked_about_a_decision_whatever_is_allowed(qwen: Qwen) -> None:
    """Where nobody can be asked the call is denied, in yolo too; where its user says yes it counts."""
    gate = {"id": "gate", "kind": "human", "prompt": "Is it good?"}
    workflow(qwen.project, gate, step("after", transitions=[{"to": "end"}]))
    qwen.mode = Qwen.mode
    turn = qwen.begin("x --workflow flow", "It waits.")
    approve = Says(shell=f"loomctl approve {run_folder(qwen.project).name}")
    denied = qwen.tell("approve it", approve, "I could not.", session=turn.session_id)
    assert "only the user decides about loomctl approve" in denied.conversation[-1].seen()
    assert state_of(qwen.project)["approvals"] == []
    with qwen.open(turn.session_id) as talk:
        assert isinstance(talk, TypedTalk)
        qwen.model.script([approve, "That was it."])
        talk.type("approve it", len(qwen.model.requests))
        talk.terminal.wait_for("Do you want to proceed?")
        assert state_of(qwen.project)["approvals"] == []
        talk.terminal.press_until_gone("Enter", "Do you want to proceed?")
        talk.terminal.wait_for("That was it.")
    assert len(state_of(qwen.project)["approvals"]) == 1
