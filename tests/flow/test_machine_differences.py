"""What is different here when a run is taken up: commits, files, tools, a line each and none for what is the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from loomctl.flow import advance, resume
from tests.helpers.machines import Machine
from tests.helpers.repositories import git, make
from tests.helpers.scenes import OTHER, Scene
from tests.helpers.tables import each

PHASES = {
    "build": {
        "steps": [
            {"id": "make", "prompt": "Make it."},
            {"id": "show", "prompt": "Show it.", "evidence": [{"run": "a-tool-of-evidence --all"}]},
            {"id": "test", "run": "no-such-tool-here -q && git status | another-that-is-not"},
        ]
    }
}


@pytest.fixture
def begun(tmp_path: Path) -> Scene:
    """A run in a repository, whose first step registered a file and left another, both uncommitted."""
    made = Machine.__new__(Machine)
    made.root, made.store = tmp_path / "shop", tmp_path / "shop" / ".loom"
    make(made.root)
    made.workflow(phases=PHASES)
    run_id = made.begin().run.run_id
    made.write("spec.md", "# Spec\n")
    made.write("made.py", "x = 1\n")
    advance.done(made.space(), run_id, response="x", artifacts={"spec": "spec.md"})
    return made


def differences(scene: Scene, session: str = OTHER) -> list[str]:
    return resume.resume(scene.space(session), take_over=True).differences


def test_files_and_tools_that_are_not_here_are_named(begun: Scene) -> None:
    """What a step registered, what it left, and the programs of a command step that PATH has not."""
    (begun.root / "spec.md").unlink()
    (begun.root / "made.py").unlink()
    said = differences(begun)
    (files,) = [line for line in said if "these files of the run are missing here" in line]
    assert files.endswith("these files of the run are missing here: spec.md, made.py")
    assert said[-1] == "these tools are not on PATH here: a-tool-of-evidence, no-such-tool-here, another-that-is-not"
    assert len(said) <= 3


@each(("more", "told"), [([], ""), (["ä b.txt", "z\x1b.txt", "zz.txt"], " and 2 more")])
def test_files_with_uncommitted_changes_are_named(begun: Scene, more: list[str], told: str) -> None:
    """The first three and a count, whatever they are called; Loom's own are none of them."""
    for name in more:
        begun.write(name, "x")
    (line,) = [line for line in differences(begun) if "uncommitted" in line]
    assert line.startswith("the working tree has uncommitted changes: made.py, spec.md")
    assert line.endswith(told)
    assert ".loom" not in line
    assert "\x1b" not in line


def test_a_report_that_loom_wrote_is_no_uncommitted_change(begun: Scene) -> None:
    begun.loomctl("report", "-o", "a.html", "--with-files").ends()
    (line,) = [line for line in differences(begun) if "uncommitted" in line]
    assert line.startswith("the working tree has uncommitted changes: made.py, spec.md")
    assert "a.html" not in line
    assert "a_files" not in line
    for name in ("made.py", "spec.md"):
        (begun.root / name).unlink()
    assert not any("uncommitted" in line for line in differences(begun))
    (begun.root / "a.html").write_text("mine")
    assert any("changes: a.html" in line for line in differences(begun))


def test_what_is_here_is_not_told(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert not any("not here" in line or "PATH" in line for line in differences(begun))


def test_a_file_that_the_run_took_away_is_not_missed(begun: Scene) -> None:
    record = begun.run_dir / "stages" / "001-build.make@1" / "changes.json"
    changes = json.loads(record.read_text(encoding="utf-8"))
    for one in changes["files"]:
        one["change"] = "deleted"
    record.write_text(json.dumps(changes), encoding="utf-8")
    (begun.root / "made.py").unlink()
    assert not any("made.py" in line for line in differences(begun))


def test_a_commit_that_is_not_here_is_unknown(begun: Scene) -> None:
    state = begun.state
    for record in state["sessions"]["session_history"]:
        record["environment"]["git_commit"] = record["last_commit"] = "a" * 40
    begun.edit(**state)
    assert "git: the last session's commit aaaaaaaaaa is not in this repository" in differences(begun)


def test_commits_are_counted_from_where_the_session_left_off(begun: Scene) -> None:
    git(begun.root, "commit", "--quiet", "--allow-empty", "-m", "Of the session")
    space = begun.space()
    advance.next_step(space, begun.run_dir.name)
    advance.done(space, begun.run_dir.name, response="x", outcome="skipped")
    assert not any(line.startswith("git:") for line in differences(begun))
    git(begun.root, "commit", "--quiet", "--allow-empty", "-m", "Of somebody else")
    assert any(line.startswith("git: 1 commit(s) ahead of the last session's ") for line in differences(begun, "third"))
