"""What is kept beside a run's files: never overwritten, never through a link, and named in the log (D53, D56)."""

from __future__ import annotations

import copy
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.runs.model import frozen_plan, state
from loomctl.runs.model.state import Step, new_state
from loomctl.runs.store import event_log, recovery
from loomctl.runs.store.events import Event
from loomctl.runs.store.layouts import Home
from loomctl.runs.store.recovery import losses
from loomctl.runs.store.store import Store
from tests.helpers.errors import refusal
from tests.helpers.runs import AT, HANDLE, PLAN, RUN_ID, make_run
from tests.helpers.tables import each

CHECKOUT = Path(__file__).parents[2]


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "no links here")


def aside(folder: Path) -> str | None:
    return recovery.set_aside(str(folder / "state.json"), str(folder / "state.json"), "broken")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_is_set_aside_under_the_next_free_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for number in (1, 2, 3):
        (tmp_path / "state.json").unlink(missing_ok=True)
        (tmp_path / "state.json").write_text(f"{number}")
        assert aside(tmp_path) == f"state.broken-{number}.json"
    assert [(tmp_path / f"state.broken-{number}.json").read_text() for number in (1, 2, 3)] == ["1", "2", "3"]
    assert (tmp_path / "state.json").exists() == links


def test_setting_aside_again_makes_no_second_copy_and_of_nothing_none(tmp_path: Path) -> None:
    assert aside(tmp_path) is None
    assert os.listdir(tmp_path) == []
    (tmp_path / "state.json").write_text("x")
    assert (aside(tmp_path), aside(tmp_path)) == ("state.broken-1.json", "state.broken-1.json")
    assert len(os.listdir(tmp_path)) == 2


def test_what_is_no_file_is_moved_as_it_is(tmp_path: Path) -> None:
    for number, kind in enumerate(["link", "folder", "pipe"]):
        root = tmp_path / str(number)
        root.mkdir()
        victim = root / "victim"
        victim.write_text("mine")
        path = root / "run" / "state.json"
        path.parent.mkdir()
        if kind == "link":
            path.symlink_to(victim)
        elif kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(path)
        mode = path.lstat().st_mode
        assert aside(path.parent) == "state.broken-1.json"
        assert path.with_name("state.broken-1.json").lstat().st_mode == mode
        assert not os.path.lexists(path)
        assert victim.read_text() == "mine"


def test_kept_states_are_listed_backup_first(tmp_path: Path) -> None:
    home = Home("x", str(tmp_path), "", str(tmp_path / "state.backup.json"), "", False)
    for number, name in enumerate(("state.broken-1.json", "state.v1.backup.json", "state.replaced-1.json")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (number, number))
    (tmp_path / "state.json").write_text("x")
    (tmp_path / "plan.broken-1.json").write_text("x")
    (tmp_path / "state.link.json").symlink_to(tmp_path / "state.json")
    names = ["state.replaced-1.json", "state.v1.backup.json", "state.broken-1.json"]
    assert recovery.kept_states(home) == names
    (tmp_path / "state.backup.json").write_text("x")
    assert recovery.kept_states(home) == ["state.backup.json", *names]
    (tmp_path / "faber-state.broken-1.json").write_text("x")
    fabers = home._replace(backup=str(tmp_path / "faber-state.backup.json"))
    assert recovery.kept_states(fabers) == ["faber-state.broken-1.json"]
    assert recovery.kept_states(home._replace(folder=str(tmp_path / "nowhere"))) == ["state.backup.json"]


def test_a_kept_state_is_not_read_through_a_link(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    elsewhere = tmp_path / "elsewhere.json"
    Path(made.folder, "state.json").rename(elsewhere)
    Path(made.folder, "state.backup.json").symlink_to(elsewhere)
    with pytest.raises(LoomError, match="UNSAFE_LINK"):
        store.read_home(recovery.kept_home(store.home(RUN_ID), "state.backup.json"))
    assert store.run_ids() == [RUN_ID]


def entry(seq: int) -> bytes:
    return b'{"seq": %d, "event": "a", "prev": ""}\n' % seq


def test_rubbish_in_the_log_hides_no_entry(tmp_path: Path) -> None:
    for number, (text, seqs, damaged) in enumerate(
        [
            (b"", [], 0),
            (entry(1) + entry(2), [1, 2], 0),
            (entry(1) + b"\x00\xff\xfe rubbish\n\n" + entry(2) + b'{"seq": 3, "ev', [1, 2], 2),
            (b'[]\n5\n{"seq": "1", "event": "a"}\n{"seq": 1}\n{"seq": true, "event": "a"}\n', [], 5),
            (b"[" * 100_000 + b"\n" + entry(4), [4], 1),
        ]
    ):
        root = tmp_path / str(number)
        root.mkdir()
        (root / "events.jsonl").write_bytes(text)
        found, lines = event_log.entries(str(root))
        assert ([entry["seq"] for entry in found], lines) == (seqs, damaged)
        assert [entry["seq"] for entry in event_log.entries(str(root), after=1)[0]] == [seq for seq in seqs if seq > 1]


def test_a_pipe_in_the_place_of_the_log_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    assert event_log.entries(str(tmp_path)) == ([], 0)
    with pytest.raises(OSError, match="not a regular file"):
        files.open_own(str(tmp_path / "events.jsonl"), os.O_RDWR | os.O_APPEND)


def test_a_line_without_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "LONGEST_LINE", 100)
    long = b'{"seq": 1, "prev": "", "event": "' + b"x" * 1000 + b'"}\n'
    (tmp_path / "events.jsonl").write_bytes(long + entry(7))
    found, damaged = event_log.entries(str(tmp_path))
    assert ([one["seq"] for one in found], damaged) == ([7], 1)


def test_rubbish_in_the_middle_of_the_log_does_not_stop_the_run(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    path = Path(made.folder, "events.jsonl")
    path.write_bytes(path.read_bytes() + bytes(range(256)) * 40 + b"\n")
    store.update(RUN_ID, lambda known: (known, [Event("after", {})]))
    found, damaged = event_log.entries(made.folder)
    assert [entry["event"] for entry in found] == ["run.created", "ledger.torn_line", "after"]
    assert damaged > 0


SCHEMA = {
    1: [Step("note where it came from", lambda raw: {**raw, "origin": "one"})],
    2: [Step("rename it", lambda raw: {**{key: raw[key] for key in raw if key != "origin"}, "from": raw["origin"]})],
}


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Loom whose schemas are the third, with a way from the first."""
    for module in (state, frozen_plan):
        monkeypatch.setattr(module, "SCHEMA_VERSION", 3)
        monkeypatch.setattr(module, "MIGRATIONS", SCHEMA)


def set_goal(goal: str) -> Any:
    return lambda known: ({**known, "goal": goal}, [Event("goal.set", {})])


def first_schema(folder: str, name: str = "state.json") -> bytes:
    """Make a file one of the first schema; gives its bytes."""
    path = Path(folder, name)
    raw = {**json.loads(path.read_bytes()), "schema_version": 1, "x-own": [1]}
    path.unlink()
    path.write_text(json.dumps(raw))
    return path.read_bytes()


@pytest.mark.usefixtures("third")
def test_reading_an_older_state_changes_no_file(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    old = first_schema(made.folder)
    first_schema(made.folder, "plan.json")
    read = store.read(RUN_ID)
    assert (read.state["schema_version"], read.state["from"], read.state["x-own"]) == (3, "one", [1])
    assert (read.plan["schema_version"], read.plan["from"]) == (3, "one")
    store.update(RUN_ID, lambda known: (known, []))
    assert Path(made.folder, "state.json").read_bytes() == old


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("links", [True, False])
def test_the_first_write_keeps_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    store, made = make_run(tmp_path)
    old = first_schema(made.folder)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    store.update(RUN_ID, set_goal("one"))
    after = store.update(RUN_ID, set_goal("two"))
    assert type(after) is dict
    on_disk = json.loads(Path(made.folder, "state.json").read_bytes())
    assert (on_disk["schema_version"], on_disk["from"], on_disk["goal"]) == (3, "one", "two")
    assert Path(made.folder, "state.v1.backup.json").read_bytes() == old
    happened = [(entry["event"], entry["properties"]) for entry in event_log.entries(made.folder)[0]]
    told = {"from": 1, "to": 3, "steps": ["note where it came from", "rename it"], "kept": "state.v1.backup.json"}
    assert happened[1][1].pop("sha256")
    assert happened[1:] == [("state.migrated", told), ("goal.set", {}), ("goal.set", {})]


@pytest.mark.usefixtures("third")
def test_an_original_is_never_overwritten(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    kept = Path(made.folder, "state.v1.backup.json")
    kept.write_text("precious")
    old = first_schema(made.folder)
    store.update(RUN_ID, lambda known: ({**known, "goal": "x"}, []))
    assert (kept.read_text(), kept.with_name("state.v1.backup-2.json").read_bytes()) == ("precious", old)
    Path(made.folder, "state.json").write_bytes(old)  # as after a kill between keeping and writing
    store.update(RUN_ID, lambda known: ({**known, "goal": "x"}, []))
    assert sorted(path.name for path in Path(made.folder).glob("state.v1*")) == [
        "state.v1.backup-2.json",
        "state.v1.backup.json",
    ]


MIGRATOR = """
import sys
from loomctl.runs.store.store import Store
from loomctl.runs.model import state
from loomctl.runs.model.state import Step
state.SCHEMA_VERSION = 3
state.MIGRATIONS = {2: [Step("fill", lambda raw: {**raw, "fill": "x" * 200_000})]}
print("ready", flush=True)
Store(sys.argv[1]).update(sys.argv[2], lambda known: ({**known, "goal": "new"}, []))
"""


@pytest.mark.slow
def test_a_kill_while_migrating_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(56)
    store, made = make_run(tmp_path)
    path = Path(made.folder, "state.json")
    old = path.read_bytes()
    for _ in range(20):
        for kept in Path(made.folder).glob("state.*.json"):
            kept.unlink()
        path.unlink()
        path.write_bytes(old)
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", MIGRATOR, store.folder, RUN_ID], cwd=CHECKOUT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.random() * 0.012)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = path.read_bytes()
        if now != old:
            assert json.loads(now)["goal"] == "new"
            assert Path(made.folder, "state.v2.backup.json").read_bytes() == old
        monkeypatch.setattr(state, "SCHEMA_VERSION", 3)
        monkeypatch.setattr(state, "MIGRATIONS", {2: [Step("fill", lambda raw: {**raw, "fill": "y"})]})
        assert Store(store.folder).update(RUN_ID, lambda known: ({**known, "goal": "on"}, []))["goal"] == "on"
        assert Path(made.folder, "state.v2.backup.json").read_bytes() == old
        monkeypatch.undo()


def test_a_current_state_costs_no_migration(tmp_path: Path) -> None:
    """Reading and writing today's files imports neither the tables nor what keeps originals."""
    store, _ = make_run(tmp_path)
    program = (
        "import sys\nfrom loomctl.runs.store.store import Store\nstore = Store(sys.argv[1])\nstore.read(sys.argv[2])\n"
        "store.update(sys.argv[2], lambda known: ({**known, 'goal': 'x'}, []))\n"
        "print([name for name in sys.modules if name.endswith('.recovery')])"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, store.folder, RUN_ID], cwd=CHECKOUT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_the_store_knows_a_run_by_what_is_left(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    store.update(RUN_ID, lambda known: ({**known, "goal": "x"}, []))
    Path(made.folder, "state.json").unlink()
    assert store.run_ids() == [RUN_ID]
    for ask in (store.read_state, store.read, lambda run_id: store.update(run_id, lambda known: (known, []))):
        with pytest.raises(LoomError, match="NO_STATE") as error:
            ask(RUN_ID)
        assert error.value.hint == f"loomctl debug state restore {HANDLE}"


def test_a_damaged_plan_says_the_way_back(tmp_path: Path) -> None:
    """Missing, torn or misshapen: one error with the file and a hint that helps."""
    for number, damage in enumerate([None, b"", b"{", b"[]", b'{"schema_version": 1}', b"\xff"]):
        root = tmp_path / str(number)
        root.mkdir()
        store, made = make_run(root)
        path = Path(made.folder, "plan.json")
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        error = refusal(store.read, RUN_ID)
        assert error.code in ("BAD_PLAN", "BAD_JSON")
        assert str(path) in error.where
        assert error.hint == f"loomctl debug state restore {HANDLE}"


def no_change(known: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
    return known, []


def test_what_replaces_a_state_leaves_the_backup_alone(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    store.update(RUN_ID, lambda known: ({**known, "goal": "x"}, [Event("goal.set", {})]))
    backup = Path(made.folder, "state.backup.json")
    good = backup.read_bytes()
    Path(made.folder, "state.json").write_text("{torn")
    store.replace(RUN_ID, str(backup), lambda known: (known, [Event("state.restored", {})]))
    assert (backup.read_bytes(), store.read_state(RUN_ID)["ledger_head"]["seq"]) == (good, 3)
    assert [entry["event"] for entry in event_log.entries(made.folder)[0]][-1] == "state.restored"
    store.update(RUN_ID, no_change)


BASE = new_state(PLAN, run_id=RUN_ID, work_id=None, goal="g", at=AT)


def visit(key: str, number: int, status: str) -> dict[str, Any]:
    return {"step_id": key, "visit": number, "status": status}


def with_sessions(*records: dict[str, Any]) -> dict[str, Any]:
    return {**BASE, "sessions": {"session_history": list(records)}}


@each(
    ("before", "after", "steps"),
    [
        ([], [], []),
        ([visit("a/b", 1, "succeeded")], [visit("a/b", 1, "succeeded")], []),
        ([visit("a/b", 1, "succeeded")], [visit("a/b", 1, "in_progress")], [("a/b", 1, "succeeded", "in_progress")]),
        ([visit("a/b", 1, "failed"), visit("a/b", 2, "in_progress")], [visit("a/b", 1, "failed")],
         [("a/b", 2, "in_progress", None)]),
        ([], [visit("a/b", 1, "closing")], [("a/b", 1, None, "closing")]),
    ],
)  # fmt: skip
def test_visits_are_told_apart(before: list[Any], after: list[Any], steps: list[tuple[Any, ...]]) -> None:
    """A visit that is gone, one that is there again, and one that stands otherwise."""
    found = losses({**BASE, "steps": before}, {**BASE, "steps": after})
    assert [tuple(one.values()) for one in found.steps] == steps
    assert found.any == bool(steps)


def test_sessions_and_other_keys_are_told_apart_and_bookkeeping_is_not_named() -> None:
    ended = {"session_id": "a", "ended_at": AT, "end_reason": "logout"}
    found = losses(with_sessions(ended, {"session_id": "b"}), with_sessions({"session_id": "a", "ended_at": None}))
    assert found.sessions == [
        {"session_id": "a", "was": "logout", "now": "open"},
        {"session_id": "b", "was": "open", "now": None},
    ]
    after = copy.deepcopy(BASE)
    after |= {"goal": "h", "x-own": 1, "revision": 7, "updated_at": "later", "ledger_head": {"seq": 9, "sha256": "x"}}
    after["context_metadata"] = {"reload_count": 5}
    assert losses(BASE, after).keys == ["goal", "x-own"]
    assert not losses(BASE, {**BASE, "revision": 9}).any
