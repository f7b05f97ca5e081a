"""A loop that its answers steer, in a real conversation: there, back, round again and out (D36, D45, D46)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.assistant import Assistant, Turn
from tests.e2e.scenes import run_folder, state_of
from tests.e2e.scripted_api import AUTO_COMPACT, Reply, bash, reply
from tests.e2e.test_outcomes import step, workflow
from tests.helpers.texts import holds

BUILT = 'The parser reads commas. {"outcome": "succeeded", "context_updates": {"module": "parser.py"}}'
TO_FIX = 'It drops the last column.\n\n{"preferred_next_label": "fix", "context_updates": {"finding": "last column"}}'
FIXED = 'The last column is kept now. {"outcome": "succeeded"}'
TO_APPROVE = 'Nothing is left to mend.\n\n{"preferred_next_label": "approve"}'
APPROVED = 'It is tagged. {"outcome": "succeeded"}'
ROUND = [
    ("build/build", 1, "succeeded", "build/review"),
    ("build/review", 1, "succeeded", "build/fix"),
    ("build/fix", 1, "succeeded", "build/review"),
    ("build/review", 2, "succeeded", "build/approve"),
    ("build/approve", 1, "succeeded", None),
]
"""Each visit of the whole loop: step, visit, outcome, where it led."""


def loop(project: Path, *, level: str = "autonomous") -> None:
    """Write the workflow `flow`: build, review, fix and back to the review, approve."""
    ways = [{"to": "fix", "label": "[F] Fix"}, {"to": "approve", "label": "[A] Approve"}]
    workflow(
        project, step("build"), step("review", output_schema="routing", transitions=ways, max_visits=3),
        step("fix", transitions=[{"to": "review"}]), step("approve", transitions=[{"to": "end"}]), level=level,
    )  # fmt: skip


def taken_up(*ended: str) -> list[Reply | str]:
    """Give answers that end a step each, with `loomctl next` between them: a call of its own every time."""
    between = [one for said in ended for one in (said, reply(bash("loomctl next")))]
    return between[:-1]


def visits(project: Path) -> list[tuple[str, int, str, str | None]]:
    steps = state_of(project)["steps"]
    return [(one["step_id"], one["visit"], one["status"], (one.get("next") or {}).get("step_id")) for one in steps]


def chosen(project: Path) -> list[tuple[Any, ...]]:
    """Give the choices that the log of the only run tells of: at which stage, for which step, why."""
    lines = (run_folder(project) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    told = [event["properties"] for event in map(json.loads, lines) if event["event"] == "transition.chosen"]
    return [(one["stage"], one["step_id"], one["reason"]) for one in told]


def why(assistant: Assistant, bundle: Path, named: str) -> dict[str, Any]:
    words = [str(bundle / "bin" / "loomctl"), "why", named, run_folder(assistant.project).name, "--json"]
    told: dict[str, Any] = json.loads(assistant.machine.command(*words, cwd=assistant.project))
    return told


def shown(turn: Turn, number: int) -> str:
    """Give what the tool call answered by a turn's request showed the model: a step, as `loomctl next` gives it."""
    result = turn.conversation[number].tool_results()[-1]
    assert not result.is_error, result.text
    return result.text


def test_a_review_leads_back_to_the_fix_and_then_to_the_approval(assistant: Assistant, bundle: Path) -> None:
    """Each answer's label decides; the model is told the chosen step and its prompt.

    What happened before stands in the conversation, so nothing of it is said again (D46); the stage's file has it all.
    """
    loop(assistant.project)
    answers = [reply(bash("loomctl next")), *taken_up(BUILT, TO_FIX, FIXED, TO_APPROVE, APPROVED)]
    turn = assistant.run('/loom:run "read CSV files" --workflow flow', answers=answers, watch_hooks=True)
    assert len(turn.conversation) == len(answers)
    assert "Do the build." in turn.conversation[1].seen()
    for number, (key, _, _, following) in zip((2, 4, 6, 8), ROUND, strict=False):
        block = turn.conversation[number].pieces()[-1][1] + turn.conversation[number].seen()
        assert f"The next step is {following}" in block, key
    review, fix, again, approve = (shown(turn, number) for number in (3, 5, 7, 9))
    holds(review, "Do the review.", "result's JSON to one of “[F] Fix”, “[A] Approve”")
    assert "Do the fix." in fix
    holds(again, "Do the review.", "(2nd time)")
    assert "Do the approve." in approve
    opened = (run_folder(assistant.project) / "stages/003-build.fix@1/prompt.md").read_text(encoding="utf-8")
    holds(opened, "It drops the last column.", "finding")
    assert visits(assistant.project) == ROUND
    state = state_of(assistant.project)
    assert (state["status"], state["context"]["finding"]) == ("completed", "last column")
    assert chosen(assistant.project) == [
        ("002-build.review@1", "build/fix", "label"),
        ("003-build.fix@1", "build/review", "unconditional"),
        ("004-build.review@2", "build/approve", "label"),
        ("005-build.approve@1", None, "end"),
    ]
    fixed = why(assistant, bundle, "fix")
    assert (fixed["after"]["stage"], fixed["way"]["reason"]) == ("002-build.review@1", "label")
    assert [one["why"] for one in fixed["weighed"]] == ["chosen: label", "the given label goes first"]
    assert why(assistant, bundle, "approve")["after"]["stage"] == "004-build.review@2"
    assert why(assistant, bundle, "review@2")["way"]["reason"] == "unconditional"
    assert any("completed" in line for line in turn.told_user())


@pytest.mark.quick
def test_a_review_that_chooses_nothing_there_is_gets_asked_again(assistant: Assistant) -> None:
    """A bare verdict is no directive of the schema's: it is repaired in the same conversation, and then leads on."""
    loop(assistant.project)
    verdict = "I would send it back."
    answers = [*taken_up(BUILT, verdict), *taken_up(TO_FIX, FIXED, TO_APPROVE, APPROVED)]
    turn = assistant.run('/loom:run "read CSV files" --workflow flow', answers=answers)
    assert len(turn.conversation) == len(answers)
    assert visits(assistant.project) == ROUND
    folder = run_folder(assistant.project) / "stages" / "002-build.review@1"
    assert (folder / "response.md").read_text(encoding="utf-8") == TO_FIX


def test_a_loop_goes_on_where_it_was_after_a_compaction(assistant: Assistant, bundle: Path) -> None:
    """The summary tells nothing of it; the restored text names the step and its visit, and the way leads on from there.

    The compaction is asked for between two prompts, in the middle of the fix; what the review found is one call away.
    """
    loop(assistant.project, level="guarded")
    first = assistant.run(
        '/loom:run "read CSV files" --workflow flow',
        answers=taken_up(BUILT, TO_FIX, "Shall the fix keep empty columns too?"),
    )
    assert visits(assistant.project)[-1] == ("build/fix", 1, "in_progress", None)
    assistant.run("/compact", resume=first.session_id)
    asks = reply(bash("loomctl debug preamble"))
    turn = assistant.run("Yes, keep them.", resume=first.session_id, answers=[asks, FIXED, "never said"])
    seen = turn.conversation[0].seen()
    holds(seen, "build/fix", "Do the fix.", but=("Do the build.", "It drops the last column."))
    assert "It drops the last column." in shown(turn, 1)
    assert visits(assistant.project)[-2:] == [
        ("build/fix", 1, "succeeded", "build/review"),
        ("build/review", 2, "in_progress", None),
    ]
    answers = [reply(bash("loomctl next")), *taken_up(TO_APPROVE, APPROVED)]
    turn = assistant.run("/loom:resume", resume=first.session_id, answers=answers)
    assert "Do the review." in shown(turn, 1)
    assert "Do the approve." in shown(turn, 3)
    assert (visits(assistant.project), state_of(assistant.project)["status"]) == (ROUND, "completed")
    assert why(assistant, bundle, "approve")["way"]["label"] == "[A] Approve"


def test_a_loop_goes_on_within_the_turn_in_which_it_was_compacted(assistant: Assistant) -> None:
    loop(assistant.project)
    compacting = reply(bash("loomctl next"), usage=AUTO_COMPACT)
    asks = reply(bash("loomctl debug preamble"))
    answers = [*taken_up(BUILT, TO_FIX), compacting, asks, *taken_up(FIXED, TO_APPROVE, APPROVED)]
    turn = assistant.run('/loom:run "read CSV files" --workflow flow', answers=answers)
    kinds = [request.kind for request in turn.requests]
    assert kinds.count("compaction") == 1
    after = turn.requests[kinds.index("compaction") + 1].seen()
    holds(after, "build/fix", "Do the fix.", but=("It drops the last column.",))
    assert "It drops the last column." in shown(turn, 5)
    assert (visits(assistant.project), state_of(assistant.project)["status"]) == (ROUND, "completed")
    (record,) = state_of(assistant.project)["sessions"]["session_history"]
    assert [compaction["trigger"] for compaction in record["compactions"]] == ["auto"]
