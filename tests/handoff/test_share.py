"""A run that machines share: brought with its code before it is driven, sent after each step; nothing is lost of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from loomctl.handoff import repository, share, work, worktrees
from loomctl.handoff.handoff import Desk
from loomctl.kit.errors import LoomError
from tests.helpers.errors import refused
from tests.helpers.machines import Machine
from tests.helpers.repositories import git
from tests.helpers.scenes import handle


def place_on(machine: Machine, run_id: str) -> Path:
    return Path(worktrees.of_run(machine.space(), run_id))


def work_on(machine: Machine, run_id: str, **written: str) -> None:
    """Change the run here as a driver's step does: its state, and files of its worktree; then send both."""
    place = Path(worktrees.make(machine.space(), run_id))
    for name, text in written.items():
        (place / name).write_text(text)
    state = machine.state_of(machine.folder(run_id))
    machine.edit(**{**state, "goal": f"{state['goal']}+"})
    share.send(machine.space(cwd=place), run_id, saves=True)


def test_a_run_begins_elsewhere_at_the_commit_that_it_was_added_at(
    laptop: Machine, desktop: Machine, run_id: str
) -> None:
    (laptop.root / "tracked").write_text("mine\n")
    git(laptop.root, "add", "tracked")
    git(laptop.root, "commit", "-q", "-m", "not pushed")
    (laptop.root / "untracked").write_text("of no commit\n")
    share.begin(laptop.space(), run_id)
    share.send(laptop.space(), run_id)
    brought = share.bring(desktop.space(), run_id)
    place = place_on(desktop, run_id)
    assert (place / "tracked").read_text() == "mine\n"
    assert not (place / "untracked").exists()
    assert git(place, "rev-parse", "HEAD") == git(laptop.root, "rev-parse", "HEAD")
    assert brought.commit == share.listed(desktop.space())[run_id]
    share.begin(laptop.space(), run_id)  # once


def test_state_and_code_go_to_and_fro(laptop: Machine, desktop: Machine, run_id: str) -> None:
    work_on(laptop, run_id, one="1")
    share.bring(desktop.space(), run_id)
    assert (place_on(desktop, run_id) / "one").read_text() == "1"
    work_on(desktop, run_id, two="2")
    (place_on(laptop, run_id) / "late").write_text("not sent")
    share.bring(laptop.space(), run_id)
    there = place_on(laptop, run_id)
    assert sorted(path.name for path in there.iterdir() if path.name in ("one", "two", "late")) == ["one", "two"]
    history = git(laptop.root, "log", "--format=%H", work.WORK + run_id).split()
    assert any("late" in git(laptop.root, "ls-tree", "--name-only", one).split() for one in history)


def test_a_remote_is_asked_twice_and_pushed_to_once_a_step(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    """A forge bears few of both from all who work in a repository, and each takes a second over a network."""
    work_on(laptop, run_id, one="1")
    asked = tmp_path / "asked"
    for program in ("upload", "receive"):
        counts = tmp_path / program
        counts.write_text(f'#!/bin/sh\necho {program} >>"{asked}"\nexec git-{program}-pack "$@"\n')
        counts.chmod(0o755)
        git(laptop.root, "config", f"remote.origin.{program}pack", str(counts))
    work_on(laptop, run_id, two="2")
    assert sorted(asked.read_text().split()) == ["receive", "upload", "upload"]
    asked.unlink()
    share.bring(laptop.space(), run_id)
    assert asked.read_text().split() == ["upload"]


def test_what_another_machine_has_not_is_not_taken_away(laptop: Machine, run_id: str) -> None:
    work_on(laptop, run_id, one="1")
    place = place_on(laptop, run_id)
    (place / "more").write_text("under way")
    state = laptop.state_of(laptop.folder(run_id))
    laptop.edit(**{**state, "goal": "further here"})
    share.bring(laptop.space(), run_id)
    assert (place / "more").read_text() == "under way"
    assert laptop.state_of(laptop.folder(run_id))["goal"] == "further here"


def test_the_remotes_state_counts_and_the_other_stays_as_a_run(laptop: Machine, desktop: Machine, run_id: str) -> None:
    work_on(laptop, run_id, one="1")
    share.bring(desktop.space(), run_id)
    work_on(desktop, run_id, two="2")
    laptop.done(run_id, "Mine alone.")
    with refused("DIVERGED"):
        share.send(laptop.space(), run_id)
    brought = share.bring(laptop.space(), run_id)
    assert any("stays as" in note for note in brought.notes)
    (kept,) = [path.name for path in laptop.run_dirs if path.name != run_id]
    assert "Mine alone." in "".join(laptop.responses(kept))
    assert "Mine alone." not in "".join(laptop.responses(run_id))
    assert (place_on(laptop, run_id) / "two").read_text() == "2"


def test_code_that_is_sent_holds_what_the_state_tells(laptop: Machine, run_id: str) -> None:
    """A step that ends while the code is saved is sent the next time, as a whole."""
    place = Path(worktrees.make(laptop.space(), run_id))
    (place / "before").write_text("1")
    desk = Desk(laptop.space(cwd=place))
    taken: list[str] = []
    real = work.snapshot

    def snapshot(*words: object) -> object:
        taken.append(str(laptop.state_of(laptop.folder(run_id))["revision"]))
        return real(*words)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "snapshot", snapshot)
        share.send(laptop.space(cwd=place), run_id, saves=True)
    assert len(taken) == 1
    there = desk.repository.list_runs(desk.remote, below=work.WORK)[run_id]
    assert "before" in git(laptop.root, "ls-tree", "--name-only", there).split()


def half_made(machine: Machine, run_id: str, *, age: float) -> tuple[Path, Path]:
    """Leave a worktree as a `git worktree add` does that was killed; gives its place and git's folder of it."""
    place = Path(worktrees.make(machine.space(), run_id))
    own = Path(git(place, "rev-parse", "--absolute-git-dir"))
    (own / "locked").write_text("initializing")
    (own / "HEAD").write_text("0" * 40 + "\n")
    then = time.time() - age
    os.utime(own, (then, then))
    return place, own


def test_a_worktree_that_git_was_killed_over_keeps_no_run_from_coming(
    laptop: Machine, desktop: Machine, run_id: str
) -> None:
    work_on(laptop, run_id, one="1")
    share.bring(desktop.space(), run_id)
    work_on(laptop, run_id, two="2")
    half_made(desktop, run_id, age=3600)
    share.bring(desktop.space(), run_id)
    assert (place_on(desktop, run_id) / "two").read_text() == "2"


def test_a_worktree_that_git_was_killed_over_is_made_anew(laptop: Machine, run_id: str) -> None:
    place, own = half_made(laptop, run_id, age=0)
    (place / "half").write_text("x")
    assert worktrees.make(laptop.space(), run_id) == str(place)
    assert not (place / "half").exists()
    assert not repository.is_half_made(str(own))
    assert git(place, "symbolic-ref", "--short", "HEAD") == f"loom/{handle(run_id)}"


def test_nothing_is_removed_that_somebody_else_made(laptop: Machine, run_id: str) -> None:
    place, own = half_made(laptop, run_id, age=0)
    outside = laptop.root / "kept"
    outside.mkdir()
    (outside / "locked").write_text("initializing")
    (place / ".git").write_text(f"gitdir: {outside}\n")
    (place / "mine").write_text("x")
    with pytest.raises(LoomError):
        worktrees.make(laptop.space(), run_id)
    assert (place / "mine").exists()
    assert outside.exists()
    assert own.exists()


@pytest.mark.parametrize("is_named", [False, True])
def test_a_run_that_came_with_a_repository_and_calls_itself_shared_is_a_strangers(
    laptop: Machine, server: Path, tmp_path: Path, is_named: bool
) -> None:
    """Nobody decides of it before they took it up, and nothing of it is sent (D23)."""
    laptop.workflow(phases={"build": {"steps": [{"id": "ask", "kind": "human", "prompt": "Good?"}]}}, name="gated")
    run_id = laptop.begin(workflow="gated").run.run_id
    folder = laptop.folder(run_id)
    fleet = {"priority": 5, "after": [], "host": "claude-code", "shared": True, "added_at": "2026-01-01T00:00:00Z"}
    (folder / "state.json").write_text(json.dumps({**laptop.state_of(folder), "fleet": fleet}))
    (laptop.store / ".gitignore").unlink(missing_ok=True)
    git(laptop.root, "add", "--force", str(folder), ".loom/workflows")
    git(laptop.root, "commit", "-q", "-m", "A run")
    git(laptop.root, "push", "-q", "origin", "HEAD:refs/heads/main")
    victim = Machine(tmp_path / "victim", server)
    words = ("approve", *([run_id] if is_named else []), "--json")
    assert victim.loomctl(*words, session=None).ends(3).json["error"]["code"] == "NOT_KNOWN_HERE"
    assert "refs/loom/" not in git(server, "for-each-ref")
