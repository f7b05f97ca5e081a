"""A session record says where it was worked, and nothing that is secret (D25)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from loomctl.kit import machine
from tests.helpers import repositories
from tests.helpers.tables import each


def test_an_environment_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine, folder, git and Python are named on a hook; cores and memory off it."""
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-a")
    top = repositories.make(tmp_path / "p")
    described = machine.environment(str(top), str(top / "x"), on_hook_path=True)
    assert list(described) == [
        "hostname",
        "platform",
        "cwd",
        "project_root",
        "git_branch",
        "git_commit",
        "dirty",
        "python",
        "loom",
    ]
    assert described["hostname"] == "machine-a"
    assert described["git_branch"] == "main"
    assert described["git_commit"] == repositories.git(top, "rev-parse", "HEAD")
    assert described["dirty"] in (False, None)  # 100 ms may be too little for a busy machine
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))
    more = machine.environment(str(top), str(top), on_hook_path=False)
    assert more["cores"] >= 1
    assert more["memory"] > 2**20


def test_a_project_below_the_repositorys_top_has_its_commit(tmp_path: Path) -> None:
    """A nested project says of git what its repository says."""
    top = repositories.make(tmp_path / "p")
    (top / "packages" / "api").mkdir(parents=True)
    described = machine.environment(str(top / "packages" / "api"), str(top), on_hook_path=True)
    assert described["git_commit"] == repositories.git(top, "rev-parse", "HEAD")


def test_without_a_repository_git_is_unknown(tmp_path: Path) -> None:
    """No repository: branch, commit and changes are null."""
    described = machine.environment(str(tmp_path), str(tmp_path), on_hook_path=True)
    assert (described["git_branch"], described["git_commit"], described["dirty"]) == (None, None, None)


@pytest.mark.shows("No variable is written into a run")
def test_no_environment_variable_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token in the environment is nowhere in what is recorded."""
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    described = json.dumps(machine.environment(str(tmp_path), str(tmp_path), on_hook_path=False))
    assert "s3cr3t" not in described
    assert "MY_TOKEN" not in described


@pytest.mark.parametrize(("named", "expected"), [("machine-b", "machine-b"), ("", os.uname().nodename)])
def test_a_machine_can_be_given_a_name(monkeypatch: pytest.MonkeyPatch, named: str, expected: str) -> None:
    """LOOM_HOSTNAME overrides the system's name; an empty one does not."""
    monkeypatch.setenv("LOOM_HOSTNAME", named)
    assert machine.hostname() == expected


@each(("system", "expected"), [("linux", "linux"), ("darwin", "darwin"), ("win32", "win32"), ("cygwin", "win32")])
def test_a_platform_has_one_name(monkeypatch: pytest.MonkeyPatch, system: str, expected: str) -> None:
    """Three words, however the interpreter was built."""
    monkeypatch.setattr(sys, "platform", system)
    assert machine.platform() == expected
