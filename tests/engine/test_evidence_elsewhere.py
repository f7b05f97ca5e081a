"""A step that moves to another checkout has to change what stands there: what it found there is no work of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loomctl.disk import artifact_paths, checkouts, digests, evidence_files
from loomctl.disk.events import Event
from loomctl.engine import driving, evidence_beginnings, resuming, undoing
from loomctl.engine.driving import Driven
from tests.disk.repositories import git
from tests.engine.machines import Machine, server_of
from tests.scenes import OTHER, Json, Scene

STAGE = "001-build.make@1"
LATE = "as the step came to this checkout was not noted before now"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The bare repository between the machines; `a.txt` stands in it."""
    return server_of(tmp_path)


@pytest.fixture
def laptop(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A clone with a run at a step that has to change `a.txt`."""
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    made = Machine(tmp_path / "laptop", server)
    begin(made, "a.txt")
    return made


def begin(scene: Scene, *wanted: Any, **more: Any) -> str:
    """Begin a run whose first step has to show something."""
    steps = [{"id": "make", "prompt": "Make it.", "evidence": list(wanted), **more}, {"id": "then", "prompt": "Go on."}]
    scene.workflow(phases={"build": {"steps": steps}})
    return scene.begin().run.run_id


def brought(laptop: Machine, root: Path, server: Path, monkeypatch: pytest.MonkeyPatch, *settings: str) -> Machine:
    """Push the laptop's run and pull it in a clone of its own, which has another commit or other ends of lines."""
    laptop.push(laptop.run_dir.name)
    git(root.parent, "clone", "-q", *settings, str(server), str(root))
    found = object.__new__(Machine)
    found.root, found.store = root, root / ".loom"
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    found.pull(laptop.run_dir.name)
    return found


def take_up(scene: Scene) -> None:
    """Take the only run over."""
    resuming.resume(scene.space(OTHER), scene.run_dir.name, take_over=True)


def done(scene: Scene, session: str | None = OTHER) -> Driven:
    """End the open step."""
    return driving.done(scene.space(session), scene.run_dir.name, response="Made it.")


def noted(scene: Scene, name: str = evidence_beginnings.NOTED) -> Json:
    """Read what was noted of the step's files."""
    found: Json = json.loads((scene.run_dir / "stages" / STAGE / name).read_text(encoding="utf-8"))
    return found


def test_the_note_says_where_it_was_made(laptop: Machine) -> None:
    """Its checkout, the machine, the folder and the commit."""
    place = noted(laptop)["place"]
    commit = git(laptop.root, "rev-parse", "HEAD").strip()
    assert place == {
        "id": checkouts.here(str(laptop.store / "local"), str(laptop.root)),
        "machine": "laptop",
        "root": str(laptop.root),
        "commit": commit,
    }


@pytest.mark.parametrize("settings", [(), ("-c", "core.autocrlf=true")], ids=["as it is", "with CRLF"])
@pytest.mark.parametrize("commit", [False, True], ids=["same commit", "another commit"])
def test_what_stands_in_another_clone_is_no_work(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, commit: bool
) -> None:
    """Another commit, or other ends of lines, are none; what is changed there after the run was taken up is."""
    desktop = brought(laptop, tmp_path / "desk top", server, monkeypatch, *settings)
    if commit:
        desktop.write("a.txt", "another\n")
        git(desktop.root, "commit", "-q", "-am", "another")
    take_up(desktop)
    refused = done(desktop)
    assert refused.ended is None
    assert "it has not changed since the step came here" in refused.repair
    desktop.write("a.txt", "worked on\n")
    assert done(desktop).ended is not None


@pytest.mark.parametrize("settings", [(), ("-c", "core.autocrlf=true")], ids=["as it is", "with CRLF"])
def test_work_that_git_brings_along_counts(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """What the step had changed as the run was pushed is its work elsewhere too, also two places further on."""
    laptop.write("a.txt", "worked on\n")
    git(laptop.root, "commit", "-q", "-am", "worked on")
    git(laptop.root, "push", "-q", "origin", "HEAD:main")
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch, *settings)
    take_up(desktop)
    tower = brought(desktop, tmp_path / "tower", server, monkeypatch, *settings)
    take_up(tower)
    assert done(tower).ended is not None
    (tmp_path / "desktop/a.txt").write_text("something else\n", encoding="utf-8")
    assert done(desktop).ended is not None  # changed there


def test_work_that_git_did_not_bring_is_missing(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step changed the file where it was pushed from, and here it stands as it was."""
    laptop.write("a.txt", "worked on\n")
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    assert "it has not changed since the step came here" in done(desktop).repair
    git(laptop.root, "commit", "-q", "-am", "worked on")
    git(laptop.root, "push", "-q", "origin", "HEAD:main")
    git(desktop.root, "pull", "-q")
    assert done(desktop).ended is not None


@pytest.mark.parametrize(
    "shown", [1, [], {STAGE: 1}, {STAGE: {"a.txt": 1}}, {STAGE: {"a.txt": {"a.txt": [1]}}}, {"": {}}]
)
def test_what_a_log_tells_wrongly_shows_nothing(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch, shown: Any
) -> None:
    """A log that somebody else wrote holds what they like."""
    space = laptop.space()
    told = Event("run.pushed", {"evidence": shown}, None)
    space.store.tell(laptop.run_dir.name, lambda _: [told])
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    assert "it has not changed since the step came here" in done(desktop).repair


def test_the_first_place_is_still_known_when_it_comes_back(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it is held against what stood there as it began, whatever was noted elsewhere meanwhile."""
    run_id = laptop.run_dir.name
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    desktop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop.pull(run_id)
    take_up(laptop)
    assert len(noted(laptop, evidence_beginnings.ELSEWHERE)["places"]) == 1
    assert "it has not changed since the step began" in done(laptop).repair
    laptop.write("a.txt", "brought by git\n")
    assert done(laptop).ended is not None


def test_who_comes_only_to_end_it_is_told_how_to_mend_it(tmp_path: Path, laptop: Machine) -> None:
    """In a linked worktree nobody knows what was done before: nothing ends, no correction counts, a change does."""
    git(laptop.root, "branch", "feat")
    tree = tmp_path / "wörk tree"
    git(laptop.root, "worktree", "add", "-q", str(tree), "feat")
    (tree / "a.txt").write_text("of the branch\n", encoding="utf-8")
    run_id = laptop.run_dir.name
    for _ in range(4):
        space = laptop.space(cwd=tree)
        refused = driving.done(space, run_id, response="Made it.")
        assert refused.ended is None
        assert LATE in refused.repair
        assert "--outcome failed or skipped" in refused.repair
    (tree / "a.txt").write_text("worked on\n", encoding="utf-8")
    assert driving.done(laptop.space(cwd=tree), run_id, response="Made it.").ended is not None


@pytest.mark.parametrize("how", ["next", "session start"])
def test_who_comes_to_work_on_it_has_it_noted_then(tmp_path: Path, laptop: Machine, how: str) -> None:
    """By the step that is asked for, or by a hook of the session that begins there."""
    tree = tmp_path / "tree"
    git(laptop.root, "worktree", "add", "-q", "-b", "feat", str(tree))
    (tree / "a.txt").write_text("of the branch\n", encoding="utf-8")
    space, run_id = laptop.space(cwd=tree), laptop.run_dir.name
    if how == "next":
        driving.next_step(space, run_id)
    else:
        environ = {"CLAUDE_PROJECT_DIR": str(tree), "PWD": str(tree)}
        answer = laptop.hook("session-start", source="resume", environ=environ)
        assert (answer.code, answer.stderr) == (0, "")
    assert [one["late"] for one in noted(laptop, evidence_beginnings.ELSEWHERE)["places"]] == [False]
    assert "it has not changed since the step came here" in driving.done(space, run_id, response="Made it.").repair
    (tree / "a.txt").write_text("worked on\n", encoding="utf-8")
    assert driving.done(laptop.space(cwd=tree), run_id, response="Made it.").ended is not None


def test_who_does_not_drive_the_run_notes_nothing(tmp_path: Path, laptop: Machine) -> None:
    """A session beside the driver leaves its notes as they are."""
    tree = tmp_path / "tree"
    git(laptop.root, "worktree", "add", "-q", "-b", "feat", str(tree))
    resuming.resume(laptop.space(pid=os.getpid()), laptop.run_dir.name)
    space = laptop.space(OTHER, cwd=tree)
    before = laptop.state
    evidence_beginnings.come(space, space.store.read(laptop.run_dir.name))
    assert laptop.state == before
    assert not (laptop.run_dir / "stages" / STAGE / evidence_beginnings.ELSEWHERE).exists()


def test_a_project_that_was_moved_is_the_same_checkout(tmp_path: Path, laptop: Machine) -> None:
    """What was done before it was moved counts."""
    laptop.write("a.txt", "worked on\n")
    moved = object.__new__(Machine)
    moved.root = laptop.root.rename(tmp_path / "moved")
    moved.store = moved.root / ".loom"
    take_up(moved)
    assert done(moved).ended is not None


def test_a_note_of_a_place_that_was_changed_counts_nothing(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made anew, as of who comes only to end it."""
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    path = desktop.run_dir / "stages" / STAGE / evidence_beginnings.ELSEWHERE
    path.write_text(path.read_text(encoding="utf-8").replace('"a.txt"', '"b.txt"'), encoding="utf-8")
    assert LATE in done(desktop).repair


def test_a_note_without_a_place_counts_everywhere(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that were begun before notes had places end as they did."""
    note = laptop.run_dir / "stages" / STAGE / evidence_beginnings.NOTED
    data = json.dumps({"schema_version": 1, "files": noted(laptop)["files"]}).encode()
    note.write_bytes(data)
    state = laptop.state
    state["steps"][-1][evidence_beginnings.HASHED] = digests.of_bytes(data)
    laptop.edit(**state)
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    assert "it has not changed since the step began" in done(desktop).repair
    desktop.write("a.txt", "another\n")
    assert done(desktop).ended is not None


def test_an_undone_step_is_known_where_it_came_to(
    laptop: Machine, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it changed at that place the first time still counts."""
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    take_up(desktop)
    desktop.write("a.txt", "worked on\n")
    assert done(desktop).ended is not None
    undoing.undo(desktop.space(OTHER), desktop.run_dir.name)
    assert done(desktop).ended is not None


def test_the_steps_of_branches_come_along(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every branch that is open is noted as the run is taken up."""
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop = Machine(tmp_path / "laptop", server)
    inner = [{"id": "make", "prompt": "Make it.", "evidence": ["a.txt"]}]
    fan = {"id": "fan", "parallel": {"branches": [{"id": "left", "steps": inner}, {"id": "right", "steps": inner}]}}
    laptop.workflow(phases={"build": {"steps": [fan]}})
    run_id = laptop.begin().run.run_id
    driving.next_step(laptop.space(), run_id, branch="left")
    desktop = brought(laptop, tmp_path / "desktop", server, monkeypatch)
    desktop.write("a.txt", "another\n")
    take_up(desktop)
    refused = driving.done(desktop.space(OTHER), run_id, response="Made it.", branch="left")
    assert "it has not changed since the step came here" in refused.repair


@pytest.mark.parametrize(
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


def test_a_copied_store_is_another_checkout(tmp_path: Path) -> None:
    """One that was moved keeps its id, one that was copied has another, and a folder below has its way from there."""
    (tmp_path / "a" / ".loom").mkdir(parents=True)
    own = checkouts.here(str(tmp_path / "a/.loom/local"), str(tmp_path / "a"))
    assert checkouts.here(str(tmp_path / "a/.loom/local"), str(tmp_path / "a")) == own
    assert checkouts.here(str(tmp_path / "a/.loom/local"), str(tmp_path / "a/b")) == f"{own}:b"
    (tmp_path / "a").rename(tmp_path / "b")
    assert checkouts.here(str(tmp_path / "b/.loom/local"), str(tmp_path / "b")) == own
    (tmp_path / "c/.loom/local").mkdir(parents=True)
    path = tmp_path / "c/.loom/local/checkout.json"
    path.write_bytes((tmp_path / "b/.loom/local/checkout.json").read_bytes())
    assert checkouts.here(str(tmp_path / "c/.loom/local"), str(tmp_path / "c")) != own
