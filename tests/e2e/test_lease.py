"""Two sessions of the real assistant and one run: one drives, `/clear` keeps that, a fork does not get it."""

from dataclasses import replace

import pytest

from tests.e2e.scenes import SENTENCE, InRun, state_of
from tests.e2e.scripted_api import ScriptedApi, bash, reply
from tests.helpers.scenes import handle

BASH = "Bash(loomctl:*)"


def test_a_second_session_is_refused_reads_and_takes_over(in_run: InRun) -> None:
    assistant, first = in_run
    run_id = state_of(assistant.project)["run_id"]
    with ScriptedApi() as other_api, assistant.working("go on", resume=first.session_id):
        held = state_of(assistant.project)["lease"]
        assert held["session_id"] == first.session_id
        other = replace(assistant, api=other_api)
        turn = other.run(
            "hello",
            answers=[reply(bash(f"loomctl resume {handle(run_id)}"), bash(f"loomctl show {handle(run_id)}")), "told"],
            allowed_tools=BASH,
        )
        refused, shown = turn.conversation[-1].tool_results()
        assert refused.is_error
        for part in (
            "HELD_BY_ANOTHER",
            first.session_id,
            ", came ",
            f"loomctl resume {handle(run_id)} --take-over",
        ):
            assert part in refused.text
        assert first.session_id in shown.text
        assert state_of(assistant.project)["lease"]["session_id"] == first.session_id
        turn = other.run(
            "take it",
            resume=turn.session_id,
            answers=[reply(bash(f"loomctl resume {handle(run_id)} --take-over")), "taken"],
            allowed_tools=BASH,
        )
        *_, taken = turn.conversation[-1].tool_results()
        assert SENTENCE in taken.text
    with ScriptedApi() as other_api:
        other = replace(assistant, api=other_api)
        with other.working("work", resume=turn.session_id):
            assert state_of(assistant.project)["lease"]["session_id"] == turn.session_id
            steps = [one["status"] for one in state_of(assistant.project)["steps"]]
            late = assistant.run(
                "it is done",
                resume=first.session_id,
                answers=[reply(bash("loomctl done <<'EOF'\nOf hours.\nEOF")), '{"outcome": "succeeded"}'],
                allowed_tools=BASH,
                watch_hooks=True,
            )
            *_, refused = late.conversation[-1].tool_results()
            assert refused.is_error
            assert "--response-file" in refused.text
            assert [one["status"] for one in state_of(assistant.project)["steps"]] == steps
            assert any(f"is driven by the session {turn.session_id}" in line for line in late.told_user())


@pytest.mark.quick
def test_clear_keeps_the_lease(in_run: InRun) -> None:
    assistant, first = in_run
    epoch = state_of(assistant.project)["lease"]["epoch"]
    cleared = assistant.run("/clear", resume=first.session_id, watch_hooks=True)
    log = (assistant.project / ".loom" / "runs").glob("*/events.jsonl")
    assert '"why":"inherited"' in "".join(path.read_text(encoding="utf-8") for path in log)
    assert not any("driven by" in line for line in cleared.told_user())
    held = state_of(assistant.project)["lease"]
    assert (held["session_id"], held["epoch"] > epoch) == (None, True)  # and its end gave it up


def test_a_fork_does_not_get_the_lease(in_run: InRun) -> None:
    assistant, first = in_run
    with ScriptedApi() as other_api, assistant.working("go on", resume=first.session_id):
        fork = replace(assistant, api=other_api).run("hello", resume=first.session_id, fork=True, watch_hooks=True)
        assert fork.session_id != first.session_id
        assert any(f"is driven by the session {first.session_id}" in line for line in fork.told_user())
        assert state_of(assistant.project)["lease"]["session_id"] == first.session_id
