"""What was noted at a stage's beginning is kept as long as an undo may need it, and goes through no link."""

from __future__ import annotations

from pathlib import Path

import pytest

from loomctl.changes import working_tree
from loomctl.kit.errors import LoomError


def made(local: Path, stage: str) -> Path:
    own = Path(working_tree.begin_baseline(str(local), "r", stage))
    (own / "objects" / "ab").mkdir(parents=True)
    (own / "objects" / "ab" / "cd").write_text("x")
    working_tree.write_baseline(str(local), "r", stage, {"stage": stage})
    return own


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    local = tmp_path / ".loom" / "local"
    own = made(local, "001-a.b@1")
    assert working_tree.read_baseline(str(local), "r", "001-a.b@1") == {"stage": "001-a.b@1"}
    assert working_tree.baseline_folder(str(local), "r", "001-a.b@1") == str(own)
    path = local / "baselines" / "r" / "001-a.b@1.noted"
    for text in ("", "[]", "{"):
        path.write_text(text)
        assert working_tree.read_baseline(str(local), "r", "001-a.b@1") is None
    assert list(Path(working_tree.begin_baseline(str(local), "r", "001-a.b@1")).iterdir()) == []
    assert not path.exists()
    assert working_tree.read_baseline(str(local), "r", "002-a.b@1") is None


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither to where baselines stand nor inside of one that goes."""
    local, away = tmp_path / ".loom" / "local", tmp_path / "away"
    away.mkdir()
    (away / "precious").write_text("x")
    own = made(local, "001-a.b@1")
    (own / "link").symlink_to(away)
    working_tree.discard(str(own))
    assert not own.exists()
    own.symlink_to(away)
    working_tree.discard(str(own))
    assert not own.is_symlink()
    assert (away / "precious").exists()
    (local / "baselines" / "s").symlink_to(away)
    with pytest.raises(LoomError, match="symbolic link"):
        working_tree.begin_baseline(str(local), "s", "001-a.b@1")


def test_names_that_lead_elsewhere_are_refused_and_a_runs_last_two_are_kept(tmp_path: Path) -> None:
    """They come from files (D10)."""
    for run_id, stage in (("../r", "001-a@1"), ("r", "../../x"), ("r", "/x"), ("r", "")):
        with pytest.raises(LoomError, match="is no"):
            working_tree.begin_baseline(str(tmp_path / "local"), run_id, stage)
    assert not list(tmp_path.iterdir())
    local = tmp_path / ".loom" / "local"
    for stage in ("998-a.b@1", "999-a.b@2", "1000-a.b@3"):
        made(local, stage)
    other = Path(working_tree.begin_baseline(str(local), "other", "001-a.b@1"))
    made(local, "1001-a.b@4")
    working_tree.keep_two_baselines(str(local), "r", "1001-a.b@4")
    names = sorted(path.name for path in (local / "baselines" / "r").iterdir())
    assert names == [f"{stage}{end}" for stage in ("1000-a.b@3", "1001-a.b@4") for end in (".git", ".noted")]
    assert other.is_dir()
