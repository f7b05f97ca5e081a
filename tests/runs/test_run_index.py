"""Runs are known without reading every state, and never otherwise than their states say."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from loomctl.runs.store import run_index
from loomctl.runs.store.layouts import Home
from loomctl.runs.store.store import OPEN, Store
from tests.helpers.runs import RUN_ID, make_run

HOUR = 3600


def aged(store: Store) -> None:
    """Let everything be an hour old, so that times tell changes apart."""
    for path in (store.runs_folder, *(str(path) for path in Path(store.runs_folder).glob("*/state.json"))):
        status = os.stat(path)
        os.utime(path, ns=(status.st_mtime_ns - HOUR * 10**9,) * 2)


def edit(store: Store, run_id: str, **changes: Any) -> None:
    """Change a state as another program would: replaced, with a time of its own."""
    path = Path(store.run_dir(run_id), "state.json")
    state = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(state), encoding="utf-8")
    beside.replace(path)


def reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    whole, glance = store.read_home, store.glance

    def read_home(home: Home) -> dict[str, Any]:
        seen.append(home.run_id)
        return whole(home)

    def glanced(home: Home) -> dict[str, Any]:
        seen.append(home.run_id)
        return glance(home)

    monkeypatch.setattr(store, "read_home", read_home)
    monkeypatch.setattr(store, "glance", glanced)
    return seen


def test_a_state_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index answers for it; one that changed is read, and so is one that is too young to tell."""
    store, _ = make_run(tmp_path)
    make_run(tmp_path, "second")
    first = run_index.summaries(store)
    seen = reads(store, monkeypatch)
    assert run_index.summaries(store) == first
    assert seen == ["second", RUN_ID]  # just written: their times prove nothing
    aged(store)
    run_index.summaries(store)
    seen.clear()
    assert [one["status"] for one in run_index.summaries(store)] == ["pending", "pending"]
    assert seen == []
    edit(store, "second", status="failed", goal="ü")
    (changed,) = [one for one in run_index.summaries(store) if one["run_id"] == "second"]
    assert (changed["status"], changed["goal"], seen) == ("failed", "ü", ["second"])


def test_a_run_that_is_gone_or_broken_is_not_remembered(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path)
    make_run(tmp_path, "second")
    aged(store)
    run_index.summaries(store)
    shutil.rmtree(store.run_dir("second"))
    Path(store.run_dir(RUN_ID), "state.json").write_text("{", encoding="utf-8")
    ((status, error),) = [(one["status"], one["error"]) for one in run_index.summaries(store)]
    assert (status, error) == (None, "BAD_JSON: the file is not JSON")
    edit_back = Path(store.run_dir(RUN_ID), "state.json")
    edit_back.unlink()
    assert run_index.summaries(store) == []


DAMAGE = [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "store": 7, "runs": []}', b"\x00" * 100]


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path, status="in_progress")
    aged(store)
    for name in (run_index.INDEX, OPEN):
        for damage in DAMAGE:
            assert run_index.standing(store) == run_index.standing_quick(store)
            Path(store.local, name).write_bytes(damage)
            assert run_index.standing_quick(store).active == run_index.standing(store).active == [RUN_ID]


def test_an_index_of_another_place_does_not_count(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path / "one", status="in_progress")
    aged(store)
    run_index.standing(store)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    other = Store(str(tmp_path / "two" / ".loom"))
    stolen = json.loads(Path(store.local, OPEN).read_text(encoding="utf-8"))
    status = os.stat(other.runs_folder)
    made = [status.st_mtime_ns, status.st_size, status.st_ino]
    Path(other.local, OPEN).write_text(json.dumps({**stolen, "made": made, "runs": []}), encoding="utf-8")
    assert run_index.standing_quick(other).active == [RUN_ID]


def test_a_hook_reads_open_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = make_run(tmp_path, status="in_progress")
    for number in range(5):
        make_run(tmp_path, f"over-{number}", status="completed")
    aged(store)
    assert run_index.standing(store).active == [RUN_ID]
    seen = reads(store, monkeypatch)
    assert (run_index.standing_quick(store).active, seen) == ([RUN_ID], [RUN_ID])
    edit(store, RUN_ID, status="paused")
    assert run_index.standing_quick(store).active == [RUN_ID]
    store.update("over-3", lambda state: ({**state, "status": "in_progress"}, []))
    assert run_index.standing_quick(store).active == ["over-3", RUN_ID]
    make_run(tmp_path, "new", status="in_progress")
    assert run_index.standing_quick(store).active == ["new", "over-3", RUN_ID]


def test_a_hook_reads_open_runs_of_fabers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = make_run(tmp_path, status="completed")
    root = tmp_path / "faber"
    for number in range(6):
        status = "in_progress" if number == 3 else "completed"
        folder = root / (".fractary/runs", ".fractary/faber/runs")[number % 2] / f"p-run-{number}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"run_id": folder.name, "status": status}))
    store = Store(made.folder, [str(root)])
    for path in (store.runs_folder, *store.run_folders(), *(str(path) for path in root.rglob("state.json"))):
        os.utime(path, ns=(1_700_000_000 * 10**9,) * 2)
    assert run_index.standing(store).active == ["p-run-3"]
    seen = reads(store, monkeypatch)
    assert (run_index.standing_quick(store).active, seen) == (["p-run-3"], ["p-run-3"])


def test_a_hook_looks_into_no_state_that_would_hold_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One large state, or very many: what it did not look into it calls unreadable, and a command reads it all."""
    store, _ = make_run(tmp_path, "large", status="in_progress")
    edit(store, "large", odd="x" * run_index.LARGEST_LOOKED_AT)
    make_run(tmp_path, "small", status="in_progress")
    seen = reads(store, monkeypatch)
    assert run_index.standing_quick(store) == (["small"], ["large"])
    assert run_index.standing(store) == (["large", "small"], [])
    aged(store)
    run_index.standing(store)
    seen.clear()
    assert (run_index.standing_quick(store), seen) == ((["small"], ["large"]), ["small"])
    monkeypatch.setattr(run_index, "MOST_LOOKED_AT", 10)
    assert run_index.standing_quick(store) == ([], ["large", "small"])


def test_a_store_that_cannot_be_written_is_listed_all_the_same(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path)
    shutil.rmtree(store.local)
    assert [one["run_id"] for one in run_index.summaries(store)] == [RUN_ID]
    assert run_index.standing_quick(store).unreadable == []
    assert not Path(store.local).exists()
