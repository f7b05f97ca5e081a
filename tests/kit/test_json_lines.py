"""A file of JSON lines is read from its end, block by block, as if it had been read whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit import json_lines
from loomctl.kit.json_lines import JsonLines

LINE = st.one_of(
    st.dictionaries(st.sampled_from("ab"), st.text("xyz é\n", max_size=40), max_size=2).map(json.dumps),
    st.sampled_from(["", "{", "[1]", "null", '{"a": "', "   "]),
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK", 16)
    monkeypatch.setattr(json_lines, "OVER", 8)


def parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


@pytest.mark.usefixtures("small_blocks")
@given(lines=st.lists(LINE, max_size=12), ends=st.booleans(), word=st.sampled_from(["", "a", "xy", '"b": "', "zz"]))
def test_entries_are_those_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: bool, word: str
) -> None:
    data = ("\n".join(lines) + ("\n" if ends and lines else "")).encode()
    path = tmp_path_factory.mktemp("lines") / "file.jsonl"
    path.write_bytes(data)
    every = [entry for line in lines if isinstance(entry := parsed(line), dict)]
    holding = [entry for line in lines if word in line and isinstance(entry := parsed(line), dict)]
    read = JsonLines(str(path))
    back = list(read.back(holding=word.encode()))
    assert list(read.since()) == every
    assert [entry for _, entry in reversed(back)] == holding
    for place, entry in back:
        assert next(read.since(place)) == entry
        assert read.line_around(place) == (place, entry)
    assert (read.find(word.encode() or b"{"), read.rfind(word.encode() or b"{")) == (
        data.find(word.encode() or b"{"),
        data.rfind(word.encode() or b"{"),
    )


def test_what_stands_too_far_from_the_end_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "FURTHEST", 30)
    path = tmp_path / "file.jsonl"
    path.write_text("".join(f'{{"number": {number}}}\n' for number in range(100, 200)), encoding="utf-8")
    read = JsonLines(str(path))
    assert [entry["number"] for _, entry in read.back()] == [199]
    assert [entry["number"] for entry in read.since()] == [199]
    assert read.find(b"100") == -1


def test_a_file_that_shrinks_meanwhile_has_less(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text('{"a": 1}\n' * 9, encoding="utf-8")
    read = JsonLines(str(path))
    os.truncate(path, 9)
    assert [entry for _, entry in read.back()] == [{"a": 1}]


def test_what_is_no_file_holds_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (None, "", "\0", str(tmp_path), str(tmp_path / "none"), str(tmp_path / "pipe")):
        assert not JsonLines(path)
        assert not [*JsonLines(path).back(), *JsonLines(path).since()]
