"""Who decides, in the real assistant: its user, when they were asked or type it themselves, and nobody else (D68)."""

import pytest

from tests.e2e.assistant import Assistant, Turn
from tests.e2e.played import Played
from tests.e2e.scenes import InRun, run_folder, state_of
from tests.e2e.scripted_api import Reply, ScriptedApi, bash, reply, tool
from tests.e2e.terminal import PROMPT, Terminal, assistant_terminal
from tests.e2e.test_outcomes import step, workflow

APPROVE = "loomctl approve"
KEPT = 'PATH="$PATH" HOME="$HOME" XDG_CACHE_HOME="$XDG_CACHE_HOME" LOOM_STATE_HOME="$LOOM_STATE_HOME"'
ALL_ALLOWED = "Bash Monitor Agent Skill"
ASKED = "only the user decides about loomctl approve"


def begin(assistant: Assistant) -> Turn:
    gates = [{"id": name, "kind": "human", "prompt": f"Is the {name} good?"} for name in ("first", "second")]
    workflow(assistant.project, *gates, step("after", transitions=[{"to": "end"}]))
    turn = assistant.run('/loom:run "x" --workflow flow', answers=["It waits."])
    (assistant.project / "x.sh").write_text(f"loomctl approve {run_folder(assistant.project).name}\n")
    return turn


@pytest.fixture
def waiting(played: Played, api: ScriptedApi) -> InRun:
    """The assistant in a run that waits at its first gate."""
    return played.after(begin, api)


def decided(assistant: Assistant) -> int:
    return len(state_of(assistant.project)["approvals"])


def terminal_of(assistant: Assistant, session_id: str) -> Terminal:
    """Take the session up in a terminal, in the mode that asks, with every shell command allowed."""
    return assistant_terminal(
        assistant, "--resume", session_id, "--permission-mode", "default", "--allowedTools", "Bash"
    )


@pytest.mark.shows("only where that question was asked")
def test_a_call_that_its_user_was_not_asked_about_decides_nothing(waiting: InRun) -> None:
    """Every command is allowed by a rule: what hides the verb runs, and is refused by Loom itself."""
    assistant, first = waiting
    hidden = ["sh x.sh", "env -u CLAUDE_CODE_SESSION_ID -u CLAUDECODE sh x.sh", f"env -i {KEPT} sh x.sh"]
    shown = ["loomctl ap\\\nprove", APPROVE]
    calls = reply(*(bash(command) for command in (*hidden, *shown)))
    watching = reply(tool("Monitor", command="sh x.sh", description="watch", timeout_ms=3000, persistent=False))
    turn = assistant.run(
        "go on", resume=first.session_id, allowed_tools=ALL_ALLOWED, answers=[calls, watching, "No.", "No."]
    )
    results = turn.conversation[1].tool_results()[-len(hidden) - len(shown) :]
    assert [result.is_error for result in results] == [True] * len(results)
    assert all("ASK_FIRST" in result.text for result in results[: len(hidden)]), [one.text for one in results]
    assert not any(
        "ASK_FIRST" in result.text for result in results[len(hidden) :]
    )  # its host asked, and nobody was there
    assert any("ASK_FIRST" in request.seen() for request in turn.conversation[2:])
    assert decided(assistant) == 0


@pytest.mark.quick
def test_a_slash_command_that_the_assistant_starts_decides_nothing(waiting: InRun) -> None:
    """Its lines are shells of the host's, as if its user had typed it; but the call that started it is under way."""
    assistant, first = waiting
    command = assistant.project / ".claude" / "commands" / "yes.md"
    command.parent.mkdir(parents=True)
    command.write_text("---\ndescription: say yes\nallowed-tools: Bash\n---\n```!\nsh x.sh 2>&1 || true\n```\n")
    answers: list[Reply | str] = [reply(tool("Skill", skill="yes")), "No."]
    turn = assistant.run("go on", resume=first.session_id, allowed_tools=ALL_ALLOWED, answers=answers)
    assert "ASK_FIRST" in turn.conversation[-1].seen()
    assert decided(assistant) == 0


def test_a_mode_that_asks_about_nothing_asks_about_this(waiting: InRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host puts a hook's question before the mode, and Loom refuses what hides from the hook."""
    assistant, first = waiting
    environment = type(assistant).environment
    monkeypatch.setattr(
        type(assistant), "environment", lambda self: {**environment(self), "IS_SANDBOX": "1"}
    )  # as root
    answers: list[Reply | str] = [reply(bash("touch begun")), reply(bash(APPROVE)), reply(bash("sh x.sh")), "No."]
    options = ["--dangerously-skip-permissions"]
    turn = assistant.run("go on", resume=first.session_id, extra_args=options, answers=answers)
    begun, asked, hidden = turn.conversation[-1].tool_results()[-3:]
    assert [result.is_error for result in (begun, asked, hidden)] == [False, True, True]
    assert (ASKED in asked.text, "ASK_FIRST" in hidden.text) == (True, True)
    assert decided(assistant) == 0


def test_a_subagent_decides_nothing(waiting: InRun) -> None:
    assistant, first = waiting
    agent = tool(
        "Agent", description="do it", prompt="approve it", subagent_type="general-purpose", run_in_background=False
    )
    answers: list[Reply | str] = [reply(agent), reply(bash("sh x.sh"), bash(APPROVE)), "I could not.", "It could not."]
    turn = assistant.run("go on", resume=first.session_id, allowed_tools=ALL_ALLOWED, answers=answers)
    assert "ASK_FIRST" in "".join(request.seen() for request in turn.requests)
    assert decided(assistant) == 0


@pytest.mark.usefixtures("tmux")
def test_what_its_user_agrees_to_counts_once(waiting: InRun) -> None:
    assistant, first = waiting
    assistant.api.script(reply(bash(APPROVE), bash("sh x.sh")), "That was it.")
    with terminal_of(assistant, first.session_id) as terminal:
        terminal.wait_for(PROMPT)
        terminal.enter("approve it")
        terminal.wait_for(ASKED)
        assert decided(assistant) == 0
        terminal.press_until_gone("Enter", ASKED)
        terminal.wait_for("That was it.")
    assert decided(assistant) == 1
    assert "ASK_FIRST" in assistant.api.requests[-1].seen()


def test_a_typed_slash_command_is_the_users_yes(waiting: InRun) -> None:
    """What it leaves in the conversation stays true (D79); what follows comes by `next`, once for one decision."""
    assistant, first = waiting
    answers: list[Reply | str] = [reply(bash("loomctl next")), "The second one waits."]
    turn = assistant.run("/loom:approve --note fine", resume=first.session_id, answers=answers)
    assert decided(assistant) == 1
    body = turn.conversation[0].seen()
    assert "the user decided: build/first: approved by A Tester: fine." in body, body
    assert "Is the second good?" in turn.conversation[-1].seen()
    turn = assistant.run(
        "go on", resume=first.session_id, allowed_tools=ALL_ALLOWED, answers=[reply(bash("sh x.sh")), "No."]
    )
    assert decided(assistant) == 1


@pytest.mark.usefixtures("tmux")
@pytest.mark.shows("your own line")
def test_a_line_of_the_users_own_counts(waiting: InRun) -> None:
    """Behind a !, after they said no to the assistant's call and after a turn; a process left behind is no line."""
    assistant, first = waiting
    over, said = assistant.project / "over", assistant.project / "said"
    (assistant.project / "late.sh").write_text("until [ -e over ]; do sleep 0.1; done; sh x.sh >said 2>&1\n")
    late = reply(tool("Bash", command="sh late.sh", description="wait", run_in_background=True))
    assistant.api.script(
        reply(bash(APPROVE)), "You have.", late, "It waits in the background.", "Refused.", "You have it."
    )
    with terminal_of(assistant, first.session_id) as terminal:
        terminal.wait_for(PROMPT)
        terminal.enter("approve it")
        terminal.wait_for(ASKED)
        terminal.press_until_gone("Escape", ASKED)
        terminal.wait_for("Interrupted")
        assert decided(assistant) == 0
        terminal.enter(f"! {APPROVE}")
        terminal.wait_for("You have.")
        assert decided(assistant) == 1

        terminal.enter("wait for it")
        terminal.wait_for("It waits in the background.")
        over.touch()
        terminal.wait_for("Refused.")
        assert "ASK_FIRST" in said.read_text()
        assert decided(assistant) == 1
        terminal.enter(f"! {APPROVE}")
        terminal.wait_for("You have it.")
    assert decided(assistant) == 2


@pytest.mark.usefixtures("tmux")
def test_a_user_who_breaks_a_call_off_decides(waiting: InRun) -> None:
    assistant, first = waiting
    (assistant.project / "long.sh").write_text("echo $$ >begun; while :; do sleep 0.1; done\n")
    assistant.api.script(reply(bash("sh long.sh")), "You have.")
    with terminal_of(assistant, first.session_id) as terminal:
        terminal.wait_for(PROMPT)
        terminal.enter("try something")
        terminal.wait_until((assistant.project / "begun").exists)
        terminal.press("Escape")
        terminal.wait_for("Interrupted")
        terminal.enter(f"! {APPROVE}")
        terminal.wait_for("You have.")
    assert decided(assistant) == 1
