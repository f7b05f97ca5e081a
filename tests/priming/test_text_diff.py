"""A diff leads from the old text to the new one, byte for byte, whatever they are, in bounded time."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.priming.artifact_files import NO_END, diff_within, unified_diff
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

HEAD = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


def applied(old: str, diff: str) -> str:
    """Apply hunks as a reader would; every line that stays or goes must be the old text's."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", old)
    out: list[str] = []
    at = 0
    told = diff.split("\n")[:-1] if diff else []
    for place, line in enumerate(told):
        head = HEAD.fullmatch(line)
        if head and (place == 0 or not line.startswith((" ", "+", "-"))):
            start = int(head[1]) - (1 if int(head[2]) else 0)
            out += lines[at:start]
            at = start
        elif line != NO_END:
            text = line[1:] + ("" if told[place + 1 : place + 2] == [NO_END] else "\n")
            if line[0] in " -":
                assert lines[at] == text
                at += 1
            if line[0] in " +":
                out.append(text)
    return "".join(out + lines[at:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "", " x", "-y", "+z", "@@", "\\ no", "é\r", "\u2028"]), max_size=40)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@given(TEXTS, TEXTS)
def test_the_diff_gives_the_new_text(old: str, new: str) -> None:
    diff = unified_diff(old, new)
    assert applied(old, diff) == new
    assert (diff == "") == (old == new)


@each(("old", "new"), [("a\nb\nc\n", "a\nB\nc\n"), ("", "x"), ("x\n", ""), ("a", "a\n"), ("1\n" * 30, "1\n" * 9)])
def test_patch_reads_it(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(old)
    header = "--- a/f\n+++ b/f\n"
    git = shutil.which("git")
    assert git is not None
    applied_by = [git, "apply", "--unidiff-zero", "-"]
    subprocess.run(applied_by, input=header + unified_diff(old, new), cwd=tmp_path, text=True, check=True, timeout=60)
    assert (tmp_path / "f").read_text() == new


@pytest.mark.parametrize("size", [900, 20_000])
def test_texts_of_one_line_again_and_again_take_bounded_time(size: int) -> None:
    old = "x\n" * size
    new = "y\n" + "x\ny\n" * size
    with bounded_work():
        changes = unified_diff(old, new)
    assert applied(old, changes) == new


def test_long_lines_around_a_change_are_left_out_where_they_make_the_diff_long() -> None:
    lines = [f"{number} " + "word " * 40 + "\n" for number in range(9)]
    old, new = "".join(lines), "".join([*lines[:4], "short\n", *lines[5:]])
    assert diff_within(old, new, 10_000) == unified_diff(old, new)
    assert diff_within(old, new, 1_000) == unified_diff(old, new, context=0)
    assert applied(old, diff_within(old, new, 1_000)) == new
