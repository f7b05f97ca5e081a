"""Looking back at a run's tool steps: which there are, their originals, their history, what they saved (D47, D50)."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from loomctl.kit import digests, files
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.tools import recall, tool_log
from loomctl.runs.tools.recall import Record
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.docs.tokens import count
from tests.helpers.errors import refusal
from tests.helpers.scenes import Scene
from tests.helpers.tables import each
from tests.runs.test_reducer import CALLS, as_json

LONG = "a line of the output\n" * 200


@pytest.fixture
def held(scene: Scene) -> Record:
    """A new run's tool steps: none yet."""
    scene.workflow()
    scene.begin("add dark mode")
    return recall.record(scene.space(), None)


def record(held: Record, tool: str, args: Any, result: Any, step_id: str, **more: Any) -> ToolStep:
    error = more.pop("error", "")
    step = StepReducer(DataOffloader(held.folder)).reduce(tool, args, result, step_id=step_id, error=error, more=more)
    tool_log.append(held.folder, [step])
    return step


def some(held: Record) -> list[ToolStep]:
    """Append steps of several kinds: large and small, failed, a subagent's."""
    return [
        record(held, "Bash", {"command": "make"}, {"stdout": LONG, "stderr": "", "interrupted": False}, "toolu_01"),
        record(held, "Read", {"file_path": "a.json"}, {"type": "text", "file": {"content": "{}\r\n"}}, "toolu_02"),
        record(held, "Bash", {"command": "pytest"}, None, "toolu_03", error="Exit code 1\nFAILED tests/a.py::test_b"),
        record(held, "mcp__db__query", {"sql": "select"}, [{"type": "text", "text": LONG}], "toolu_04"),
        record(held, "Grep", {"pattern": "x"}, {"content": LONG}, "toolu_05", agent_id="agent-1"),
        record(held, "Edit", {"file_path": "b", "old_string": LONG, "new_string": "x"}, {"filePath": "b"}, "toolu_06"),
    ]


def names(listed: recall.Listed) -> list[str]:
    return [step.id[-1] for step in listed.steps]


def test_the_record_is_the_runs_and_one_without_an_original_is_said(scene: Scene, held: Record) -> None:
    """By the run's own order (D1); a step that somebody else wrote in the document's own shape has no original."""
    assert (held.folder, recall.record(scene.space(), held.run_id[:8])) == (str(scene.run_dir), held)
    assert refusal(recall.record, scene.space(), "nowhere").code == "NO_SUCH_RUN"
    bare = ToolStep.from_dict({"id": "step_001", "tool_name": "fs:read_file", "observation": "Read a", "success": True})
    tool_log.append(held.folder, [bare])
    assert refusal(recall.original_text, held, bare).code == "REF_GONE"
    assert not recall.savings(held).all_there


@each(
    "asked, shown, found, agents",
    [
        ({}, "12346", 5, 1), ({"last": 2}, "46", 5, 1), ({"last": 9}, "12346", 5, 1),
        ({"agents": True}, "123456", 6, 0), ({"failed": True}, "3", 1, 0), ({"tool": "Bash"}, "13", 2, 0),
        ({"tool": "Bash", "last": 1}, "3", 2, 0), ({"tool": "mcp__*"}, "4", 1, 0), ({"tool": "Grep"}, "", 0, 1),
        ({"tool": "Grep", "agents": True}, "5", 1, 0), ({"tool": "bash"}, "", 0, 0),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_listed(held: Record, asked: dict[str, Any], shown: str, found: int, agents: int) -> None:
    if not Path(held.log).exists():
        some(held)
    listed = recall.listed(held, **asked)
    assert ("".join(names(listed)), listed.found, listed.agents, listed.total) == (shown, found, agents, 6)


@pytest.mark.slow
def test_a_list_holds_no_more_than_is_asked_for(held: Record) -> None:
    """Twenty thousand steps: their last twenty cost what twenty cost."""
    step = ToolStep("s", "Bash", {"command": "x"}, "x" * 200, None, True)
    line = files.to_json_line(step.to_dict())
    Path(held.log).write_bytes(line * 20_000)
    tracemalloc.start()
    try:
        listed = recall.listed(held, last=20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(listed.steps), listed.found, listed.total) == (20, 20_000, 20_000)
    assert peak < 1_000_000


def test_a_step_is_found_by_its_id_or_its_beginning(held: Record) -> None:
    """An id is meant before a beginning; of one id twice the newest; what is not there, or not one, is said."""
    for name in ("toolu_1", "toolu_12", "toolu_2", "same", "same", 'odd "/.. \u2028'):
        record(held, "Bash", {"command": name}, {"stdout": name}, name)
    last = record(held, "Bash", {"command": "last"}, {"stdout": "x"}, "same")
    assert (recall.find(held, "toolu_1").id, recall.find(held, "toolu_12").id) == ("toolu_1", "toolu_12")
    assert (recall.find(held, "toolu_2").id, recall.find(held, "odd").id) == ("toolu_2", 'odd "/.. \u2028')
    assert recall.find(held, "sa") == recall.find(held, "same") == last
    for named, code in (("toolu", "AMBIGUOUS_TOOL_STEP"), ("nope", "NO_SUCH_TOOL_STEP"), ("../x", "NO_SUCH_TOOL_STEP")):
        caught = refusal(recall.find, held, named)
        assert (caught.code, caught.exit_code) == (code, 3)
        assert caught.hint == f"loomctl steps {held.handle} --all --agents"


def test_originals_come_back_as_they_were(held: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {step.id[-1]: step for step in some(held)}
    monkeypatch.chdir("/")
    texts = {number: recall.original_text(held, step) for number, step in steps.items()}
    assert (texts["1"], texts["2"]) == (LONG.encode(), b"{}\r\n")
    assert (texts["3"], texts["4"]) == (b"Exit code 1\nFAILED tests/a.py::test_b", LONG.encode())
    assert texts["5"] == LONG.encode()
    assert recall.original_call(held, steps["1"])[1] == {"stdout": LONG, "stderr": "", "interrupted": False}
    assert recall.original_call(held, steps["4"])[1] == [{"type": "text", "text": LONG}]
    assert recall.original_call(held, steps["6"]) == (
        {"file_path": "b", "old_string": LONG, "new_string": "x"},
        {"filePath": "b"},
    )


def test_a_run_of_another_machine_gives_its_originals(scene: Scene, held: Record, tmp_path: Path) -> None:
    steps = some(held)
    moved = Scene(tmp_path / "elsewhere")
    scene.store.rename(moved.store)
    there = recall.record(moved.space(), held.run_id)
    assert there.folder.startswith(str(moved.root))
    assert recall.original_text(there, steps[0]) == LONG.encode()
    assert recall.savings(there).all_there


def damage(held: Record, step: ToolStep, what: str) -> None:
    assert step.outcome_ref is not None
    path = Path(held.folder, step.outcome_ref)
    if what == "gone":
        path.unlink()
    elif what == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"X")
    elif what == "cut":
        path.write_bytes(b"")
    elif what == "link":
        path.rename(path.with_suffix(".moved"))
        path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize(
    ("what", "code"),
    [("gone", "REF_GONE"), ("changed", "REF_DAMAGED"), ("cut", "REF_DAMAGED"), ("link", "UNSAFE_LINK")],
)
def test_what_is_not_the_original_is_never_given_for_it(held: Record, what: str, code: str) -> None:
    """A file that is gone, changed, cut or a link: one error with the place, and savings counts it."""
    step = some(held)[0]
    damage(held, step, what)
    for ask in (recall.original_text, recall.original_call):
        caught = refusal(ask, held, step)
        assert (caught.code, caught.exit_code) == (code, 5)
        assert str(step.outcome_ref) in caught.where
        assert "ls -l " in caught.hint
    told = recall.savings(held)
    assert (told.all_there, told.recovered, told.whole.steps) == (False, 5, 6)
    assert told.bytes - told.bytes_recovered == step.bytes
    assert told.dangling == (what == "gone")
    assert [(one.step_id, one.error.code) for one in told.lost] == [("toolu_01", code)]


@each("text", ["", "{", "[]", '"x"', "null", "5", '{"args": {"": 1}, "text_at": 5}', "[" * 5000])
def test_a_damaged_rest_is_said_whatever_stands_in_it(held: Record, text: str) -> None:
    """The file of what stands beside is no JSON, or other JSON than Loom wrote: an error that names it."""
    step = record(held, "Bash", {"command": "x", "more": LONG}, {"stdout": LONG}, "toolu_07")
    assert step.rest_ref is not None
    Path(held.folder, step.rest_ref).write_text(text)
    caught = refusal(recall.original_call, held, step)
    assert caught.code == "REF_DAMAGED"
    assert step.rest_ref in caught.where
    assert not recall.savings(held).all_there


def test_savings_are_told_by_tool(held: Record) -> None:
    steps = some(held)
    told = recall.savings(held)
    assert told.all_there
    assert told.bytes_recovered == told.bytes == sum(step.bytes for step in steps)
    assert {one.tool_name: one.steps for one in told.tools} == {
        "Bash": 2, "mcp__db__query": 1, "Grep": 1, "Read": 1, "Edit": 1,
    }  # fmt: skip
    assert [one.before for one in told.tools] == sorted((one.before for one in told.tools), reverse=True)
    assert told.whole.before == sum(step.tokens_before for step in steps)
    assert told.whole.after == sum(step.tokens_after for step in steps)
    assert told.whole.percent > 80
    assert recall.Saved("x", 0, 0, 0).percent == 0


def test_a_history_is_of_the_main_line_and_says_what_was_asked(scene: Scene, held: Record) -> None:
    for number in range(40):
        record(held, "Bash", {"command": f"make part-{number}"}, {"stdout": LONG}, f"toolu_{number:02d}")
        record(held, "Grep", {"pattern": f"agents-{number}"}, {"content": LONG}, f"agent_{number:02d}", agent_id="a")
    told = recall.recalled(scene.space(), held, 200)
    assert (told.steps, 0 < told.left_out < 40) == (40, True)
    assert "Asked: add dark mode" in told.text
    assert "agents-" not in told.text
    assert f"{told.left_out} more steps: loomctl steps" in told.text
    assert sum(f"part-{number}`" in told.text for number in range(40)) == 40 - told.left_out
    assert count(told.text) <= told.at_most <= 200


@each("budget", [0, 5, 12, 50, 500, 5000])
def test_what_a_history_left_out_is_what_it_does_not_show(scene: Scene, held: Record, budget: int) -> None:
    Path(held.log).unlink(missing_ok=True)
    assert recall.recalled(scene.space(), held, budget)[3:] == (0, 0)
    for number in range(12):
        record(held, "Read", {"file_path": f"file-{number}.py"}, {"file": {"content": LONG}}, f"toolu_{number:02d}")
    told = recall.recalled(scene.space(), held, budget)
    shown = sum(f"file-{number}.py" in told.text for number in range(12))
    assert shown + told.left_out == 12
    assert count(told.text) <= budget


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(CALLS)
def test_what_a_call_would_become_is_what_it_becomes(
    tmp_path_factory: pytest.TempPathFactory, call: tuple[Any, ...]
) -> None:
    """The same step as the one that is recorded, names of files included; nothing is written for it."""
    tool, args, result, error = as_json(list(call))
    folder = tmp_path_factory.mktemp("run")
    step, text = recall.reduced(tool, args, result, error=error, step_id="toolu/1")
    assert os.listdir(folder) == []
    stored = StepReducer(DataOffloader(folder)).reduce(tool, args, result, error=error, step_id="toolu/1")
    assert step == stored
    document = recall.as_document(step, text)
    if step.outcome_ref is not None:
        assert DataOffloader(folder).read(step.outcome_ref).decode("utf-8", "surrogatepass") == text
        assert "inline" not in document
    else:
        assert (document["inline"], document["sha256"]) == (text, digests.of_text(text))
    assert document["bytes"] == len(text.encode("utf-8", "surrogatepass"))
    shape = {"id", "tool_name", "minimal_args", "observation", "outcome_ref", "success", "bytes", "sha256"}
    assert shape | {"tokens_before", "tokens_after"} <= set(document)
    assert set(document) <= shape | {"tokens_before", "tokens_after", "inline", "rest", "rest_ref"}
