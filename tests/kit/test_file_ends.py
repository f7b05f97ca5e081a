"""The beginning and the end of a file come in whole lines, whatever its size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit import files
from tests.helpers.tables import each

CASES = [
    (b"", 5, ("", True), ("", True)),
    (b"ab\ncd\n", 6, ("ab\ncd\n", True), ("ab\ncd\n", True)),
    (b"ab\ncd\n", 5, ("ab\n", False), ("cd\n", False)),
    (b"ab\ncd", 4, ("ab\n", False), ("cd", False)),
    (b"abcdef", 3, ("", False), ("", False)),
    ("é\né\n".encode(), 4, ("é\n", False), ("é\n", False)),
    (b"\xff\n", 9, ("\ufffd\n", True), ("\ufffd\n", True)),
]


@each(("data", "limit", "head", "tail"), CASES)
def test_whole_lines_are_given(
    tmp_path: Path, data: bytes, limit: int, head: tuple[str, bool], tail: tuple[str, bool]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    assert files.head(str(path), limit) == head
    assert files.tail(str(path), limit) == tail


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("ab é", max_size=6), max_size=12), st.integers(1, 60))
def test_no_line_is_cut(tmp_path: Path, lines: list[str], limit: int) -> None:
    path = tmp_path / "x"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    given_first, _ = files.head(str(path), limit)
    given_last, _ = files.tail(str(path), limit)
    first, last = given_first.split("\n")[:-1], given_last.split("\n")[:-1]
    assert first == lines[: len(first)]
    assert last == lines[len(lines) - len(last) :]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(OSError, match="not a regular file"):
        files.head(str(tmp_path / "x"), 5)
