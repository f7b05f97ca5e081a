"""The permission hook lets the assistant drive a run without asking, and lets nothing else through (D29)."""

import pytest

from tests.e2e.scenes import InRun, state_of
from tests.e2e.scripted_api import bash, reply

DRESSED_UP = [
    "loomctl next; touch pwned", "loomctl next && touch pwned", "loomctl next || touch pwned",
    "loomctl next & touch pwned", "loomctl next | tee pwned", "loomctl next > pwned", "loomctl next 2>pwned",
    "loomctl next\ntouch pwned", "loomctl next $(touch pwned)", "loomctl next `touch pwned`",
    'loomctl next "$(touch pwned)"', "loomctl next <(touch pwned)", "loomctl next ${X:=pwned}",
    "touch pwned; loomctl next", "PATH=. loomctl next", "./loomctl next", "/tmp/loomctl next", "loomctl-x next",
    "sudo loomctl next", "env loomctl next", "eval loomctl next", "! loomctl next", "(loomctl next)",
    "loomctl done <<EOF\n$(touch pwned)\nEOF", "loomctl done <<'EOF'\nwords\nEOF\ntouch pwned",
    "loomctl done <<'EOF' && touch pwned\nwords\nEOF", "loomctl done <<'EOF' > pwned\nwords\nEOF",
    "loomctl done <<'A' <<'B'\nA\n$(touch pwned)\nB", "loomctl next <<'EOF'\nwords\nEOF\nloomctl trust",
    "loomctl done --response-file <(touch pwned)", "loomctl run 259", "loomctl approve release", "loomctl trust",
    "loomctl cancel", "loomctl demo",
]  # fmt: skip

ALLOWED = [
    "loomctl next",
    "loomctl show",
    "loomctl next --json",
    "loomctl done --outcome succeeded <<'EOF'\n`It` \"isn't\" $(dangerous); here & there > now\nEOF",
]


@pytest.mark.shows("allows one simple")
def test_only_plain_loomctl_calls_pass_without_asking(in_run: InRun) -> None:
    assistant, first = in_run
    calls = reply(*(bash(command) for command in DRESSED_UP))
    turn = assistant.run("go on", resume=first.session_id, answers=[calls, "I see."])
    results = turn.conversation[-1].tool_results()[-len(DRESSED_UP) :]
    passed = [command for command, result in zip(DRESSED_UP, results, strict=True) if not result.is_error]
    assert passed == []
    assert not (assistant.project / "pwned").exists()

    calls = reply(*(bash(command) for command in ALLOWED))
    turn = assistant.run("go on", resume=first.session_id, answers=[calls, "Fine."])
    results = turn.conversation[-1].tool_results()[-len(ALLOWED) :]
    assert [(result.is_error, result.text) for result in results if result.is_error] == []


@pytest.mark.quick
def test_an_unbound_session_is_asked(in_run: InRun) -> None:
    assistant, _ = in_run
    turn = assistant.run("hello", answers=[reply(*(bash(command) for command in ALLOWED)), "I see."])
    assert all(result.is_error for result in turn.conversation[-1].tool_results())


@pytest.mark.shows("are put to you")
def test_what_only_people_decide_is_asked_in_spite_of_a_rule(in_run: InRun) -> None:
    assistant, first = in_run
    commands = ["loomctl approve release", "loomctl reject", "loomctl choose a", "loomctl trust", "loomctl cancel"]
    turn = assistant.run(
        "go on",
        resume=first.session_id,
        allowed_tools="Bash(loomctl:*)",
        answers=[reply(*(bash(command) for command in commands)), "I see."],
    )
    results = turn.conversation[-1].tool_results()[-len(commands) :]
    assert [result.is_error for result in results] == [True] * len(commands)
    assert state_of(assistant.project)["status"] == "in_progress"
