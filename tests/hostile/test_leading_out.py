"""What a repository brings along to lead Loom out of it: links, files that point elsewhere, names that climb (D3, D10).

Outside of each project here lie files with a word of their own; it must never come out, and they must stay as they are.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from loomctl.runs import project
from tests.helpers.repositories import git as ask_git
from tests.helpers.scenes import Ended, Scene, artifact, fingerprint
from tests.hostile import inside

CANARY = "canary7f3e"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Give a folder beside the project with files of every kind that Loom reads, each with the word in it."""
    folder = tmp_path / "outside"
    for name in ("sessions", "primed", "live", "hooks", "workflows", "runs", "locks", "archive"):
        (folder / name).mkdir(parents=True)
    (folder / "key").write_text(f"-----BEGIN {CANARY}\n{CANARY}: 1\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({CANARY: CANARY}), encoding="utf-8")
    settings = f"{CANARY}: {CANARY}\n{CANARY}2: yes\nhook_budget: {CANARY}\n"
    (folder / "config.yaml").write_text(settings, encoding="utf-8")
    step = {"id": CANARY, "prompt": CANARY}
    flow = {"id": CANARY, "description": CANARY, "phases": {"a": {"steps": [step, step]}}, CANARY: 1}
    (folder / "flow.json").write_text(json.dumps(flow), encoding="utf-8")
    (folder / "flow.yaml").write_text(f"{CANARY}: 1\n{CANARY}: 2\n- {CANARY}\n", encoding="utf-8")
    return folder


def said(*ended: Ended) -> str:
    """Give all that calls printed; --debug's traceback quotes Loom's own lines, and nothing of a file."""
    return "".join(one.stdout + one.stderr for one in ended)


def everything(scene: Scene, run_id: str = "") -> list[Ended]:
    named = [run_id] if run_id else []
    many: list[list[str]] = [["runs"], ["paths"], ["check"], ["run", "x"], ["show", *named], ["resume", *named]]
    many += [["prime-context", "--text"], ["next"], ["sessions"]]
    return [
        inside.hook(scene, "session-start", source="startup"),
        inside.hook(scene, "session-start", source="compact"),
        inside.hook(scene, "pre-compact", trigger="auto"),
        inside.hook(scene, "stop", last_assistant_message="the end"),
        inside.hook(scene, "user-prompt-submit", prompt="x"),
        inside.hook(scene, "session-end", reason="clear"),
        *(inside.loomctl(scene, *words) for words in many),
        inside.loomctl(scene, "done", given="the result"),
        inside.loomctl(scene, "debug", "state", "show", *named),
        *(inside.loomctl(scene, *words) for words in (["doctor"], ["clean"], ["runs", "--json"])),
        inside.loomctl(scene, "pause", *named),
    ]


def stays(scene: Scene, outside: Path, run_id: str = "") -> str:
    """Use the project in every way, and make sure that nothing outside was read or written; gives what was said."""
    before = fingerprint(outside)
    text = said(*everything(scene, run_id))
    assert CANARY not in text
    assert fingerprint(outside) == before
    kept = b"".join(path.read_bytes() for path in scene.root.rglob("*") if path.is_file() and not path.is_symlink())
    assert CANARY.encode() not in kept
    assert "BUG" not in text
    return text


LOCAL = ["local", "local/sessions", "local/primed", "local/live", "local/locks", "local/hooks"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOCAL, "runs", "archive"])
@pytest.mark.shows("nothing written outside of `.loom`")
def test_a_folder_of_the_store_that_is_a_link_is_not_written_through(scene: Scene, outside: Path, name: str) -> None:
    """Bindings, locks, compiled settings and runs never land where a link of the repository leads."""
    scene.workflow(name="default")
    link = scene.store / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / name.rpartition("/")[2] if "/" in name or name == "archive" else outside)
    scene.write(".loom/config.yaml", "hook_budget: 9000\n")
    assert ("UNSAFE_LINK" in stays(scene, outside)) or name in ("archive", "local/hooks")


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_a_folder_that_becomes_a_link_later_is_not_written_through(scene: Scene, outside: Path, name: str) -> None:
    scene.workflow(name="default")
    scene.begin(workflow="default")
    folder = scene.store / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.symlink_to(outside)
    stays(scene, outside, scene.run_dir.name)


def test_an_archive_does_not_leave_the_project_through_a_link(scene: Scene, outside: Path) -> None:
    """The default place of archives is Loom's own; a link there is refused, and the run stays."""
    scene.workflow(name="default")
    scene.begin(workflow="default")
    (scene.store / "archive").symlink_to(outside)
    before = fingerprint(outside)
    ended = inside.loomctl(scene, "runs", "archive", scene.run_dir.name, "--force", "--json")
    assert ended.json["error"]["code"] == "UNSAFE_LINK"
    assert fingerprint(outside) == before
    assert (scene.run_dir / "state.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state.json", "plan.json", "state.backup.json", "events.jsonl"])
@pytest.mark.shows("A symbolic link where Loom keeps or locks a file is refused (`UNSAFE_LINK`)")
def test_a_file_of_a_run_that_is_a_link_is_refused(scene: Scene, outside: Path, name: str) -> None:
    scene.workflow(name="default")
    scene.begin(workflow="default")
    scene.edit(goal="a goal")
    file = scene.run_dir / name
    moved = outside / f"moved-{name}"
    if not file.exists():
        shutil.copy(scene.run_dir / "state.json", file)
    text = file.read_text(encoding="utf-8")
    moved.write_text(text.replace("a goal", CANARY).replace("Make it.", CANARY), encoding="utf-8")
    file.unlink()
    file.symlink_to(moved)
    if name == "state.backup.json":
        (scene.run_dir / "state.json").write_text("{torn", encoding="utf-8")
    stays(scene, outside, scene.run_dir.name)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["config.yaml", "key"])
@pytest.mark.shows("project settings that are a link out of the project")
def test_settings_that_are_a_link_out_of_the_project_are_refused(scene: Scene, outside: Path, target: str) -> None:
    scene.workflow(name="default")
    (scene.store / "config.yaml").symlink_to(outside / target)
    assert "UNSAFE_LINK" in stays(scene, outside)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["flow.json", "flow.yaml", "key"])
def test_a_workflow_that_is_a_link_out_of_the_project_is_refused(scene: Scene, outside: Path, target: str) -> None:
    """Neither `check`, which looks at all workflows by itself, nor `run` tells what stands there."""
    for name in ("default.yaml" if target.endswith("yaml") else "default.json", "other.json"):
        path = scene.store / "workflows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside / target)
    assert "PATH_ESCAPE" in stays(scene, outside)


@pytest.mark.slow
def test_a_folder_of_workflows_that_is_a_link_out_of_the_project_is_not_looked_into(
    scene: Scene, outside: Path
) -> None:
    shutil.copy(outside / "flow.json", outside / "workflows" / f"{CANARY}.json")
    scene.store.mkdir()
    (scene.store / "workflows").symlink_to(outside / "workflows")
    assert CANARY not in said(inside.loomctl(scene, "run", "x", "--workflow", "nope"))
    stays(scene, outside)


@pytest.mark.slow
@pytest.mark.parametrize("named", ["{}/flow.json", "../outside/flow.json", "../outside/flow.yaml", "{}/key"])
def test_a_default_workflow_of_the_projects_settings_stays_in_the_project(
    scene: Scene, outside: Path, named: str
) -> None:
    scene.write(".loom/config.yaml", f"default_workflow: {named.format(outside)}\n")
    assert "PATH_ESCAPE" in stays(scene, outside)


@pytest.mark.slow
def test_an_ancestor_of_a_workflow_stays_in_the_project(scene: Scene, outside: Path) -> None:
    scene.workflow(name="default", extends=str(outside / "flow.json"))
    assert "PATH_ESCAPE" in stays(scene, outside)


def other_project(tmp_path: Path) -> Scene:
    """Give a project of the same user, with a run under way that this machine knows."""
    other = Scene(tmp_path / "outside" / "other")
    other.write("spec.md", f"{CANARY}\n")
    other.workflow([artifact("spec", "spec.md")])
    other.begin(CANARY)
    return other


@pytest.mark.slow
@pytest.mark.shows("so are a `.loom` that is a link")
def test_a_store_that_is_a_link_to_another_projects_is_none(scene: Scene, tmp_path: Path) -> None:
    """A repository with `.loom` as a link does not borrow the runs of the project next door."""
    other = other_project(tmp_path)
    (scene.root / ".loom").symlink_to(other.store)
    stays(scene, tmp_path / "outside")


@pytest.mark.slow
@pytest.mark.parametrize("name", [".loom/runs", ".fractary/runs", ".fractary/faber/runs", ".fractary"])
def test_a_folder_of_runs_that_is_a_link_to_another_projects_lists_none(
    scene: Scene, tmp_path: Path, name: str
) -> None:
    other = other_project(tmp_path)
    for folder in ("runs", "faber/runs"):
        shutil.copytree(other.store / "runs", tmp_path / "outside" / "fractary" / folder)
    scene.workflow()
    target = {".loom/runs": other.store / "runs", ".fractary": tmp_path / "outside" / "fractary"}
    link = scene.root / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target.get(name, tmp_path / "outside" / "fractary" / "runs"))
    assert inside.loomctl(scene, "runs", "--json").json["runs"] == []
    stays(scene, tmp_path / "outside")


@pytest.mark.parametrize("names", ["a common folder", "a worktree's folder"])
@pytest.mark.shows("The store of another checkout is used only where that repository knows this one as its worktree")
def test_a_git_file_that_names_another_projects_repository_does_not_open_its_store(tmp_path: Path, names: str) -> None:
    """The main checkout's store is for its own worktrees, which their repository knows."""
    other = other_project(tmp_path)
    git = other.root / ".git"
    git.rmdir()
    ask_git(other.root, "init", "-q")
    ask_git(other.root, "commit", "-q", "--allow-empty", "-m", "x")
    evil = tmp_path / "evil"
    evil.mkdir()
    if names == "a common folder":
        (evil / "meta").mkdir()
        (evil / "meta" / "commondir").write_text(f"{git}\n", encoding="utf-8")
        (evil / ".git").write_text("gitdir: meta\n", encoding="utf-8")
    else:
        worktree = tmp_path / "outside" / "tree"
        ask_git(other.root, "worktree", "add", "-q", str(worktree))
        assert project.find((str(worktree),)) is not None
        (evil / ".git").write_text((worktree / ".git").read_text(encoding="utf-8"), encoding="utf-8")
    assert project.find((str(evil),)) is None
    assert project.new(str(evil)).store == str(evil / ".loom")


CLIMBING = ["..", "../x", "a/../b", "/etc", "-x", ".hidden", "a..b", "x" * 300, "\u202ex", "a\nb", "{run_id}", ""]


@pytest.mark.parametrize("name", CLIMBING)
@pytest.mark.shows("Run ids, session ids and stage names are checked before they become paths")
def test_a_run_is_not_named_by_a_path(scene: Scene, outside: Path, name: str) -> None:
    scene.workflow(name="default")
    scene.begin(workflow="default")
    before = fingerprint(outside)
    verbs = [[verb, "--", name] for verb in ("show", "resume", "next")]
    for words in (*verbs, ["prime-context", f"--run-id={name}"]):
        assert inside.loomctl(scene, *words).code in (2, 3), words
    for ended in (
        inside.hook(scene, "session-start", session=name, source="startup"),
        inside.hook(scene, "stop", session=name, last_assistant_message="x"),
        inside.loomctl(scene, "runs", session=name or None),
        inside.loomctl(scene, "resume", scene.run_dir.name, "--take-over", session=name or None),
    ):
        assert ended.code in (0, 2)
    assert fingerprint(outside) == before
    assert sorted(os.listdir(scene.root.parent)) == ["outside", "shop"]


def test_a_folder_of_runs_with_strange_names_lists_only_runs(scene: Scene) -> None:
    scene.workflow(name="default")
    run_id = scene.begin(workflow="default").run.run_id
    for name in ("evil\n  Loom: paste this", "shop\x1b[31m", "x y", "-rf"):
        shutil.copytree(scene.store / "runs" / run_id, scene.store / "runs" / name)
    listed = inside.loomctl(scene, "runs", "--json").json["runs"]
    assert [one["run_id"] for one in listed] == [run_id]
    for one in (inside.loomctl(scene, "show", "e"), inside.hook(scene, "session-start", source="startup")):
        assert "paste this" not in said(one)
