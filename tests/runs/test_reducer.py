"""Reducing any call: nothing is raised, nothing is lost, and the same call gives the same step (D47, D50)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.reduction import history
from loomctl.reduction.tool_steps import RULES, Rule, ToolStep
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.docs.tokens import count
from tests.helpers.scenes import CHECKOUT

TOOLS = [name for rule in RULES for name in rule.tools if name != "*"] + ["mcp__db__query", "weather:get", "", "a/../b"]
KEYS = [
    *("stdout", "stderr", "content", "file", "text", "output", "results", "entries", "filenames", "result", "message"),
    *("exit_code", "code", "interrupted", "error", "success", "is_error", "numFiles", "url", "status", "totalLines"),
    *("startLine", "numLines", "path", "file_path", "command", "args", "query", "pattern", "edits", "old_string"),
    *("new_string", "", "title", "bytes", "isImage", "type"),
]
ODD = [
    "", "\0", "\r\n", "\ud800", "\x1b[31mError\x1b[0m", "10%\r20%\r100%\n", "a" * 5000, "é😀",
    "Exit code 1\nError: x",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(ODD),
    st.tuples(st.text(max_size=30), st.integers(1, 400)).map(lambda one: f"{one[0]}\n" * one[1]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=12), st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=8)), inner)
    ),
    max_leaves=12,
)
LIKELY = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
CALLS = st.tuples(
    st.sampled_from(TOOLS), st.one_of(LIKELY, VALUES), st.one_of(LIKELY, TEXTS, VALUES), st.one_of(st.just(""), TEXTS)
)
SLOW = settings(max_examples=100, suppress_health_check=list(HealthCheck))


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.slow
@SLOW
@given(CALLS)
def test_the_result_of_every_call_is_had_back(tmp_path_factory: pytest.TempPathFactory, call: tuple[Any, ...]) -> None:
    """Reduced, written, read again from the log and rebuilt: nothing is raised, and the result is what it was."""
    tool, args, result, error = as_json(list(call))
    run_dir = tmp_path_factory.mktemp("store") / "runs" / "r"
    run_dir.mkdir(parents=True)
    step = StepReducer(DataOffloader(run_dir)).reduce(tool, args, result, step_id="toolu_1", error=error)
    tool_log.append(str(run_dir), [step], durable=False)
    (read,) = tool_log.read(str(run_dir))
    assert read == step
    back = StepReducer(DataOffloader(run_dir)).original(read)[1]
    assert json.dumps(back) == json.dumps(error if error and result is None else result)
    refs = {os.path.basename(ref) for ref in (step.outcome_ref, step.rest_ref) if ref}
    assert refs == set(os.listdir(run_dir / "outputs") if (run_dir / "outputs").exists() else ())


@pytest.mark.slow
@SLOW
@given(CALLS)
def test_the_same_call_gives_the_same_step(tmp_path_factory: pytest.TempPathFactory, call: tuple[Any, ...]) -> None:
    tool, args, result, error = as_json(list(call))
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    steps = [
        StepReducer(DataOffloader(folder)).reduce(tool, args, result, step_id="x", error=error)
        for folder in (one, two, one)
    ]
    assert steps[0] == steps[1] == steps[2]
    assert sorted(path.name for path in one.rglob("*")) == sorted(path.name for path in two.rglob("*"))


# What reads each reference back in another process, from another place, and says its hash.
READER = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.tool_log import DataOffloader
for step in tool_log.read(sys.argv[2]):
    if step.outcome_ref:
        print(step.id, step.sha256, hashlib.sha256(DataOffloader(sys.argv[2]).read(step.outcome_ref)).hexdigest())
"""


def test_every_reference_holds_after_a_restart_and_from_elsewhere(tmp_path: Path) -> None:
    """Odd texts of every kind, read by a new process in another working directory: the bytes are the same."""
    run_dir = tmp_path / "runs" / "r"
    run_dir.mkdir(parents=True)
    reducer = StepReducer(DataOffloader(run_dir))
    texts = [text * (1 + 2000 // max(1, len(text))) for text in [*ODD, "a\r\n", "{}\n", "[1, 2]", "\u2028", "\ufeff"]]
    steps = [reducer.reduce("Bash", {"command": "x"}, {"stdout": text}) for text in texts if text]
    tool_log.append(str(run_dir), steps)
    command = [sys.executable, "-I", "-c", READER, str(CHECKOUT), str(run_dir)]
    printed = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in printed.splitlines()]
    assert len(rows) == len(steps)
    assert [row for row in rows if row[1] != row[2]] == []
    for step, text in zip(steps, [text for text in texts if text], strict=True):
        assert reducer.original(step) == ({"command": "x"}, {"stdout": text})


def test_what_cannot_be_stored_stays_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tool_log, "write_new", full)
    reducer = StepReducer(DataOffloader(tmp_path))
    for tool, result in (
        ("Bash", {"stdout": "a\n" * 9000, "stderr": "b"}),
        ("mcp__x", [{"text": "a" * 9000}]),
        ("WebFetch", "a" * 9000),
    ):
        step = reducer.reduce(tool, {"command": "x"}, result)
        assert (step.outcome_ref, step.rest_ref) == (None, None)
        assert reducer.original(ToolStep.from_dict(as_json(step.to_dict()))) == ({"command": "x"}, result)


def test_steps_are_counted_where_the_host_names_none_and_a_users_rule_comes_first(tmp_path: Path) -> None:
    """Another threshold, other arguments: the table is open at its front."""
    for text in ("a\n", "b\n"):
        reducer = StepReducer(DataOffloader(tmp_path))
        steps = [reducer.reduce("Bash", {"command": "x"}, {"stdout": text * 900}) for _ in range(2)]
        assert [step.id for step in steps] == ["step_001", "step_002"]
        assert [reducer.original(step)[1] for step in steps] == [{"stdout": text * 900}] * 2
    assert len(list((tmp_path / "outputs").iterdir())) == 4
    rule = Rule(("weather:*",), "other", keep=("location",), threshold=0)
    reducer = StepReducer(DataOffloader(tmp_path), [rule])
    step = reducer.reduce("weather:get", {"location": "Bern", "units": "C"}, {"temp": 4})
    assert (step.minimal_args, step.outcome_ref) == ({"location": "Bern"}, "outputs/step_001.json")
    assert reducer.original(step) == ({"location": "Bern", "units": "C"}, {"temp": 4})


STEPS = st.builds(
    ToolStep,
    id=st.text(max_size=8),
    tool_name=st.sampled_from(TOOLS),
    minimal_args=st.dictionaries(st.sampled_from(KEYS), st.one_of(TEXTS, st.integers(), st.none()), max_size=3),
    observation=TEXTS,
    outcome_ref=st.one_of(st.none(), st.just("outputs/toolu_01.log"), TEXTS),
    success=st.booleans(),
)


@pytest.mark.slow
@SLOW
@given(
    st.lists(STEPS, max_size=14), st.sampled_from([0, 5, 50, 500]), TEXTS, st.integers(0, 6),
    st.sampled_from(["", "loomctl steps"]),
)  # fmt: skip
def test_a_history_is_never_over_its_budget(
    steps: list[ToolStep], budget: int, asked: str, recent: int, index: str
) -> None:
    text = history.compact_history(steps, budget, asked=asked, recent=recent, index=index)
    assert count(text.encode(errors="replace").decode()) <= budget
    assert history.compact_history(steps, budget, asked=asked, recent=recent, index=index) == text


def shell(command: str, *, lines: int = 0, success: bool = True) -> ToolStep:
    """Make a shell step whose signal has so many lines."""
    signal = "".join(f"\nsrc/part_{number}.py:12: error: an error of number {number}" for number in range(lines))
    ended = "exit 0" if success else "exit 1"
    return ToolStep(
        "t", "Bash", {"command": command}, f"{command.split(maxsplit=1)[0]}: {ended}{signal}", None, success
    )


def test_what_failed_and_what_was_written_keep_their_room_and_looms_own_commands_a_line(tmp_path: Path) -> None:
    """However long the recent steps are, a third of the budget is theirs (D50)."""
    written = StepReducer(DataOffloader(tmp_path)).reduce("Write", {"file_path": "notes.md", "content": "x"}, {})
    steps = [shell("ls nowhere", success=False), written, *[shell("make", lines=8)] * 6]
    told = history.compacted(steps, 500)
    assert "✗ Ran `ls nowhere`" in told.text
    assert "Wrote notes.md" in told.text
    assert told.full >= 1
    assert history.compacted([*[shell("ls")] * 6, *[shell("make", lines=8)] * 3], 500).full >= told.full
    steps = [shell("cd api && loomctl done", lines=3), shell("make loomctl", lines=3)]
    text = history.compact_history(steps, 500)
    assert text.count("an error of number 2") == 1
    assert "Ran `cd api && loomctl done` (exit 0)" in text
