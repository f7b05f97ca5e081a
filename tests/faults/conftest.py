"""What the tests of faults share: a bench that forks, and a run to be hit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bench import Bench, bench
from tests.faults.stand import Stand, lay_out
from tests.helpers.scenes import Scene
from tests.launcher.conftest import bundle, online, wheelhouse, world

__all__ = ["bundle", "online", "wheelhouse", "world"]  # a made-up machine for first starts


@pytest.fixture(scope="session")
def forks() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run at its first step, with a file for every session and one that the second phase brings."""
    return lay_out(scene)


@pytest.fixture
def stand(begun: Scene, forks: Bench, user_folders: Path) -> Stand:
    return Stand(begun, forks, user_folders)
