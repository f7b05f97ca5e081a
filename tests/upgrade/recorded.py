"""The recorded projects of releases, and projects of theirs to work in (`make.py` records one)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.scenes import CHECKOUT, MAIN, Ended, run

RELEASES = sorted(path.parent.name for path in Path(__file__).parent.glob("releases/*/release.json"))
# What each Loom makes anew when it looks: settings in a form for hooks, lists of runs, locks, whose terminal lives, and
# the store's own .gitignore.
MADE_ANEW = (
    *("home/.cache", "home/.local/state/loom/config.json", ".loom/.gitignore"),
    *(f".loom/local/{name}" for name in ("config.json", "runs.json", "open-runs.json", "live", "locks")),
)
_AS_IT_IS: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "data_filter") else {}


class Release(NamedTuple):
    """What `release.json` says: the commit that made the files, and each run by what it is there for.

    schema_version: of its states; 0.1.0, which does not say it, wrote the first.
    """

    name: str
    commit: str
    runs: dict[str, dict[str, Any]]
    schema_version: int

    @property
    def archive(self) -> Path:
        return Path(__file__).parent / "releases" / self.name / "project.tar.xz"


def release(name: str) -> Release:
    told = json.loads((Path(__file__).parent / "releases" / name / "release.json").read_text(encoding="utf-8"))
    return Release(name, told["commit"], told["runs"], told.get("schema_version", 1))


def of_each_run(*left_out: str) -> list[tuple[str, str]]:
    """Give each release and run whose folder is there, for a table of tests."""
    return [
        (name, one)
        for name in RELEASES
        for one, told in release(name).runs.items()
        if told["status"] is not None and one not in left_out
    ]


class Place:
    """A recorded project, unpacked: the shop, its remote, the home of its user; commands of today's Loom, or another's.

    It lies elsewhere than where it was made, as a project that its user moved.
    """

    def __init__(self, made: Release, folder: Path) -> None:
        self.release, self.folder = made, folder
        self.shop, self.home, self.remote = folder / "shop", folder / "home", folder / "remote.git"
        folder.mkdir()
        with tarfile.open(made.archive) as archive:
            archive.extractall(folder, **_AS_IT_IS)

    def run_id(self, name: str) -> str:
        return str(self.release.runs[name]["run_id"])

    def run_dir(self, name: str) -> Path:
        return self.shop / ".loom/runs" / self.run_id(name)

    def state(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.run_dir(name) / "state.json").read_text(encoding="utf-8"))
        return state

    def loomctl(
        self,
        *words: str,
        given: str | None = None,
        at: Path | None = None,
        session: str | None = None,
        main: Path = MAIN,
    ) -> Ended:
        """Run a command in a process of its own. at: another clone; session: an assistant's; main: another Loom's."""
        own = {} if session is None else {"CLAUDE_CODE_SESSION_ID": session}
        return run(
            [sys.executable, "-I", str(main), *words],
            cwd=at or self.shop,
            environ={**self.environ(at), **own},
            given=given,
        )

    def environ(self, at: Path | None = None) -> dict[str, str]:
        own = {"HOME": str(self.home), "LOOM_HOSTNAME": "desk", "PWD": str(at or self.shop)}
        left = ("LOOM_STATE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        return {**{name: value for name, value in os.environ.items() if name not in left}, **own}

    def clone(self, name: str) -> Path:
        """Clone the remote, as another machine of the same user would."""
        subprocess.run(["git", "clone", "-q", str(self.remote), str(self.folder / name)], check=True)
        return self.folder / name

    def files(self) -> dict[str, str]:
        """Give a digest of each file of shop, remote, home and clones, but for what each Loom makes anew."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            inner = name if name.startswith("home/") else name.partition("/")[2]
            if path.is_file() and not any(inner == one or inner.startswith(f"{one}/") for one in MADE_ANEW):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


def changed(place: Place, before: dict[str, str], *left_out: str) -> list[str]:
    """Name the files that are not as they were, but for those whose path holds one of some words."""
    after = place.files()
    names = sorted(before.keys() | after.keys())
    return [one for one in names if before.get(one) != after.get(one) and not any(word in one for word in left_out)]


def source_of(commit: str, folder: Path) -> Path:
    """Export a release's code out of the history; gives its main file. It runs with what today's runs with."""
    done = subprocess.run(
        ["git", "archive", commit, "loomctl", "config", "bin", "hooks", "commands", "skills", "plugin.json"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        pytest.fail(f"the history does not have {commit} ({said}); a shallow clone gets it by: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, **_AS_IT_IS)
    return folder / "loomctl/__main__.py"
