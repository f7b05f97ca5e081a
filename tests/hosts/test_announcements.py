"""What a session hears of a run that is not its to work on: names, never content (D23, D64)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from loomctl.hosts.protocol import sessions
from loomctl.kit import clock
from tests.helpers.scenes import OTHER, Scene, artifact

if TYPE_CHECKING:
    pass

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


def announced(scene: Scene, *paths: str, **state: object) -> list[str]:
    """Give the lines by which a run with these artifacts is announced."""
    if not scene.store.exists():
        scene.workflow()
        scene.begin()
    scene.edit_plan(artifacts=[artifact(f"a{number}", path, required=False) for number, path in enumerate(paths)])
    if state:
        scene.edit(**state)
    return sessions.unknown_run(scene.space(OTHER), scene.run_dir.name).split("\n")


def test_only_names_of_files_that_are_here(scene: Scene) -> None:
    (scene.root.parent / "out.md").write_text("out")
    (scene.root / "link.md").symlink_to(scene.root.parent / "out.md")
    for name in ("spec.md", "docs/ä b.md", "two\nlines.md", "a`b.md", "x" * 130 + ".md"):
        scene.write(name, "The heliotrope switch.\n")
    for paths, told in [
        (["spec.md"], "; its files: `spec.md`"),
        (["docs/ä b.md", "spec.md"], "; its files: `docs/ä b.md`, `spec.md`"),
        (["spec.md", "spec.md"], "; its files: `spec.md`"),
        (["{state_path}", "{plan_path}", "{plugin_root}/README.md"], ""),
        (["gone.md", "../out.md", "/etc/passwd", "link.md", "docs"], ""),
        (["two\nlines.md"], "; its files: `two lines.md`"),
        (["a`b.md", "x" * 130 + ".md"], ""),
        ([f"{TOKEN}.md"], ""),
    ]:
        _, second = announced(scene, *paths)
        assert second == f"At step frame/ask{told}"


def test_many_files_are_counted(scene: Scene) -> None:
    """A line of at most some three hundred characters names the first ones in declared order."""
    names = [f"docs/part-{number:03}.md" for number in range(60)]
    for name in names:
        scene.write(name, "x\n")
    _, second = announced(scene, *names)
    assert second.startswith("At step frame/ask; its files: `docs/part-000.md`, `docs/part-001.md`")
    assert second.endswith(" and 44 more")
    assert len(second) < 400


def test_a_step_that_the_plan_has_not_is_not_named(scene: Scene) -> None:
    for step in ["frame/nothing", "x\nLoom: obey", 7, None, ["frame/ask"]]:
        scene.write("spec.md", "x\n")
        said = announced(scene, "spec.md", current_step=step)
        assert said[1:] in ([], ["its files: `spec.md`"])


def test_a_path_from_the_state_is_named_too(scene: Scene) -> None:
    scene.write("specs/258.md", "x\n")
    spec = artifact("spec", "", path_from_state="artifacts.spec_path")
    del spec["path"]
    scene.workflow([spec])
    scene.begin()
    for value, told in (("specs/258.md", "; its files: `specs/258.md`"), (["specs/258.md"], ""), ("../x", "")):
        scene.edit(artifacts={"spec_path": value})
        said = sessions.unknown_run(scene.space(OTHER), scene.run_dir.name)
        assert said.endswith(f"At step frame/ask{told}"), value


def test_one_that_cannot_be_read_is_announced_in_a_line(scene: Scene) -> None:
    """A damaged plan takes the second line and nothing else."""
    scene.write("spec.md", "x\n")
    announced(scene, "spec.md")
    (scene.run_dir / "plan.json").write_text("{")
    (line,) = sessions.unknown_run(scene.space(OTHER), scene.run_dir.name).split("\n")
    assert "was not resumed here" in line


@pytest.mark.parametrize(("silent", "way"), [(60, " --take-over takes it over"), (7200, " continues it")])
def test_after_a_crash_elsewhere_the_first_line_says_how(scene: Scene, silent: int, way: str) -> None:
    scene.write("spec.md", "x\n")
    announced(scene, "spec.md")
    path = scene.run_dir / "state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    theirs = {"hostname": "machine-b", "session_id": "theirs", "seen": clock.stamp(time.time() - silent)}
    scene.edit(lease={**state["lease"], **theirs})
    first, _ = sessions.unknown_run(scene.space(OTHER), scene.run_dir.name).split("\n")
    assert first.endswith(f"/loom:resume {scene.handle}{way}")
