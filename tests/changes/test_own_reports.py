"""A report that Loom wrote into the project is no work of a step's, no asset and no evidence; a user's file is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loomctl.changes import evidence_files, track
from loomctl.changes.track import Tracked
from loomctl.flow import advance
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.artifact_paths import Roots
from loomctl.runs.tools import tool_log
from tests.helpers.repositories import git
from tests.helpers.scenes import Ended, Scene


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run in a repository, in its second step; the first has left an asset."""
    git(scene.root, "init", "-q", "-b", "main")
    scene.write("a.txt", "one\n")
    scene.write(".gitignore", ".loom/\n")
    git(scene.root, "add", ".")
    git(scene.root, "commit", "-q", "-m", "first")
    scene.workflow()
    scene.begin()
    scene.write("junit.xml", "<testsuite/>")
    ran(scene)
    advance.done(scene.space(), scene.run_dir.name, response="Asked.")
    assert (scene.run_dir / "assets").is_dir()
    return scene


def ran(scene: Scene) -> None:
    told = {"stage": scene.state["steps"][-1]["stage"], "at": "2999-01-01T00:00:00Z"}
    step = ToolStep("toolu", "Bash", {"command": "make"}, "did it", None, success=True, more=told)
    tool_log.append(str(scene.run_dir), [step])


def reported(scene: Scene, *words: str) -> Ended:
    ended = scene.loomctl("report", "-o", "report.html", "--with-files", *words)
    assert ended.code == 0, ended.stderr
    return ended


def told(scene: Scene) -> Tracked:
    ran(scene)
    space = scene.space()
    run, entry = space.store.read(scene.run_dir.name), scene.state["steps"][-1]
    return track.write(run, entry["stage"], track.ended(space, run, entry))[0]


def begin(scene: Scene) -> None:
    """Note anew what there is as the open step begins."""
    space = scene.space()
    track.begin(space, space.store.read(scene.run_dir.name), scene.state["steps"][-1])


def copies(scene: Scene) -> list[Path]:
    return [path for path in (scene.root / "report_files").rglob("*") if path.is_file()]


def test_a_report_is_no_work_of_the_step_nor_one_written_anew_or_committed(begun: Scene) -> None:
    reported(begun)
    assert any(path.name == "junit.xml" for path in copies(begun))
    found = told(begun)
    assert (found.files, found.assets, found.patch, found.unknown) == ([], [], False, "")
    begin(begun)
    begun.write("b.txt", "b")
    reported(begun)
    assert told(begun).files == ["b.txt"]
    (begun.root / "report.html").unlink()
    assert told(begun).files == ["b.txt"]
    reported(begun)
    git(begun.root, "add", ".")
    git(begun.root, "commit", "-q", "-m", "with its report")
    begin(begun)
    reported(begun)
    found = told(begun)
    assert (found.files, found.assets, found.patch) == ([], [], False)


def edits(scene: Scene) -> str:
    with (scene.root / "report.html").open("a") as page:
        page.write("<!-- mine -->")
    return "report.html"


def replaces(scene: Scene) -> str:
    """The user puts a copy of the page's very bytes in its place: another file."""
    page = scene.root / "report.html"
    data = page.read_bytes()
    page.unlink()
    page.write_bytes(data)
    return "report.html"


def adds(scene: Scene) -> str:
    """The user puts a file of their own into the folder of copies."""
    scene.write("report_files/mine.md", "mine")
    return "report_files/mine.md"


def signs(scene: Scene) -> str:
    """The user writes a page that says of itself that it is a report."""
    head = (scene.root / "report.html").read_bytes()[:4096]
    scene.write("another.html", head)
    return "another.html"


def notes(scene: Scene) -> str:
    """The project brings along a list of its own, for a file that stands there."""
    path = scene.write("other.txt", "other")
    known: dict[str, Any] = {"other.txt": [path.stat().st_size, 0, 0, 0], "a.txt": "x", "b\0": [1]}
    (scene.store / "local" / evidence_files.REPORTS).write_text(json.dumps({"files": known}))
    (scene.root / "report.html").unlink()
    for copy in copies(scene):
        copy.unlink()
    return "other.txt"


def test_what_its_user_made_is_touched(begun: Scene) -> None:
    for change in (adds, signs, edits, replaces, notes):
        reported(begun)
        assert told(begun).files == []
        name = change(begun)
        assert told(begun).files == [name], change.__name__
        (begun.root / name).unlink()


def test_a_users_file_that_a_report_was_written_over_or_that_went_for_one_is_touched(begun: Scene) -> None:
    for text, words in (('<meta name="generator" content="loomctl report 0">', []), ("mine", ["--force"])):
        begun.write("report.html", text)
        begin(begun)
        reported(begun, *words)
        assert told(begun).files == ["report.html"]
    path = begun.write("report.html", "mine")
    begin(begun)
    path.unlink()
    reported(begun)
    assert told(begun).files == ["report.html"]


def test_a_report_is_no_evidence(begun: Scene) -> None:
    reported(begun)
    roots = Roots(str(begun.root), str(begun.run_dir), str(begun.run_dir))
    known = {"project_root": str(begun.root)}
    ours = evidence_files.own_reports(str(begun.store / "local"))
    named = evidence_files.look("report.html", known, roots, ours)
    assert (named.digests, named.why) == ({}, "report.html is a report that Loom wrote")
    assert evidence_files.look("report_files/**", known, roots, ours).digests == {}
    begun.write("own.html", "x")
    assert list(evidence_files.look("*.html", known, roots, ours).digests) == ["own.html"]


def test_a_step_is_not_ended_by_a_report(scene: Scene) -> None:
    asks = {"id": "a", "prompt": "Go.", "evidence": [{"file": "out.html", "changed": True}]}
    scene.workflow(phases={"one": {"steps": [asks]}})
    run_id = scene.begin().run.run_id
    assert scene.loomctl("report", "-o", "out.html").code == 0
    ended = scene.loomctl("done", run_id, "--json", given="I made the page.")
    assert "a report that Loom wrote" in ended.stdout
    assert scene.state["steps"][-1]["status"] == "in_progress"


def test_a_damaged_list_hides_nothing_and_is_made_anew(begun: Scene) -> None:
    for content in (b"", b"[]", b'{"files": []}', b"\xff", b'{"files": {"report.html": {}}}'):
        reported(begun)
        (begun.store / "local" / evidence_files.REPORTS).write_bytes(content)
        assert "report.html" in told(begun).files
        (begun.root / "report.html").unlink()
        shutil.rmtree(begun.root / "report_files")
        reported(begun)
        assert told(begun).files == []


def test_a_project_that_was_moved_knows_its_reports(begun: Scene, tmp_path: Path) -> None:
    reported(begun)
    before = evidence_files.own_reports(str(begun.store / "local"))
    there = tmp_path / "moved project ü"
    begun.root.rename(there)
    after = evidence_files.own_reports(str(there / ".loom" / "local"))
    assert {Path(one).relative_to(begun.root) for one in before} == {Path(one).relative_to(there) for one in after}
    assert after


def test_a_list_that_cannot_be_written_costs_no_report(begun: Scene) -> None:
    (begun.store / "local" / evidence_files.REPORTS).mkdir()
    reported(begun)
    assert "report.html" in told(begun).files
