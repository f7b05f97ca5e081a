"""An allowed git command starts no program that a repository's settings name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from loomctl.kit import git
from loomctl.workflows.git_commands import git_argv


def run(repository: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words],
        cwd=repository,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def trap(tmp_path: Path) -> tuple[Path, Path]:
    """Give a repository whose settings name a program at every place git has for one, and the file it would leave."""
    repository, mark = tmp_path / "repository", tmp_path / "sprung"
    repository.mkdir()
    script = tmp_path / "trap.sh"
    script.write_text(f'#!/bin/sh\necho "$0" >> "{mark}"\ncat\n', encoding="utf-8")
    script.chmod(0o755)
    run(repository, "init", "-q", "-b", "main")
    (repository / ".gitattributes").write_text("*.bin diff=trap\n", encoding="utf-8")
    (repository / "a.bin").write_text("one\n", encoding="utf-8")
    (repository / "a.txt").write_text("one\n", encoding="utf-8")
    run(repository, "add", ".")
    run(repository, "commit", "-q", "-m", "first")
    run(repository, "tag", "v1")
    (repository / "a.bin").write_text("two\n", encoding="utf-8")
    (repository / "a.txt").write_text("two\n", encoding="utf-8")
    run(repository, "commit", "-q", "-am", "second")
    (repository / "a.bin").write_text("three\n", encoding="utf-8")
    for key in (
        *("core.pager", "core.fsmonitor", "core.editor", "diff.external", "diff.trap.textconv", "diff.trap.command"),
        *("gpg.program", "pager.log", "pager.diff", "pager.status", "pager.branch", "interactive.diffFilter"),
    ):
        run(repository, "config", key, str(script))
    run(repository, "config", "log.showSignature", "true")
    mark.unlink(missing_ok=True)
    return repository, mark


COMMANDS = [
    *("git log -p -2", "git log --oneline -10", "git show HEAD", "git show HEAD:a.bin", "git diff", "git diff HEAD~1"),
    *("git diff --stat HEAD~1", "git status --short --branch", "git branch -vv", "git rev-parse --short HEAD"),
    *("git shortlog -sn", "git describe --tags --always"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_the_repository_runs(trap: tuple[Path, Path], command: str) -> None:
    """Pagers, diff drivers, text converters, monitors and signature checkers stay untouched, and the answer comes."""
    repository, mark = trap
    assert git.output(git_argv(command), str(repository), patience=10)
    assert not mark.exists(), mark.read_text(encoding="utf-8")


def test_the_trap_would_spring(trap: tuple[Path, Path]) -> None:
    """The same question asked without care does run the repository's program: the tests above prove something."""
    repository, mark = trap
    subprocess.run(["git", "diff"], cwd=repository, check=False, capture_output=True)
    assert mark.exists()
