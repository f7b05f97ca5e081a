"""A project full of ways out of it, and paths that try them (D10)."""

import os
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from loomctl.runs.artifact_paths import Roots

SECRET = "the-secret-outside"


class World(NamedTuple):
    """roots: what is allowed; outside: what is not; known: the placeholders' values."""

    roots: Roots
    outside: Path
    known: dict[str, str | None]


def make(base: Path) -> World:
    """Make a project, a run of it elsewhere, a bundle, an extra root; around them secrets, and links to those."""
    outside, project = base / "outside", base / "Größe 1" / "project"
    run_dir, plugin, extra = base / "main" / ".loom" / "runs" / "r1", base / "plugin", base / "extra"
    for folder in (outside / "docs", project / "docs", project / "sub" / "specs", run_dir, plugin / "docs", extra):
        folder.mkdir(parents=True)
    for folder in (outside, outside / "docs", base, base / "Größe 1", run_dir.parent, base / "main"):
        for name in ("x.md", "state.json", "secret.txt", "only-outside.md"):
            (folder / name).write_text(f'"{SECRET}"')
    for folder in (project, project / "docs", project / "sub" / "specs", run_dir, plugin, plugin / "docs", extra):
        for name in ("x.md", "state.json"):
            (folder / name).write_text('"inside"')
    (plugin / "docs" / "only-plugin.md").write_text("inside")
    for name, target in (
        ("out", outside),
        ("up", project.parent),
        ("root", "/"),
        ("file-out.md", outside / "x.md"),
        ("docs/out", outside),
        ("docs/file-out.md", "../../../outside/x.md"),
        ("in", project / "docs"),
        ("loop", project / "loop"),
        ("broken", project / "nowhere"),
        ("broken-out", outside / "nowhere"),
        ("chain", "in/out"),
    ):
        os.symlink(target, project / name)
    os.symlink(outside, run_dir / "out")
    os.symlink(outside / "x.md", plugin / "docs" / "file-out.md")
    os.symlink(outside, extra / "out")
    os.mkfifo(project / "pipe")
    roots = Roots(
        str(project), str(run_dir), str(plugin), (str(extra),), ("/home/b/shop", "C:\\shop", str(outside), "/")
    )
    known: dict[str, str | None] = dict(  # noqa: C408 - reads as the names
        project_root=roots.project,
        run_id="r1",
        plan_id="p",
        work_id=None,
        run_suffix="s",
        state_path=str(run_dir / "state.json"),
        plan_path=str(run_dir / "plan.json"),
        run_dir=roots.run_dir,
        plugin_root=roots.plugin,
    )
    return World(roots, outside, known)


def starts(world: World) -> list[str]:
    """List the beginnings that a declared path may have: none, roots, placeholders, other systems', other machines'."""
    return [
        "",
        "/",
        "//",
        "./",
        "~/",
        "C:\\",
        "C:/shop/",
        "C:\\shop\\",
        "\\\\server\\share\\",
        "/home/b/shop/",
        "plugins/faber/",
        "plugins/faber/docs/",
        *(f"{{{name}}}/" for name in ("project_root", "run_dir", "plugin_root", "state_path")),
        "<project_root>/",
        f"{world.outside}/",
        f"{world.roots.project}/",
        f"{world.roots.extra[0]}/",
        f"{world.roots.project}-evil/",
        "{work_id}/",
        "{nope}",
    ]


def paths(world: World) -> st.SearchStrategy[str]:
    """Draw declared paths: every beginning with every mixture of ways up, down, through links and nonsense."""
    parts = [
        "..", ".", "", "...", "docs", "sub", "specs", "in", "out", "up", "root", "chain", "loop", "broken",
        "broken-out", "file-out.md", "x.md", "only-outside.md", "only-plugin.md", "state.json", "secret.txt",
        "outside", "project", "pipe", "etc", "passwd", "\0", "\ud800", "{run_id}", "{{x}}", "a\\..\\b", "%2e%2e",
    ]  # fmt: skip
    return st.builds(
        lambda start, names, separator: start + separator.join(names),
        st.sampled_from(starts(world)),
        st.lists(st.sampled_from(parts), max_size=6),
        st.sampled_from(["/", "/", "/", "\\"]),
    )
