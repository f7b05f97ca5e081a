"""What comes in with a call, however odd or hostile, neither breaks its reduction nor is lost nor shows a secret."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.reduction import history
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.tables import each
from tests.hostile import keys


def reducer(folder: Path) -> StepReducer:
    return StepReducer(DataOffloader(folder))


@each(
    "tool, args",
    [
        ("Bash", {"command": "ls", "timeout": None}),  # `keeping.get(key) != value`: None counts as kept, and is lost
        ("Edit", None),  # comes back as {}
        ("Bash", {"": "x"}),  # the key "" is taken for "args were no object"
        ("system:shell", {"args": ["-l"]}),  # no command: it comes back with one
    ],
)
def test_arguments_come_back_as_they_were(tmp_path: Path, tool: str, args: object) -> None:
    """Empty, no object, with a name that is none: as they were given."""
    red = reducer(tmp_path)
    step = red.reduce(tool, args, {"stdout": "a"}, step_id="x")
    assert red.original(step)[0] == args


@each("said", ["Exit code ²", "exit code ①\nx"])
def test_an_exit_code_in_odd_digits_is_no_error(tmp_path: Path, said: str) -> None:
    reducer(tmp_path).reduce("Bash", {"command": "x"}, None, error=said)


FILLER = "".join(f"line {number} of the build went well\n" for number in range(200))
LINES = {
    **keys.ON_A_LINE,
    "assigned": "DB_PASSWORD=correct_horse_battery_staple_9",
    "url": "postgres://admin:s3cret_Pass_word@db.example.org/x",
}
WORDS = {"assigned": "correct_horse_battery", "url": "s3cret_Pass_word"}


@each("kind", LINES)
@each("form", ["Bash", "WebFetch", "mcp", "Grep", "error"])
def test_no_secret_is_in_a_summary(tmp_path: Path, kind: str, form: str) -> None:
    line = LINES[kind]
    result: object = {
        "Bash": {"stdout": f"{FILLER}{line}\n"},
        "error": {"stdout": f"error: {line}\n{FILLER}", "exit_code": 1},
        "WebFetch": {"result": f"{FILLER}{line}"},
        "mcp": [{"type": "text", "text": f"{FILLER}{line}"}],
        "Grep": {"content": f"{line}\n{FILLER}"},
    }[form]
    tool = {"mcp": "mcp__x__y", "error": "Bash"}.get(form, form)
    step = reducer(tmp_path).reduce(tool, {"command": line, "url": line, "pattern": line}, result)
    told = step.observation + json.dumps(step.minimal_args, ensure_ascii=False)
    assert kind not in keys.seen(told), step.observation
    assert WORDS.get(kind, "\0") not in told


@each("name", ["a\rb", "a\nFAILED b", "a\x1b[2Jb", "a\ud800b"])
@each(
    "tool, key",
    [
        ("Write", "file_path"), ("Read", "file_path"), ("LS", "path"), ("WebSearch", "query"),
        ("WebFetch", "url"), ("Bash", "command"), ("Grep", "pattern"), ("mcp", ""),
    ],
)  # fmt: skip
def test_the_first_line_is_one_line_that_can_be_shown(tmp_path: Path, tool: str, key: str, name: str) -> None:
    step = reducer(tmp_path).reduce(tool if key else name, {key: name} if key else {}, {"stdout": "ok"})
    step.observation.encode()
    assert not any(ord(one) < 32 and one != "\n" for one in step.observation)
    assert "\nFAILED" not in step.observation
    assert not step.observation.startswith("a\n")


def test_a_history_can_be_written_and_a_reduction_of_anything_but_the_smallest_never_grows(tmp_path: Path) -> None:
    step = ToolStep("x", "a\ud800", {}, "b\ud800", "outputs/\ud800", True)
    history.compact_history([step] * 3, 500).encode()
    for tool, args, text in (
        ("Bash", {"command": "ls -l src"}, "total 8\n-rw-r--r-- 1 me me 120 a.py\n-rw-r--r-- 1 me me 90 b.py\n"),
        ("Read", {"file_path": "a"}, "x = 1\n" * 9),
    ):
        result = {"stdout": text} if tool == "Bash" else {"file": {"content": text}}
        step = reducer(tmp_path).reduce(tool, args, result)
        assert step.tokens_after <= step.tokens_before


@each("value", [float("nan"), float("inf")])
def test_a_number_that_is_no_json_can_be_recorded(tmp_path: Path, value: float) -> None:
    step = reducer(tmp_path).reduce("mcp__x", {}, {"value": value})
    files.to_json_line(step.to_dict())


def test_nothing_is_put_away_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "outputs").symlink_to(tmp_path / "elsewhere")
    red = reducer(tmp_path / "run")
    step = red.reduce("Bash", {"command": "x"}, {"stdout": "a\n" * 900}, step_id="x")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert step.outcome_ref is None
    assert red.original(step)[1] == {"stdout": "a\n" * 900}


@each("depth", [200, 900])
@each("tool", ["mcp__x", "Bash", "Read"])
def test_depth_is_no_error(tmp_path: Path, depth: int, tool: str) -> None:
    """What Python reads from a host's event is recorded, however deep."""
    value: object = "x"
    for _ in range(depth):
        value = [value]
    red = reducer(tmp_path)
    step = red.reduce(tool, {"a": value}, {"b": value}, step_id="x")
    files.to_json_line(step.to_dict())
    assert red.original(step)[1] == {"b": value}


@each("damage", [b"{", b"\xff\xfe", b""])
def test_a_damaged_output_is_an_error_that_says_so(tmp_path: Path, damage: bytes) -> None:
    """Where the file is the whole result in JSON and does not read as such any more."""
    red = reducer(tmp_path)
    step = red.reduce("mcp__x", {}, {"rows": ["x"] * 900}, step_id="x")
    (tmp_path / str(step.outcome_ref)).write_bytes(damage)
    with pytest.raises(LoomError, match="damaged"):
        red.original(step)


@each("budget", [300, 400, 500, 600])
def test_a_larger_budget_shows_no_less(budget: int) -> None:
    steps = [
        ToolStep(f"t{n}", "Bash", {"command": f"make part-{n}"}, "make: exit 0, 200 lines output\na line of the output",
                 f"outputs/toolu_{n:02d}.log", True)
        for n in range(40)
    ]  # fmt: skip
    shown = [
        sum(
            f"part-{n}`" in history.compact_history(steps, b, asked="add dark mode", index="loomctl steps")
            for n in range(40)
        )
        for b in (200, budget)
    ]
    assert shown[1] >= shown[0] > 0
