"""The events of a run are a chain that goes on after whatever befell the file (D53, D54)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.runs.store import events
from loomctl.runs.store.events import Event, Head
from tests.helpers.errors import refusal
from tests.helpers.tables import each


def append(folder: Path, *names: str, known: Head | None = None) -> Head:
    return events.append(str(folder), "r1", [Event(name, {"n": 1}) for name in names], durable=False, known=known)


def entries(folder: Path) -> list[dict[str, Any]]:
    """Read the log as anybody may: whole lines that are entries, in order, the chain checked."""
    found: list[dict[str, Any]] = []
    prev = ""
    for line in (folder / events.FILE).read_bytes().split(b"\n")[:-1]:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or "seq" not in entry:
            continue
        assert entry["prev"] == prev
        prev = hashlib.sha256(line).hexdigest()
        found.append(entry)
    return found


def names(folder: Path) -> list[str]:
    return [entry["event"] for entry in entries(folder)]


def test_an_entry_has_its_envelope_and_any_properties(tmp_path: Path) -> None:
    events.append(str(tmp_path), "r1", [Event("a.b", {"x": "ä\n"}, "s1", "p/s"), Event("c", {})], durable=True)
    first, second = entries(tmp_path)
    assert list(first) == ["seq", "id", "ts", "run_id", "event", "session_id", "step_id", "prev", "properties"]
    assert (first["seq"], first["run_id"], first["event"], first["properties"]) == (1, "r1", "a.b", {"x": "ä\n"})
    assert (first["session_id"], first["step_id"], first["prev"]) == ("s1", "p/s", "")
    assert "session_id" not in second
    assert first["id"] != second["id"]
    assert (tmp_path / events.FILE).stat().st_mode & 0o077 == 0
    odd = "\ud800\u2028\u0085\r\n\0"
    events.append(str(tmp_path), "r1", [Event("odd", {"x": odd})], durable=False)
    assert entries(tmp_path)[-1]["properties"] == {"x": odd}


def test_the_head_is_the_last_line(tmp_path: Path) -> None:
    assert append(tmp_path) == Head(0, "")
    head = append(tmp_path, "a", "b", "c")
    lines = (tmp_path / events.FILE).read_bytes().splitlines()
    assert (head, append(tmp_path)) == (Head(3, hashlib.sha256(lines[-1]).hexdigest()), head)


TORN = [
    b"x",
    b'{"seq": 9, "eve',
    b'{"seq":9,"id":"9","event":"x","prev":"","properties":{}}',  # whole but for its newline
    b"\xff\xfe\0",
    b"\0" * 5000,
    b"x" * 200_000,
    b"torn twice\nand again",
    b'{"seq": "9", "event": "x", "prev": ""}\n',
    b"[1]\n",
    b"\n",
    b"\n\n{}\n",
]


def test_what_is_torn_is_closed_and_never_an_entry(tmp_path: Path) -> None:
    for number, torn in enumerate(TORN):
        for before in [(), ("a", "b")]:
            root = tmp_path / f"{number}-{len(before)}"
            root.mkdir()
            append(root, *before)
            whole = (root / events.FILE).read_bytes()
            (root / events.FILE).write_bytes(whole + torn)
            head = append(root, "c")
            note = json.loads((root / events.FILE).read_bytes().split(b"\n")[-3])
            assert (note["event"], note["seq"]) == ("ledger.torn_line", len(before) + 1)
            assert note["properties"] == {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}
            assert (head.seq, append(root, "d").seq) == (len(before) + 2, head.seq + 1)
            rest = (root / events.FILE).read_bytes()[len(whole) + len(torn) :]
            (root / events.FILE).write_bytes(whole + rest.removeprefix(b"\n"))  # a reader that heeds the note
            assert names(root) == [*before, "ledger.torn_line", "c", "d"]
            assert [entry["seq"] for entry in entries(root)] == list(range(1, len(before) + 4))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=40), st.integers(1, 3)), max_size=6))
def test_the_chain_goes_on_whatever_is_written_between(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[bytes | int]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    wanted = 0
    for happening in happenings:
        if isinstance(happening, bytes):
            with (folder / events.FILE).open("ab") as log:
                log.write(happening)
        else:
            wanted += happening
            append(folder, *["e"] * happening)
    head = append(folder, "last")
    found = entries(folder)
    assert [entry["seq"] for entry in found] == list(range(1, len(found) + 1))
    assert [entry["event"] for entry in found].count("e") == wanted
    assert (found[-1]["event"], found[-1]["seq"]) == ("last", head.seq)


def test_an_entry_longer_than_a_reading_is_found(tmp_path: Path) -> None:
    events.append(str(tmp_path), "r1", [Event("big", {"x": "y" * 1_000_000})], durable=False)
    assert (append(tmp_path, "next").seq, names(tmp_path)) == (2, ["big", "next"])


def test_lines_that_were_cut_off_are_told(tmp_path: Path) -> None:
    """A file that ends before what the state remembers is named as such, and numbers are never used twice (D54)."""
    append(tmp_path, "a")
    whole = (tmp_path / events.FILE).read_bytes()
    known = append(tmp_path, "b", "c")
    (tmp_path / events.FILE).write_bytes(whole)
    append(tmp_path, "d", known=known)
    assert [(entry["event"], entry["seq"]) for entry in entries(tmp_path)] == [
        ("a", 1),
        ("ledger.mismatch", 4),
        ("d", 5),
    ]
    assert entries(tmp_path)[1]["properties"]["expected"] == {"seq": 3, "sha256": known.sha256}


def test_a_last_line_that_was_edited_is_told(tmp_path: Path) -> None:
    known = append(tmp_path, "a")
    append(tmp_path, known=known)
    (tmp_path / events.FILE).write_bytes((tmp_path / events.FILE).read_bytes().replace(b'"n":1', b'"n":2'))
    known = append(tmp_path, "b", known=known)
    assert names(tmp_path) == ["a", "ledger.mismatch", "b"]
    append(tmp_path, "c", known=known)
    assert names(tmp_path)[-2:] == ["b", "c"]


def test_lines_ahead_of_the_state_are_no_damage(tmp_path: Path) -> None:
    """A kill between log and state leaves the log ahead; that is how it is meant."""
    known = append(tmp_path, "a")
    append(tmp_path, "b")
    append(tmp_path, "c", known=known)
    assert names(tmp_path) == ["a", "b", "c"]


@each("value", [None, {}, [], {"seq": 1}, {"seq": "1", "sha256": ""}, {"seq": True, "sha256": ""}])
def test_a_state_without_a_head_knows_none(value: object) -> None:
    assert events.head_of(value) is None
    assert events.head_of({"seq": 3, "sha256": "f"}) == Head(3, "f")


def test_a_link_in_the_logs_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "rc"
    victim.write_text("mine\n")
    os.symlink(victim, tmp_path / events.FILE)
    assert refusal(append, tmp_path, "a").code == "UNSAFE_LINK"
    assert victim.read_text() == "mine\n"
