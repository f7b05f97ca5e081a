"""A worktree of its own for a run: where it stands, that it is given again, and when it goes (D77)."""

from __future__ import annotations

from pathlib import Path

import pytest

from loomctl.flow import resume
from loomctl.handoff import work, work_restore, worktrees
from loomctl.handoff.worktrees import Worktree
from tests.helpers.errors import refused
from tests.helpers.machines import Machine, own_of_the_user
from tests.helpers.repositories import git, make, trap
from tests.helpers.scenes import handle


@pytest.fixture
def place(laptop: Machine, run_id: str) -> Path:
    """Make the worktree of the run."""
    return Path(worktrees.make(laptop.space(), run_id))


def judged(machine: Machine) -> Worktree:
    (only,) = worktrees.look(machine.space())
    return only


def end(machine: Machine, run_id: str, status: str = "completed") -> None:
    state = machine.state_of(machine.folder(run_id))
    machine.edit(**{**state, "status": status})


def test_it_stands_beside_the_repository_on_a_branch_of_its_own(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    before = {name: of for name, of in own_of_the_user(laptop.root).items() if "worktrees" not in name}
    place = Path(worktrees.make(laptop.space(), run_id))
    called = handle(run_id)
    assert place == tmp_path / "Läp top.worktrees" / called
    assert git(place, "symbolic-ref", "--short", "HEAD") == f"loom/{called}"
    assert git(place, "rev-parse", "HEAD") == git(laptop.root, "rev-parse", "HEAD")
    assert laptop.space(cwd=place).store.folder == str(laptop.store)
    now = own_of_the_user(laptop.root)
    assert before.items() <= now.items()
    assert {name.split("/")[1] for name in now.keys() - before.keys()} == {"worktrees", "refs"}


def test_it_is_given_again_wherever_it_stands(laptop: Machine, run_id: str, place: Path, tmp_path: Path) -> None:
    (place / "mine").write_text("x")
    assert worktrees.make(laptop.space(), run_id) == str(place)
    assert worktrees.make(laptop.space(cwd=place), run_id) == str(place)
    git(laptop.root, "worktree", "move", str(place), str(tmp_path / "moved"))
    assert worktrees.make(laptop.space(), run_id) == str(tmp_path / "moved")
    assert (tmp_path / "moved" / "mine").read_text() == "x"


def test_one_whose_folder_was_removed_is_made_anew_with_its_commits(
    laptop: Machine, run_id: str, place: Path, tmp_path: Path
) -> None:
    git(place, "commit", "-q", "--allow-empty", "-m", "work")
    tip = git(place, "rev-parse", "HEAD")
    place.rename(tmp_path / "aside")
    assert worktrees.make(laptop.space(), run_id) == str(place)
    assert git(place, "rev-parse", "HEAD") == tip


def test_it_begins_at_the_head_of_who_asks(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    git(laptop.root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(tmp_path / "side", "commit", "-q", "--allow-empty", "-m", "side")
    found = Path(worktrees.make(laptop.space(cwd=tmp_path / "side"), run_id))
    assert git(found, "log", "-1", "--format=%s") == "side"
    assert found.parent == tmp_path / "Läp top.worktrees"


def test_in_another_repositorys_tree_it_stands_in_the_users_own_folder(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "state"))
    make(tmp_path / "outer")
    inner = Machine(tmp_path / "outer" / "shop", server)
    inner.workflow()
    inner.begin()
    found = Path(worktrees.make(inner.space(), inner.run_dir.name))
    assert found.is_relative_to(tmp_path / "state")


def test_what_cannot_be_made_is_told(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    taken = tmp_path / "Läp top.worktrees" / handle(run_id)
    taken.mkdir(parents=True)
    (taken / "mine").write_text("x")
    with refused("NOT_EMPTY"):
        worktrees.make(laptop.space(), run_id)
    (taken / "mine").unlink()
    head = git(laptop.root, "rev-parse", "HEAD")
    git(laptop.root, "update-ref", "-d", "HEAD")
    with refused("NO_COMMIT"):
        worktrees.make(laptop.space(), run_id)
    git(laptop.root, "update-ref", "HEAD", head)
    assert worktrees.make(laptop.space(), run_id) == str(taken)


def test_no_hook_runs_as_it_is_made(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    program, sprung = trap(tmp_path)
    hook = laptop.root / ".git" / "hooks" / "post-checkout"
    hook.write_text(program.read_text())
    hook.chmod(0o755)
    worktrees.make(laptop.space(), run_id)
    assert not sprung.exists()


# ---- When it goes.


def test_it_goes_when_its_run_is_over_and_nothing_of_it_is_lost(laptop: Machine, run_id: str, place: Path) -> None:
    assert judged(laptop).why == f"the run {handle(run_id)} is not over (in_progress)"
    end(laptop, run_id)
    (place / "new").write_text("x")
    assert judged(laptop).why == "it has changes that are not committed"
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "work")
    assert judged(laptop).why == f"no other branch has the commits of loom/{handle(run_id)}"
    assert worktrees.clean(laptop.space(), worktrees.look(laptop.space())).removed == []
    git(laptop.root, "merge", "-q", f"loom/{handle(run_id)}")
    found = worktrees.look(laptop.space())
    assert found[0].why == "its run is over, and main has its commits"
    assert not worktrees.look(laptop.space(cwd=place))[0].goes
    (removed,) = worktrees.clean(laptop.space(), found).removed
    assert (removed.path, place.exists()) == (str(place), False)
    assert git(laptop.root, "branch", "--list", "loom/*") == ""
    assert worktrees.look(laptop.space()) == []


def test_one_without_a_change_goes_once_its_run_failed(laptop: Machine, run_id: str, place: Path) -> None:
    end(laptop, run_id, "failed")
    assert judged(laptop).goes
    assert laptop.loomctl("clean", "--dry-run", "--json").json["worktrees"]["items"][0]["path"] == str(place)


def test_what_changed_since_it_was_looked_at_stays(laptop: Machine, run_id: str, place: Path) -> None:
    end(laptop, run_id)
    found = worktrees.look(laptop.space())
    (place / "late").write_text("x")
    assert worktrees.clean(laptop.space(), found).failed[0][1] == "it has changes that are not committed"
    (place / "late").unlink()
    git(laptop.root, "worktree", "lock", str(place))
    assert "locked" in worktrees.clean(laptop.space(), found).failed[0][1]
    assert place.exists()


def test_clean_asks_and_names_what_it_keeps(laptop: Machine, run_id: str, place: Path) -> None:
    said = laptop.loomctl("clean", "--yes").ends()
    assert f"kept the worktree {place}: the run {handle(run_id)} is not over (in_progress)" in said.stdout
    end(laptop, run_id)
    assert f"would remove the worktree {place} and loom/{handle(run_id)}" in laptop.loomctl("clean", "--dry-run").stdout
    assert place.exists()
    assert f"removed the worktree {place}" in laptop.loomctl("clean", "--yes").ends().stdout
    assert not place.exists()


def test_a_users_own_worktree_is_never_looked_at(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    git(laptop.root, "worktree", "add", "-q", "-b", "loom/mine", str(tmp_path / "mine"))
    end(laptop, run_id)
    assert worktrees.look(laptop.space()) == []


def test_one_that_a_pull_made_is_looked_at_too(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    work.snapshot(laptop.space(), run_id)
    laptop.push(run_id)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    desk = desktop.desk()
    desktop.pull(run_id)
    assert worktrees.cut_off(desktop.space(), run_id) == ""
    work_restore.put_back(desk, run_id, work_restore.find(desk, run_id), str(tmp_path / "there"))
    assert judged(desktop).path == str(tmp_path / "there")
    resume.resume(desktop.space(), run_id, take_over=True)
    assert worktrees.make(desktop.space(), run_id) == str(tmp_path / "there")
