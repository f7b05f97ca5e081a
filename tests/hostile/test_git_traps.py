"""Programs that a repository's settings, or its submodules', name are not started by anything that Loom asks of git.

Each program would leave a mark. The last tests show that git without care does start them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from loomctl.kit import git
from loomctl.workflows import git_commands
from loomctl.workflows.git_commands import git_argv
from tests.helpers.repositories import git as ask_git
from tests.helpers.scenes import Scene, artifact
from tests.helpers.tables import each

CORE = ("fsmonitor", "pager", "editor", "sshCommand", "gitProxy", "askPass", "alternateRefsCommand")
PROGRAMS = (
    *(f"core.{name}" for name in CORE),
    *("credential.helper", "diff.external", "diff.trap.command", "diff.trap.textconv"),
    *("filter.trap.clean", "filter.trap.smudge", "filter.trap.process", "gpg.program", "gpg.ssh.program"),
    *("gpg.x509.program", "interactive.diffFilter", "merge.trap.driver", "sequence.editor"),
    *("trailer.trap.command", "uploadpack.packObjectsHook"),
    *(f"pager.{verb}" for verb in git_commands._ALLOWED),
    *(f"alias.{verb}" for verb in ("log", "st", "status", "diff")),
)
OTHERS = {
    "log.showSignature": "true",
    "diff.submodule": "diff",
    "status.submoduleSummary": "true",
    "diff.ignoreSubmodules": "none",
    "submodule.recurse": "true",
    "submodule.lib.ignore": "none",
    "format.pretty": "format:%G? %h %s",
    "fetch.recurseSubmodules": "true",
}
HOOKS = ("post-index-change", "fsmonitor-watchman", "post-checkout", "pre-auto-gc", "reference-transaction")


class Trap(NamedTuple):
    """A repository with a submodule, and the file that a started program would leave."""

    repository: Path
    mark: Path


def call(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


def made(folder: Path, name: str) -> Path:
    """Make a repository with two commits, a tag and files that its attributes give to drivers of this name."""
    folder.mkdir(parents=True)
    call(folder, "init", "-q", "-b", "main")
    (folder / ".gitattributes").write_text(f"*.bin diff={name} filter={name} merge={name}\n", encoding="utf-8")
    for number in (1, 2):
        (folder / "a.bin").write_text(f"{number}\n", encoding="utf-8")
        (folder / "a.txt").write_text(f"{number}\n", encoding="utf-8")
        call(folder, "add", ".")
        call(folder, "commit", "-q", "-m", f"commit {number}")
    call(folder, "tag", "v1")
    return folder


def armed(repository: Path, program: Path, driver: str) -> None:
    """Name the program wherever a repository's settings can, and change a file so that git looks at it."""
    folder = Path(ask_git(repository, "rev-parse", "--absolute-git-dir"))
    lines = []
    programs = {key.replace("trap", driver): f"{'!' * key.startswith('alias.')}{program}" for key in PROGRAMS}
    for key, value in {**programs, **OTHERS}.items():
        section, _, name = key.rpartition(".")
        head, _, middle = section.partition(".")
        lines.append(f"[{head}{f' {chr(34)}{middle}{chr(34)}' if middle else ''}]\n\t{name} = {value}\n")
    with (folder / "config").open("a", encoding="utf-8") as file:
        file.writelines(lines)
    for name in HOOKS:
        hook = folder / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.unlink(missing_ok=True)
        hook.symlink_to(program)
    for name in ("a.bin", "a.txt"):
        (repository / name).write_text("3\n", encoding="utf-8")


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    """Give the armed repository, its submodule at another commit than it has and armed too."""
    base = tmp_path_factory.mktemp("traps")
    mark, program = base / "sprung", base / "program.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{mark}"\ncat 2>/dev/null\n', encoding="utf-8")
    program.chmod(0o755)
    inner = made(base / "inner", "within")
    top = made(base / "top", "trap")
    call(top, "submodule", "--quiet", "add", str(inner), "lib")
    call(top, "commit", "-q", "-m", "a submodule")
    call(top / "lib", "commit", "-q", "--allow-empty", "-m", "inside")
    call(top, "commit", "-q", "-am", "the submodule is further")
    armed(top / "lib", program, "within")
    armed(top, program, "trap")
    return Trap(top, mark)


@pytest.fixture
def armed_trap(trap: Trap) -> Trap:
    """Give the trap, not sprung, and with all stat data stale, so that git looks into the files."""
    trap.mark.unlink(missing_ok=True)
    for path in (*trap.repository.glob("a.*"), *(trap.repository / "lib").glob("a.*")):
        os.utime(path)
    return trap


COMMANDS = [
    *("git log -p -4", "git log --stat --format='%h %s %(trailers)' -3", "git log --all --graph --decorate"),
    *("git show HEAD", "git show HEAD~1", "git show HEAD:a.bin", "git diff", "git diff --stat", "git diff HEAD~1"),
    *("git diff --cached", "git diff --word-diff HEAD -- a.bin lib", "git status", "git status --short --branch"),
    *("git status -uall --ignored", "git status --porcelain=v2", "git branch -avv"),
    *("git branch --list --format='%(refname) %(contents:trailers)'", "git rev-parse --short HEAD", "git shortlog -sn"),
    *("git shortlog --group=trailer:trap", "git describe --tags --always", "git describe --contains --all"),
]


@each("command", COMMANDS)
@pytest.mark.shows("switched off that would start a program or reach the network")
def test_a_question_of_an_artifact_starts_nothing(armed_trap: Trap, command: str) -> None:
    """Of all that a workflow may ask (D16), with every setting armed, here and in a submodule."""
    answer = git.output(git_argv(command), str(armed_trap.repository), patience=20)
    assert not armed_trap.mark.exists(), armed_trap.mark.read_text(encoding="utf-8")
    assert answer or command in ("git diff --cached", "git shortlog --group=trailer:trap")


@pytest.mark.shows("switched off that would start a program or reach the network")
def test_loom_itself_starts_nothing(armed_trap: Trap) -> None:
    """Whether the tree is dirty and how far the commits are apart are asked at every start."""
    where = str(armed_trap.repository)
    assert git.is_dirty(where, patience=20) is True
    assert git.head(where).branch == "main"
    assert git.output(["rev-list", "--count", "--left-right", "HEAD~1...HEAD"], where, patience=20)
    assert not armed_trap.mark.exists()


@each("command", ["git describe --tags", "git status", "git diff", "git diff HEAD"])
@pytest.mark.shows("without looking into submodules")
def test_a_clean_tree_with_a_changed_submodule_starts_nothing(armed_trap: Trap, command: str) -> None:
    for path in armed_trap.repository.glob("a.*"):
        path.write_text("2\n", encoding="utf-8")
    assert git.output(git_argv(command), str(armed_trap.repository), patience=20) is not None
    assert git.is_dirty(str(armed_trap.repository), patience=20) is False
    for path in armed_trap.repository.glob("a.*"):
        path.write_text("3\n", encoding="utf-8")
    assert not armed_trap.mark.exists(), armed_trap.mark.read_text(encoding="utf-8")


def test_a_submodule_that_went_on_is_still_told(armed_trap: Trap) -> None:
    """What a submodule's own files hold is not looked at; that it stands at another commit is."""
    off = ["-c", "filter.within.required=false", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    call(armed_trap.repository / "lib", *off, "commit", "-q", "--allow-empty", "-m", "further inside")
    armed_trap.mark.unlink(missing_ok=True)
    answer = git.output(git_argv("git status --short"), str(armed_trap.repository), patience=20)
    call(armed_trap.repository / "lib", *off, "reset", "-q", "--soft", "HEAD~1")
    assert answer is not None
    assert b" M lib" in answer


REFUSED = [
    *("git log --output=/tmp/x", "git diff --output=stolen", "git diff --ext-diff", "git log -p --textconv"),
    *("git show --show-signature", "git -c core.pager=evil log", "git --exec-path=. log", "git --git-dir=/x log"),
    *("git -C / log", "git log --format=%G?", "git diff --no-index /etc/passwd a.txt", "git log /etc/passwd"),
    *("git diff ../../x", "git log :(top)x", "git status; touch x", "git log `touch x`", "git log $(touch x)"),
    *("git log\ntouch x", "git fetch", "git clone x y", "git config --list", "git grep -O x", "git branch new"),
    *("git log --open-files-in-pager=x", "git log --outpu=x", "git log --ext", "git diff --submodule=diff"),
    *("git log @{-1} --output x", "git shortlog --group=format:%G?", "git rev-parse --git-path x"),
    *("git describe --broken=x", "git describe --tags --dirty", "touch x", "git", "", "git\x00log", "gitlog"),
    "git 'log",
]


@each("command", REFUSED)
@pytest.mark.shows("a fixed list of subcommands and options, without a shell")
def test_a_question_that_could_do_more_is_refused(scene: Scene, command: str) -> None:
    """A workflow that asks it is none, and a run that came along with it is primed without it."""
    scene.workflow([artifact("log", None, type="git_info", command="git log -1")])
    scene.begin()
    before = sorted(os.listdir(scene.root))
    plan = scene.edit_plan()
    plan["artifacts"][0]["command"] = command
    scene.edit_plan(artifacts=plan["artifacts"])
    answer = scene.hook("session-start", source="startup")
    assert (answer.code, "missing: log" in answer.message) == (0, True)
    assert sorted(os.listdir(scene.root)) == before


@pytest.mark.parametrize(
    "words",
    [["diff"], ["status"], ["log", "-p", "-1", "--show-signature"], ["-c", "diff.submodule=diff", "diff", "lib"]],
)
def test_the_traps_would_spring(armed_trap: Trap, words: list[str]) -> None:
    """The same questions without care do start the programs: the tests above prove something."""
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "timeout": 60}
    subprocess.run(["git", *words], cwd=armed_trap.repository, check=False, capture_output=True, **how)
    assert armed_trap.mark.exists()


def test_a_submodules_filter_would_start(armed_trap: Trap) -> None:
    """With everything of the repository itself off, its submodule's own settings still start a program."""
    off = [word for name in ("clean", "smudge", "process") for word in ("-c", f"filter.trap.{name}=")]
    command = ["git", *git.SAFE, *off, "status"]
    subprocess.run(command, cwd=armed_trap.repository, check=False, capture_output=True, timeout=60)
    assert armed_trap.mark.exists()


@pytest.fixture(params=["cloned", "unpacked", "copied"])
def brought(request: pytest.FixtureRequest, tmp_path: Path) -> Trap:
    """Give a folder that a project brought along as ordinary files and that git takes for a bare repository.

    It holds a store of Loom's, and its configuration names the program that git runs for the project's files.
    """
    mark, program = tmp_path / "sprung", tmp_path / "program.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{mark}"\ncat\n', encoding="utf-8")
    program.chmod(0o755)
    top = made(tmp_path / "theirs", "trap")
    folder = top / "bär 1"
    shutil.copytree(top / ".git", folder)
    (folder / "config").write_text(f'[filter "trap"]\n\tclean = {program}\n\tprocess = {program}\n', encoding="utf-8")
    (folder / ".loom").mkdir()
    (folder / ".loom" / "config.yaml").write_text("{}\n", encoding="utf-8")
    call(top, "add", "-f", ".")
    call(top, "commit", "-q", "-m", "brought along")
    if request.param == "cloned":
        call(tmp_path, "clone", "-q", str(top), "mine")
    else:
        shutil.copytree(top, tmp_path / "mine", ignore=shutil.ignore_patterns(".git"))
    if request.param == "copied":  # into a project of the user's own, whose `.git` git does not take for a repository
        (tmp_path / "mine" / ".git").mkdir()
    for path in (tmp_path / "mine").glob("a.*"):
        os.utime(path, (1, 1))
    mark.unlink(missing_ok=True)
    return Trap(tmp_path / "mine" / folder.name, mark)


@pytest.mark.slow
@pytest.mark.shows("looks for no repository by itself")
def test_a_folder_that_only_looks_like_a_repository_starts_nothing(brought: Trap) -> None:
    """A run in it, its steps, hooks, and all that Loom asks git of it; git that looks for itself does start it."""
    scene = Scene(brought.repository, new=False)
    scene.plain()
    started = scene.loomctl("run", "goal", "--workflow", "plain", "--json")
    assert started.code == 0, started.stderr
    for words in (["next"], ["done"], ["show"], ["memory", "on", "--dry-run"], ["push", "--yes"], ["doctor"]):
        scene.loomctl(*words, given="said")
    for source in ("startup", "compact", "clear", "resume"):
        scene.hook("session-start", source=source)
    scene.hook("stop")
    git.is_dirty(str(brought.repository), patience=10)
    assert not brought.mark.exists()
    top = brought.repository.parent
    command = ["git", f"--work-tree={top}", "-c", "safe.bareRepository=all", "status", "--porcelain"]
    subprocess.run(command, cwd=brought.repository, check=False, capture_output=True)
    assert brought.mark.exists(), "the trap would spring"


def test_a_repository_of_somebody_else_is_asked_nothing(armed_trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git is told where the repository is, and so does not look whose it is; Loom does, and heeds `safe.directory`."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(git, "_SURROUNDINGS", {**git._SURROUNDINGS, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    assert git.output(["rev-parse", "HEAD"], str(armed_trap.repository), patience=10) is None
    assert git.is_dirty(str(armed_trap.repository), patience=10) is None
    (Path(os.environ["HOME"]) / ".gitconfig").write_text("[safe]\n\tdirectory = *\n", encoding="utf-8")
    assert git.output(["rev-parse", "HEAD"], str(armed_trap.repository), patience=10)
