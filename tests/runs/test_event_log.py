"""A run's events read from a place in the log, from its end, and as they come."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.runs.store import event_log, events
from loomctl.runs.store.event_log import Follower
from loomctl.runs.store.events import Event
from tests.helpers.errors import refusal
from tests.helpers.scenes import Json


def log(folder: Path) -> Path:
    return folder / "events.jsonl"


def write(folder: Path, *names: str) -> None:
    events.append(str(folder), "r", [Event(name, {}) for name in names], durable=False)


def seqs(lines: object) -> list[object]:
    """The entries' numbers; of what is no entry its bytes."""
    return [line.entry["seq"] if line.entry else line.data for line in lines]  # type: ignore[attr-defined]


def entry(seq: int, ts: str = "", pad: int = 0) -> bytes:
    value = {"seq": seq, "ts": ts, "event": "x", "prev": "", "properties": {"pad": "·" * pad}}
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def older(seq: int) -> Callable[[Json], bool]:
    return lambda one: bool(one["seq"] <= seq)


BLOCKS = [7, 64, 200, 1 << 18]


@pytest.mark.parametrize("block", BLOCKS)
def test_any_place_is_found_whatever_a_block_holds(run_dir: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_BLOCK", block)
    parts = [entry(number, pad=number % 40) for number in range(1, 60)]
    parts.insert(30, b"garbage\n\n")
    log(run_dir).write_bytes(b"".join(parts) + b'{"torn')
    whole = [*range(1, 31), b"garbage", *range(31, 60), b'{"torn']
    for after in (0, 1, 29, 30, 31, 58, 59, 70):
        found = seqs(event_log.since(str(run_dir), older(after)))
        wanted = [one for one in whole if isinstance(one, bytes) or one > after]
        assert found == (wanted if after < 31 else [one for one in wanted if one != b"garbage"]), after
    for count in (1, 5, 29, 30, 59, 100):
        found = seqs(event_log.tail(str(run_dir), count))
        entries = [one for one in found if not isinstance(one, bytes)]
        assert (entries, found[-1]) == (list(range(1, 60))[-count:], b'{"torn')
        assert (b"garbage" in found) == (count > 29)


def test_only_what_is_wanted_counts_and_a_time_is_found_where_a_clock_was_set_back(run_dir: Path) -> None:
    write(run_dir, *["a", "b", "b"] * 50, *["c"] * 100)
    assert seqs(event_log.tail(str(run_dir), 3, lambda one: one["event"] == "a")) == [142, 145, 148]
    assert event_log.tail(str(run_dir), 3, lambda one: one["event"] == "d") == []
    assert event_log.tail(str(run_dir), 0) == []
    log(run_dir).write_bytes(b"".join(entry(number, ts) for number, ts in enumerate("1352467", 1)))
    found = event_log.since(str(run_dir), lambda one: one["ts"] < "4")
    assert seqs(found) == [3, 5, 6, 7]


def test_lines_that_mention_nothing_that_is_wanted_are_not_parsed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as they are Loom's own; what anybody else wrote is looked at."""
    write(run_dir, "a", *["b"] * 100, "a")
    with log(run_dir).open("ab") as file:
        file.write(b'{ "seq": 103, "event": "a", "prev": "" }\n{"seq": torn\n')
    parsed: list[bytes] = []
    honest = event_log.entry_of

    def counted(data: bytes) -> Json | None:
        parsed.append(data)
        return honest(data)

    monkeypatch.setattr(event_log, "entry_of", counted)
    found = event_log.tail(str(run_dir), 9, lambda one: one["event"] == "a", [b'"a"'])
    assert (seqs(found), len(parsed)) == ([1, 102, 103, b'{"seq": torn'], 4)


def test_what_is_no_entry_ends_nothing_and_a_long_line_is_told_by_its_beginning(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in [
        *(b"", b"{}", b"[]", b"7", b"null", b"\x00\xff", b'{"seq": 1}', b"[" * 100_000, b"1" * 5000),
        *(b'{"seq": true, "event": "x", "prev": ""}', b'{"seq": 1, "event": 5, "prev": ""}'),
    ]:
        log(run_dir).write_bytes(entry(1) + line + b"\n" + entry(2))
        found = event_log.tail(str(run_dir), 9)
        assert seqs(found) == [1, *([line] if line else []), 2]
        if line:
            assert (found[1].at, found[1].bytes) == (len(entry(1)), len(line))
    monkeypatch.setattr(event_log, "LONGEST_LINE", 100)
    log(run_dir).write_bytes(entry(1) + b"x" * 5000 + b"\n" + entry(2))
    long = event_log.tail(str(run_dir), 9)[1]
    assert (len(long.data), long.bytes, long.entry) == (100, 5000, None)


def test_a_log_that_is_not_there_is_empty(run_dir: Path) -> None:
    assert (event_log.tail(str(run_dir), 9), list(event_log.since(str(run_dir), older(0)))) == ([], [])
    follower = Follower(str(run_dir))
    assert follower.news() == []
    write(run_dir, "a")
    assert (seqs(follower.news()), follower.replaced) == ([1], 0)


def test_a_link_and_a_pipe_are_not_read(run_dir: Path, tmp_path: Path) -> None:
    log(run_dir).symlink_to(tmp_path / "elsewhere")
    for read in (lambda: event_log.tail(str(run_dir), 1), lambda: Follower(str(run_dir))):
        assert refusal(read).code == "UNSAFE_LINK"
    log(run_dir).unlink()
    os.mkfifo(log(run_dir))
    with pytest.raises(OSError, match="not a regular file"):
        event_log.tail(str(run_dir), 1)


# ---- Following.


def test_each_event_is_given_once_as_it_comes(run_dir: Path) -> None:
    write(run_dir, "a", "b")
    follower = Follower(str(run_dir))
    assert follower.news() == []
    write(run_dir, "c")
    write(run_dir, "d")
    assert (seqs(follower.news()), follower.news()) == ([3, 4], [])


def test_a_line_is_given_when_it_is_whole(run_dir: Path) -> None:
    write(run_dir, "a")
    half = entry(2)
    with log(run_dir).open("ab") as file:
        file.write(half[:20])
        file.flush()
        follower = Follower(str(run_dir))
        assert follower.news() == []
        file.write(half[20:-1])
        file.flush()
        assert follower.news() == []
        file.write(b"\n")
        file.flush()
        assert seqs(follower.news()) == [2]
    with log(run_dir).open("ab") as file:
        file.write(b'{"torn')
    assert follower.news() == []
    write(run_dir, "later")
    assert [line.entry["event"] if line.entry else line.data for line in follower.news()] == [
        b'{"torn',
        "ledger.torn_line",
        "later",
    ]


def test_a_log_that_was_replaced_goes_on_behind_what_was_given(run_dir: Path) -> None:
    write(run_dir, "a", "b")
    follower = Follower(str(run_dir))
    copy = run_dir / "copy"
    copy.write_bytes(log(run_dir).read_bytes())
    copy.replace(log(run_dir))
    write(run_dir, "c")
    assert (seqs(follower.news()), follower.replaced) == ([3], 1)
    write(run_dir, "d")
    assert (seqs(follower.news()), follower.replaced) == ([4], 1)


def test_a_log_that_was_cut_goes_on_with_higher_numbers(run_dir: Path) -> None:
    """The writer counts on from what the state remembers (D54)."""
    write(run_dir, "a", "b", "c")
    follower = Follower(str(run_dir))
    log(run_dir).write_bytes(b"")
    assert (follower.news(), follower.replaced) == ([], 1)
    events.append(str(run_dir), "r", [Event("d", {})], durable=False, known=events.Head(3, "x"))
    assert [line.entry["event"] for line in follower.news() if line.entry] == ["ledger.mismatch", "d"]


def test_another_history_is_followed_from_its_end(run_dir: Path) -> None:
    write(run_dir, *"abcde")
    follower = Follower(str(run_dir))
    log(run_dir).unlink()
    assert follower.news() == []
    write(run_dir, "x")
    (run_dir / "other").write_bytes(log(run_dir).read_bytes())
    (run_dir / "other").replace(log(run_dir))
    assert (follower.news(), follower.replaced) == ([], 1)
    write(run_dir, "y")
    assert seqs(follower.news()) == [2]


def test_the_cost_does_not_grow_with_what_lies_before(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(run_dir).write_bytes(b"".join(entry(number, pad=100) for number in range(1, 20_001)))
    parsed: list[bytes] = []
    honest = event_log.entry_of

    def counted(data: bytes) -> Json | None:
        parsed.append(data)
        return honest(data)

    monkeypatch.setattr(event_log, "entry_of", counted)
    event_log.tail(str(run_dir), 10)
    in_a_block = event_log._BLOCK // len(entry(1, pad=100)) + 2
    assert len(parsed) <= in_a_block
    parsed.clear()
    assert seqs(event_log.since(str(run_dir), older(19_990))) == list(range(19_991, 20_001))
    assert len(parsed) <= 2 * in_a_block
