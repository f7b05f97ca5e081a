"""Real git repositories for tests: plain, with linked worktrees, with a configuration that sets traps."""

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> str:
    """Ask git in a folder, as a user with a name would; gives what it prints."""
    user = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *user, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make(folder: Path, **files: str) -> Path:
    """Make a repository on the branch main with one commit. files: content by name, `a.txt` if none is given."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for name, content in (files or {"a.txt": "one\n"}).items():
        (folder / name).write_text(content, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def add_worktree(repository: Path, folder: Path, branch: str, *, relative: bool = False) -> Path:
    """Add a linked worktree on a new branch. relative: with relative paths on both sides, as newer gits write them."""
    git(repository, "worktree", "add", "-q", "-b", branch, str(folder))
    if relative:
        admin = Path((folder / ".git").read_text(encoding="utf-8").removeprefix("gitdir:").strip())
        up = "../" * len(folder.relative_to(repository.parent).parts)
        link = f"{up}{repository.name}/.git/worktrees/{admin.name}"
        (folder / ".git").write_text(f"gitdir: {link}\n", encoding="utf-8")
        (admin / "gitdir").write_text(f"../../../../{folder.relative_to(repository.parent)}/.git\n", encoding="utf-8")
    return folder


def trap(folder: Path, name: str = "trap.sh") -> tuple[Path, Path]:
    """Make a program that leaves a mark when it runs; gives the program and the mark."""
    program, mark = folder / name, folder / "sprung"
    program.write_text(f'#!/bin/sh\necho "$0" >> "{mark}"\nexec cat </dev/null\n', encoding="utf-8")
    program.chmod(0o755)
    return program, mark
