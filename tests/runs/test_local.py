"""What a machine knows of its sessions: who drives which run, who lives, who was given what (D1, D2, D15)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit import processes
from loomctl.runs.machine.local import SILENT_AFTER, TERMINAL, Local
from tests.helpers.errors import refusal
from tests.helpers.tables import each


@pytest.fixture
def local(tmp_path: Path) -> Local:
    """Give the local part of a store that does not exist yet."""
    return Local(str(tmp_path / "local"))


@pytest.fixture
def host() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that stands for a host; it is ended after the test."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_binding_holds_until_it_is_taken_off_and_what_a_session_was_given_is_remembered(local: Local) -> None:
    assert local.binding("s1") is None
    assert local.bindings() == []
    made = local.bind("s1", "r1", host="claude-code", pid=os.getpid(), inherited_from="s0")
    assert (local.binding("s1"), made["inherited_from"]) == (made, "s0")
    assert local.binding("s2") is None
    assert local.binding(None) is None
    local.unbind("s1")
    assert local.binding("s1") is None
    assert local.primed("s1") == local.primed(None) == {"epoch": 0, "artifacts": {}}
    noted = {"run_id": "r1", "epoch": 3, "artifacts": {"a": {"sha256": "f", "form": "full", "slip": "x"}}, "slip": "x"}
    local.note_primed("s1", noted)
    assert local.primed("s1") == noted


def test_sessions_whose_hosts_began_in_one_tick_are_two(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock's tick names no process: neither of them left for the other; after a `/clear` the earlier one did."""
    monkeypatch.setattr(processes, "started", lambda _: "4711")
    local.bind("s1", "r1", host="claude-code", pid=101)
    local.bind("s2", "r1", host="claude-code", pid=102)
    assert sorted(local.live_sessions("r1")) == ["s1", "s2"]
    local.bind("s3", "r1", host="claude-code", pid=102)
    assert sorted(local.live_sessions("r1")) in (["s1", "s2"], ["s1", "s3"])
    assert len(local.live_sessions("r1")) == 2


def test_a_session_lives_as_long_as_its_host_and_on_in_another(local: Local, host: subprocess.Popen[bytes]) -> None:
    binding = local.bind("s1", "r1", host="claude-code", pid=host.pid)
    assert local.live_sessions("r1") == ["s1"]
    assert local.live_sessions("r1", but="s1") == local.live_sessions("r2") == []
    host.kill()
    host.wait()
    assert not local.is_alive(binding)
    assert local.live_sessions("r1") == []
    binding = local.bind("s1", "r1", host="claude-code", pid=host.pid)
    host.kill()
    host.wait()
    refreshed = local.refresh(binding, pid=os.getpid(), transcript_path=None)
    assert local.is_alive(refreshed)
    assert (refreshed["process"], local.binding("s1")) == (processes.identity(os.getpid()), refreshed)


def test_an_ended_session_does_not_live_but_stays_bound(local: Local) -> None:
    """A conversation that ended may be resumed: its binding stays, and a new sign of life takes the mark off."""
    binding = local.bind("s1", "r1", host="claude-code", pid=os.getpid())
    local.mark_ended("s1")
    local.mark_ended("nobody")
    assert (local.live_sessions("r1"), local.binding("s1")) == ([], {**binding, "ended": True})
    ended = local.binding("s1")
    assert ended is not None
    local.refresh(ended, pid=None, transcript_path=None)
    assert local.live_sessions("r1") == ["s1"]


def test_a_pid_that_was_used_again_is_not_the_host(local: Local, tmp_path: Path) -> None:
    for key in ("started", "boot_id"):
        local.bind("s1", "r1", host="claude-code", pid=os.getpid())
        path = tmp_path / "local" / "sessions" / "s1.json"
        binding = json.loads(path.read_text())
        binding["process"][key] = "another"
        path.write_text(json.dumps(binding))
        assert local.live_sessions("r1") == []
        assert local.of_process(os.getpid()) is None


def test_a_host_that_cannot_be_named_lives_by_its_signs(local: Local, tmp_path: Path) -> None:
    binding = local.bind("s1", "r1", host="other", pid=None)
    path = tmp_path / "local" / "sessions" / "s1.json"
    assert local.is_alive(binding)
    os.utime(path, (time.time() - SILENT_AFTER - 5,) * 2)
    assert not local.is_alive(binding)
    binding = local.refresh(binding, pid=None, transcript_path="/t.jsonl")
    assert local.is_alive(binding)
    assert binding["transcript_path"] == "/t.jsonl"
    elsewhere = {**binding, "process": {**binding["process"], "boot_id": "another"}}
    assert not local.is_alive(elsewhere)


def test_a_switch_inside_a_process_is_found(local: Local, host: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """The latest binding of a host process is what a new session in it inherits (D2); other processes' are not."""
    now = time.time()
    for age, name in ((3, "s1"), (1, "s2"), (2, "s3")):
        local.bind(name, f"run-{name}", host="claude-code", pid=host.pid)
        os.utime(tmp_path / "local" / "sessions" / f"{name}.json", (now - age,) * 2)
    local.bind("other", "r9", host="claude-code", pid=os.getpid())
    found = local.of_process(host.pid)
    assert found is not None
    assert found["session_id"] == "s2"
    assert local.of_process(1) is None
    assert [entry["session_id"] for entry in local.bindings()][:3] == ["s1", "s3", "s2"]


def test_a_terminal_is_no_conversation(local: Local) -> None:
    """A person's shell counts as live where a run is driven, not where a conversation would be primed."""
    local.bind("t1", "r1", host=TERMINAL, pid=os.getpid())
    assert (local.live_sessions("r1"), local.live_sessions("r1", conversing=True)) == (["t1"], [])


@each(
    "content",
    [
        b"", b"{", b"[]", b'{"run_id": 7, "session_id": "s1"}', b'{"run_id": "r1"}',
        b'{"run_id": "r1", "session_id": "x"}',
    ],
)  # fmt: skip
def test_a_damaged_binding_binds_nobody(local: Local, content: bytes) -> None:
    local.bind("s2", "r1", host="h", pid=os.getpid())
    folder = Path(local.folder) / "sessions"
    (folder / "s1.json").write_bytes(content)
    (folder / ".json").write_bytes(content)
    (folder / "s3.json").mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("x")
    assert local.binding("s1") is None
    assert local.live_sessions("r1") == ["s2"]


@each("process", [None, [], "x", {}, {"pid": "1"}, {"pid": 10**30, "started": "x"}])
def test_a_binding_with_an_odd_process_is_dead(local: Local, process: Any) -> None:
    local.bind("s1", "r1", host="h", pid=None)
    path = Path(local.folder) / "sessions" / "s1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "process": process}))
    assert local.live_sessions("r1") == []
    assert local.of_process(os.getpid()) is None


@each("session_id", ["../x", "/etc/x", "a/b", "..", "a\0b", "", "x" * 300])
def test_no_session_id_leads_out_of_the_folder(local: Local, session_id: str) -> None:
    """A host's word for a session is checked before it names a file: asking finds nothing, writing is refused."""
    assert local.binding(session_id) is None
    assert local.primed(session_id)["artifacts"] == {}
    for write in (
        lambda: local.bind(session_id, "r1", host="h", pid=None),
        lambda: local.note_primed(session_id, {}),
        lambda: local.unbind(session_id),
    ):
        assert refusal(write).code == "BAD_ID"
    assert list(Path(local.folder).parent.rglob("*.json")) == []


@each("noted", [{"epoch": "3", "artifacts": []}, {"epoch": True}, {"artifacts": None}])
def test_damaged_notes_count_for_nothing(local: Local, noted: dict[str, Any]) -> None:
    """What is no epoch is epoch 0 and what is no list of artifacts is none: then all is given again."""
    local.note_primed("s1", noted)
    found = local.primed("s1")
    assert (found["epoch"], found["artifacts"]) == (0, {})


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_dead_are_looked_at_once(local: Local, tmp_path: Path) -> None:
    """Looking for the living costs no more after a thousand sessions: who is found dead is not looked at again."""
    dead = dead_process()
    for number in range(20):
        local.bind(f"dead-{number}", "r1", host="claude-code", pid=dead)
    local.bind("alive", "r1", host="claude-code", pid=os.getpid())
    assert local.live_sessions("r1") == ["alive"]
    assert [path.name for path in (tmp_path / "local" / "live").iterdir()] == ["alive"]
    assert len(local.bindings()) == 21  # each conversation may still be resumed


def test_a_session_is_found_again_by_its_next_sign_of_life(local: Local, tmp_path: Path) -> None:
    """Without marks no binding is read: a clone can bring along thousands."""
    binding = local.bind("back", "r1", host="claude-code", pid=dead_process())
    assert local.live_sessions("r1") == []
    local.refresh(binding, pid=os.getpid(), transcript_path=None)
    assert local.live_sessions("r1") == ["back"]
    binding = local.bind("old", "r1", host="claude-code", pid=os.getpid())
    shutil.rmtree(tmp_path / "local" / "live")
    assert local.live_sessions("r1") == []
    local.refresh(binding, pid=os.getpid(), transcript_path=None)
    assert local.live_sessions("r1") == ["old"]


def test_what_was_read_is_read_anew_where_anybody_wrote_it_and_never_through_a_link(tmp_path: Path) -> None:
    """Once a process, but for writes: its own, another's, one of the same size, and a file that is gone."""
    mine, other = Local(str(tmp_path / "local")), Local(str(tmp_path / "local"))
    for number in range(20):
        writer = (mine, other)[number % 2]
        writer.note_primed("s1", {"epoch": number % 10})
        assert mine.primed("s1")["epoch"] == other.primed("s1")["epoch"] == number % 10
    mine.note_turns("s1", {"prompt_id": "a"})
    read = mine.turns("s1")
    read["prompt_id"] = "changed"
    assert mine.turns("s1") == {"prompt_id": "a"}
    (tmp_path / "local" / "turns" / "s1.json").unlink()
    assert mine.turns("s1") == {}
    local = Local(str(tmp_path / "local"))
    local.note_turns("s1", {"prompt_id": "a"})
    assert local.turns("s1")
    path = tmp_path / "local" / "turns" / "s1.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert local.turns("s1") == {}


def test_what_is_given_is_the_callers_own(local: Local) -> None:
    local.bind("s1", "r1", host="claude-code", pid=os.getpid(), told={"stages": ["a"]})
    local.note_primed("s1", {"run_id": "r1", "epoch": 1, "artifacts": {"spec": {"form": "full"}}})
    local.note_turns("s1", {"driven": ["p1"]})
    for read in (local.binding, local.primed, local.turns):
        wanted = json.dumps(read("s1"))
        for _ in range(2):  # when it was just read, and from what is kept of it
            given = read("s1")
            assert given is not None
            for value in given.values():
                if isinstance(value, (dict, list)):
                    value.clear()
            assert json.dumps(read("s1")) == wanted
