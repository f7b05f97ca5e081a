"""What tools gave is recorded alike whichever host tells of it, as recorded from each (tests/hosts/fixtures).

The fixtures are events of the real clients, with paths of no machine. OpenCode has no such events of its own: its are
what our plugin sends, `{tool_response: {output, metadata: {exit}}}` in the protocol's shape.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts import tool_calls
from loomctl.reduction import live, tool_steps
from loomctl.reduction.calls import rebuilt, reduce_call
from loomctl.runs.tools.recording import digest
from tests.helpers.scenes import SESSION, Scene
from tests.runs.test_recording import put, steps

FIXTURES = Path(__file__).parent / "fixtures"
PROJECT = "/home/user/project"
NEW, OLD = f"{PROJECT}/src/new.py", f"{PROJECT}/a.txt"
TOLD = {
    "codex": [
        "echo hi: no exit code, 1 line output",
        "cat: no exit code, 3 lines output",
        "Edited a.txt, src/new.py (-1 +2 lines)",
    ],
    "copilot": [
        "echo hi: exit 3, 1 line output",
        f"Read {OLD} (14 bytes, text)",
        f"Wrote {NEW} (6 bytes)",
        f"Edited {OLD} (-1 +1 lines)",
        f"Could not edit {OLD}",
        "Found 2 files for **/*.py",
        "Grep 'total': 1 line",
        f"Could not read {PROJECT}/none.txt",
        "seq: exit 0, 33 lines output",
    ],
    "gemini": [
        "echo hi: exit 3, 1 line output",
        f"Read {OLD} (14 bytes, text)",
        f"Wrote {NEW} (6 bytes)",
        f"Edited {OLD} (-1 +1 lines)",
        "Found 2 files for **/*.py",
        "Grep 'total': 7 lines",
        f"Listed {PROJECT}: 2 items (1 file, 1 dir)",
        f"Could not read {PROJECT}/none.txt",
        "seq: no exit code, 33 lines output",
    ],
    "qwen": [
        "echo hi: exit 3, 1 line output",
        f"Read {OLD} (14 bytes, text)",
        f"Wrote {NEW} (6 bytes)",
        f"Edited {OLD} (-1 +1 lines)",
        "Found 2 files for **/*.py",
        "Grep 'total': 5 lines",
        f"Could not read {PROJECT}/none.txt",
        "seq: exit 0, 33 lines output",
    ],
    "opencode": [
        "echo hi: exit 3, 1 line output",
        f"Read {OLD} (130 bytes, text)",
        f"Wrote {NEW} (6 bytes)",
        f"Edited {OLD} (-1 +1 lines)",
        "seq: exit 0, 14 lines output",
    ],
}


def events(host: str) -> list[dict[str, Any]]:
    return list(json.loads((FIXTURES / host / "tools.json").read_text()))


@pytest.mark.parametrize("host", TOLD)
def test_a_hosts_calls_are_recorded_by_what_they_did_and_can_be_had_back(host: str, scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    told = events(host)
    for number, event in enumerate(told):
        put(scene, {**event, "session_id": SESSION}, f"{SESSION}-{number + 1}.json", at=1_700_000_000 + number)

    done = digest(scene.space())

    recorded = steps(scene)
    assert (done.steps, done.left, done.aside) == (len(told), 0, ())
    assert [step.observation.partition("\n")[0] for step in recorded] == TOLD[host]
    assert [step.success for step in recorded] == [
        not first.startswith("Could not") and "exit 3" not in first for first in TOLD[host]
    ]


@pytest.mark.parametrize("host", TOLD)
def test_nothing_of_a_hosts_call_is_lost(host: str) -> None:
    for event in events(host):
        said = event.get("error")
        error = said if isinstance(said, str) else ""
        reduced = reduce_call(event["tool_name"], event["tool_input"], tool_steps.result_of(event), error=error)

        args, result = rebuilt(reduced.minimal_args, reduced.rest, reduced.text)

        written = ("content", "file_text") if reduced.success else ()  # which stand in the file
        assert args == {key: value for key, value in event["tool_input"].items() if key not in written}
        assert result == (error if tool_steps.result_of(event) is None else tool_steps.result_of(event))


@pytest.mark.parametrize("host", TOLD)
def test_the_files_that_a_host_writes_are_known(host: str) -> None:
    paths: list[str] = []
    for event in events(host):
        rule = tool_steps.rule_for(event["tool_name"])
        if rule.action in (tool_steps.WRITE, tool_steps.EDIT):
            paths += tool_steps.paths_of(rule, event["tool_input"])

    assert sorted({path.removeprefix(f"{PROJECT}/") for path in paths}) == ["a.txt", "src/new.py"]


@pytest.mark.parametrize(
    ("tool", "args", "command"),
    [
        ("exec_command", {"cmd": "pytest -q"}, "pytest -q"),
        ("shell", {"command": ["bash", "-lc", "make && make test"]}, "make && make test"),
        ("local_shell", {"command": ["git", "commit", "-m", "two words"]}, "git commit -m 'two words'"),
        ("run_shell_command", {"command": "ls", "description": "look"}, "ls"),
    ],
)
def test_a_command_is_kept_as_it_would_be_typed(tool: str, args: dict[str, Any], command: str) -> None:
    reduced = reduce_call(tool, args, "done\n")

    assert reduced.minimal_args["command"] == command
    assert rebuilt(reduced.minimal_args, reduced.rest, reduced.text)[0] == args


PATCH = (
    "*** Begin Patch\n*** Delete File: old.py\n*** Update File: a.py\n*** Move to: b.py\n@@\n-x\n+y\n*** End Patch\n"
)


@pytest.mark.parametrize("args", [PATCH, {"command": PATCH}, {"input": PATCH}, {"patchText": PATCH}, {"patch": PATCH}])
def test_a_patch_touches_the_files_that_it_names(args: object) -> None:
    assert tool_steps.paths_of(tool_steps.rule_for("apply_patch"), args) == ["old.py", "a.py", "b.py"]
    reduced = reduce_call("apply_patch", args, "Success.")
    assert reduced.observation.startswith("Edited old.py, a.py, b.py (-1 +1 lines)")
    assert rebuilt(reduced.minimal_args, reduced.rest, reduced.text)[0] == args


def test_an_mcp_tools_arguments_keep_their_names() -> None:
    assert reduce_call("mcp__a__b", {"filePath": "x", "cmd": "y"}, "ok").minimal_args == {"filePath": "x", "cmd": "y"}


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("hi\n<shellId: 0 completed with exit code 3>", "hi", 3),
        ("<untrusted_context>\nOutput: hi\nProcess Group PGID: 7\n</untrusted_context>", "hi", None),
        ("Command: a\nb\nDirectory: (root)\nOutput: hi\nError: (none)\nExit Code: 0\nSignal: (none)", "hi", 0),
        ("Output: mine\nExit Code: 3", "Output: mine\nExit Code: 3", None),
        ("a line\nExit Code: 3\nanother", "a line\nExit Code: 3\nanother", None),
        ("Command: and nothing else", "Command: and nothing else", None),
    ],
)
def test_what_a_host_puts_around_an_output_is_none_of_it(text: str, said: str, code: int | None) -> None:
    from loomctl.reduction.tool_outputs import unframed

    assert unframed(text) == (said, code)


def test_the_launcher_knows_the_tools_that_have_a_shell_and_those_that_are_replaced() -> None:
    launcher = (Path(__file__).parents[2] / "bin/loomctl").read_text()
    asked = named_in(launcher.partition("these have a shell")[2].partition("esac")[0])
    replaced = named_in(launcher.partition("live() {")[2].partition("case ${begins%%")[2].partition("esac")[0])

    assert asked == {*tool_calls.SHELLS, "''"}  # of a name with escapes in it Python judges
    assert replaced == {*live.TOOLS, "mcp__*"}
    assert live.is_replaceable("mcp__any")
    assert set(tool_calls.ALLOWED_IN) <= set(tool_steps.SHELLS)


def named_in(case: str) -> set[str]:
    """Give the names in the patterns of a `case` that do something else than its last, `*`."""
    patterns = re.findall(r"^ +([^#\n]*?)\) ;;", case, re.MULTILINE)
    return {name for pattern in patterns for name in pattern.split(" | ")}
