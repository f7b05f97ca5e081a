"""A run that machines share: what is sent of it, and what coming back leaves of what stood there (D77, D78)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from loomctl.handoff import share, work, worktrees
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


def test_a_pull_brings_an_older_worktree_up_to_date_where_its_user_says_so(
    laptop: Machine, desktop: Machine, run_id: str, away: Path
) -> None:
    place = Path(worktrees.of_run(laptop.space(), run_id))
    (place / "half.py").write_text("half a thought")
    (away / "feature.py").write_text("done = 1\n")
    desktop.done(run_id, "Made the feature.")
    share.send(at(desktop, away), run_id, saves=True)
    laptop.pull(run_id)
    assert not (place / "feature.py").exists()
    refused = (
        laptop.loomctl("pull", run_id, "--worktree", str(laptop.root.parent / "new"), "--json").ends(2).json["error"]
    )
    assert (refused["code"], shlex.split(refused["hint"])[3:]) == ("BRANCH_EXISTS", ["--worktree", str(place)])
    told = laptop.loomctl(*shlex.split(refused["hint"])[1:]).ends().stdout
    assert (place / "feature.py").read_text() == "done = 1\n"
    (saved,) = [line.split()[-1] for line in told.splitlines() if line.startswith("Loom saved what stood there before")]
    assert "half.py" in git(laptop.root, "ls-tree", "--name-only", saved)
    assert "is up to date" in laptop.loomctl("pull", run_id, "--worktree", str(place)).ends().stdout


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
