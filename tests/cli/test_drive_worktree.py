"""`loomctl drive --worktree` and `--key`: where a run is worked on, and which one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.fake_assistant import FakeAssistant, documents
from tests.helpers.repositories import git, make
from tests.helpers.scenes import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A project of git's."""
    made = Scene(tmp_path / "shop", new=False)
    make(made.root)
    return made


def places(fake: FakeAssistant) -> list[str]:
    return (fake.folder / "places").read_text(encoding="utf-8").splitlines()


def test_a_worktree_of_its_own_also_the_next_time(fake: FakeAssistant) -> None:
    fake.play("case $turn in 1) echo made >made.txt; ends; over 0.1 ;; *) ends; over 0.1 ;; esac")
    out, err = fake.drives("add dark mode", "--workflow", "tiny", "--worktree", "--max-turns", "1", code=10)
    called = fake.scene.handle
    place = fake.scene.root.parent / "shop.worktrees" / called
    assert f"Loom: works in the run's worktree, {place}\n" in err
    assert places(fake) == [str(place)]
    assert (place / "made.txt").exists()
    assert not (fake.scene.root / "made.txt").exists()
    assert git(place, "branch", "--show-current") == f"loom/{called}"
    out, _ = fake.drives(called, "--json")
    assert documents(out)[0]["root"] == str(place)
    assert places(fake) == [str(place)] * 2
    assert fake.scene.state["status"] == "completed"


@pytest.mark.parametrize(("repository", "code", "exit_code"), [(False, "NO_REPOSITORY", 8), (True, "NO_COMMIT", 2)])
def test_where_none_can_be_made_no_run_is_begun(
    fake: FakeAssistant, repository: bool, code: str, exit_code: int
) -> None:
    shutil.rmtree(fake.scene.root / ".git")
    if repository:
        git(fake.scene.root, "init", "-q")
    _, err = fake.drives("add dark mode", "--workflow", "tiny", "--worktree", code=exit_code)
    assert f"loomctl: {code}: " in err
    assert fake.scene.run_dirs == []


@pytest.mark.slow
def test_a_worktree_that_is_gone_or_anothers_is_none(fake: FakeAssistant) -> None:
    fake.play("ends; ends; over 0.1")
    fake.scene.begin(session=None)
    note = fake.scene.store / "local" / "worktrees" / f"{fake.scene.run_dir.name}.json"
    note.parent.mkdir(parents=True)
    elsewhere = fake.scene.root.parent / "elsewhere"
    elsewhere.mkdir()
    note.write_text(f'{{"path": "{elsewhere}", "is_whole": true}}', encoding="utf-8")
    _, err = fake.drives(fake.scene.handle)
    assert "worktree" not in err
    assert places(fake) == [str(fake.scene.root)]


@pytest.mark.slow
def test_a_worktree_that_goes_in_mid_drive_is_named(fake: FakeAssistant) -> None:
    fake.play('rm -rf "$PWD"; cd /; over 0.1')
    fake.scene.begin(session=None)
    _, err = fake.drives(fake.scene.handle, "--worktree", code=1)
    assert "FOLDER_GONE: the folder in which the run is driven is gone" in err
    last = [one["properties"] for one in fake.scene.events() if one["event"] == "drive.ended"][-1]
    assert (last["code"], last["kind"]) == (1, "error")
    assert fake.scene.state["lease"]["session_id"] is None
    fake.play("ends; ends; over 0.1")
    fake.drives(fake.scene.handle)
    assert fake.scene.state["status"] == "completed"


@pytest.mark.slow
def test_a_key_finds_the_open_run(fake: FakeAssistant) -> None:
    fake.play("over 0.1")
    for _ in range(2):
        fake.drives("258", "--workflow", "tiny", "--key", "issue-258", "--max-turns", "1", code=10)
        assert len(fake.scene.run_dirs) == 1
    fake.play("ends; ends; over 0.1")
    fake.drives("258", "--key", "issue-258")
    assert fake.scene.state["status"] == "completed"
