"""A machine knows the runs that it started or resumed, each in its very place (D23)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from loomctl.runs.machine import run_notes
from tests.helpers.tables import each


def test_a_run_is_known_after_it_was_noted_and_until_it_is_forgotten_in_any_store(tmp_path: Path) -> None:
    """Noted it is known, with what else was noted and since when; forgotten it is as if it had never been."""
    store = str(tmp_path / ".loom")
    assert not run_notes.is_known("r1", store)
    assert (run_notes.known("r1", store), run_notes.note_known("r1", store)) == ({}, "")
    since = run_notes.known("r1", store)["since"]
    assert (run_notes.note_known("r1", store, trusted="abc"), run_notes.note_known("r1", store)) == ("", "")
    assert run_notes.known("r1", store) == {"run_id": "r1", "store": store, "since": since, "trusted": "abc"}
    assert run_notes.is_known("r1", store)
    assert not run_notes.is_known("r2", store)
    run_notes.forget_known("r1", store)
    run_notes.forget_known("r1", store)
    assert not run_notes.is_known("r1", store)
    store = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe .loom")
    assert run_notes.note_known("r1", store) == ""
    assert run_notes.is_known("r1", store)


@pytest.mark.shows("by the run's id and the store's real path")
def test_a_copied_or_moved_project_is_new(tmp_path: Path) -> None:
    store = tmp_path / "a" / ".loom"
    store.mkdir(parents=True)
    run_notes.note_known("r1", str(store))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert not run_notes.is_known("r1", str(tmp_path / "b" / ".loom"))
    assert run_notes.is_known("r1", str(tmp_path / "link" / ".loom"))


@pytest.mark.shows("What this machine has started, resumed or trusted is kept in your own folder")
@pytest.mark.shows("which runs this machine knows, your settings compiled")
def test_what_is_known_lies_in_the_users_folder_alone(tmp_path: Path, user_folders: Path) -> None:
    run_notes.note_known("r1", str(tmp_path / ".loom"))
    assert os.listdir(tmp_path) == []
    (entry,) = (user_folders / "loom-state" / "runs").iterdir()
    assert entry.stat().st_mode & 0o077 == 0


@each("content", [b"", b"{", b"[]", b"\xff", b"x" * (1 << 21)])
def test_a_damaged_note_trusts_nothing(tmp_path: Path, user_folders: Path, content: bytes) -> None:
    store = str(tmp_path / ".loom")
    run_notes.note_known("r1", store, trusted="abc")
    (entry,) = (user_folders / "loom-state" / "runs").iterdir()
    entry.write_bytes(content)
    assert (run_notes.known("r1", store), run_notes.note_known("r1", store)) == ({}, "")
    assert run_notes.known("r1", store)["run_id"] == "r1"
    assert "trusted" not in run_notes.known("r1", store)
    entry.unlink()


def test_where_nothing_can_be_kept_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "file"))
    assert "could not remember the run" in run_notes.note_known("r1", str(tmp_path))
    assert not run_notes.is_known("r1", str(tmp_path))
    monkeypatch.delenv("LOOM_STATE_HOME")
    monkeypatch.setenv("HOME", "")
    assert "LOOM_STATE_HOME" in run_notes.note_known("r1", str(tmp_path))
    assert not run_notes.is_known("r1", str(tmp_path))
    run_notes.forget_known("r1", str(tmp_path))
