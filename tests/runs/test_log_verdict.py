"""A log is proven up to the checkpoint that the state remembers; the first place that does not fit is named (D54)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.flow import advance
from loomctl.runs import log_verdict
from loomctl.runs.log_verdict import Verdict
from loomctl.runs.store import event_log, events, log_chain
from loomctl.runs.store.events import Event, Head
from tests.helpers.errors import refusal
from tests.helpers.scenes import Scene
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

LOG = events.FILE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    """Give the log of a run that was really driven, and what its state remembers of it."""
    scene = Scene(tmp_path_factory.mktemp("a run ü"))
    scene.workflow(phases={"b": {"steps": [{"id": "s", "prompt": "x"}]}})
    run_id = scene.begin("ü").run.run_id
    advance.done(scene.space(), run_id, response="ä")
    return (scene.run_dir / LOG).read_bytes(), scene.state["ledger_head"]


def verdict_of(path: Path, data: bytes, head: Any) -> Verdict:
    path.write_bytes(data)
    return log_verdict.of_log(str(path), "r", {"ledger_head": head}, event_log.every(str(path.parent)))


def line_of(data: bytes, at: int) -> int:
    """Number the line in which a byte stands; a newline belongs to the line that it ends."""
    return data.count(b"\n", 0, at) + 1


def test_a_real_log_is_proven_to_its_end_and_without_a_head_nothing_is(tmp_path: Path, made: tuple[bytes, Any]) -> None:
    data, head = made
    found = verdict_of(tmp_path / LOG, data, head)
    assert (found.ok, found.proven, found.unproven, found.torn, found.faults) == (True, True, 0, 0, [])
    assert (found.entries, found.checkpoint) == (data.count(b"\n"), head["seq"])
    for head in (None, {}, {"seq": "3", "sha256": ""}, {"seq": 10**400, "sha256": "x"}, [1]):
        found = verdict_of(tmp_path / LOG, data, head)
        assert (found.ok, found.proven, found.checkpoint, found.unproven) == (True, False, None, data.count(b"\n"))
    assert verdict_of(tmp_path / LOG, b"", {"seq": -7, "sha256": "x"}).faults


@pytest.mark.slow
def test_every_byte_that_changes_goes_or_comes_and_every_cut_is_found_where_it_stands(
    tmp_path: Path, made: tuple[bytes, Any]
) -> None:
    """Each byte of a real log, three ways: the first fault is its line, or the one behind what it joined or split."""
    data, head = made
    for at, byte in enumerate(data):
        for other in {byte ^ 1, 0x20, 0x0A, 0xFF} - {byte}:
            found = verdict_of(tmp_path / LOG, data[:at] + bytes([other]) + data[at + 1 :], head)
            assert found.fault is not None, (at, other)
            assert not found.proven
            assert found.fault.line == line_of(data, at), (at, other, data[at - 20 : at + 20], found.faults)
    for at in range(len(data)):
        assert verdict_of(tmp_path / LOG, data[:at] + data[at + 1 :], head).faults, at
        for more in (b" ", b"\n", b"\0"):
            longer = data[:at] + more + data[at:]  # a newline before the last one stands behind it as well
            found = verdict_of(tmp_path / LOG, longer, head)
            assert bool(found.faults) != longer.startswith(data), (at, more)
    for length in range(len(data)):
        found = verdict_of(tmp_path / LOG, data[:length], head)
        assert [fault.code for fault in found.faults] == ["LOG_CUT_OFF"], length
    (tmp_path / LOG).unlink()
    gone = log_verdict.of_log(str(tmp_path / LOG), "r", {"ledger_head": head}, event_log.every(str(tmp_path)))
    assert [fault.code for fault in gone.faults] == ["LOG_GONE"]


def test_every_line_that_is_dropped_moved_or_doubled_is_found(tmp_path: Path, made: tuple[bytes, Any]) -> None:
    data, head = made
    lines = data.splitlines(keepends=True)
    for one in range(len(lines)):
        dropped = verdict_of(tmp_path / LOG, b"".join(lines[:one] + lines[one + 1 :]), head)
        assert dropped.fault is not None
        assert dropped.fault.line == one + 1
        for other in range(len(lines) + 1):
            doubled = verdict_of(tmp_path / LOG, b"".join([*lines[:other], lines[one], *lines[other:]]), head)
            assert doubled.fault is not None
            assert doubled.fault.line == (other + 1 if other != one else one + 2)
        for other in range(one + 1, len(lines)):
            swapped = list(lines)
            swapped[one], swapped[other] = lines[other], lines[one]
            found = verdict_of(tmp_path / LOG, b"".join(swapped), head)
            assert found.fault is not None
            assert found.fault.line == one + 1


def test_a_tail_that_a_kill_tore_is_no_fault_at_any_length_and_however_often(
    tmp_path: Path, made: tuple[bytes, Any]
) -> None:
    data, head = made
    path = tmp_path / LOG
    path.write_bytes(data)
    known = Head(head["seq"], head["sha256"])
    events.append(str(tmp_path), "r", [Event("a", {"n": "ü"}), Event("b", {})], durable=False, known=known)
    whole = path.read_bytes()
    for length in range(len(data), len(whole) + 1):
        found = verdict_of(path, whole[:length], head)
        assert (found.ok, found.proven) == (True, True), length
        torn = whole[len(data) : length]
        assert (found.unproven, found.torn) == (torn.count(b"\n"), len(torn) - torn.rfind(b"\n") - 1)
        after = events.append(str(tmp_path), "r", [Event("c", {})], durable=False, known=known)
        told = verdict_of(path, path.read_bytes(), after._asdict())
        assert (told.ok, told.proven, told.unproven) == (True, True, 0), (length, told.faults)
        assert told.told_torn == (1 if found.torn else 0)
    path.write_bytes(data)
    known = Head(head["seq"], head["sha256"])
    for _ in range(4):
        after = events.append(str(tmp_path), "r", [Event("c", {})], durable=False, known=known)
        assert verdict_of(path, path.read_bytes(), after._asdict()).faults == []
        path.write_bytes(path.read_bytes()[:-1])
        found = log_verdict.of_log(str(path), "r", {"ledger_head": known._asdict()}, event_log.every(str(tmp_path)))
        assert (found.ok, found.torn > 0) == (True, True)


@each("torn", [b"x", b"\0" * 50, b"\xff\n\n", b"a\nb", b"a\nb\n", b"\n", b"\n\n\n", b"[1]\n{}\n\n"])
def test_what_was_told_of_a_torn_line_is_held_against_it(tmp_path: Path, torn: bytes, made: tuple[bytes, Any]) -> None:
    data, head = made
    path = tmp_path / LOG
    path.write_bytes(data + torn)
    after = events.append(str(tmp_path), "r", [Event("c", {})], durable=False, known=Head(head["seq"], head["sha256"]))
    whole, now = path.read_bytes(), after._asdict()
    assert verdict_of(path, whole, now).ok
    for at in range(len(data), len(whole)):
        assert not verdict_of(path, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], now).ok, at
        longer = whole[:at] + b"\n" + whole[at:]
        assert verdict_of(path, longer, now).ok == longer.startswith(whole), at
        assert not verdict_of(path, whole[:at] + whole[at + 1 :], now).ok, at


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_edit_before_the_checkpoint_passes(tmp_path: Path, made: tuple[bytes, Any], data: st.DataObject) -> None:
    log, head = made
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(log) - 1))
        end = data.draw(st.integers(start, min(len(log), start + 400)))
        edited = log[:start] + data.draw(st.one_of(st.binary(max_size=40), st.just(log[: end - start]))) + log[end:]
    else:
        edited = b"".join(data.draw(st.permutations(log.splitlines(keepends=True))))
    found = verdict_of(tmp_path / LOG, edited, head)
    if not edited.startswith(log):
        assert found.faults
        assert not found.proven
    else:
        assert found.proven


def test_damage_that_the_log_tells_of_stays_a_finding(scene: Scene) -> None:
    scene.workflow()
    run_id = scene.begin().run.run_id
    path = scene.run_dir / LOG
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    advance.done(scene.space(), run_id, response="said")
    found = log_verdict.verify(scene.space().store, run_id)
    assert "TOLD_DAMAGE" in [fault.code for fault in found.faults]
    assert found.fault is not None
    assert found.fault.line == len(lines)
    assert not found.proven


def test_what_stands_behind_the_checkpoint_is_unproven_and_a_replaced_one_is_noticed(
    tmp_path: Path, made: tuple[bytes, Any]
) -> None:
    """Entries without a write of the state: how many, and where the first is; a broken one is a fault all the same."""
    data, head = made
    path = tmp_path / LOG
    path.write_bytes(data)
    known = Head(head["seq"], head["sha256"])
    events.append(str(tmp_path), "r", [Event("a", {}), Event("b", {}), Event("c", {})], durable=False, known=known)
    whole = path.read_bytes()
    found = verdict_of(path, whole, head)
    assert (found.proven, found.unproven, found.beyond) == (True, 3, log_chain.Place(data.count(b"\n") + 1, len(data)))
    lines = whole.splitlines(keepends=True)
    broken = verdict_of(path, b"".join(lines[:-2] + lines[-1:]), head)
    assert (broken.proven, broken.ok, broken.fault and broken.fault.line) == (True, False, len(lines) - 1)
    changed = verdict_of(path, b"".join([*lines[:-2], lines[-2].replace(b'"b"', b'"x"'), lines[-1]]), head)
    assert (changed.proven, changed.fault and changed.fault.line) == (True, len(lines) - 1)
    first = whole[: len(data)] + whole[len(data) :].replace(head["sha256"].encode(), b"0" * 64, 1)
    assert (verdict_of(path, first, head).fault or log_chain.Fault("", 0, 0, 0, "", "")).line == len(lines) - 2
    path.write_bytes(data[: data.rstrip(b"\n").rfind(b"\n") + 1])
    events.append(str(tmp_path), "r", [Event("forged", {}), Event("too", {})], durable=False)
    assert not verdict_of(path, path.read_bytes(), head).ok
    after = events.append(str(tmp_path), "r", [Event("c", {})], durable=False, known=Head(head["seq"], head["sha256"]))
    found = verdict_of(path, path.read_bytes(), after._asdict())
    assert [fault.code for fault in found.faults] == ["TOLD_DAMAGE"]


HOSTILE = [
    b"\0" * 100_000, b"\xff\xfe\xfd\n" * 50, b"[" * 200_000,
    b'{"seq":' + b"9" * 5000 + b',"event":"x","prev":"","properties":{}}\n',
    b'{"seq":1,"event":"ledger.torn_line","prev":"","properties":[]}\n',
    b'{"seq":1,"event":"ledger.mismatch","prev":"","properties":{"expected":7,"found":{"seq":1e999}}}\n',
    b'{"seq":99999999999999999,"event":"\\ud800","prev":"\\u0000","properties":null}\n', b"\n" * 1_000_000,
]  # fmt: skip


@each("hostile", HOSTILE)
@each("place", ["before", "between", "behind"])
def test_whatever_stands_in_a_log_is_judged(
    tmp_path: Path, made: tuple[bytes, Any], hostile: bytes, place: str
) -> None:
    data, head = made
    middle = data.find(b"\n") + 1
    whole = {"before": hostile + data, "between": data[:middle] + hostile + data[middle:], "behind": data + hostile}
    found = verdict_of(tmp_path / LOG, whole[place], head)
    json.dumps(found.to_dict())
    if place != "behind":
        assert found.faults
        assert not found.proven
    assert len(found.faults) <= log_chain.MOST_FAULTS


def test_a_line_of_64_mb_is_a_finding_and_not_held_in_memory(tmp_path: Path, made: tuple[bytes, Any]) -> None:
    data, head = made
    with (tmp_path / LOG).open("wb") as log:
        log.write(b'{"seq":1,')
        for _ in range(64):
            log.write(b"x" * (1 << 20))
        log.write(b"\n" + data)
    with bounded_work():
        found = log_verdict.of_log(str(tmp_path / LOG), "r", {"ledger_head": head}, event_log.every(str(tmp_path)))
    assert [(fault.code, fault.line) for fault in found.faults] == [("NO_ENTRY", 1)]


@pytest.mark.slow
def test_a_log_of_100_000_entries_is_verified_in_seconds(tmp_path: Path) -> None:
    head = Head(0, "")
    for _ in range(100):
        many = [Event("tool.recorded", {"n": number}) for number in range(1000)]
        head = events.append(str(tmp_path), "r", many, durable=False)
    with bounded_work():
        found = log_verdict.of_log(
            str(tmp_path / LOG), "r", {"ledger_head": head._asdict()}, event_log.every(str(tmp_path))
        )
    assert (found.proven, found.entries) == (True, 100_000)


def test_what_cannot_be_read_is_said(scene: Scene) -> None:
    scene.workflow()
    run_id = scene.begin().run.run_id
    path = scene.run_dir / LOG
    kept = path.rename(path.with_name("kept"))
    path.mkdir()
    folder = refusal(log_verdict.verify, scene.space().store, run_id)
    path.rmdir()
    path.symlink_to(kept)
    link = refusal(log_verdict.verify, scene.space().store, run_id)
    path.unlink()
    assert [folder.code, link.code] == ["UNREADABLE", "UNSAFE_LINK"]
    found = log_verdict.verify(scene.space().store, run_id)
    assert [fault.code for fault in found.faults] == ["LOG_GONE"]


def test_a_copy_at_another_place_is_as_proven(scene: Scene, tmp_path: Path) -> None:
    scene.workflow()
    run_id = scene.begin().run.run_id
    other = tmp_path / "else where"
    shutil.copytree(scene.root, other)
    here = log_verdict.verify(Scene.space(_at(other)).store, run_id)
    assert here.proven
    assert os.path.commonpath([here.path, str(other)]) == str(other)


def _at(root: Path) -> Scene:
    scene = Scene.__new__(Scene)
    scene.root, scene.store = root, root / ".loom"
    return scene
