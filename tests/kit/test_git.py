"""What git says is read or asked in every kind of checkout, and nothing that a repository names is run (D25)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.kit import git
from loomctl.kit.git import Head
from tests.helpers import repositories
from tests.helpers.tables import each
from tests.helpers.waiting import PATIENCE, in_time, until


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Give a repository with one commit, in a folder with a blank and letters beyond ASCII."""
    return repositories.make(tmp_path / "Größe 1")


def commit_of(folder: Path) -> str:
    return repositories.git(folder, "rev-parse", "HEAD")


def test_a_branch_and_its_commit_are_read(repository: Path) -> None:
    assert git.head(str(repository)) == Head("main", commit_of(repository))
    repositories.git(repository, "checkout", "-q", "-b", "feature/größe-#258")
    repositories.git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    assert git.head(str(repository)) == Head("feature/größe-#258", commit_of(repository))


def test_packed_refs_are_read(repository: Path) -> None:
    """A branch whose file was packed away is found, and not mistaken for one whose name ends alike."""
    repositories.git(repository, "branch", "x/main")
    repositories.git(repository, "tag", "-a", "-m", "t", "main")
    repositories.git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    repositories.git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()
    assert git.head(str(repository)) == Head("main", repositories.git(repository, "rev-parse", "refs/heads/main"))
    repositories.git(repository, "commit", "-q", "--allow-empty", "-m", "third")
    assert git.head(str(repository)).commit == commit_of(repository)


def test_a_detached_head_has_a_commit_and_no_branch(repository: Path) -> None:
    repositories.git(repository, "checkout", "-q", "--detach")
    assert git.head(str(repository)) == Head(None, commit_of(repository))


def test_an_unborn_branch_has_no_commit(tmp_path: Path) -> None:
    """Before the first commit the branch alone is known, and a file makes the tree dirty."""
    repositories.git(tmp_path, "init", "-q", "-b", "start")
    assert git.head(str(tmp_path)) == Head("start", None)
    assert git.is_dirty(str(tmp_path), patience=5) is False
    (tmp_path / "x").write_text("x")
    assert git.is_dirty(str(tmp_path), patience=5) is True


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_linked_worktree_has_its_own_head(repository: Path, tmp_path: Path, relative: bool, packed: bool) -> None:
    """In a linked worktree, absolute or relative, its branch is read, from the main checkout's refs."""
    tree = repositories.add_worktree(repository, tmp_path / "trees" / "wt 1", "side", relative=relative)
    repositories.git(tree, "commit", "-q", "--allow-empty", "-m", "second")
    if packed:
        repositories.git(repository, "pack-refs", "--all")
    folders = git.git_folders(str(tree))
    assert folders is not None
    assert os.path.dirname(os.path.realpath(folders[0])) == str(repository / ".git" / "worktrees")
    assert os.path.realpath(folders[1]) == str(repository / ".git")
    assert git.head(str(tree)) == Head("side", commit_of(tree))
    assert git.head(str(repository)) == Head("main", commit_of(repository))
    assert git.is_dirty(str(tree), patience=5) is False
    (tree / "a.txt").write_text("changed\n")
    assert git.is_dirty(str(tree), patience=5) is True
    assert git.is_dirty(str(repository), patience=5) is False


def test_a_submodule_is_a_checkout_of_its_own(repository: Path, tmp_path: Path) -> None:
    inner = repositories.make(tmp_path / "inner", **{"b.txt": "b\n"})
    repositories.git(repository, "submodule", "--quiet", "add", str(inner), "lib")
    module = repository / "lib"
    assert git.top_of(str(module)) == str(module)
    assert git.head(str(module)) == Head("main", commit_of(inner))
    assert git.is_dirty(str(module), patience=5) is False
    (module / "b.txt").write_text("changed\n")
    assert git.is_dirty(str(module), patience=5) is True


@pytest.mark.parametrize(
    "head",
    [
        "",
        "ref: refs/heads/../../../outside",
        "ref: ../outside",
        "ref: /etc/passwd",
        "ref: refs/heads/.invalid",
        "ref: refs/heads/a\0b",
        "f" * 39,
        "G" * 40,
        "x" * 100_000,
    ],
)
def test_a_damaged_head_is_no_commit(repository: Path, head: str) -> None:
    """What git never writes gives no commit, reads nothing outside, and does not crash."""
    (repository / ".git" / "outside").write_text("a" * 40)
    (repository / "outside").write_text("a" * 40)
    (repository / ".git" / "HEAD").write_text(head)
    assert git.head(str(repository)).commit is None


def test_a_pipe_in_place_of_a_file_does_not_hold_the_reader(repository: Path) -> None:
    """A named pipe where git keeps a file gives no answer instead of waiting for a writer."""
    (repository / ".git" / "HEAD").unlink()
    os.mkfifo(repository / ".git" / "HEAD")
    assert git.head(str(repository)) == Head(None, None)


def test_without_a_repository_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert git.top_of(str(tmp_path)) is None
    assert git.head(str(tmp_path)) == Head(None, None)
    assert git.is_dirty(str(tmp_path), patience=5) is None
    (tmp_path / ".git").write_text("nonsense\n")
    assert git.git_folders(str(tmp_path)) is None
    assert git.head(str(tmp_path)) == Head(None, None)


def test_without_git_there_is_no_answer(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the program reads heads all the same and says nothing of changes."""
    commit = commit_of(repository)
    monkeypatch.setenv("PATH", str(repository))
    assert git.head(str(repository)).commit == commit
    assert git.is_dirty(str(repository), patience=5) is None


@pytest.mark.parametrize(
    ("touch", "dirty"),
    [
        ([], False),
        ([".loom/state.json", ".loom/runs/r/x"], False),
        ([".fractary/faber/x"], False),
        (["packages/api/.loom/runs/x"], False),
        (["packages/.loom/x", "packages/b"], True),
        (["new.txt"], True),
        (["a.txt"], True),
        ([".loomx/x"], True),
    ],
)
def test_only_looms_own_files_do_not_make_a_tree_dirty(repository: Path, touch: list[str], dirty: bool) -> None:
    """What Loom writes, at the top or in a nested store, is no change of the project; anything else is (D25)."""
    for name in touch:
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("new\n")
    assert git.is_dirty(str(repository), patience=5) is dirty


def test_a_tracked_file_of_looms_own_is_no_change_either(repository: Path) -> None:
    (repository / ".loom").mkdir()
    (repository / ".loom" / "state.json").write_text("1")
    repositories.git(repository, "add", "-f", ".loom")
    repositories.git(repository, "commit", "-q", "-m", "runs")
    (repository / ".loom" / "state.json").write_text("2")
    assert git.is_dirty(str(repository), patience=5) is False


@pytest.mark.slow
@pytest.mark.shows("with a time limit")
def test_a_slow_git_is_left_in_time(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = repository.parent / "bin"
    slow.mkdir()
    (slow / "git").write_text(f"#!/bin/sh\necho $$ > '{slow}/pid'\nsleep 60 &\necho $! > '{slow}/child'\nwait\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}{os.pathsep}{os.environ['PATH']}")
    answers = []
    in_time(
        lambda patience: answers.append(git.is_dirty(str(repository), patience=patience)),
        lambda: (slow / "child").is_file() and (slow / "child").read_text().endswith("\n"),
    )
    assert set(answers) == {None}
    both = [int((slow / name).read_text()) for name in ("pid", "child")]
    until(lambda: all(map(is_gone, both)), "the end of both")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_an_endless_answer_is_cut_off(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = repository.parent / "bin"
    endless.mkdir()
    (endless / "git").write_text("#!/bin/sh\nexec cat /dev/zero\n")
    (endless / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{endless}{os.pathsep}{os.environ['PATH']}")
    began = time.monotonic()
    assert git.output(["log"], str(repository), patience=2 * PATIENCE, limit=1000) == b"\0" * 1000
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("words", [["log", "\ud800"], ["log", "a\0b"], ["no-such-command"], ["log", "nowhere"]])
def test_a_question_that_cannot_be_asked_has_no_answer(repository: Path, words: list[str]) -> None:
    assert git.output(words, str(repository), patience=5) is None


def set_hooks(folder: Path, program: Path) -> None:
    """Name the program as monitor, external diff and text converter, and put it where hooks are."""
    for key in ("core.fsmonitor", "diff.external", "diff.trap.textconv", "diff.trap.command", "core.pager"):
        repositories.git(folder, "config", key, str(program))
    hooks = folder.parent / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "fsmonitor-watchman", "post-checkout"):
        (hooks / name).symlink_to(program)
    repositories.git(folder, "config", "core.hooksPath", str(hooks))


def set_filter(folder: Path, program: Path) -> None:
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    repositories.git(folder, "config", "filter.evil.clean", str(program))
    repositories.git(folder, "config", "filter.evil.required", "true")


def set_process_filter(folder: Path, program: Path) -> None:
    """Name the program as a filter process, in a file that the configuration includes."""
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    (folder / ".git" / "more").write_text(f'[FILTER "evil"]\n\tprocess = {program}\n\trequired\n')
    repositories.git(folder, "config", "include.path", "more")


def set_odd_filter(folder: Path, program: Path) -> None:
    """Name the program as a filter whose name holds an equals sign, which a command line cannot turn off."""
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* filter=a=b\n")
    with (folder / ".git" / "config").open("a") as config:
        config.write(f'[filter "a=b"]\n\tclean = {program}\n')


TRAPS: list[Callable[[Path, Path], None]] = [set_hooks, set_filter, set_process_filter, set_odd_filter]


@each("setting", TRAPS)
@pytest.mark.shows("switched off that would start a program or reach the network")
def test_nothing_that_the_repository_names_runs(tmp_path: Path, setting: Callable[[Path, Path], None]) -> None:
    """Asked whether it is dirty, a repository full of traps springs none; asked by a plain git, it springs."""
    repository = repositories.make(tmp_path / "repository", **{"a.txt": "one\n", "b.txt": "two\n"})
    program, mark = repositories.trap(tmp_path)
    setting(repository, program)
    mark.unlink(missing_ok=True)
    (repository / "a.txt").write_text("owt\n")
    os.utime(repository / "b.txt", (1, 1))
    assert git.is_dirty(str(repository), patience=10) is (None if setting is set_odd_filter else True)
    git.output(["diff"], str(repository), patience=10)
    assert not mark.exists()
    subprocess.run(["git", "status"], cwd=repository, check=False, capture_output=True)
    subprocess.run(["git", "diff"], cwd=repository, check=False, capture_output=True)
    assert mark.exists(), "the trap would spring"


def test_a_filter_of_the_users_own_is_heeded(tmp_path: Path, user_folders: Path) -> None:
    """What the user has set for all their repositories, such as large file storage, goes on working."""
    (user_folders / ".gitconfig").write_text('[filter "up"]\n\tclean = tr a-z A-Z\n')
    repository = repositories.make(tmp_path / "r", **{".gitattributes": "*.txt filter=up\n", "a.txt": "one\n"})
    os.utime(repository / "a.txt", (1, 1))
    assert git.is_dirty(str(repository), patience=10) is False


def test_a_work_tree_named_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    """A repository whose settings call another folder its work tree does not make git read that folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("the user's secret\n")
    repository = repositories.make(tmp_path / "r")
    repositories.git(repository, "config", "core.worktree", str(outside))
    assert b"secret" in subprocess.run(["git", "diff"], cwd=repository, check=True, capture_output=True).stdout
    assert git.output(["diff"], str(repository), patience=10) == b""
    assert git.is_dirty(str(repository), patience=10) is False


@pytest.mark.shows("switched off that would start a program or reach the network")
def test_a_missing_object_is_not_fetched(tmp_path: Path) -> None:
    """A repository that says where a missing object comes from, by a program, does not get that program run."""
    repository = repositories.make(tmp_path / "r")
    program, mark = repositories.trap(tmp_path)
    blob = repositories.git(repository, "rev-parse", "HEAD:a.txt")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"ext::{program}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
    ):
        repositories.git(repository, "config", key, value)
    assert git.output(["show", "HEAD:a.txt"], str(repository), patience=10) is None
    assert not mark.exists()
    subprocess.run(["git", "show", "HEAD:a.txt"], cwd=repository, check=False, capture_output=True)
    assert mark.exists(), "the trap would spring"


def test_the_callers_own_git_variables_do_not_reach_in(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called from within a hook of git's, which sets GIT_DIR and more, the folder's own repository answers."""
    other = repositories.make(repository.parent / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    answer = git.output(["rev-parse", "--show-toplevel"], str(repository), patience=10)
    assert answer is not None
    assert os.fsdecode(answer.strip()) == str(repository)


def test_git_is_imported_only_when_it_is_called() -> None:
    code = (
        "import sys; from loomctl.kit import git; git.head('.'); "
        "sys.exit(' '.join(sorted({'subprocess', 'select', 'signal'} & set(sys.modules))) or 0)"
    )
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", f"import sys; sys.path.insert(0, '.'); {code}"], check=True)
