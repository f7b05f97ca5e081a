"""What tools give, in the real assistant: large output shortened and kept whole, the rest untouched, all logged."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loomctl.runs.tools import tool_log
from tests.e2e import mcp_server
from tests.e2e.assistant import Assistant
from tests.e2e.scenes import InRun, run_folder, stay_in_run
from tests.e2e.scripted_api import AUTO_COMPACT, Reply, bash, reply, tool
from tests.helpers.texts import holds

LINES = [f"test {number:04}: ok, and it took no longer than before" for number in range(1, 1201)]
LINES[600] = "test 0601: FAILED with AssertionError in src/shop/cart.py:41"
OUTPUT = "\n".join(LINES)
ALLOWED = "Bash Read Write"


def made_patient(assistant: Assistant) -> Assistant:
    return replace(assistant, machine=replace(assistant.machine, extra={"BASH_MAX_OUTPUT_LENGTH": "150000"}))


@pytest.fixture
def patient(assistant: Assistant) -> Assistant:
    """An assistant whose host does not put 60 kB away by itself, so that hooks get all of it."""
    return made_patient(assistant)


@pytest.fixture
def patient_in_run(in_run: InRun) -> InRun:
    """Such a one after `start_run`."""
    assistant, first = in_run
    return made_patient(assistant), first


def big(project: Path) -> dict[str, Any]:
    (project / "big.txt").write_text(OUTPUT + "\n", encoding="utf-8")
    return bash("cat big.txt")


def test_sixty_kilobytes_reach_the_model_as_an_excerpt_and_come_back_whole(patient: Assistant) -> None:
    session = stay_in_run(patient, ALLOWED)
    request = session.ask("go on", reply(big(patient.project)), "seen")
    result = request.tool_results()[-1]
    told = result.text.split("\n")
    assert told[0] == f"cat: 1,200 lines, {len(OUTPUT):,} bytes; shortened by Loom"
    assert LINES[600] in told
    assert len(result.text) < 4000
    assert LINES[300] not in request.seen()
    path = told[-1].removeprefix("The whole output: ")
    assert Path(path).read_text(encoding="utf-8") == OUTPUT

    pieces = [reply(bash(f"sed -n '{start},{start + 299}p' {path}")) for start in range(1, 1201, 300)]
    shown = [result.text for result in session.ask("go on", *pieces, "seen").tool_results()][-4:]
    assert "\n".join(shown) == OUTPUT

    whole = session.ask("go on", reply(bash(f"cat {path}")), "seen")
    assert "shortened by Loom" not in whole.tool_results()[-1].text
    session.say("/compact")
    session.end()
    last = list(tool_log.read(str(run_folder(patient.project))))[-1]
    assert last.minimal_args["command"] == f"cat {path}"
    assert (run_folder(patient.project) / str(last.outcome_ref)).read_text(encoding="utf-8") == OUTPUT


def test_what_the_host_put_away_is_an_excerpt_of_the_whole(assistant: Assistant) -> None:
    """Where the host itself keeps 60 kB back and shows two of them: Loom's excerpt stands for all of it."""
    session = stay_in_run(assistant, ALLOWED)
    told = session.ask("go on", reply(big(assistant.project)), "seen").tool_results()[-1].text.split("\n")
    assert told[0] == f"cat: 1,200 lines, {len(OUTPUT) + 1:,} bytes; shortened by Loom"
    assert LINES[600] in told
    path = told[-1].removeprefix("The whole output: ")
    assert Path(path).read_text(encoding="utf-8") == OUTPUT + "\n"
    pieces = [reply(bash(f"sed -n '{start},{start + 399}p' {path}")) for start in range(1, 1201, 400)]
    shown = session.ask("go on", *pieces, "seen").tool_results()[-3:]
    assert "\n".join(result.text for result in shown) == OUTPUT
    session.end()


def test_what_is_small_a_read_and_a_failure_are_untouched_and_told_after_compact(patient: Assistant) -> None:
    session = stay_in_run(patient, ALLOWED)
    note = patient.project / "note.txt"
    note.write_text(OUTPUT[:24_000], encoding="utf-8")
    calls = [
        reply(tool("Read", file_path=str(note))),
        reply(bash("echo small")),
        reply(bash("ls /nope; exit 3")),
        reply(bash("loomctl show --json; yes loomctl | head -3000")),
    ]
    read, small, failed, own = session.ask("go on", *calls, "seen").tool_results()[-4:]
    assert all(line in read.text for line in OUTPUT[:24_000].split("\n"))
    assert small.text == "small"
    assert (failed.is_error, "cannot access '/nope'" in failed.text, "Exit code 3" in failed.text) == (True, True, True)
    assert "shortened by Loom" not in own.text
    session.say("/compact")
    steps = list(tool_log.read(str(run_folder(patient.project))))[-4:]
    assert [(step.tool_name, step.success) for step in steps] == [
        ("Read", True), ("Bash", True), ("Bash", False), ("Bash", True),
    ]  # fmt: skip
    assert "cannot access '/nope'" in steps[2].observation
    made = patient.project / "made.py"
    calls = [
        reply(tool("Write", file_path=str(made), content="x = 1\n")),
        reply(bash("echo palaver-one")),
        reply(bash("cat /absent/heliotrope.txt")),
        *(reply(bash(f"echo step-{number}")) for number in range(6)),
    ]
    session.ask("go on", *calls, "seen")
    session.say("/compact")
    seen = session.ask("go on").seen()
    session.end()
    history = seen[seen.index("Tool calls in this run so far") :]
    assert seen.count("Tool calls in this run so far") == 1
    holds(history, str(made), "/absent/heliotrope.txt", "echo step-5", "loomctl steps")


@pytest.mark.quick
def test_a_session_without_a_run_is_left_alone(patient_in_run: InRun) -> None:
    patient, _ = patient_in_run
    folder = run_folder(patient.project)
    kept = [*(patient.project / ".loom/local/spool").iterdir(), *folder.glob("outputs/*")]
    turn = patient.run("hello", allowed_tools=ALLOWED, answers=[reply(bash("seq 1 4000")), "seen"])
    (result,) = turn.conversation[-1].tool_results()
    assert result.text == "\n".join(map(str, range(1, 4001)))
    assert {*(patient.project / ".loom/local/spool").iterdir(), *folder.glob("outputs/*")} <= {*kept}
    assert not [step for step in tool_log.read(str(folder)) if step.more["session_id"] == turn.session_id]


def test_a_subagents_calls_are_logged_as_its_own(patient: Assistant) -> None:
    session = stay_in_run(patient, ALLOWED)
    call = tool(
        "Agent", description="look", prompt="Look around.", subagent_type="general-purpose", run_in_background=False
    )
    answers: list[Reply | str] = [reply(call), reply(bash("echo from-within")), "found nothing", "seen"]
    session.say("go on", *answers)
    begun = session.session_id
    session.say("/compact")
    assert session.session_id == begun
    steps = list(tool_log.read(str(run_folder(patient.project))))
    (within,) = [step for step in steps if step.minimal_args.get("command") == "echo from-within"]
    assert within.more.get("agent_id")
    assert "from-within" not in json.dumps(session.ask("go on").body["messages"])
    session.end()


def printed(patient: Assistant, *words: str, code: int = 0) -> bytes:
    loomctl = [str(patient.plugin_dir / "bin/loomctl"), *words]  # type: ignore[operator] # these tests have one
    environment = patient.machine.environment()
    done = subprocess.run(loomctl, cwd=patient.project, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_what_was_called_is_looked_back_at(patient_in_run: InRun) -> None:
    patient, first = patient_in_run
    outputs = {
        "printf 'a\\r\\nb\\r\\nend'": b"a\r\nb\r\nend",
        "printf '\\033[1mbold\\033[0m no end'": b"\x1b[1mbold\x1b[0m no end",
        "printf 'one\\0two\\n\\nthree'": b"one\0two\n\nthree",
        "cat big.txt": OUTPUT.encode(),
    }
    big(patient.project)
    calls = [bash(command) for command in outputs]
    failing = bash("ls /nope; exit 3")
    own = [bash(f"COLUMNS=200 loomctl {words}") for words in ("steps", "history --budget 500", "savings")]
    answers: list[Reply | str] = [*(reply(call) for call in (*calls, failing, *own)), "seen"]
    turn = patient.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=answers)
    table, history, savings = (result.text for result in turn.conversation[-1].tool_results()[-3:])
    assert table.split("\n")[0].split() == ["ID", "TOOL", "WHAT", "TOKENS", "ENDED"]
    assert [line.split()[0] for line in table.split("\n") if "`ls /nope; exit 3`: exit 3" in line] == [failing["id"]]
    assert "`ls /nope; exit 3`" in history
    assert "0 dangling references" in savings
    for call, output in zip(calls, outputs.values(), strict=True):
        assert printed(patient, "steps", "show", call["id"]) == output
    whole = json.loads(printed(patient, "savings", "--json"))
    assert whole["recovery"]["recovered"] == whole["recovery"]["steps"] == 1 + len(calls) + 1 + len(own)
    assert whole["all"]["saved_percent"] > 80
    (run_folder(patient.project) / f"outputs/{calls[-1]['id']}.log").write_text("changed")
    assert printed(patient, "steps", "show", calls[-1]["id"], code=5) == b""
    assert b"REF_DAMAGED" in printed(patient, "savings", code=1)


def test_what_an_mcp_server_gives_is_shortened_in_its_shape(patient_in_run: InRun) -> None:
    patient, first = patient_in_run
    server = {"command": sys.executable, "args": [mcp_server.__file__]}
    config = json.dumps({"mcpServers": {"shop": server}})
    names = [f"mcp__shop__{name}" for name in ("rows", "seen", "broken")]
    calls = [tool(name, shop="one") for name in names]
    turn = patient.run(
        "go on", resume=first.session_id, allowed_tools=f"{ALLOWED} {' '.join(names)}",
        answers=[*map(reply, calls), "seen"], extra_args=["--mcp-config", config],
    )  # fmt: skip
    rows, seen, broken = turn.conversation[-1].tool_results()[-3:]
    for name, result in zip(names, (rows, seen), strict=False):
        told = result.text.split("\n")
        assert f"{name}: 600 lines, {len(mcp_server.ROWS):,} bytes; shortened by Loom" in told
        assert "row 300:" not in result.text
        path = next(line for line in told if line.startswith("The whole output: ")).partition(": ")[2]
        assert Path(path).read_text(encoding="utf-8") == mcp_server.ROWS
    assert "[image]" in seen.text
    assert (broken.is_error, broken.text.split("\n")[:2]) == (
        True,
        ["Error: the shop is closed", "row 1: shop 1 sold 13 things"],
    )
    assert "shortened by Loom" not in broken.text
    steps = json.loads(printed(patient, "steps", "--tool", "mcp__*", "--json"))["steps"]
    assert [(step["id"], step["success"]) for step in steps] == [
        (calls[0]["id"], True), (calls[1]["id"], True), (calls[2]["id"], False),
    ]  # fmt: skip
    assert b"row 300: shop 6 sold 3900 things" in printed(patient, "steps", "show", calls[0]["id"])


def test_the_newest_of_many_calls_in_one_turn_are_told_after_a_compaction(in_run: InRun) -> None:
    """The next request tells each of the newest twenty, in order; the log has all of them in the end.

    Calls of one message end in any order, so the last of them come one by one.
    """
    assistant, first = in_run
    count = 530  # more than the 500 that are looked at in one go
    calls = [bash(f"echo call {number:04}") for number in range(count)]
    answers = [reply(*calls[at : min(at + 60, count - 25)]) for at in range(0, count - 25, 60)]
    answers += [reply(call) for call in calls[-25:-1]]
    answers += [reply(calls[-1], usage=AUTO_COMPACT), reply("finished")]
    turn = assistant.run("go on", resume=first.session_id, allowed_tools=ALLOWED, answers=answers, seconds=240)
    kinds = [request.kind for request in turn.requests]
    after = turn.requests[kinds.index("compaction") + 1].seen()
    history = after.rpartition("Earlier steps:")[2].partition("## ")[0]
    told = [int(one) for one in re.findall(r"`echo call (\d+)`", history)]
    assert told[-20:] == list(range(count - 20, count))
    kept = {str(step.minimal_args["command"]) for step in _all_steps(assistant)}
    assert {f"echo call {number:04}" for number in range(count)} <= kept


def _all_steps(assistant: Assistant) -> list[Any]:
    """Let what waits be digested, as `loomctl steps` does; gives every call of the run."""
    assert assistant.plugin_dir is not None
    words = [f"{assistant.plugin_dir}/bin/loomctl", "steps", "--json"]
    subprocess.run(words, cwd=assistant.project, env=assistant.environment(), capture_output=True, check=True)
    return list(tool_log.read(str(run_folder(assistant.project))))
