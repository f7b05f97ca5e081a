"""A step that ends in another checkout than it began in: what was committed there before it began is no work of its."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loomctl.changes import evidence_files
from loomctl.flow import advance, resume
from loomctl.flow.advance import Driven
from loomctl.flow.outcomes import evidence
from loomctl.kit import digests
from loomctl.runs import artifact_paths
from tests.helpers.machines import Machine
from tests.helpers.repositories import git
from tests.helpers.scenes import OTHER, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import read

STAGE = "001-build.make@1"
OLDER = "it is as it was committed before the step began on another checkout"
UNCHANGED = "it has not changed since the step began"
LONG_AGO, LATER = "2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


@pytest.fixture
def laptop(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    made = Machine(tmp_path / "laptop", server)
    begin(made, "a.txt")
    return made


def begin(scene: Scene, *wanted: Any, **more: Any) -> str:
    steps = [{"id": "make", "prompt": "Make it.", "evidence": list(wanted), **more}, {"id": "then", "prompt": "Go on."}]
    scene.workflow(phases={"build": {"steps": steps}})
    return scene.begin().run.run_id


def here(root: Path, monkeypatch: pytest.MonkeyPatch, hostname: str = "desktop") -> Machine:
    found = object.__new__(Machine)
    found.root, found.store = root, root / ".loom"
    monkeypatch.setenv("LOOM_HOSTNAME", hostname)
    return found


def brought(laptop: Machine, root: Path, server: Path, monkeypatch: pytest.MonkeyPatch, *settings: str) -> Machine:
    laptop.push(laptop.run_dir.name)
    git(root.parent, "clone", "-q", *settings, str(server), str(root))
    found = here(root, monkeypatch)
    found.pull(laptop.run_dir.name)
    return found


def take_up(scene: Scene) -> None:
    resume.resume(scene.space(OTHER), scene.run_dir.name, take_over=True)


def done(scene: Scene, session: str | None = OTHER) -> Driven:
    return advance.done(scene.space(session), scene.run_dir.name, response="Made it.")


def committed_at(root: Path, when: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a.txt").write_text(text, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setenv("GIT_COMMITTER_DATE", when)
        patch.setenv("GIT_AUTHOR_DATE", when)
        git(root, "commit", "-q", "-am", "another")


def noted(scene: Scene) -> Json:
    found: Json = json.loads(read(scene, STAGE, evidence.NOTED))
    return found


def test_the_note_tells_its_place_and_not_where_that_is(laptop: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    place = noted(laptop)["place"]
    assert len(place) == 16
    assert str(laptop.root) not in json.dumps(noted(laptop))
    assert evidence._place(laptop.space()) == place
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    assert evidence._place(laptop.space()) != place


@pytest.mark.parametrize("settings", [(), ("-c", "core.autocrlf=true")], ids=["as it is", "with CRLF"])
@pytest.mark.parametrize("commit", [False, True], ids=["same commit", "an older commit"])
def test_what_stood_in_another_clone_before_is_no_work(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, commit: bool
) -> None:
    """Another commit of before the step, and other ends of lines, are none; what is changed there is."""
    desktop = brought(laptop, tmp_path / "desk top", server, monkeypatch, *settings)
    if commit:
        committed_at(desktop.root, LONG_AGO, "another\n", monkeypatch)
    take_up(desktop)
    refused = done(desktop)
    assert refused.ended is None
    assert (OLDER if commit else UNCHANGED) in refused.repair
    desktop.write("a.txt", "worked on\n")
    assert done(desktop).ended is not None


@pytest.mark.parametrize("settings", [(), ("-c", "core.autocrlf=true")], ids=["as it is", "with CRLF"])
def test_work_that_git_brings_along_counts(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    committed_at(laptop.root, LATER, "worked on\n", monkeypatch)
    git(laptop.root, "push", "-q", "origin", "HEAD:main")
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch, *settings)
    take_up(desktop)
    assert done(desktop).ended is not None


def test_work_that_git_did_not_bring_is_missing(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step changed the file where it was pushed from, and here it stands as it was."""
    committed_at(laptop.root, LATER, "worked on\n", monkeypatch)
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    assert UNCHANGED in done(desktop).repair
    git(laptop.root, "push", "-q", "origin", "HEAD:main")
    git(desktop.root, "pull", "-q")
    assert done(desktop).ended is not None


def test_work_in_a_project_that_was_copied_counts(
    laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop.write("a.txt", "worked on\n")
    shutil.copytree(laptop.root, tmp_path / "copy", symlinks=True)
    copy = here(tmp_path / "copy", monkeypatch)
    take_up(copy)
    assert done(copy).ended is not None


def test_a_session_that_goes_into_a_worktree_shows_its_work_there(tmp_path: Path, laptop: Machine) -> None:
    run_id, tree = laptop.run_dir.name, tmp_path / "wörk tree"
    git(laptop.root, "worktree", "add", "-q", "-b", "feat", str(tree))
    space = laptop.space(cwd=tree)
    assert UNCHANGED in advance.done(space, run_id, response="Made it.").repair
    (tree / "a.txt").write_text("worked on\n", encoding="utf-8")
    assert advance.done(laptop.space(cwd=tree), run_id, response="Made it.").ended is not None


def test_another_branch_in_a_worktree_is_no_work(
    tmp_path: Path, laptop: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    git(laptop.root, "worktree", "add", "-q", "-b", "feat", str(tree))
    committed_at(tree, LONG_AGO, "of the branch\n", monkeypatch)
    assert OLDER in advance.done(laptop.space(cwd=tree), laptop.run_dir.name, response="Made it.").repair


def test_of_a_pattern_one_file_that_is_new_is_enough(
    tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others that came with an older commit; git does not track it, and need not."""
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop = Machine(tmp_path / "laptop", server)
    begin(laptop, "*.txt")
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    committed_at(desktop.root, LONG_AGO, "another\n", monkeypatch)
    take_up(desktop)
    assert OLDER in done(desktop).repair
    desktop.write("b.txt", "new\n")
    assert done(desktop).ended is not None


def test_a_note_without_a_place_counts_everywhere(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = laptop.run_dir / "stages" / STAGE / evidence.NOTED
    data = json.dumps({"schema_version": 1, "files": noted(laptop)["files"]}).encode()
    note.write_bytes(data)
    state = laptop.state
    state["steps"][-1][evidence.HASHED] = digests.of_bytes(data)
    laptop.edit(**state)
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    committed_at(desktop.root, LONG_AGO, "another\n", monkeypatch)
    take_up(desktop)
    assert done(desktop).ended is not None


def test_what_git_says_of_a_file(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed before, and as it was then: else it does not stand so, or nobody knows."""
    root = Machine(tmp_path / "clöne of it", server).root
    committed_at(root, LONG_AGO, "old\n", monkeypatch)
    path, moment = str(root / "a.txt"), 1_600_000_000
    assert evidence_files.stands_since_before(path, moment)
    assert not evidence_files.stands_since_before(path, 0)
    assert not evidence_files.stands_since_before(path, 900_000_000)
    (root / "a.txt").write_text("newer\n", encoding="utf-8")
    assert not evidence_files.stands_since_before(path, moment)
    for name in ("untracked", ":(glob)**", "no such file"):
        (root / "untracked").write_text("x", encoding="utf-8")
        assert not evidence_files.stands_since_before(str(root / name), moment)
    (tmp_path / "apart").write_text("x", encoding="utf-8")
    assert not evidence_files.stands_since_before(str(tmp_path / "apart"), moment)


@each(
    ("before", "after", "differs"),
    [
        (b"a\nb\n", b"a\r\nb\r\n", False),
        (b"a\r\nb\n", b"a\nb\r\n", False),
        (b"a\nb\n", b"a\rb\n", True),
        (b"a\n", b"a\r\nb", True),
        (b"\r", b"\r", False),
        (b"", b"\r\n", True),
        (b"x" * ((1 << 20) - 1) + b"\r\n", b"x" * ((1 << 20) - 1) + b"\n", False),
        (b"x" * ((1 << 20) - 1) + b"\r", b"x" * ((1 << 20) - 1), True),
    ],
)
def test_ends_of_lines_alone_are_no_change(scene: Scene, before: bytes, after: bytes, differs: bool) -> None:
    """Whichever way they were turned, and wherever the blocks end that a file is read in."""
    path = scene.write("a.txt", before)
    space = scene.space()
    roots = artifact_paths.Roots(str(scene.root), str(scene.root), str(scene.root), ())
    first = evidence_files.look("a.txt", {"project_root": str(space.project.root)}, roots)
    path.write_bytes(after)
    second = evidence_files.look("a.txt", {"project_root": str(space.project.root)}, roots)
    assert bool(second.changed(first.digests, first.plain)) is differs
