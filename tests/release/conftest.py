"""What tests of releases share: the tools of requirements-release.lock, and a copy of this checkout as a repository."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl import __version__
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder for what is fetched; it outlives the run where LOOM_TEST_CACHE names it."""
    kept = os.environ.get("LOOM_TEST_CACHE") or str(tmp_path_factory.getbasetemp().parent)
    Path(kept).mkdir(parents=True, exist_ok=True)
    return Path(kept)


@pytest.fixture(scope="session")
def tools(cache: Path) -> Path:
    """Give the folder of the tools' commands; whoever comes first makes it, with packages from the registry."""
    environ = {**os.environ, "LOOM_TEST_CACHE": str(cache), "LOOM_PYTHON": sys.executable}
    with (cache / "release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [str(CHECKOUT / "scripts/release"), "--tools"]
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return Path(ended.stdout.strip())


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository that has the files of this checkout as they are, in one commit, whatever was committed.

    It is ready for the next release, as this checkout is not at one.
    """
    folder = tmp_path_factory.mktemp("origin") / "loom"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    open_again(folder)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Copy a checkout")
    return folder


def open_again(folder: Path) -> None:
    """Let a checkout be what it was before its version was made, with a name for who has it and one change."""
    changelog, security = folder / "CHANGELOG.md", folder / "SECURITY.md"
    dated = re.compile(rf"^(## {re.escape(__version__)}) \(.*\)$", re.MULTILINE)
    changelog.write_text(dated.sub(r"\1 (unreleased)", changelog.read_text("utf-8")), encoding="utf-8")
    security.write_text(security.read_text("utf-8").replace("/OWNER/", "/acme/"), encoding="utf-8")
    shutil.rmtree(folder / "tests/upgrade/releases" / __version__, ignore_errors=True)
    (folder / "changes.d/one.md").write_text("- One thing is new.\n", encoding="utf-8")


@pytest.fixture
def clone(copy: Path, tmp_path: Path) -> Path:
    """Clone that repository, with a user's name."""
    return cloned(copy, tmp_path / "clone")


def cloned(repository: Path, folder: Path, *, umask: int = -1) -> Path:
    """Clone a repository under a umask, and give it a user's name."""
    subprocess.run(["git", "clone", "--quiet", str(repository), str(folder)], check=True, umask=umask)
    git(folder, "config", "user.name", "A")
    git(folder, "config", "user.email", "a@example.org")
    return folder


def fetched(cache: Path, package: str) -> Path:
    """Install a package of npm's in a folder of the cache, once, and give the folder of its commands."""
    folder = cache / package.rpartition("/")[2].replace("@", "-")
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            options = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts", "--prefix", str(part)]
            subprocess.run(["npm", "install", *options, package], check=True, cwd=part)
            part.rename(folder)
    return folder / "node_modules/.bin"
