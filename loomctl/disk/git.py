"""What Loom asks git, with nothing of the repository's own configuration allowed to run."""

from __future__ import annotations

import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# A repository's configuration may name programs; none of them is run for Loom.
SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "diff.external=", "--no-pager")
_OID = frozenset("0123456789abcdef")


class Head(NamedTuple):
    """branch and commit of a checkout, each None where there is none."""

    branch: str | None
    commit: str | None


def git_folders(top: str) -> tuple[str, str] | None:
    """Give `(git folder, common folder)` of a checkout's top; they differ in a linked worktree. None: no repository."""
    dot_git = os.path.join(top, ".git")
    if os.path.isdir(dot_git):
        return dot_git, dot_git
    line = _first_line(dot_git)
    if not line.startswith("gitdir:"):
        return None
    folder = os.path.normpath(os.path.join(top, line[len("gitdir:") :].strip()))
    common = _first_line(os.path.join(folder, "commondir"))
    return folder, os.path.normpath(os.path.join(folder, common)) if common else folder


def head(top: str) -> Head:
    """Read branch and commit from git's files, without starting git."""
    folders = git_folders(top)
    if folders is None:
        return Head(None, None)
    line = _first_line(os.path.join(folders[0], "HEAD"))
    if not line.startswith("ref:"):
        return Head(None, _oid(line))
    ref = line[len("ref:") :].strip()
    branch = ref.removeprefix("refs/heads/")
    if ".." in ref or not ref.startswith("refs/"):
        return Head(None, None)
    for folder in folders:
        found = _oid(_first_line(os.path.join(folder, ref)))
        if found:
            return Head(branch, found)
    return Head(branch, _packed(folders[1], ref))


def is_dirty(top: str, *, patience: float = 0.1) -> bool | None:
    """Ask git whether tracked or untracked files differ, Loom's and FABER's own folders apart; None: no answer in time.

    patience: seconds (D25: 100 ms at most).
    """
    answer = output(
        [
            "status",
            "--porcelain",
            "--no-renames",
            "--ignore-submodules",
            "--",
            ".",
            ":(exclude).loom",
            ":(exclude).fractary",
        ],
        top,
        patience=patience,
    )
    return None if answer is None else bool(answer.strip())


def output(arguments: Sequence[str], top: str, *, patience: float, limit: int = 1 << 20) -> bytes | None:
    """Run git without a shell in `top` and give what it printed, `limit` bytes at most; None if it failed or hung."""
    import subprocess

    surroundings = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    surroundings.update(GIT_OPTIONAL_LOCKS="0", GIT_NO_LAZY_FETCH="1", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
    try:
        done = subprocess.run(
            ["git", *SAFE, *arguments],
            cwd=top,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=patience,
            env=surroundings,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:limit] if done.returncode == 0 else None


def _packed(common: str, ref: str) -> str | None:
    try:
        with open(os.path.join(common, "packed-refs"), encoding="utf-8", errors="replace") as source:
            for line in source:
                if line.rstrip("\n").endswith(" " + ref):
                    return _oid(line.split(" ", 1)[0])
    except OSError:
        pass
    return None


def is_oid(text: str) -> bool:
    """Tell whether a text is a full object id."""
    return len(text) in (40, 64) and _OID.issuperset(text)


def _oid(text: str) -> str | None:
    return text if is_oid(text) else None


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.readline(4096).strip()
    except OSError:
        return ""
