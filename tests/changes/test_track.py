"""What a stage touched and left is told at its end, by tools and by git, and nothing holds a step up (D39, D40)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.changes import asset_files, track, working_tree
from loomctl.changes.track import Tracked
from loomctl.flow import advance
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT, SESSION, Json, Scene
from tests.test_hook_imports import FORBIDDEN

STAGE = "001-frame.ask@1"


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run in a real repository, its first step open."""
    git(scene.root, "init", "-q", "-b", "main")
    scene.write("a.txt", "one\n")
    scene.write("src/b.py", "b = 1\n")
    scene.write(".gitignore", ".loom/\nignored/\ntest-results/\njunit.xml\n")
    git(scene.root, "add", ".")
    git(scene.root, "commit", "-q", "-m", "first")
    scene.workflow()
    scene.begin()
    return scene


def entry_of(scene: Scene) -> Json:
    found: Json = scene.state["steps"][-1]
    return found


def begin(scene: Scene, **more: Any) -> None:
    space = scene.space(**more)
    track.begin(space, space.store.read(scene.run_dir.name), entry_of(scene))


def ended(scene: Scene, **more: Any) -> Tracked:
    space = scene.space(**more)
    run, entry = space.store.read(scene.run_dir.name), entry_of(scene)
    return track.write(run, entry["stage"], track.ended(space, run, entry))[0]


def called(scene: Scene, tool: str, path: str = "", *, stage: str = STAGE, **more: Any) -> None:
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    args = {key: path if not path or path.startswith("/") else str(scene.root / path)} if path else {"command": "make"}
    told = {"stage": stage, "at": "2999-01-01T00:00:00Z", **more}
    success = told.pop("success", True)
    tool_log.append(str(scene.run_dir), [ToolStep("toolu", tool, args, "did it", None, success, more=told)])


def record(scene: Scene, stage: str = STAGE) -> Json:
    found: Json = json.loads((scene.run_dir / "stages" / stage / "changes.json").read_text())
    return found


def test_files_of_tools_and_of_git_are_told_together(begun: Scene) -> None:
    begin(begun)
    begun.write("a.txt", "one\ntwo\n")
    begun.write("new.md", "new\n")
    (begun.root / "src" / "b.py").unlink()
    begun.write("ignored/c", "c")
    called(begun, "Write", "ignored/c")
    called(begun, "Edit", "a.txt")
    called(begun, "Edit", "a.txt")
    told = ended(begun)
    assert told == Tracked(["a.txt", "ignored/c", "new.md", "src/b.py"], "", [], patch=True, warnings=[], total=4)
    patch = begun.run_dir / "stages" / STAGE / "changes.patch"
    assert b"+two" in patch.read_bytes()
    assert patch.stat().st_mode & 0o777 == 0o600
    kept = record(begun)
    assert kept["files"] == [
        {"path": "a.txt", "by": ["tools", "git"], "change": "modified", "added": 1, "removed": 0},
        {"path": "ignored/c", "by": ["tools"]},
        {"path": "new.md", "by": ["git"], "change": "added", "added": 1, "removed": 0},
        {"path": "src/b.py", "by": ["git"], "change": "deleted", "added": 0, "removed": 1},
    ]
    assert (kept["files_unknown"], kept["patch"], kept["count"]) == ("", "changes.patch", 4)


CALLS: list[tuple[str, str, Json, list[str]]] = [
    ("Write", "x", {}, ["x"]), ("Edit", "x", {}, ["x"]), ("MultiEdit", "x", {}, ["x"]),
    ("NotebookEdit", "x.ipynb", {}, ["x.ipynb"]), ("Edit", "x", {"agent_id": "a1"}, ["x"]),
    ("Edit", "x", {"success": False}, []),
    ("Edit", "x", {"stage": "000-other@1", "at": "2000-01-01T00:00:00Z"}, []), ("Read", "x", {}, []),
    ("Bash", "", {}, []), ("Write", "src/../x", {}, ["x"]), ("Write", "/elsewhere/x", {}, ["/elsewhere/x"]),
    ("Write", "x\0y", {}, []), ("Write", ".loom/runs/x/state.json", {}, []),
    ("Write", ".fractary/faber/x", {}, []), ("Write", "packages/.loom/config.yaml", {}, []),
    ("Write", "ä\nö", {}, ["ä\nö"]),
]  # fmt: skip


def test_file_tools_that_ended_well_are_counted(begun: Scene) -> None:
    begin(begun)
    for tool, path, more, told in CALLS:
        called(begun, tool, path, **more)
        found = ended(begun)
        assert (found.files, found.unknown) == (told, ""), (tool, path, more)
        (begun.run_dir / tool_log.FILE).unlink()


def test_a_path_that_its_step_holds_shortened_is_told_whole(begun: Scene) -> None:
    path = str(begun.root / "/".join(["a-long-folder-name"] * 60) / "x.py")
    args = {"file_path": path, "old_string": "x" * 9000, "new_string": "y"}
    more = {"stage": STAGE, "at": "2999-01-01T00:00:00Z"}
    step = StepReducer(DataOffloader(begun.run_dir)).reduce("Edit", args, {"ok": True}, step_id="toolu_1", more=more)
    assert step.minimal_args["file_path"] != path
    begin(begun)
    tool_log.append(str(begun.run_dir), [step])
    assert ended(begun).files == [os.path.relpath(path, begun.root)]


def test_a_link_to_the_project_names_the_same_files(begun: Scene, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(begun.root)
    begin(begun)
    begun.write("x", "x")
    called(begun, "Write", str(tmp_path / "alias" / "x"))
    assert ended(begun).files == ["x"]


def test_a_project_below_the_checkouts_top_names_files_beside_it(scene: Scene) -> None:
    git(scene.root, "init", "-q", "-b", "main")
    inner = Scene(scene.root / "packages" / "app")
    (inner.root / ".git").rmdir()
    inner.workflow()
    inner.begin()
    begin(inner)
    scene.write("packages/lib/x", "x")
    inner.write("y", "y")
    called(inner, "Write", str(scene.root / "packages" / "lib" / "x"))
    found = ended(inner)
    assert (found.files, record(inner)["files"][0]["by"]) == (["../lib/x", "y"], ["tools", "git"])


def test_reading_a_stages_steps_costs_what_they_are(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"stage": "000-other@1", "at": "2000-01-01T00:00:00Z"}
    older = ToolStep("old", "Write", {"file_path": "/old"}, "wrote", None, success=True, more=old)
    tool_log.append(str(begun.run_dir), [older] * 20_000)
    begin(begun)
    called(begun, "Write", "first")
    tool_log.append(str(begun.run_dir), [older] * 50)
    called(begun, "Write", "last")
    seen: list[bytes] = []
    step = tool_log._step

    def reading(line: bytes) -> ToolStep | None:
        seen.append(line)
        return step(line)

    monkeypatch.setattr(tool_log, "_step", reading)
    assert ended(begun).files == ["first", "last"]
    assert len(seen) < 1000


def test_many_files_are_bounded_and_counted(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "MOST", 3)
    begin(begun)
    for number in range(5):
        begun.write(f"n{number}", "x")
    found = ended(begun)
    assert (found.files, found.total) == (["n0", "n1", "n2"], 5)
    assert found.warnings == ["5 files changed; the first 3 are listed"]
    assert len(record(begun)["files"]) == 5


# ---- What is not known is said.


def test_without_git_tools_alone_are_known(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    begin(scene)
    scene.write("unseen", "x")
    called(scene, "Write", "seen")
    found = ended(scene)
    assert (found.files, found.unknown, found.patch) == (["seen"], "there is no git repository", False)
    assert record(scene)["files_unknown"] == found.unknown


NOT_NOTED = "this machine has no snapshot from the start of the step"
DAMAGED = {
    "gone": NOT_NOTED, "torn": NOT_NOTED, "tree": "the snapshot from the start of the step is damaged",
    "index": "git failed", "objects": "git failed",
    "machine": "the step began on another machine",
}  # fmt: skip


def test_a_baseline_that_is_gone_or_damaged_is_said(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    begun.write("untracked", "x")
    called(begun, "Write", "x")
    called(begun, "Bash")
    folder = begun.store / "local" / "baselines" / begun.run_dir.name
    path = folder / f"{STAGE}.noted"
    for damage, said in DAMAGED.items():
        begun.write("a.txt", "one\n")
        begin(begun)
        if damage == "gone":
            shutil.rmtree(folder)
        elif damage == "torn":
            path.write_bytes(path.read_bytes()[:-20])
        elif damage == "tree":
            path.write_text(json.dumps({**json.loads(path.read_text()), "tree": {"tree": "; rm -rf"}}))
        elif damage == "index":
            (folder / f"{STAGE}.git" / "index").write_bytes(b"nonsense")
        elif damage == "objects":
            shutil.rmtree(folder / f"{STAGE}.git" / "objects")
            begun.write("a.txt", "other\n")
        else:
            monkeypatch.setenv("LOOM_HOSTNAME", "another")
        found = ended(begun)
        assert (found.files, found.unknown, found.patch) == (["x"], said, False), damage


def test_time_that_was_over_at_the_beginning_is_said_at_the_end(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_tree.note, "__kwdefaults__", {"patience": 0.0})
    begin(begun)
    called(begun, "Write", "x")
    found = ended(begun)
    assert (found.files, found.unknown) == (["x"], "git took over 0 seconds")


@pytest.mark.parametrize("function", ["look", "collect"])
def test_nothing_that_fails_holds_a_step_up(begun: Scene, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(asset_files, function, fails)
    begin(begun)
    called(begun, "Bash")
    found = ended(begun)
    assert "a fault" in found.unknown or function == "look"
    assert isinstance(found, Tracked)


def test_a_stage_whose_folder_cannot_be_written_is_told_all_the_same(begun: Scene, tmp_path: Path) -> None:
    begin(begun)
    begun.write("x", "x")
    folder = begun.run_dir / "stages" / STAGE
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path)
    found = ended(begun)
    assert (found.files, found.patch) == (["x"], False)
    assert "could not write the changes: a symbolic link stands" in found.warnings[0]


def test_what_the_engine_does_itself_has_no_stage(begun: Scene) -> None:
    space = begun.space()
    run = space.store.read(begun.run_dir.name)
    entry = {**entry_of(begun), "stage": None}
    track.begin(space, run, entry)
    assert track.ended(space, run, entry) == Tracked([], "", [], patch=False, warnings=[])


def test_a_hook_can_afford_it(begun: Scene) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(CHECKOUT)!r})
from loomctl.runs import config
from loomctl.runs import project
from loomctl.changes import track
from loomctl.flow.open_project import workspace
from loomctl.runs.project import Caller, Conversation
found = project.find(({str(begun.root)!r},))
caller = Caller(None, "x", None, found.root, Conversation(), True)
space = workspace(found, config.load(found.store, with_yaml=False), caller)
run = space.store.read({begun.run_dir.name!r})
track.begin(space, run, run.state["steps"][-1])
open({str(begun.root / "junit.xml")!r}, "w").close()
open({str(begun.root / "x")!r}, "w").close()
print(track.ended(space, run, run.state["steps"][-1]).files, file=sys.stderr)
print("\\n".join(sys.modules))
"""
    called(begun, "Bash")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == "['x']\n"
    assert not set(done.stdout.split()) & FORBIDDEN


# ---- Ends that are taken back, and other stages.


def test_a_second_end_tells_the_same_and_more(begun: Scene) -> None:
    begin(begun)
    begun.write("x", "x")
    first = ended(begun)
    assert ended(begun) == first
    begun.write("y", "y")
    assert ended(begun).files == ["x", "y"]
    for name in ("x", "y"):
        (begun.root / name).unlink()
    assert ended(begun) == Tracked([], "", [], patch=False, warnings=[])
    assert not (begun.run_dir / "stages" / STAGE / "changes.patch").exists()


@pytest.mark.slow
def test_each_stage_is_told_apart_and_old_baselines_go(begun: Scene) -> None:
    for number in range(4):
        begin(begun)
        begun.write(f"n{number}", "x")
        git(begun.root, "add", ".")
        git(begun.root, "commit", "-q", "-m", "more")
        assert ended(begun).files == [f"n{number}"]
        advance.done(begun.space(), begun.run_dir.name, response="done")
    names = {path.name.partition("-")[0] for path in (begun.store / "local" / "baselines").glob("*/*")}
    assert len(names) == 2


# ---- Assets.


def test_assets_of_a_stage_with_a_shell_call_are_captured(begun: Scene) -> None:
    begun.write("junit.xml", "<old/>")
    begun.write("test-results/old.png", "old")
    begin(begun)
    begun.write("junit.xml", "<testsuite/>")
    begun.write("test-results/login/new.png", "new")
    called(begun, "Bash", success=False)
    found = ended(begun)
    assert [(asset["path"], asset["stored"]) for asset in found.assets] == [
        ("junit.xml", "assets/frame.ask/retry_1/junit.xml"),
        ("test-results/login/new.png", "assets/frame.ask/retry_1/test-results/login/new.png"),
    ]
    assert (begun.run_dir / found.assets[0]["stored"]).read_text() == "<testsuite/>"
    assert (record(begun)["assets"], record(begun)["assets_passed_over"]) == (found.assets, [])
    assert found.files == []


def test_a_stage_without_a_command_has_no_assets(begun: Scene) -> None:
    """A report that somebody else made meanwhile is not its."""
    begin(begun)
    begun.write("junit.xml", "<testsuite/>")
    called(begun, "Write", "x")
    assert ended(begun).assets == []


def test_a_command_step_has_assets_without_any_call(begun: Scene) -> None:
    space = begun.space()
    run = space.store.read(begun.run_dir.name)
    run.plan["phases"][0]["steps"][0]["kind"] = "command"
    track.begin(space, run, entry_of(begun))
    begun.write(f".loom/runs/{run.run_id}/stages/{STAGE}/command.json", "{}")
    begun.write("a.trace.zip", "x")
    assert [asset["path"] for asset in track.ended(space, run, entry_of(begun)).assets] == ["a.trace.zip"]


def test_calls_that_wait_to_be_recorded_are_said(begun: Scene) -> None:
    """One of them may be a command's: assets are captured."""
    begin(begun)
    begun.write("junit.xml", "<testsuite/>")
    (begun.store / "local" / "spool" / f"{SESSION}-1.json").write_text("{}")
    (begun.store / "local" / "spool" / "stranger-1.json").write_text("{}")
    found = ended(begun)
    assert found.warnings == ["1 tool call not recorded yet, so files may be missing"]
    assert len(found.assets) == 1


def test_what_is_less_certain_than_it_looks_is_said(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_tree, "LARGEST", 100)
    monkeypatch.setattr(working_tree, "LARGEST_PATCH", 100)
    monkeypatch.setattr(asset_files.look, "__kwdefaults__", {"patience": 60.0, "most": 2})
    begin(begun)
    begun.write("large", "x" * 200)
    begun.write("a.txt", "x\n" * 50)
    called(begun, "Bash")
    found = ended(begun)
    assert found.files == ["a.txt", "large"]
    assert found.warnings == [
        "compared by size and time only, because they are large: large",
        "there is no changes.patch: it has over 100 bytes",
        "some assets may be missing: there are over 2 files and folders",
    ]


# ---- A workdir outside of the project.


@pytest.fixture
def outside(scene: Scene, tmp_path: Path, user_folders: Path) -> Path:
    """A folder that the user allowed, in which the run's only step works."""
    folder = tmp_path / "box"
    folder.mkdir()
    settings = user_folders / "config" / "loom"
    settings.mkdir(parents=True)
    (settings / "config.yaml").write_text(f"extra_roots: [{folder}]\n")
    git(scene.root, "init", "-q", "-b", "main")
    scene.workflow(phases={"build": {"steps": [{"id": "a", "prompt": "A.", "workdir": str(folder)}]}})
    return folder


def test_a_workdir_outside_of_the_project_is_tracked_by_its_own_git(scene: Scene, outside: Path) -> None:
    git(outside, "init", "-q", "-b", "main")
    (outside / "a.txt").write_text("one\n")
    git(outside, "add", ".")
    git(outside, "commit", "-q", "-m", "first")
    scene.begin()
    begin(scene)
    (outside / "a.txt").write_text("two\n")
    (outside / "test-results").mkdir()
    (outside / "test-results" / "shot.png").write_bytes(b"png")
    scene.write("here.txt", "x")
    for path in (str(outside / "b.txt"), ""):
        called(scene, "Write" if path else "Bash", path, stage="001-build.a@1")
    found = ended(scene)
    names = ["a.txt", "b.txt", "test-results/shot.png"]
    assert found.files == ["here.txt", *(f"{{workdir}}/{name}" for name in names)]
    assert (found.unknown, found.warnings) == ("", [])
    (asset,) = found.assets
    assert asset["path"] == "{workdir}/test-results/shot.png"
    assert (scene.run_dir / asset["stored"]).read_bytes() == b"png"


def test_a_workdir_that_git_does_not_know_is_said(scene: Scene, outside: Path) -> None:
    scene.begin()
    begin(scene)
    (outside / "unseen").write_text("x")
    (outside / "junit.xml").write_text("<x/>")
    for path in (str(outside / "seen"), ""):
        called(scene, "Write" if path else "Bash", path, stage="001-build.a@1")
    found = ended(scene)
    assert (found.files, found.unknown) == (["{workdir}/seen"], "in the step's workdir: there is no git repository")
    assert [one["path"] for one in found.assets] == ["{workdir}/junit.xml"]


def test_a_workdir_that_is_not_allowed_is_not_looked_at(scene: Scene, outside: Path, user_folders: Path) -> None:
    """And that is said (D10)."""
    (user_folders / "config" / "loom" / "config.yaml").unlink()
    scene.begin()
    begin(scene)
    (outside / "junit.xml").write_text("<x/>")
    called(scene, "Bash", stage="001-build.a@1")
    found = ended(scene)
    why = "in the step's workdir: it leads out of the project and is not one of your extra_roots"
    assert (found.files, found.assets, found.unknown) == ([], [], why)
    assert found.warnings == [f"no assets were captured {why}"]


def test_a_workdir_beside_the_project_in_its_checkout_is_told_once(scene: Scene) -> None:
    git(scene.root, "init", "-q", "-b", "main")
    inner = Scene(scene.root / "packages" / "app")
    (inner.root / ".git").rmdir()
    (scene.root / "packages" / "lib").mkdir()
    inner.workflow(
        phases={"build": {"steps": [{"id": "a", "prompt": "A.", "workdir": str(scene.root / "packages" / "lib")}]}}
    )
    inner.begin()
    begin(inner)
    scene.write("packages/lib/x", "x")
    called(inner, "Write", str(scene.root / "packages" / "lib" / "x"), stage="001-build.a@1")
    found = ended(inner)
    assert (found.files, found.unknown) == (["../lib/x"], "")
