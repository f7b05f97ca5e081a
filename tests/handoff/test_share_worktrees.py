"""A run that machines share: what is sent of it, and what coming back leaves of what stood there (D77, D78)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from loomctl.handoff import share, work, work_restore, worktrees
from loomctl.kit.errors import LoomError
from loomctl.runs.project import Workspace
from tests.helpers.machines import Machine
from tests.helpers.repositories import git


def worktree(machine: Machine, run_id: str) -> Path:
    return Path(worktrees.make(machine.space(), run_id))


def sent_code(server: Path, run_id: str) -> list[str]:
    return git(server, "ls-tree", "-r", "--name-only", f"refs/loom/work/{run_id}").splitlines()


def taken(machine: Machine, run_id: str) -> Path:
    """Bring a run to another machine with its code; gives its worktree there."""
    share.bring(machine.space(), run_id)
    return Path(worktrees.of_run(machine.space(), run_id))


def at(machine: Machine, place: Path) -> Workspace:
    return machine.space(cwd=place)


def test_no_state_is_sent_ahead_of_its_code(laptop: Machine, server: Path, run_id: str) -> None:
    """A step ended, and its driver died before it saved the code: whoever goes on would lack the step's work."""
    place = worktree(laptop, run_id)
    work.snapshot(at(laptop, place), run_id)
    (place / "feature.py").write_text("done = 1\n")
    laptop.done(run_id, "Made the feature.")
    share.send(at(laptop, place), run_id, saves=True)
    assert "feature.py" in sent_code(server, run_id)


def test_a_decision_sends_no_checkout_that_is_none_of_the_runs(laptop: Machine, server: Path, run_id: str) -> None:
    work.snapshot(at(laptop, worktree(laptop, run_id)), run_id)
    (laptop.root / "mine.txt").write_text("not the run's")
    share.send(laptop.space(), run_id)
    assert "mine.txt" not in sent_code(server, run_id)


@pytest.fixture
def away(laptop: Machine, desktop: Machine, run_id: str) -> Path:
    """A run that the desktop has taken over from the laptop, whose worktree stands there; gives the desktop's."""
    place = worktree(laptop, run_id)
    (place / ".gitignore").write_text("built/\n*.log\n")
    share.send(at(laptop, place), run_id, saves=True)
    return taken(desktop, run_id)


def test_what_git_does_not_know_stays_where_newer_code_comes(
    laptop: Machine, desktop: Machine, run_id: str, away: Path
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / "built" / "deep").mkdir(parents=True)
    (place / "built" / "deep" / "x.o").write_text("an hour's work of a compiler")
    (place / "a.log").write_text("what happened")
    (place / ".env").write_text("TOKEN=1")
    (place / "half.py").write_text("half a thought")
    (away / "feature.py").write_text("done = 1\n")
    (away / "made.log").write_text("theirs")
    desktop.done(run_id, "Made the feature.")
    share.send(at(desktop, away), run_id, saves=True)
    there = taken(laptop, run_id)
    assert there == place
    assert (place / "feature.py").read_text() == "done = 1\n"
    assert (place / "built" / "deep" / "x.o").read_text() == "an hour's work of a compiler"
    assert (place / "a.log").read_text() == "what happened"
    assert (place / ".env").read_text() == "TOKEN=1"
    assert not (place / "half.py").exists()
    held = git(laptop.root, "log", "--format=%H", f"refs/loom/work/{run_id}").split()
    assert any("half.py" in git(laptop.root, "ls-tree", "--name-only", one) for one in held)
    assert not [one for one in place.parent.iterdir() if one != place]


def test_what_cannot_come_back_to_its_place_is_kept_beside(
    laptop: Machine, desktop: Machine, run_id: str, away: Path
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / "a.log").write_text("mine")
    (away / ".gitignore").write_text("built/\n")
    (away / "a.log").write_text("theirs")
    desktop.done(run_id, "Made it.")
    share.send(at(desktop, away), run_id, saves=True)
    brought = share.bring(laptop.space(), run_id)
    assert (place / "a.log").read_text() == "theirs"
    assert (Path(f"{place}.kept") / "a.log").read_text() == "mine"
    assert any(f"{place}.kept" in one for one in brought.notes)


def went_on(desktop: Machine, away: Path, run_id: str, name: str = "feature.py") -> None:
    """Let the desktop end a step that writes a file, and send it."""
    (away / name).write_text("done = 1\n")
    desktop.done(run_id, "Made the feature.")
    share.send(at(desktop, away), run_id, saves=True)


def test_a_machine_that_drove_a_part_gets_newer_files_beside_its_own(
    laptop: Machine, desktop: Machine, run_id: str, away: Path
) -> None:
    """What stands in its worktree may be nowhere else: by the hint it stays, under another name."""
    place, new = Path(worktrees.of_run(laptop.space(), run_id)), laptop.root.parent / "new"
    (place / "half.py").write_text("half a thought")
    went_on(desktop, away, run_id)
    words = ("pull", run_id, "--worktree", str(new))
    refused = laptop.loomctl(*words, "--json").ends(2).json["error"]
    assert refused["code"] == "BRANCH_EXISTS"
    assert str(place) in refused["why"]
    git(laptop.root, *shlex.split(refused["hint"])[1:])
    laptop.loomctl(*words).ends()
    assert (new / "feature.py").read_text() == "done = 1\n"
    assert (place / "half.py").read_text() == "half a thought"


class Below(Machine):
    """A clone whose project is one of its folders."""

    def __init__(self, root: Path, server: Path) -> None:
        super().__init__(root, server)
        self.root = root / "sub project"
        self.store = self.root / ".loom"
        self.workflow()


def test_a_project_in_a_folder_of_its_repository_loses_nothing(tmp_path: Path, server: Path) -> None:
    """Its worktree is the repository's, and what is saved of it the whole of that."""
    laptop, desktop = (Below(tmp_path / name, server) for name in ("laptop", "desktop"))
    laptop.begin()
    run_id = laptop.run_dir.name
    place = Path(worktrees.make(laptop.space(), run_id))
    assert worktrees.project_in(laptop.space(), str(place)) is not None
    share.send(laptop.space(cwd=place / "sub project"), run_id, saves=True)
    share.bring(desktop.space(), run_id)
    found = worktrees.project_in(desktop.space(), worktrees.of_run(desktop.space(), run_id))
    assert found is not None
    away = Path(found.root)
    (place / "sub project" / "half.py").write_text("half a thought")
    (place / "sub project" / ".env").write_text("TOKEN=1")
    went_on(desktop, away, run_id)
    share.bring(laptop.space(), run_id)
    assert (place / "sub project" / "feature.py").read_text() == "done = 1\n"
    assert (place / "sub project" / ".env").read_text() == "TOKEN=1"
    held = git(laptop.root, "log", "--format=%H", f"refs/loom/work/{run_id}").split()
    assert any("half.py" in git(laptop.root, "ls-tree", "-r", "--name-only", one) for one in held)


def test_commits_on_its_branch_outlive_a_worktree_that_left_it(
    laptop: Machine, desktop: Machine, run_id: str, away: Path
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / "mine.py").write_text("an afternoon's work")
    git(place, "add", "mine.py")
    git(place, "commit", "-q", "-m", "By hand")
    mine = git(place, "rev-parse", "HEAD")
    git(place, "switch", "-q", "--detach", "main")
    went_on(desktop, away, run_id)
    with pytest.raises(LoomError, match="not empty"):
        share.bring(laptop.space(), run_id)
    assert git(laptop.root, "for-each-ref", "--contains", mine)


def test_what_another_call_left_beside_is_not_taken_for_newer(
    laptop: Machine, desktop: Machine, run_id: str, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / ".env").write_text("OLD=1")
    went_on(desktop, away, run_id)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(work_restore._Putting, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            share.bring(laptop.space(), run_id)
    assert not place.exists()
    assert (taken(laptop, run_id) / ".env").read_text() == "OLD=1"
    Path(f"{place}.kept").mkdir()
    (Path(f"{place}.kept") / ".env").write_text("OLDER=1")
    (place / ".env").write_text("NEW=1")
    went_on(desktop, away, run_id, "more.py")
    assert (taken(laptop, run_id) / ".env").read_text() == "NEW=1"
    assert [one.read_text() for one in place.parent.glob(f"{place.name}.kept-*/.env")] == ["OLDER=1"]


def test_code_that_is_not_sound_takes_nothing_away(
    laptop: Machine, desktop: Machine, server: Path, run_id: str, away: Path
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / ".env").write_text("TOKEN=1")
    went_on(desktop, away, run_id)
    ref = f"refs/loom/work/{run_id}"
    git(server, "update-ref", ref, git(server, "commit-tree", "-m", "junk", f"{ref}^{{tree}}", "-p", ref))
    with pytest.raises(LoomError) as refused:
        share.bring(laptop.space(), run_id)
    assert refused.value.code == "BAD_HANDOFF"
    assert (place / ".env").read_text() == "TOKEN=1"
    assert worktrees.of_run(laptop.space(), run_id) == str(place)


def test_what_loom_itself_never_saves_stays_too(laptop: Machine, desktop: Machine, run_id: str, away: Path) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / ".loom" / "workflows").mkdir(parents=True, exist_ok=True)
    (place / ".loom" / "workflows" / "new.yaml").write_text("id: new\nextends: core\n")
    went_on(desktop, away, run_id)
    assert (taken(laptop, run_id) / ".loom" / "workflows" / "new.yaml").exists()


def test_a_worktree_with_submodules_is_not_replaced(
    laptop: Machine, desktop: Machine, run_id: str, away: Path, tmp_path: Path
) -> None:
    place, library = Path(worktrees.of_run(laptop.space(), run_id)), tmp_path / "library"
    git(tmp_path, "init", "-q", str(library))
    git(library, "commit", "-q", "--allow-empty", "-m", "First")
    git(place, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    (place / "lib" / "mine").write_text("nowhere else")
    share.bring(laptop.space(), run_id)  # the machine that has them goes on
    went_on(desktop, away, run_id)
    with pytest.raises(LoomError, match="submodules"):
        share.bring(laptop.space(), run_id)
    assert (place / "lib" / "mine").read_text() == "nowhere else"


def test_a_state_that_moved_on_without_its_code_takes_away_what_was_begun_here(
    laptop: Machine, desktop: Machine, run_id: str, away: Path
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / "half.py").write_text("half a thought")
    desktop.done(run_id, "There was nothing to do.")
    share.send(at(desktop, away), run_id, saves=True)
    assert not (taken(laptop, run_id) / "half.py").exists()
    held = git(laptop.root, "log", "--format=%H", f"refs/loom/work/{run_id}").split()
    assert any("half.py" in git(laptop.root, "ls-tree", "--name-only", one) for one in held)


def test_what_git_cannot_save_is_not_taken_away(
    laptop: Machine, desktop: Machine, run_id: str, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / "half.py").write_text("half a thought")
    (away / "feature.py").write_text("done = 1\n")
    desktop.done(run_id, "Made the feature.")
    share.send(at(desktop, away), run_id, saves=True)
    monkeypatch.setattr(work, "snapshot", lambda *_: work.Snapshot(None))
    assert (taken(laptop, run_id) / "half.py").read_text() == "half a thought"
    assert (place / "feature.py").read_text() == "done = 1\n"
