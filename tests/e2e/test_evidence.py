"""In a real conversation the assistant's word for it ends no step that has something to show."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import done, run_folder, state_of
from tests.e2e.scripted_api import Reply, reply, tool
from tests.e2e.test_outcomes import status_of, step, take_up, workflow
from tests.helpers.texts import holds

SAID = 'The report is written. {"outcome": "succeeded"}'


def test_a_step_is_done_when_its_file_is_there(assistant: Assistant) -> None:
    workflow(assistant.project, step("report", evidence=["out/report.md"]), step("then"))
    made = reply(tool("Write", file_path=str(assistant.project / "out" / "report.md"), content="found\n"))
    answers: list[Reply | str] = [SAID, made, SAID, take_up(), 'Done. {"outcome": "succeeded"}']
    turn = assistant.run('/loom:run "x" --workflow flow', answers=answers, watch_hooks=True, allowed_tools="Write")
    corrective = turn.conversation[1].pieces()[-1][1] + turn.conversation[1].seen()
    holds(corrective, "EVIDENCE_MISSING", "out/report.md")
    state = state_of(assistant.project)
    assert [(entry["step_id"], entry["status"]) for entry in state["steps"]] == [
        ("build/report", "succeeded"),
        ("build/then", "succeeded"),
    ]
    sha256 = hashlib.sha256(b"found\n").hexdigest()
    assert status_of(assistant.project, "001-build.report@1")["evidence"]["items"][0]["sha256"] == sha256
    assert [(one["passed"], one["items"][0].get("sha256")) for one in checked(assistant)] == [
        (False, None),
        (True, sha256),
    ]


def test_a_step_is_done_when_what_it_leaves_is_registered(assistant: Assistant) -> None:  # D66
    workflow(assistant.project, step("spec", produces=["spec_path"]), step("then"))
    made = reply(tool("Write", file_path=str(assistant.project / "out" / "spec.md"), content="# Spec\n"))
    registered = 'Written. {"outcome": "succeeded", "artifacts": {"spec_path": "out/spec.md"}}'
    answers: list[Reply | str] = [SAID, made, registered, take_up(), 'Done. {"outcome": "succeeded"}']
    turn = assistant.run('/loom:run "x" --workflow flow', answers=answers, watch_hooks=True, allowed_tools="Write")
    corrective = turn.conversation[1].pieces()[-1][1] + turn.conversation[1].seen()
    holds(corrective, "NOT_PRODUCED", "--artifact spec_path=PATH")
    state = state_of(assistant.project)
    assert [entry["status"] for entry in state["steps"]] == ["succeeded", "succeeded"]
    assert state["artifacts"] == {"spec_path": "{project_root}/out/spec.md"}


def checked(assistant: Assistant) -> list[dict[str, Any]]:
    lines = (run_folder(assistant.project) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry["properties"] for entry in map(json.loads, lines) if entry["event"] == "evidence.checked"]


@pytest.mark.quick
def test_an_assistant_that_does_not_call_done_is_sent_there_twice_and_then_its_user_is_told(
    assistant: Assistant,
) -> None:
    """A command is looked at by `loomctl done` alone: two blocks name it, and no third one says the same."""
    workflow(assistant.project, step("report", evidence=[{"run": "test -e out"}]), step("then"))
    turn = assistant.run('/loom:run "x" --workflow flow', answers=[SAID, SAID, SAID, "never said"], watch_hooks=True)
    assert len(turn.conversation) == 3
    stops = turn.hook_answers("Stop")
    assert [answer.get("decision") for answer in stops] == ["block", "block", None]
    assert all("loomctl done" in answer["reason"] for answer in stops[:2])
    (line,) = [line for line in turn.told_user() if "is not done" in line]
    holds(line, "build/report", "loomctl done")
    state = state_of(assistant.project)
    assert (state["status"], state["current_step"]) == ("in_progress", "build/report")
    assert [one["passed"] for one in checked(assistant)] == [False, False]
    candidate = run_folder(assistant.project) / "stages" / "001-build.report@1" / "candidate.md"
    assert candidate.read_text(encoding="utf-8") == SAID


def test_the_projects_tests_run_as_its_user_allowed_it_once(assistant: Assistant, bundle: Path) -> None:
    """Typed in a terminal, `loomctl init` answers for every later run: tests fail, then they pass, unasked."""
    launcher = str(bundle / "bin" / "loomctl")
    assistant.machine.command(launcher, "init", "--tests", "test -e fixed", cwd=assistant.project)
    steps = [step("pin", evidence=[{"tests": "fail"}]), step("mend", evidence=[{"tests": "pass"}])]
    workflow(assistant.project, *steps)
    mend = reply(tool("Write", file_path=str(assistant.project / "fixed"), content="yes\n"))
    answers: list[Reply | str] = [done(), done(), mend, done(), "All done."]
    turn = assistant.run('/loom:run "x" --workflow flow', answers=answers, allowed_tools="Write")
    assert "wants to execute" not in turn.conversation[0].seen()
    told = turn.conversation[-1].seen()
    holds(told, "command `test -e fixed`: exit code 1")
    state = state_of(assistant.project)
    assert [(entry["step_id"], entry["status"]) for entry in state["steps"]] == [
        ("build/pin", "succeeded"),
        ("build/mend", "succeeded"),
    ]
    assert [one["items"][0]["name"] for one in checked(assistant)] == [
        "test -e fixed (must fail)",
        *["test -e fixed"] * 2,
    ]
