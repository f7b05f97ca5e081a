"""Commands of these tests run in this process, ten times faster than in one of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from loomctl.handoff import work
from loomctl.handoff.work import Snapshot
from tests.helpers.machines import Machine, own_of_the_user
from tests.helpers.near import near_machines, scene, server

__all__ = ["commit_of", "near_machines", "save", "scene", "server"]


@pytest.fixture(autouse=True)
def near(near_machines: None) -> None:
    """Let machines run their commands in this process."""


@pytest.fixture
def laptop(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A clone with a run that has begun."""
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    made = Machine(tmp_path / "Läp top", server)
    made.workflow()
    made.begin()
    return made


@pytest.fixture
def desktop(tmp_path: Path, server: Path) -> Machine:
    """Another clone, at another path."""
    (tmp_path / "Dé sk").mkdir()
    return Machine(tmp_path / "Dé sk" / "töp", server)


@pytest.fixture
def run_id(laptop: Machine) -> str:
    return laptop.run_dir.name


def save(machine: Machine, run_id: str) -> Snapshot:
    """Save the code of a run, without a trace for its user."""
    before = own_of_the_user(machine.root)
    found = work.snapshot(machine.space(), run_id)
    assert own_of_the_user(machine.root) == before
    assert found is not None
    return found


def commit_of(found: Snapshot) -> str:
    assert found.commit is not None, found
    return found.commit
