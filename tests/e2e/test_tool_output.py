"""What tools give, in the real assistant: large output shortened and kept whole, the rest untouched, all logged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loomctl.disk import tool_log
from tests.e2e.scenes import run_folder, start_run
from tests.e2e.scripted_api import bash, reply, tool

if TYPE_CHECKING:
    from tests.e2e.assistant import Assistant
    from tests.e2e.scripted_api import Reply

pytestmark = pytest.mark.e2e

LINES = [f"test {number:04}: ok, and it took no longer than before" for number in range(1, 1201)]
LINES[600] = "test 0601: FAILED with AssertionError in src/shop/cart.py:41"
OUTPUT = "\n".join(LINES)
ALLOWED = "Bash Read Write"


@pytest.fixture
def patient(assistant: Assistant) -> Assistant:
    """An assistant whose host does not put 60 kB away by itself, so that hooks get all of it."""
    return replace(assistant, machine=replace(assistant.machine, extra={"BASH_MAX_OUTPUT_LENGTH": "150000"}))


def big(project: Path) -> dict[str, Any]:
    """A shell command that prints 60 kB."""
    (project / "big.txt").write_text(OUTPUT + "\n", encoding="utf-8")
    return bash("cat big.txt")


def test_sixty_kilobytes_reach_the_model_as_an_excerpt_and_come_back_whole(patient: Assistant) -> None:
    """Observation, the failure, the path; and what `cat` and `sed` of that path print is the output itself."""
    first = start_run(patient)
    asked = reply(big(patient.project))
    turn = patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[asked, "seen"])
    result = turn.conversation[-1].tool_results()[-1]
    told = result.text.split("\n")
    assert told[0] == f"cat: 1,200 lines, {len(OUTPUT):,} bytes; shortened by Loom"
    assert LINES[600] in told
    assert len(result.text) < 4000
    assert LINES[300] not in turn.conversation[-1].seen()
    path = told[-1].removeprefix("The whole output: ")
    assert Path(path).read_text(encoding="utf-8") == OUTPUT

    pieces = [reply(bash(f"sed -n '{start},{start + 299}p' {path}")) for start in range(1, 1201, 300)]
    back = patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[*pieces, "seen"])
    shown = [result.text for result in back.conversation[-1].tool_results()][-4:]
    assert "\n".join(shown) == OUTPUT

    whole = reply(bash(f"cat {path}"))
    turn = patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[whole, "seen"])
    text = turn.conversation[-1].tool_results()[-1].text
    assert "shortened by Loom" not in text
    patient.run("/compact", resume=first.session_id)
    last = list(tool_log.read(str(run_folder(patient.project))))[-1]
    assert last.minimal_args["command"] == f"cat {path}"
    assert (run_folder(patient.project) / str(last.outcome_ref)).read_text(encoding="utf-8") == OUTPUT


def test_what_the_host_put_away_is_an_excerpt_of_the_whole(assistant: Assistant) -> None:
    """Where the host itself keeps 60 kB back and shows two of them: Loom's excerpt stands for all of it."""
    first = start_run(assistant)
    asked = reply(big(assistant.project))
    turn = assistant.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[asked, "seen"])
    told = turn.conversation[-1].tool_results()[-1].text.split("\n")
    assert told[0] == f"cat: 1,200 lines, {len(OUTPUT) + 1:,} bytes; shortened by Loom"
    assert LINES[600] in told
    path = told[-1].removeprefix("The whole output: ")
    assert Path(path).read_text(encoding="utf-8") == OUTPUT + "\n"
    pieces = [reply(bash(f"sed -n '{start},{start + 399}p' {path}")) for start in range(1, 1201, 400)]
    turn = assistant.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[*pieces, "seen"])
    assert "\n".join(result.text for result in turn.conversation[-1].tool_results()[-3:]) == OUTPUT


def test_what_is_small_a_read_and_a_failure_are_untouched(patient: Assistant) -> None:
    """Whatever their size; a failing command keeps its error."""
    first = start_run(patient)
    note = patient.project / "note.txt"
    note.write_text(OUTPUT[:24_000], encoding="utf-8")
    calls = [
        reply(tool("Read", file_path=str(note))),
        reply(bash("echo small")),
        reply(bash("ls /nope; exit 3")),
        reply(bash("loomctl show --json; yes loomctl | head -3000")),
    ]
    turn = patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[*calls, "seen"])
    read, small, failed, own = turn.conversation[-1].tool_results()[-4:]
    assert all(line in read.text for line in OUTPUT[:24_000].split("\n"))
    assert small.text == "small"
    assert (failed.is_error, "cannot access '/nope'" in failed.text, "Exit code 3" in failed.text) == (True, True, True)
    assert "shortened by Loom" not in own.text
    patient.run("/compact", resume=first.session_id)
    steps = list(tool_log.read(str(run_folder(patient.project))))[-4:]
    assert [(step.tool_name, step.success) for step in steps] == [
        ("Read", True), ("Bash", True), ("Bash", False), ("Bash", True),
    ]  # fmt: skip
    assert "cannot access '/nope'" in steps[2].observation


def test_after_compact_the_history_of_the_tool_steps_is_there(patient: Assistant) -> None:
    """In the next request, once: failures and what was written, and where the rest is found."""
    first = start_run(patient)
    made = patient.project / "made.py"
    calls = [
        reply(tool("Write", file_path=str(made), content="x = 1\n")),
        reply(bash("echo palaver-one")),
        reply(bash("cat /absent/heliotrope.txt")),
        *(reply(bash(f"echo step-{number}")) for number in range(6)),
    ]
    patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=[*calls, "seen"])
    patient.run("/compact", resume=first.session_id)
    after = patient.run("go on", resume=first.session_id)
    seen = after.conversation[0].seen()
    history = seen[seen.index("What tools did in this run so far") :]
    assert seen.count("What tools did in this run so far") == 1
    assert str(made) in history
    assert "/absent/heliotrope.txt" in history
    assert "echo step-5" in history
    assert "loomctl steps" in history


def test_a_session_without_a_run_is_left_alone(patient: Assistant) -> None:
    """Its output reaches the model as the host gives it, and nothing is written."""
    start_run(patient)
    folder = run_folder(patient.project)
    kept = [*(patient.project / ".loom/local/spool").iterdir(), *folder.glob("outputs/*")]
    asked = reply(bash("seq 1 4000"))
    turn = patient.run("hello", allowed_tools=ALLOWED, answers=[asked, "seen"])
    (result,) = turn.conversation[-1].tool_results()
    assert result.text == "\n".join(map(str, range(1, 4001)))
    assert {*(patient.project / ".loom/local/spool").iterdir(), *folder.glob("outputs/*")} <= {*kept}
    assert not [step for step in tool_log.read(str(folder)) if step.more["session_id"] == turn.session_id]


def test_a_subagents_calls_are_logged_as_its_own(patient: Assistant) -> None:
    """They carry its id and are not part of the main history."""
    first = start_run(patient)
    call = tool(
        "Agent", description="look", prompt="Look around.", subagent_type="general-purpose", run_in_background=False
    )
    answers: list[Reply | str] = [reply(call), reply(bash("echo from-within")), "found nothing", "seen"]
    patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=answers)
    compacted = patient.run("/compact", resume=first.session_id)
    assert compacted.session_id == first.session_id
    steps = list(tool_log.read(str(run_folder(patient.project))))
    (within,) = [step for step in steps if step.minimal_args.get("command") == "echo from-within"]
    assert within.more.get("agent_id")
    after = patient.run("go on", resume=first.session_id)
    assert "from-within" not in json.dumps(after.conversation[0].body["messages"])
