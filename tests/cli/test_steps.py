"""`loomctl steps`, `history`, `reduce`, `savings`: looking back at what tools were called for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit import digests, files
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from loomctl.views import facts
from tests.cli.conftest import Cli
from tests.docs.tokens import count
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, Scene, fingerprint
from tests.helpers.texts import holds

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
ODD = "first\r\nhalf \ud800\x1b[31mred\0\n" + f"GITHUB_TOKEN={TOKEN}\n" + "a line\n" * 100


def record(scene: Scene, tool: str, args: Any, result: Any, step_id: str, **more: Any) -> ToolStep:
    error = more.pop("error", "")
    step = StepReducer(DataOffloader(scene.run_dir)).reduce(tool, args, result, step_id=step_id, error=error, more=more)
    tool_log.append(str(scene.run_dir), [step])
    return step


@pytest.fixture
def called(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin("add dark mode")
    record(scene, "Bash", {"command": "make all"}, {"stdout": ODD, "stderr": "", "interrupted": False}, "toolu_01A")
    record(scene, "Read", {"file_path": "a.json"}, {"type": "text", "file": {"content": "{}\r\n"}}, "toolu_01B")
    record(scene, "Bash", {"command": "pytest"}, None, "toolu_02C", error="Exit code 1\nFAILED tests/a.py::test_b")
    record(scene, "Grep", {"pattern": "x"}, {"content": "a:1:x\n" * 300}, "toolu_03D", agent_id="agent-1")
    record(scene, "mcp__db__query", {"sql": "select"}, [{"type": "text", "text": "row\n" * 900}], "toolu_04E")
    return scene


def process(scene: Scene, *words: str) -> subprocess.CompletedProcess[bytes]:
    below = scene.root / "src" / "deep"
    below.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-I", str(MAIN), *words]
    return subprocess.run(command, cwd=below, env=scene.environ(), capture_output=True, check=False)


def test_the_table_says_what_was_called_and_what_it_cost(called: Scene, cli: Cli) -> None:
    record(called, "Bash", {"command": f"make {'x' * 99}"}, {"stdout": "", "interrupted": False}, "toolu_05F")
    record(called, "Task", {"description": "look around"}, "done", "toolu_06G")
    lines = cli("steps").stdout.splitlines()
    assert lines[0].split() == ["ID", "TOOL", "WHAT", "TOKENS", "ENDED"]
    assert len({line.index(" → ") for line in lines[1:5]}) == 1
    assert [line.split()[0] for line in lines[1:5]] == ["toolu_01A", "toolu_01B", "toolu_02C", "toolu_04E"]
    assert "`make all`: exit 0, 103 lines output" in lines[1]
    assert lines[1].endswith("  ok")
    assert lines[3].endswith("  failed")
    assert "Read a.json (4 bytes, JSON)" in lines[2]
    assert "`pytest`: exit 1" in lines[3]
    assert "mcp__db__query(sql=select): ok" in lines[4]
    assert "x…`: exit 0, no output" in lines[5]
    assert "Task(description=look around): ok" in lines[6]
    assert lines[-1] == f"{called.handle}: 6 of 6 tool calls; --agents lists 1 more of subagents"
    (line,) = [line for line in cli("steps", "--agents").stdout.splitlines() if "toolu_03D" in line]
    assert "Grep (agent-1)" in line  # a subagent's is marked


def test_options_choose_and_else_the_last_twenty_are_shown(called: Scene, cli: Cli) -> None:
    for words, shown, said in [
        ([], "ABCE", "4 of 4 tool calls; --agents lists 1 more of subagents"),
        (["--last", "2"], "CE", "2 of 4 tool calls; --all lists the others; --agents lists 1 more"),
        (["--last", "2", "--all"], "ABCE", "4 of 4 tool calls"),
        (["--agents"], "ABCDE", "5 of 5 tool calls"),
        (["--agents", "--last", "1", "--tool", "Grep"], "D", "1 of 1 tool call"),
        (["--failed"], "C", "1 of 1 tool call"),
        (["--tool", "mcp__*"], "E", "1 of 1 tool call"),
        (["--tool", "Write"], "", "0 of 0 tool calls"),
        (["shop", "--tool", "Bash"], "AC", "2 of 2 tool calls"),
        (["--tool", "Bash", "shop"], "AC", "2 of 2 tool calls"),
    ]:
        told = cli("steps", *words).stdout
        rows = [line.split()[0][-1] for line in told.splitlines() if line.startswith("toolu_")]
        assert "".join(rows) == shown
        assert said in told
        document = cli("steps", *words, "--json").json
        assert "".join(step["id"][-1] for step in document["steps"]) == shown
        assert (document["run_id"], document["total"]) == (called.run_dir.name, 5)
        for step in document["steps"]:
            assert {"id", "tool_name", "minimal_args", "observation", "outcome_ref", "success"} <= set(step)
            assert {"bytes", "tokens_before", "tokens_after"} <= set(step)
    for number in range(30):
        record(called, "Bash", {"command": f"step-{number}"}, {"stdout": "x"}, f"toolu_9{number:02d}")
    lines = cli("steps").stdout.splitlines()
    assert len([line for line in lines if line.startswith("toolu_")]) == 20
    assert "20 of 34 tool calls; --all lists the others" in lines[-1]


def test_no_steps_are_no_error_and_a_record_that_cannot_be_read_is_missed(begun: Scene, cli: Cli) -> None:
    for words in (["steps"], ["steps", "--history"], ["steps", "--savings"]):
        ended = cli(*words)
        assert (ended.code, ended.stderr) == (0, "")
    assert "no tool calls yet" in cli("steps").stdout
    assert "no tool calls yet" in cli("steps", "--history").stdout
    assert cli("steps", "--json").json["steps"] == []
    assert cli("steps", "--savings", "--json").json["recovery"]["recovered"] == 0
    assert not list(begun.run_dir.glob("tool_steps*"))
    for number in range(1, 7):
        record(begun, "Bash", {"command": "make"}, {"stdout": "made"}, f"toolu_{number}", number=number)
    log = begun.run_dir / tool_log.FILE
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines) + lines[-1][:40])
    assert cli("steps", "--savings").code == 0
    log.write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2] + b"".join(lines[4:]))
    ended = cli("steps", "--savings").ends(1)
    holds(ended.stdout, f"  ! 2 more calls are missing: their lines in {log} are damaged", "Originals: 4 of 4 calls")
    assert cli("steps", "--savings", "--json").json["recovery"]["missing"] == 2


def test_looking_back_writes_nothing_and_is_the_same_for_everybody(called: Scene, cli: Cli) -> None:
    """Steps are the run's; who asks, and from where, makes no difference."""
    told = cli("steps").stdout
    before = fingerprint(called.root)
    for words in (["steps"], ["steps", "show", "toolu_01A"], ["steps", "--history"], ["steps", "--savings"]):
        assert (cli(*words).code, cli(*words, "--json").code) == (0, 0)
    assert fingerprint(called.root) == before
    assert [cli("steps", session=session).stdout for session in (OTHER, None)] == [told] * 2
    assert process(called, "steps").stdout.decode() == told


def test_a_hostile_record_is_shown_not_obeyed(called: Scene, cli: Cli) -> None:
    hostile = f"x\x1b[2J\x07\rINJECTED\nINJECTED {TOKEN}"
    raw: list[Json] = [
        {
            "id": hostile, "tool_name": hostile, "observation": hostile, "agent_id": hostile,
            "minimal_args": {"a": hostile},
        },
        {"id": "y", "tool_name": 5, "observation": [], "outcome_ref": {}, "bytes": "many", "tokens_before": None},
        {"id": "z", "outcome_ref": "../../../../etc/passwd", "rest": {"result": hostile}, "success": "no"},
    ]  # fmt: skip
    path = called.run_dir / tool_log.FILE
    path.write_bytes(path.read_bytes() + b"".join(files.to_json_line(one) for one in raw))
    for words in (
        ["steps", "--agents"],
        ["steps", "--history"],
        ["steps", "--savings"],
        ["steps", "show", "x", "--reduced"],
    ):
        for more in ([], ["--json"]):
            ended = cli(*words, *more)
            assert ended.code in (0, 1), ended
            holds(ended.stdout + ended.stderr, but=("\x1b", "\x07", TOKEN))
    assert not any(line.startswith("INJECTED") for line in cli("steps", "--agents").stdout.splitlines())
    ended = cli("steps", "show", "z")
    assert (ended.code, ended.stdout) == (5, "")
    assert "BAD_REF" in ended.stderr


def test_what_could_not_be_recorded_is_said(called: Scene, cli: Cli) -> None:
    for words in [
        ["steps"],
        ["steps", "--json"],
        ["steps", "show", "toolu"],
        ["steps", "--history"],
        ["steps", "--savings"],
    ]:
        told = {"session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "toolu_99"}
        waits = called.store / "local/spool" / f"{SESSION}-1.json"
        waits.write_text(json.dumps({**told, "tool_input": {"command": "make"}, "tool_response": {"stdout": "made"}}))
        log = called.run_dir / tool_log.FILE
        log.unlink()
        log.mkdir()
        said = cli(*words).stderr.splitlines()[0]
        assert said.startswith("loomctl: Loom could not record tool outputs: ")
        assert said.endswith("; this list lacks the newest tool calls")
        assert waits.is_file()
        log.rmdir()
        assert "could not record" not in cli(*words).stderr
        assert not waits.exists()


def test_an_original_is_given_byte_for_byte_and_its_reduction_masked(called: Scene, cli: Cli) -> None:
    assert process(called, "steps", "show", "toolu_01A").stdout == ODD.encode("utf-8", "surrogatepass")
    assert process(called, "steps", "show", "toolu_01B").stdout == b"{}\r\n"
    assert process(called, "steps", "show", "toolu_02").stdout == b"Exit code 1\nFAILED tests/a.py::test_b"
    whole = process(called, "steps", "show", "toolu_04E", called.run_dir.name)
    assert (whole.returncode, whole.stderr) == (0, b"")
    assert whole.stdout == b"row\n" * 900  # the text of an MCP result, not its JSON
    document = json.loads(process(called, "steps", "show", "toolu_01A", "--json").stdout)
    assert document["schema_version"] == 1
    assert (document["run_id"], document["step"]["id"]) == (called.run_dir.name, "toolu_01A")
    assert document["args"] == {"command": "make all"}
    assert document["result"] == {"stdout": ODD, "stderr": "", "interrupted": False}
    assert TOKEN not in json.dumps(document["step"])
    assert "rest" not in document["step"]
    told = cli("steps", "show", "toolu_01A", "--reduced").stdout
    assert told.startswith("`make all`: exit 0")
    holds(told, "→ outputs/toolu_01A.", but=(TOKEN,))
    assert cli("steps", "show", "toolu_01A", "--reduced", "--json").json["text"] == told.rstrip("\n")


@pytest.mark.usefixtures("called")
def test_the_word_show_is_the_sub_command(cli: Cli) -> None:
    for words in [
        ["steps", "show", "toolu_01B"],
        ["steps", "show", "toolu_01B", "--json"],
        ["steps", "--json", "show", "toolu_01B"],
        ["steps", "show", "--json", "toolu_01B", "shop"],
    ]:
        shown = cli(*words).stdout
        assert (json.loads(shown)["result"]["file"]["content"] if "--json" in words else shown) == "{}\r\n"
        assert cli("steps", "--tool", "show").stdout.endswith("0 of 0 tool calls\n")
        assert cli("steps", "--tool", "show", "show", "toolu_01B").code == 2  # an option of the table is none of show's


@pytest.mark.parametrize(("what", "code"), [("gone", "REF_GONE"), ("changed", "REF_DAMAGED"), ("rest", "REF_DAMAGED")])
def test_what_is_not_there_any_more_is_said(called: Scene, cli: Cli, what: str, code: str) -> None:
    step = record(called, "Bash", {"command": "x", "note": "y" * 3000}, {"stdout": "z\n" * 900}, "toolu_09")
    assert step.outcome_ref is not None
    assert step.rest_ref is not None
    path = called.run_dir / (step.rest_ref if what == "rest" else step.outcome_ref)
    path.unlink() if what == "gone" else path.write_text("other")
    ended = cli("steps", "show", "toolu_09", *(["--json"] if what == "rest" else [])).ends(5)
    assert code in (ended.stdout if what == "rest" else ended.stderr)
    assert what == "rest" or ended.stdout == ""
    assert f"! toolu_09: {code}" in cli("steps", "--savings").ends(1).stdout
    (lost,) = cli("steps", "--savings", "--json").ends(1).json["recovery"]["lost"]
    assert (lost["id"], lost["code"]) == ("toolu_09", code)


@pytest.mark.slow
def test_a_history_has_the_goal_and_the_last_steps_within_every_budget(cli: Cli, called: Scene) -> None:
    document = cli("steps", "--history", "--json").json
    assert document["text"].startswith("Asked: add dark mode\n")
    assert "Grep" not in document["text"]
    assert (document["steps"], document["tokens"]["budget"]) == (4, 500)
    assert count(document["text"]) <= document["tokens"]["at_most"] <= 500
    assert cli("steps", "--history").stdout == document["text"] + "\n"
    for number in range(20):
        record(called, "Bash", {"command": f"make part-{number}"}, {"stdout": "a\n" * 900}, f"toolu_8{number:02d}")
    for budget in (0, 5, 50, 500):
        document = cli("steps", "--history", "--budget", str(budget), "--json").json
        assert count(document["text"]) <= budget
        assert ((document["text"] == ""), document["steps"]) == (budget == 0, 24)
        assert cli("steps", "--history", "--budget", str(budget)).stdout == document["text"] + "\n"
    for recent in (0, 1, 4):
        told = cli("steps", "--history", "--budget", "4000", "--recent", str(recent)).stdout
        assert told.count(" → outputs/") == recent
        assert all(f"part-{number}`" in told for number in range(12, 20))


CLAUDE = {
    "hook_event_name": "PostToolUse",
    "session_id": "s",
    "tool_name": "Bash",
    "tool_input": {"command": "git log --oneline -20"},
    "tool_response": {"stdout": "abc fix\n" * 20 + "x" * 400, "stderr": "", "interrupted": False},
    "tool_use_id": "toolu_77",
}
SHAPE = {"id", "tool_name", "minimal_args", "observation", "outcome_ref", "success", "sha256", "bytes"}


def test_an_event_or_the_documents_form_becomes_its_step(tmp_path: Path, scene: Scene, cli: Cli) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    document = cli("debug", "reduce", "--json", given=json.dumps(CLAUDE), cwd=nowhere, session=None).json
    assert set(document) == SHAPE | {"schema_version", "tokens_before", "tokens_after", "rest"}
    assert (document["id"], document["outcome_ref"]) == ("toolu_77", "outputs/toolu_77.log")
    text = str(CLAUDE["tool_response"]["stdout"])  # type: ignore[index]
    assert (document["sha256"], document["bytes"]) == (digests.of_text(text), len(text))
    assert document["minimal_args"] == {"command": "git log --oneline -20"}
    told = cli("debug", "reduce", given=json.dumps(CLAUDE), cwd=nowhere)
    assert told.stdout == document["observation"] + "\n"
    assert told.stdout.startswith("git log: exit 0, ")
    assert (list(nowhere.iterdir()), scene.store.exists()) == ([], False)
    call = {"tool": "fs:read_file", "args": {"path": "config.json"}, "result": {"content": '{"model": "gpt-4"}'}}
    document = cli("debug", "reduce", "--json", given=json.dumps(call)).json
    assert document["observation"].partition("\n")[0] == "Read config.json (18 bytes, JSON)"
    assert (document["outcome_ref"], document["inline"]) == (None, '{"model": "gpt-4"}')
    assert document["sha256"] == digests.of_text('{"model": "gpt-4"}')
    failed = {
        "hook_event_name": "PostToolUseFailure",
        "tool_name": "Bash",
        "tool_input": {"command": "pytest"},
        "error": "Exit code 1\nFAILED tests/a.py::test_b",
    }
    document = cli("debug", "reduce", "--json", given=json.dumps(failed)).json
    assert (document["success"], document["inline"]) == (False, failed["error"])
    assert "FAILED tests/a.py::test_b" in document["observation"]
    assert cli("debug", "reduce", "--json", given=json.dumps({**failed, "error": ""})).json["success"] is False


def test_what_is_no_tool_call_is_a_clear_error(cli: Cli) -> None:
    calls: list[tuple[str | bytes, int, str]] = [
        ("", 2, "NO_INPUT"),
        (" \n", 2, "NO_INPUT"),
        ("{", 5, "BAD_JSON"),
        ("NaN", 5, "BAD_JSON"),
        (b"\xff\xfe", 5, "BAD_JSON"),
        ("[]", 5, "NO_TOOL_CALL"),
        ("5", 5, "NO_TOOL_CALL"),
        ("{}", 5, "NO_TOOL_CALL"),
        ('{"tool_name": ""}', 5, "NO_TOOL_CALL"),
        ('{"tool": 5}', 5, "NO_TOOL_CALL"),
        ('{"args": {}, "result": {}}', 5, "NO_TOOL_CALL"),
        ("[" * 100_000, 5, "BAD_JSON"),
    ]
    for given, code, error in calls:
        ended = cli("debug", "reduce", "--json", given=given)
        assert (ended.code, ended.json["error"]["code"]) == (code, error)
        assert ended.json["error"]["hint"] == "loomctl debug reduce --help"
        told = cli("debug", "reduce", given=given)
        assert (told.code, told.stdout) == (code, "")


def test_no_tool_call_is_a_bug(cli: Cli) -> None:
    odd: list[tuple[Any, Any]] = [(None, {}), ([], "x"), ("x", None), (5, []), ({}, 5)]
    for args, result in [*odd, ({"command": None}, {"stdout": None})]:
        for tool in ["Bash", "Read", "Write", "mcp__x__y", "unknown", "a/../b", "\u200b", "fs:list_dir"]:
            ended = cli(
                "debug",
                "reduce",
                "--json",
                given=json.dumps({"tool_name": tool, "tool_input": args, "tool_response": result}),
            )
            assert (ended.code, ended.stderr) == (0, "")
            assert ended.json["observation"]
            assert cli("debug", "reduce", given=json.dumps({"tool": tool})).code == 0


def test_savings_are_by_tool_and_in_sum(called: Scene, cli: Cli) -> None:
    ended = cli("steps", "--savings")
    lines = ended.stdout.splitlines()
    assert ended.code == 0
    assert lines[0].split() == ["TOOL", "STEPS", "TOKENS", "BEFORE", "AFTER", "SAVED"]
    assert {line.split()[0] for line in lines[1:6]} == {"Bash", "Grep", "mcp__db__query", "Read", "all"}
    assert len({len(line) for line in lines[:6]}) == 1  # numbers end where those above them do
    assert lines[-1].startswith("Originals: 5 of 5 calls, ")
    assert lines[-1].endswith(", 0 dangling references")
    document = cli("steps", "--savings", called.run_dir.name, "--json").json
    whole = document["all"]
    assert whole["tokens_before"] == sum(tool["tokens_before"] for tool in document["tools"])
    assert whole["saved_percent"] == round(100 * (1 - whole["tokens_after"] / whole["tokens_before"]), 1)
    recovery = document["recovery"]
    assert (recovery["steps"], recovery["recovered"], recovery["dangling"], recovery["lost"]) == (5, 5, 0, [])
    assert recovery["bytes"] == recovery["bytes_recovered"] > 5000


def test_calls_of_looms_own_are_not_counted_as_saved(called: Scene, cli: Cli) -> None:
    """Here, in the status, its line, and the report; every original can be had back all the same."""
    wanted = cli("steps", "--savings", "--json").json
    status = cli("status", "--json").json["saved"]
    printed = {"stdout": "The plan, at length.\n" * 2000, "stderr": "", "interrupted": False}
    own = [
        "loomctl next", "cd a && '/opt/bin/loomctl' show", "~/.local/bin/loomctl done", "echo done | loomctl done",
        "cat > spec.md <<'END'\n- [ ] one\nEND\nloomctl done --artifact spec_path=spec.md",
        "(cd a; loomctl show) | head", "git commit -qam x && LOOM=1 timeout 60 loomctl done <<'LOOM'\nok\nLOOM",
    ]  # fmt: skip
    for number, command in enumerate(own):
        record(called, "Bash", {"command": command}, printed, f"toolu_8{number}")
    told = cli("steps", "--savings", "--json").json
    assert (told["tools"], told["all"]) == (wanted["tools"], wanted["all"])
    assert (told["recovery"]["steps"], told["recovery"]["recovered"]) == (12, 12)
    assert "7 calls of Loom's own left out." in cli("steps", "--savings").stdout
    assert cli("status", "--json").json["saved"] == status
    sums = facts.savings(str(called.run_dir))
    assert (sums["all"]["steps"], sums["all"]["tokens_before"]) == (5, wanted["all"]["tokens_before"])
    record(called, "Bash", {"command": "echo loomctl"}, printed, "toolu_99")
    assert cli("steps", "--savings", "--json").json["all"]["steps"] == 6


def test_words_are_completed(called: Scene) -> None:
    for typed, offered in [
        ("loomctl steps show", {"show"}),
        ("loomctl steps a", {"shop"}),
        ("loomctl steps --l", {"--last"}),
        ("loomctl steps shop --f", {"--failed"}),
        ("loomctl steps show toolu_01", {"toolu_01A", "toolu_01B"}),
        ("loomctl steps show toolu_01A a", {"shop"}),
        ("loomctl steps show --re", {"--reduced"}),
        ("loomctl steps --history a", {"shop"}),
        ("loomctl steps --savings a", {"shop"}),
    ]:
        asked = {"_LOOMCTL_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        command = [sys.executable, "-I", str(MAIN)]
        environ = {**called.environ(), **asked}
        done = subprocess.run(command, cwd=called.root, env=environ, capture_output=True, text=True, check=False)
        found = {line.partition(",")[2] for line in done.stdout.splitlines()}
        assert {name.replace(called.handle, "shop") for name in found} == offered, done
