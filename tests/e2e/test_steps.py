"""How a step ends in a real conversation: by `loomctl done` with words, or by the final message (D27)."""

import pytest

from tests.e2e.scenes import InRun, run_folder, state_of
from tests.e2e.scripted_api import bash, reply

RESULT = 'It\'s done: the "switch" stands in `settings.py`.\n\nNothing is left open.'


def test_a_plain_done_takes_the_final_message_and_talking_ends_nothing(in_run: InRun) -> None:
    assistant, first = in_run
    step = state_of(assistant.project)["current_step"]
    call = reply(bash("loomctl done"))
    turn = assistant.run("go on", resume=first.session_id, answers=[call, RESULT], watch_hooks=True)
    assert turn.answer == RESULT
    assert any(f"{step} succeeded" in line for line in turn.told_user())
    state = state_of(assistant.project)
    (ended,) = [visit for visit in state["steps"] if visit["step_id"] == step]
    assert ended["status"] == "succeeded"
    response = run_folder(assistant.project) / "stages" / ended["stage"] / "response.md"
    assert response.read_text(encoding="utf-8").strip() == RESULT
    step = state_of(assistant.project)["current_step"]
    turn = assistant.run("go on", resume=first.session_id, answers=["Which colour should it be?"])
    assert (turn.answer, len(turn.conversation)) == ("Which colour should it be?", 1)
    assert state_of(assistant.project)["current_step"] == step
    turn = assistant.run("go on", resume=first.session_id, answers=['{"outcome": "succeeded"}'])
    assert len(turn.conversation) == 1
    assert state_of(assistant.project)["current_step"] != step


@pytest.mark.quick
def test_words_given_to_done_are_kept_as_they_are(in_run: InRun) -> None:
    assistant, first = in_run
    step = state_of(assistant.project)["current_step"]
    call = reply(bash(f"loomctl done <<'LOOM'\n{RESULT}\nLOOM"))
    turn = assistant.run("go on", resume=first.session_id, answers=[call, "On to the next."])
    state = state_of(assistant.project)
    (ended,) = [visit for visit in state["steps"] if visit["step_id"] == step]
    response = run_folder(assistant.project) / "stages" / ended["stage"] / "response.md"
    assert response.read_text(encoding="utf-8").strip() == RESULT
    assert state["current_step"] in turn.conversation[-1].tool_results()[-1].text
