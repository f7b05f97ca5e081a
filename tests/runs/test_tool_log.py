"""The log of tool steps: appended in one write, read one step at a time, whatever befell the file (D53, D59)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit import files
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.tools import tool_log
from tests.helpers.errors import refusal
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each


def step(name: str, **more: Any) -> ToolStep:
    return ToolStep(name, "Bash", {"command": "ls"}, f"ls: exit 0, {name}", None, True, more=more)


def append(folder: Path, *names: str) -> None:
    tool_log.append(str(folder), [step(name) for name in names])


def ids(folder: Path) -> list[str]:
    return [one.id for one in tool_log.read(str(folder))]


def test_what_was_appended_is_read_again_and_a_log_that_is_not_there_is_empty(run_dir: Path) -> None:
    """Every field, and what else the record says; the file is its owner's alone."""
    assert (ids(run_dir), tool_log.tail(str(run_dir), 5), list(run_dir.iterdir())) == ([], [], [])
    whole = ToolStep(
        "toolu_01", "Read", {"file_path": "a\r\n\ud800😀\u2028"}, "Read a (1 bytes, text)",
        "outputs/toolu_01.txt", False, {"result": {"file": {"content": ""}}, "text_at": ["file", "content"]},
        "outputs/toolu_01.rest.json", 5, "ab" * 32, 10, 3, {"at": "2026-01-01T00:00:00Z", "agent_id": "a1"},
    )  # fmt: skip
    tool_log.append(str(run_dir), [whole, step("toolu_02")])
    assert list(tool_log.read(str(run_dir))) == [whole, step("toolu_02")]
    assert (run_dir / tool_log.FILE).stat().st_mode & 0o077 == 0
    assert (run_dir / tool_log.FILE).read_bytes().count(b"\n") == 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 90_000), max_size=12), count=st.integers(0, 14))
def test_the_tail_is_the_end_of_the_whole(run_dir: Path, lengths: list[int], count: int) -> None:
    (run_dir / tool_log.FILE).unlink(missing_ok=True)
    steps = [step(f"s{number}")._replace(observation="x" * length) for number, length in enumerate(lengths)]
    if steps:
        tool_log.append(str(run_dir), steps)
    assert tool_log.tail(str(run_dir), count) == steps[max(0, len(steps) - count) :]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"id": "torn", "tool_na', b"\0" * 5000, b"not json", b"[]", b'"text"', b'{"id": 5}', b"{}",
        b"\xff\xfe\xfd", b"[" * 100_000, b"", b"\r",
    ],
    ids=lambda damage: repr(damage[:12]),
)  # fmt: skip
def test_a_damaged_line_costs_itself_alone(run_dir: Path, damage: bytes) -> None:
    """In the middle and at the end, where a kill tore it off: it is left out, and the next append begins a line."""
    append(run_dir, "a")
    with (run_dir / tool_log.FILE).open("ab") as file:
        file.write(damage + b"\n")
    append(run_dir, "b")
    with (run_dir / tool_log.FILE).open("ab") as file:
        file.write(damage)
    assert ids(run_dir) == ["a", "b"]
    append(run_dir, "c")
    assert ids(run_dir) == ["a", "b", "c"]
    assert [one.id for one in tool_log.tail(str(run_dir), 2)] == ["b", "c"]


def test_a_killed_append_leaves_whole_steps(run_dir: Path) -> None:
    """Cut at every byte: the steps before are there, the torn one is not, and the log goes on."""
    append(run_dir, "a", "b")
    whole = (run_dir / tool_log.FILE).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole)):
        (run_dir / tool_log.FILE).write_bytes(whole[:cut])
        kept = ids(run_dir)
        assert kept == ["a", "b"][: (cut >= first - 1) + (cut >= len(whole) - 1)]
        append(run_dir, "c")
        assert ids(run_dir) == [*kept, "c"]


def test_a_full_disk_is_said_with_the_file(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(run_dir, "a")

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", full)
        with pytest.raises(OSError, match=tool_log.FILE):
            append(run_dir, "b")
    append(run_dir, "c")
    assert ids(run_dir) == ["a", "c"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_is_neither_read_nor_written(run_dir: Path, tmp_path: Path, what: str) -> None:
    """A log that a repository brought along must not lead away (UNSAFE_LINK)."""
    append(run_dir, "a")
    moved = tmp_path / "moved"
    place = run_dir / tool_log.FILE if what == "file" else run_dir
    place.rename(moved)
    place.symlink_to(moved)
    before = (moved if what == "file" else moved / tool_log.FILE).read_bytes()
    for act in (lambda: append(run_dir, "b"), lambda: ids(run_dir), lambda: tool_log.tail(str(run_dir), 1)):
        assert refusal(act).code == "UNSAFE_LINK"
    assert (moved if what == "file" else moved / tool_log.FILE).read_bytes() == before


@each("kind", ["folder", "pipe"])
def test_what_stands_in_its_place_does_not_hold_a_reader(run_dir: Path, kind: str) -> None:
    place = run_dir / tool_log.FILE
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    assert (ids(run_dir), tool_log.tail(str(run_dir), 1)) == ([], [])
    place.rename(run_dir / kind)


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from([*ToolStep._fields, "at", "later"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({"a": 1})),
    )
)
def test_a_step_is_read_whatever_it_lacks(raw: dict[str, Any]) -> None:
    read = ToolStep.from_dict(raw)
    assert ToolStep.from_dict(json.loads(json.dumps(read.to_dict()))).to_dict() == read.to_dict()
    assert {key: value for key, value in raw.items() if key in ("at", "later")}.items() <= read.to_dict().items()
    assert min(read.bytes, read.tokens_before, read.tokens_after) >= 0


APPENDS = """
import sys
sys.path.insert(0, sys.argv[1])
from loomctl.runs.tools import tool_log
from loomctl.reduction.tool_steps import ToolStep
for number in range(100):
    name = f"{sys.argv[3]}-{number}"
    tool_log.append(sys.argv[2], [ToolStep(name, "Bash", {}, "x" * 3000, None, True)], durable=False)
"""


def test_processes_that_append_at_once_lose_nothing(run_dir: Path) -> None:
    """Each append is one write: no line is torn or mixed, and each process's steps stand in their order."""
    command = [sys.executable, "-I", "-c", APPENDS, str(CHECKOUT), str(run_dir)]
    children = [subprocess.Popen([*command, mark]) for mark in "abcd"]
    assert [child.wait(60) for child in children] == [0] * 4
    found = ids(run_dir)
    for mark in "abcd":
        assert [name for name in found if name.startswith(mark)] == [f"{mark}-{number}" for number in range(100)]
    assert len(found) == 400


@pytest.mark.slow
def test_a_long_log_is_not_held_in_memory(run_dir: Path) -> None:
    """Ten thousand steps, thirty megabytes: reading all of them, or the last, takes a small part of that."""
    line = files.to_json_line(step("a")._replace(observation="x" * 3000).to_dict())
    (run_dir / tool_log.FILE).write_bytes(line * 10_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in tool_log.read(str(run_dir))) == 10_000
        assert len(tool_log.tail(str(run_dir), 20)) == 20
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
