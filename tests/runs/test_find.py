"""Which run is meant (D1): by name, by binding, as the only active one, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from loomctl.flow import start
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE
from loomctl.runs import find
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.project import Workspace
from tests.helpers.errors import refusal
from tests.helpers.scenes import OTHER, SESSION, Scene, handle
from tests.helpers.tables import each


@pytest.fixture
def two_runs(scene: Scene) -> tuple[str, str]:
    """Two active runs; SESSION is bound to the second."""
    scene.workflow()
    first = scene.begin("first").run.run_id
    second = scene.begin("second").run.run_id
    return first, second


def test_a_named_run_comes_before_the_bound_one_and_none_is_guessed(scene: Scene, two_runs: tuple[str, str]) -> None:
    """A unique prefix names a run (D4); a shared one is ambiguous; another is no run."""
    found = find.find(scene.space(), two_runs[0])
    assert (found.run_id, found.how, found.may_write) == (two_runs[0], "named", True)
    found = find.find(scene.space())
    assert (found.run_id, found.how) == (two_runs[1], "bound")
    space = scene.space(OTHER)
    found = find.find(space)
    assert (found.run_id, found.how, sorted(found.candidates)) == (None, "none", sorted(two_runs))
    caught = refusal(find.to_read, space)
    assert (caught.code, caught.exit_code) == ("AMBIGUOUS_RUN", EXIT_NO_RUN)
    assert all(handle(*one) in caught.why for one in zip(two_runs, ("first", "second"), strict=True))
    assert find.find(scene.space(OTHER), "shop-fir").run_id == two_runs[0]
    for name, code in (("shop-", "AMBIGUOUS_RUN"), ("nowhere", "NO_SUCH_RUN")):
        caught = refusal(find.find, scene.space(OTHER), name)
        assert (caught.code, caught.exit_code) == (code, EXIT_NO_RUN)


def test_a_shell_in_another_worktree_sees_the_run_of_that_worktree(scene: Scene) -> None:
    """Its own binding is of the place where it was made (D1, D3); an assistant's holds wherever it goes."""
    scene.workflow()
    tree = scene.root.parent / "tree"
    git_folder = scene.root / ".git" / "worktrees" / "tree"
    git_folder.mkdir(parents=True)
    tree.mkdir()
    (git_folder / "commondir").write_text("../..\n")
    (git_folder / "gitdir").write_text(f"{tree / '.git'}\n")
    (tree / ".git").write_text(f"gitdir: {git_folder}\n")

    def shell(cwd: Path) -> Workspace:
        return scene.space("terminal-1", host=TERMINAL, cwd=cwd)

    here = start.start(shell(scene.root), "here", workflow="tiny").run.run_id
    assert find.find(shell(tree)).run_id == here  # none was begun in the worktree
    there = start.start(scene.space(cwd=tree), "there", workflow="tiny").run.run_id
    found = find.find(shell(tree))
    assert (found.run_id, found.how) == (there, "only")
    assert refusal(find.to_drive, shell(tree)).code == "HELD_BY_ANOTHER"
    assert find.find(shell(scene.root)).run_id == here
    assert find.find(scene.space()).run_id == there  # an assistant that went to the main checkout
    assert find.find(scene.space(OTHER, cwd=tree)).run_id == there
    assert find.find(scene.space(OTHER)).run_id == here
    third = start.start(scene.space(OTHER, cwd=tree), "third", workflow="tiny").run.run_id
    assert find.find(shell(tree)).run_id == here  # two of the worktree's: neither is guessed
    assert third != there


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed", "pending"])
def test_only_runs_under_way_are_candidates(scene: Scene, status: str) -> None:
    """Completed, cancelled, failed and pending runs are not found by the third rule (D4)."""
    scene.workflow()
    run_id = scene.begin().run.run_id
    scene.edit(status=status)
    assert find.find(scene.space(OTHER)).how == "none"
    caught = refusal(find.to_read, scene.space(OTHER))
    assert (caught.what, caught.exit_code) == ("No active run", EXIT_NO_RUN)
    assert all(way in caught.why for way in ("loomctl run ", "loomctl resume"))
    assert f"the last one, {handle(run_id)}, is {status}" in caught.why
    assert caught.hint == f"loomctl show {handle(run_id)}"


def test_a_run_whose_state_cannot_be_read_is_no_candidate(scene: Scene, two_runs: tuple[str, str]) -> None:
    (scene.store / "runs" / two_runs[0] / "state.json").write_text("{")
    found = find.find(scene.space(OTHER))
    assert (found.run_id, found.how) == (two_runs[1], "only")


@pytest.mark.parametrize(("status", "how"), [("completed", "none"), ("cancelled", "none"), ("failed", "bound")])
def test_a_bound_run_that_is_over_is_there_only_to_be_looked_at(scene: Scene, status: str, how: str) -> None:
    """To read, a session's run is found whatever its standing; where only living runs count, it is none (D4)."""
    scene.workflow()
    scene.begin()
    scene.edit(status=status)
    assert (find.find(scene.space()).how, find.find(scene.space(), over=False).how) == ("bound", how)


@each("name", ["../../etc", "/etc", "a/b", "..", "", " ", "x" * 300, "a\nb", "a\0b"])
def test_a_name_that_is_no_id_never_meets_the_file_system(scene: Scene, name: str) -> None:
    """What cannot be a run's id is refused as usage, an empty name included: it is not the same as none (D10)."""
    scene.workflow()
    scene.begin()
    caught = refusal(find.find, scene.space(), name)
    assert (caught.code, caught.exit_code) == ("BAD_ID", EXIT_USAGE)


def test_no_store_has_no_run_and_the_only_active_run_is_found_but_never_driven(scene: Scene) -> None:
    """The third rule shows a run to an unbound session and refuses to write it."""
    assert find.find(scene.space()).how == "none"
    assert not scene.store.exists()
    scene.workflow()
    run_id = scene.begin().run.run_id
    found = find.find(scene.space(OTHER))
    assert (found.run_id, found.how, found.may_write) == (run_id, "only", False)
    scene.let_go()
    caught = refusal(find.to_drive, scene.space(OTHER))
    assert caught.code == "NOT_BOUND"
    assert handle(run_id) in caught.hint


def test_folders_that_are_no_runs_and_a_binding_to_a_run_that_is_gone_count_for_nothing(
    scene: Scene, two_runs: tuple[str, str]
) -> None:
    """A folder with a hostile name, or a state that is a folder, is not taken for a run."""
    runs = scene.store / "runs"
    for name in ("a\nb", "\x1b[31m", "-rf", ".hidden"):
        (runs / name).mkdir()
        (runs / name / "state.json").write_text((runs / two_runs[0] / "state.json").read_text())
    (runs / "folder" / "state.json").mkdir(parents=True)
    assert sorted(find.active_runs(scene.space(SESSION))) == sorted(two_runs)
    folder = scene.store / "runs" / two_runs[1]
    folder.rename(scene.root / "elsewhere")
    assert find.find(scene.space()).how == "only"
