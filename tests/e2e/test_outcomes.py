"""How a step's answer ends it in a real conversation: directives, repairs, the next step in the same turn (D27-D41)."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.assistant import Assistant, Turn
from tests.e2e.scenes import run_folder, state_of
from tests.e2e.scripted_api import AUTO_COMPACT, Reply, bash, reply, tool
from tests.helpers.scenes import handle
from tests.helpers.texts import holds
from tests.helpers.waiting import until

GOOD = 'All is well.\n\n{"outcome": "succeeded", "context_updates": {"coverage": 72}}'
BAD = 'All is well.\n\n{"outcome": "succeeded", "context_updates": {"coverage": }}'


def take_up() -> Reply:
    """Give a call of `loomctl next` of its own: the host drops a second one that has the first one's id."""
    return reply(bash("loomctl next"))


def workflow(project: Path, *steps: dict[str, Any], level: str = "autonomous") -> None:
    folder = project / ".loom" / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    raw = {"id": "flow", "autonomy": level, "phases": {"build": {"steps": list(steps)}}}
    (folder / "flow.json").write_text(json.dumps(raw), encoding="utf-8")


def step(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "prompt": f"Do the {name}.", **more}


def start(assistant: Assistant, *answers: Reply | str, level: str = "autonomous", **more: Any) -> Turn:
    """Start a run of two steps, the first of which asks for a routing directive, in one prompt."""
    workflow(assistant.project, step("review", output_schema="routing", **more), step("fix"), level=level)
    return assistant.run('/loom:run "x" --workflow flow', answers=answers, watch_hooks=True)


def visits(project: Path) -> list[tuple[str, str]]:
    return [(entry["step_id"], entry["status"]) for entry in state_of(project)["steps"]]


def status_of(project: Path, stage: str) -> dict[str, Any]:
    path = run_folder(project) / "stages" / stage / "status.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_a_bad_answer_is_repaired_in_the_same_conversation(assistant: Assistant) -> None:
    turn = start(assistant, BAD, GOOD, take_up(), 'Done. {"outcome": "succeeded"}')
    corrective = turn.conversation[1].pieces()[-1][1] + turn.conversation[1].seen()
    holds(corrective, "routing", "JSON")
    assert "Do the fix." in turn.conversation[3].tool_results()[-1].text
    assert visits(assistant.project) == [("build/review", "succeeded"), ("build/fix", "succeeded")]
    state = state_of(assistant.project)
    assert (state["status"], state["context"]["coverage"]) == ("completed", 72)
    folder = run_folder(assistant.project) / "stages" / "001-build.review@1"
    assert (folder / "response.repair-1.md").read_text(encoding="utf-8") == BAD
    assert (folder / "response.md").read_text(encoding="utf-8") == GOOD
    status = status_of(assistant.project, folder.name)
    assert (status["repairs"], status["context_updates"], status["response_source"]) == (
        1,
        {"coverage": 72},
        "conversation",
    )
    assert status["usage"]["models"]
    assert status["usage"]["output_tokens"] > 0


def test_an_answer_that_stays_bad_fails_its_step(assistant: Assistant) -> None:
    turn = start(assistant, BAD, BAD, BAD, GOOD, output_retries=2, max_retries=3)
    assert (len(turn.conversation), visits(assistant.project)) == (3, [("build/review", "failed")])
    state = state_of(assistant.project)
    reason = "output schema validation failed after 2 repair attempt(s)"
    assert (state["status"], state["errors"][-1]["message"]) == ("failed", reason)
    assert status_of(assistant.project, "001-build.review@1")["failure_reason"] == reason
    assert not [key for key in state["context"] if key.startswith("response.")]
    assert any("failed" in line for line in turn.told_user())


def test_a_workflow_runs_through_in_one_call(assistant: Assistant) -> None:
    workflow(assistant.project, step("one"), step("two"), step("three"))
    answers: list[Reply | str] = [
        '{"outcome": "succeeded"}', take_up(), 'Two is done. {"outcome": "succeeded"}', take_up(),
    ]  # fmt: skip
    turn = assistant.run(
        '/loom:run "x" --workflow flow', answers=[*answers, 'Three. {"outcome": "partially_succeeded"}']
    )
    assert visits(assistant.project) == [
        ("build/one", "succeeded"),
        ("build/two", "succeeded"),
        ("build/three", "partially_succeeded"),
    ]
    assert (state_of(assistant.project)["status"], len(turn.conversation)) == ("completed", 5)


def test_twelve_steps_that_call_no_tool_are_paused_with_the_way_on(assistant: Assistant) -> None:
    """The host honours only so many blocks in a row: the run is paused then, and says how to go on (D28)."""
    workflow(assistant.project, *(step(f"s{number}") for number in range(12)))
    directive = '{"outcome": "succeeded"}'
    turn = assistant.run('/loom:run "x" --workflow flow', answers=[directive] * 14, watch_hooks=True)
    state = state_of(assistant.project)
    assert state["status"] == "paused"
    assert visits(assistant.project)[0] == ("build/s0", "succeeded")
    assert any(f"loomctl resume {handle(state)}" in line for line in turn.told_user())
    assert len(turn.conversation) == 9


def test_twelve_steps_that_take_up_each_next_one_reach_the_end(assistant: Assistant) -> None:
    """`loomctl next` is a tool call, after which the host counts its blocks anew (D28)."""
    workflow(assistant.project, *(step(f"s{number}") for number in range(12)))
    answers: list[Reply | str] = [one for _ in range(12) for one in ('{"outcome": "succeeded"}', take_up())][:-1]
    assistant.run('/loom:run "x" --workflow flow', answers=answers)
    assert state_of(assistant.project)["status"] == "completed"
    assert {status for _, status in visits(assistant.project)} == {"succeeded"}


def test_an_autonomous_run_asks_once_and_then_waits_for_its_user(assistant: Assistant) -> None:
    turn = start(assistant, "Which colour?", "I must know which colour.", "never said")
    assert len(turn.conversation) == 2
    assert "loomctl done" in turn.conversation[1].seen()
    state = state_of(assistant.project)
    assert (state["status"], state["current_step"]) == ("awaiting_feedback", "build/review")
    assert any("waits for your answer" in line for line in turn.told_user())
    assistant.run("Blue.", resume=turn.session_id, answers=[GOOD, take_up(), '{"outcome": "succeeded"}'])
    assert visits(assistant.project) == [("build/review", "succeeded"), ("build/fix", "succeeded")]
    assert state_of(assistant.project)["status"] == "completed"


@pytest.mark.quick
def test_a_guarded_run_leaves_a_question_alone(assistant: Assistant) -> None:
    turn = start(assistant, "Which colour?", "never said", level="guarded")
    assert (turn.answer, len(turn.conversation)) == ("Which colour?", 1)
    assert state_of(assistant.project)["status"] == "in_progress"


def test_a_guarded_run_goes_on_up_to_the_next_approval(assistant: Assistant) -> None:
    workflow(assistant.project, step("one"), step("two"), step("three", require_approval=True), level="guarded")
    answers: list[Reply | str] = ['{"outcome": "succeeded"}', take_up(), '{"outcome": "succeeded"}', "never said"]
    turn = assistant.run('/loom:run "x" --workflow flow', answers=answers, watch_hooks=True)
    assert len(turn.conversation) == 3
    state = state_of(assistant.project)
    assert (state["status"], state["pending_approvals"][0]["id"]) == ("awaiting_feedback", "step:build/three")
    assert any("loomctl approve" in line for line in turn.told_user())


def test_an_unattended_run_that_comes_to_an_untrusted_command_says_so_and_stops(assistant: Assistant) -> None:
    workflow(assistant.project, step("one"), {"id": "check", "run": "touch sprung"}, step("two"))
    answers: list[Reply | str] = ['{"outcome": "succeeded"}', take_up(), "Its user has to trust it.", "never said"]
    turn = assistant.run('/loom:run "x" --workflow flow', answers=answers, watch_hooks=True)
    assert len(turn.conversation) == 3
    run_id = run_folder(assistant.project).name
    (line,) = [line for line in turn.told_user() if "waits for your trust" in line]
    assert f"the run {handle(run_id, 'x')} waits for your trust in its commands: build/check (touch sprung)" in line
    assert f"loomctl trust {handle(run_id, 'x')}" in line
    state = state_of(assistant.project)
    assert (state["status"], state["feedback"]["kind"]) == ("awaiting_feedback", "trust")
    assert not (assistant.project / "sprung").exists()


def test_a_pause_stops_it(assistant: Assistant) -> None:
    paused = reply(bash("loomctl pause"))
    workflow(assistant.project, step("one"), step("two"))
    turn = assistant.run('/loom:run "x" --workflow flow', answers=[paused, '{"outcome": "succeeded"}', "never said"])
    assert (len(turn.conversation), state_of(assistant.project)["status"]) == (2, "paused")
    assert visits(assistant.project) == [("build/one", "succeeded")]


@pytest.mark.parametrize("closing", [True, False])
def test_a_user_pauses_from_a_terminal_in_the_middle_of_a_turn(
    assistant: Assistant, bundle: Path, *, closing: bool
) -> None:
    workflow(assistant.project, step("one", output_schema="routing"), step("two"))
    held = threading.Event()
    begins = reply(bash(f"loomctl {'done' if closing else 'next'} && touch began"))
    turns: list[Turn] = []
    answers: list[Reply | str] = [begins, reply("All is well.", held=held), "never said"]
    words = '/loom:run "x" --workflow flow'

    def work() -> None:
        turns.append(assistant.run(words, answers=answers, allowed_tools="Bash"))

    working = threading.Thread(target=work)
    working.start()
    try:
        until((assistant.project / "began").exists)
        assistant.machine.command(str(bundle / "bin/loomctl"), "pause", cwd=assistant.project)
    finally:
        held.set()
        working.join()
    (turn,) = turns
    assert (turn.answer, state_of(assistant.project)["status"]) == ("All is well.", "paused")
    assert visits(assistant.project) == [("build/one", "closing" if closing else "in_progress")]
    candidate = run_folder(assistant.project) / "stages" / "001-build.one@1" / "candidate.md"
    assert candidate.read_text(encoding="utf-8") == "All is well."


def test_an_object_of_the_steps_own_schema_is_repaired_in_the_same_conversation(assistant: Assistant) -> None:
    risk = {"type": "object", "required": ["risk"], "properties": {"risk": {"enum": ["low", "high"]}}}
    workflow(assistant.project, step("audit", output_schema="@schemas/risk.schema.json"), step("fix"))
    schemas = assistant.project / ".loom" / "workflows" / "schemas"
    schemas.mkdir()
    (schemas / "risk.schema.json").write_text(json.dumps(risk), encoding="utf-8")
    answers: list[Reply | str] = ['{"risk": "medium"}', 'So: {"risk": "low"}', take_up(), '{"outcome": "succeeded"}']
    turn = assistant.run('/loom:run "x" --workflow flow', answers=answers)
    assert "/risk: 'medium'" in turn.conversation[1].seen()
    assert state_of(assistant.project)["context"]["output.build/audit"] == {"risk": "low"}
    assert visits(assistant.project) == [("build/audit", "succeeded"), ("build/fix", "succeeded")]
    assert state_of(assistant.project)["status"] == "completed"


def test_a_command_step_is_run_between_two_steps_of_an_unattended_run(assistant: Assistant, bundle: Path) -> None:
    workflow(assistant.project, step("one"), {"id": "check", "run": "echo all 72 pass"}, step("two"))
    first = assistant.run('/loom:run "x" --workflow flow', answers=["Which colour?", "Which one, please?"])
    run_id = run_folder(assistant.project).name
    assistant.machine.command(str(bundle / "bin/loomctl"), "trust", run_id, "--yes", cwd=assistant.project)
    answers: list[Reply | str] = ['{"outcome": "succeeded"}', take_up(), '{"outcome": "succeeded"}']
    (ran,) = assistant.run("Blue.", resume=first.session_id, answers=answers).conversation[-1].tool_results()
    holds(ran.text, "all 72 pass", "Do the two.")
    assert [status for _, status in visits(assistant.project)] == ["succeeded"] * 3
    assert status_of(assistant.project, "002-build.check@1")["command"]["exit_code"] == 0


def test_a_plan_in_the_making_and_an_unbound_session_end_nothing(assistant: Assistant) -> None:
    first = start(assistant, "Which colour?", level="guarded")
    words = ["--permission-mode", "plan"]
    assistant.run("Make a plan.", resume=first.session_id, answers=[GOOD], extra_args=words)
    assert visits(assistant.project) == [("build/review", "in_progress")]
    turn = assistant.run("What is this project?", answers=[GOOD])
    assert (len(turn.conversation), visits(assistant.project)) == (1, [("build/review", "in_progress")])


def test_what_a_step_touched_and_left_is_recorded(assistant: Assistant) -> None:
    (assistant.project / "README.md").write_text("# Begun\n", encoding="utf-8")  # dirty already, and changed again
    workflow(assistant.project, step("one"), level="guarded")
    written = tool("Write", file_path=str(assistant.project / "notes.md"), content="Notes.\n")
    made = bash("mkdir -p out && echo '<testsuite/>' > out/junit.xml && echo '# Changed' > README.md")
    answers: list[Reply | str] = [reply(written), reply(made), '{"outcome": "succeeded"}']
    assistant.run('/loom:run "x" --workflow flow', answers=answers, allowed_tools="Bash,Write")
    status = status_of(assistant.project, "001-build.one@1")
    assert set(status["files_touched"]) >= {"notes.md", "README.md"}
    (asset,) = status["assets"]
    assert asset["path"] == "out/junit.xml"
    assert (run_folder(assistant.project) / asset["stored"]).read_text(encoding="utf-8") == "<testsuite/>\n"


def test_a_compaction_between_done_and_the_result_loses_nothing(assistant: Assistant) -> None:
    workflow(assistant.project, step("one"), step("two"), level="guarded")
    closing = reply(bash("loomctl done"), usage=AUTO_COMPACT)
    turn = assistant.run('/loom:run "x" --workflow flow', answers=[closing, "The result."], watch_hooks=True)
    assert turn.hook_answers("SessionStart")
    assert visits(assistant.project)[0] == ("build/one", "succeeded")
    folder = run_folder(assistant.project) / "stages" / "001-build.one@1"
    assert (folder / "response.md").read_text(encoding="utf-8") == "The result."


def test_a_question_behind_a_directive_is_answered_before_the_step_ends(assistant: Assistant) -> None:
    asks = f"It would be `{GOOD}`. Shall I end the step with it?"
    turn = start(assistant, asks, GOOD, take_up(), '{"outcome": "succeeded"}')
    assert "does not end it" in turn.conversation[1].seen()
    assert visits(assistant.project) == [("build/review", "succeeded"), ("build/fix", "succeeded")]
