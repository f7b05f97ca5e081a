"""A step that a person decides, in the real assistant: it stops there, and goes on when they have decided."""

from pathlib import Path

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import run_folder, state_of
from tests.e2e.scripted_api import Reply, bash, reply
from tests.e2e.test_outcomes import status_of, step, take_up, visits, workflow
from tests.helpers.scenes import handle


@pytest.mark.quick
def test_a_review_leads_to_a_person_whose_choice_leads_on(assistant: Assistant, bundle: Path) -> None:
    gate = {
        "id": "gate",
        "kind": "human",
        "prompt": "Is the review right?",
        "transitions": [{"to": "end", "label": "[A] Approve"}, {"to": "fix", "label": "[F] Fix"}],
    }
    ways = [{"to": "gate", "label": "Ask"}, {"to": "end", "label": "Drop"}]
    review = step("review", output_schema="routing", transitions=ways)
    workflow(assistant.project, review, gate, step("fix", transitions=[{"to": "end"}]))
    first = assistant.run(
        '/loom:run "x" --workflow flow', answers=['{"preferred_next_label": "ask"}', "never said"], watch_hooks=True
    )
    assert len(first.conversation) == 1
    run_id = run_folder(assistant.project).name
    (line,) = [line for line in first.told_user() if "waits for you at build/gate" in line]
    assert (
        f"Is the review right? ([A] Approve · [F] Fix). You decide: loomctl choose LABEL {handle(run_id, 'x')}" in line
    )

    tries: list[Reply | str] = [reply(bash("loomctl choose fix")), "That is for you to say.", "never said"]
    second = assistant.run("You decide.", resume=first.session_id, answers=tries, allowed_tools="Bash(loomctl:*)")
    assert second.answer == "That is for you to say."
    (tried,) = second.conversation[-1].tool_results()
    assert tried.is_error
    state = state_of(assistant.project)
    assert (state["status"], state["approvals"]) == ("awaiting_feedback", [])

    loomctl = str(bundle / "bin/loomctl")
    told = assistant.machine.command(loomctl, "choose", "fix", run_id, "--note", "the spec", cwd=assistant.project)
    assert "Next: build/fix" in told
    answers: list[Reply | str] = ["All right.", take_up(), '{"outcome": "succeeded"}']
    third = assistant.run("I have chosen.", resume=first.session_id, answers=answers)
    assert "The next step is build/fix" in third.conversation[1].seen()
    given = third.conversation[-1].tool_results()[-1]
    assert "Do the fix." in given.text
    assert "[F] Fix by A Tester: the spec" in given.text
    assert state_of(assistant.project)["status"] == "completed"
    assert visits(assistant.project) == [
        ("build/review", "succeeded"),
        ("build/gate", "succeeded"),
        ("build/fix", "succeeded"),
    ]
    decided = status_of(assistant.project, "002-build.gate@1")["decided"]
    assert (decided["by"], decided["label"], decided["note"]) == ("A Tester", "[F] Fix", "the spec")
