"""From a declared path to a file inside what is allowed, on this machine or another (D8-D10)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.expressions.placeholders import to_portable
from loomctl.kit.errors import LoomError
from loomctl.runs.artifact_paths import Roots, is_inside, locate, shown
from tests.helpers import confinement
from tests.helpers.confinement import World
from tests.helpers.errors import refusal
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Give a project full of ways out; nothing in it is changed by the tests that share it."""
    return confinement.make(tmp_path_factory.mktemp("world"))


@pytest.mark.slow
@settings(max_examples=1000)
@given(data=st.data())
def test_no_path_leads_out(world: World, data: st.DataObject) -> None:
    """Whatever is declared, what comes back is resolved and inside an allowed root, or the path is refused."""
    declared = data.draw(confinement.paths(world))
    try:
        place = locate(declared, world.known, world.roots)
    except LoomError:
        return
    assert os.path.realpath(place.path) == place.path
    allowed = [os.path.realpath(root) for root in (*world.roots[:3], *world.roots.extra)]
    assert any(is_inside(place.path, root) for root in allowed)


@each(
    "declared, expected, rebased",
    [
        ("docs/x.md", "docs/x.md", False),
        ("./sub/../docs/x.md", "docs/x.md", False),
        ("in/x.md", "docs/x.md", False),
        ("{project_root}/docs/x.md", "docs/x.md", False),
        ("<project_root>/docs/x.md", "docs/x.md", False),
        ("docs/absent.md", "docs/absent.md", False),
        ("{project_root}/absent/docs/x.md", "absent/docs/x.md", False),
        ("{plugin_root}/docs/only-plugin.md", "{plugin_root}/docs/only-plugin.md", False),
        ("plugins/faber/docs/only-plugin.md", "{plugin_root}/docs/only-plugin.md", True),
        ("plugins/faber/docs/nowhere.md", "plugins/faber/docs/nowhere.md", False),
        ("/home/b/shop/docs/x.md", "docs/x.md", True),
        ("C:\\shop\\docs\\x.md", "docs/x.md", True),
        ("C:\\Users\\b\\elsewhere\\docs\\x.md", "docs/x.md", True),
        ("\\\\server\\share\\docs\\x.md", "docs/x.md", True),
        ("/home/c/other/sub/specs/x.md", "sub/specs/x.md", True),
        ("/docs/x.md", "docs/x.md", True),
        ("/x.md", "x.md", True),
        ("/home/b/shop/docs/absent.md", "docs/absent.md", False),
        ("broken", "nowhere", False),
    ],
)
def test_a_path_finds_its_file(world: World, declared: str, expected: str, rebased: bool) -> None:
    place = locate(declared, world.known, world.roots)
    assert (place.shown, place.rebased) == (expected, rebased)


@each(
    "declared, code",
    [
        ("../outside/x.md", "PATH_ESCAPE"), ("docs/../../../outside/x.md", "PATH_ESCAPE"),
        ("out/x.md", "PATH_ESCAPE"), ("chain/x.md", "PATH_ESCAPE"), ("file-out.md", "PATH_ESCAPE"),
        ("broken-out", "PATH_ESCAPE"), ("{run_dir}/out/x.md", "PATH_ESCAPE"),
        ("{run_dir}/../x.md", "PATH_ESCAPE"), ("{plugin_root}/docs/file-out.md", "PATH_ESCAPE"),
        ("{project_root}-evil/x.md", "PATH_ESCAPE"), ("/home/b/shop/out/x.md", "PATH_ESCAPE"),
        ("/home/b/shop/out/nowhere.md", "PATH_ESCAPE"), ("/home/b/shop/../x.md", "PATH_ESCAPE"),
        ("C:\\shop\\..\\x.md", "PATH_ESCAPE"), ("/etc/hostname", "PATH_ESCAPE"), ("/", "PATH_ESCAPE"),
        ("C:\\x.md", "PATH_ESCAPE"), ("", "BAD_PATH"), ("docs/\0x.md", "BAD_PATH"),
        ("docs/\ud800.md", "BAD_PATH"), ("x" * 5000, "BAD_PATH"), ("{work_id}.md", "UNRESOLVED_PLACEHOLDER"),
        ("{nope}/x.md", "UNRESOLVED_PLACEHOLDER"),
    ],
)  # fmt: skip
def test_what_leads_out_is_refused(world: World, declared: str, code: str) -> None:
    error = refusal(locate, declared, world.known, world.roots)
    assert error.code == code
    assert len(str(error)) < 1000


@pytest.mark.shows("in your own settings alone")
def test_an_extra_root_is_allowed_and_no_more(world: World) -> None:
    extra = world.roots.extra[0]
    assert locate(f"{extra}/x.md", world.known, world.roots).path == os.path.realpath(f"{extra}/x.md")
    assert refusal(locate, f"{extra}/out/x.md", world.known, world.roots).code == "PATH_ESCAPE"
    assert refusal(locate, f"{extra}/x.md", world.known, world.roots._replace(extra=())).code == "PATH_ESCAPE"


def test_a_project_reached_through_a_link_is_confined_to_what_it_is(world: World, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(world.roots.project)
    roots = world.roots._replace(project=str(tmp_path / "link"))
    assert locate("docs/x.md", world.known, roots).shown == "docs/x.md"
    assert refusal(locate, "out/x.md", world.known, roots).code == "PATH_ESCAPE"


def test_a_stored_path_survives_a_move(tmp_path: Path) -> None:
    before, after = tmp_path / "before {x}", tmp_path / "after"
    name = "specs/größe {run_id} <run_id> 😀.md"
    (before / "specs").mkdir(parents=True)
    (before / name).write_text("x")
    stored = to_portable(str(before / name), str(before))
    shutil.move(before, after)
    known: dict[str, str | None] = {"project_root": str(after), "run_id": "r"}
    place = locate(stored, known, Roots(str(after), str(after / ".loom"), str(tmp_path)))
    assert (place.path, place.shown) == (str(after / name), name)


def test_a_path_of_many_parts_is_decided_soon_and_shown_without_the_machine_where_it_can(world: World) -> None:
    with bounded_work(), pytest.raises(LoomError, match="PATH_ESCAPE"):
        locate("/" + "a/" * 2000 + "x.md", world.known, world.roots)
    roots = Roots(world.roots.project, world.roots.run_dir, world.roots.plugin)
    assert shown(f"{roots.project}/docs/x.md", roots) == "docs/x.md"
    assert shown(f"{roots.plugin}/docs", roots) == "{plugin_root}/docs"
    assert shown(f"{roots.run_dir}/x", roots) == f"{roots.run_dir}/x"
    assert shown(roots.project, roots) == roots.project


@each(
    ("path", "folder", "inside"),
    [
        ("/a/b", "/a", True), ("/a", "/a", True), ("/a", "/a/", True), ("/ab", "/a", False), ("/", "/a", False),
        ("/a", "/", True), ("/a/b", "/a/b/c", False),
    ],
)  # fmt: skip
def test_inside_is_by_whole_names(path: str, folder: str, inside: bool) -> None:
    assert is_inside(path, folder) is inside
