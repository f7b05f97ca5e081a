"""Which project a folder belongs to, and where its store is or will be (D3)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from loomctl.kit.errors import LoomError, quoted
from loomctl.runs import project
from tests.helpers import repositories


def store(folder: Path) -> Path:
    (folder / ".loom").mkdir(parents=True)
    return folder / ".loom"


def found(*starts: Path | str) -> tuple[Path, Path] | None:
    """Give root and store of the project that is found."""
    made = project.find([str(start) for start in starts])
    return (Path(made.root), Path(made.store)) if made else None


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Give a repository, in a folder with blanks and letters beyond ASCII."""
    return repositories.make(tmp_path / "Größe 1" / "shop 日本")


def test_a_store_is_found_from_any_folder_below_and_the_nearest_counts(top: Path, tmp_path: Path) -> None:
    """A store nested in a sub-folder is the project of all below it, and its folder the root."""
    here = store(top)
    deep = top / "packages" / "api ü" / "src"
    deep.mkdir(parents=True)
    (here / "runs").mkdir()
    (tmp_path / "link").symlink_to(deep)
    for start in (top, deep, here, here / "runs", top / ".git", tmp_path / "link"):
        assert found(start) == (top, here)
    inner = store(deep.parent)
    assert (found(deep), found(top / "packages")) == ((deep.parent, inner), (top, here))


def test_the_search_ends_at_the_top_of_the_repository_or_of_the_submodule(top: Path, tmp_path: Path) -> None:
    store(top.parent)
    (top / "src").mkdir()
    assert found(top / "src") is None
    assert found(top.parent) == (top.parent, top.parent / ".loom")
    store(top)
    inner = repositories.make(tmp_path / "inner")
    repositories.git(top, "submodule", "--quiet", "add", str(inner), "lib")
    assert found(top / "lib") is None
    assert found(top / "lib", top) == (top, top / ".loom")


def test_without_a_repository_the_nearest_parent_counts_and_the_last_folder_ends_the_search(tmp_path: Path) -> None:
    here = store(tmp_path / "a")
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    assert found(tmp_path / "a" / "b" / "c") == (tmp_path / "a", here)
    assert found(os.sep) is None or os.path.isdir("/.loom")


@pytest.mark.parametrize("relative", [False, True])
def test_a_linked_worktree_uses_the_main_checkouts_store(top: Path, tmp_path: Path, relative: bool) -> None:
    here = store(top)
    tree = repositories.add_worktree(top, tmp_path / "Größe 1" / "trees" / "wt 1", "side", relative=relative)
    (tree / "src").mkdir()
    assert found(tree) == found(tree / "src") == (tree, here)
    made = project.find([str(tree)])
    assert made is not None
    assert made.name == "shop 日本"  # as in the main checkout
    store(tree)
    assert found(tree / "src") == (tree, here)


def test_a_nested_store_serves_the_same_folder_of_a_worktree_also_inside_the_checkout(
    top: Path, tmp_path: Path
) -> None:
    inner = store(top / "packages" / "api")
    tree = repositories.add_worktree(top, tmp_path / "wt", "side")
    (tree / "packages" / "api" / "src").mkdir(parents=True)
    assert found(tree / "packages" / "api" / "src") == (tree / "packages" / "api", inner)
    assert found(tree) is None
    here = store(top)
    tree = repositories.add_worktree(top, top / ".trees" / "side", "inside")
    assert found(tree) == (tree, here)


def test_a_worktree_of_a_bare_repository_or_of_a_checkout_that_is_gone_stands_for_itself(
    top: Path, tmp_path: Path
) -> None:
    repositories.git(tmp_path, "clone", "-q", "--bare", str(top), "bare.git")
    tree = repositories.add_worktree(tmp_path / "bare.git", tmp_path / "wt", "side")
    here = store(tree)
    assert found(tree) == (tree, here)
    store(top)
    tree = repositories.add_worktree(top, tmp_path / "other", "side")
    shutil.rmtree(top)
    assert found(tree) is None
    assert project.new(str(tree)).store == str(tree / ".loom")


def test_the_first_start_that_has_a_store_counts(top: Path, tmp_path: Path) -> None:
    here = store(top)
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "file").write_text("")
    assert found("", str(tmp_path / "none"), str(tmp_path / "file"), "a\0b", "\ud800", empty, top) == (top, here)
    assert found() is None
    assert found(empty) is None


def test_a_file_in_the_stores_place_is_no_store_and_is_named(top: Path) -> None:
    """None can be made before it is moved: the hint does that."""
    (top / ".loom").write_text("")
    assert found(top) is None
    with pytest.raises(LoomError, match="NOT_A_FOLDER") as error:
        project.new(str(top))
    hint = f"mv {quoted(f'{top}/.loom')} {quoted(f'{top}/.loom.aside')}"
    assert (error.value.where, error.value.hint) == (f"{top}/.loom", hint)


def test_a_first_run_puts_its_store_at_the_repositorys_top(top: Path, tmp_path: Path) -> None:
    (top / "src").mkdir()
    tree = repositories.add_worktree(top, tmp_path / "wt", "side")
    loose = tmp_path / "loose"
    loose.mkdir()
    for start, root, where in ((top / "src", top, top), (tree, tree, top), (loose, loose, loose)):
        made = project.new(str(start))
        assert (made.root, made.store) == (str(root), str(where / ".loom"))
        assert made.name == where.name


def test_the_bundle_lies_beside_the_package_or_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Path(project.plugin_root()) / "plugin.json").is_file()
    inside = tmp_path / "loomctl" / "_bundle"
    inside.mkdir(parents=True)
    monkeypatch.setattr(project, "package_parent", lambda: str(tmp_path))
    assert project.plugin_root() == str(tmp_path)
    (inside / "plugin.json").write_text("{}")
    assert project.plugin_root() == str(inside)
