"""Commands of these tests run in this process, ten times faster than in one of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.near import scene, server
from tests.helpers.scenes import Scene

__all__ = ["scene", "server"]


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run that SESSION has started."""
    scene.workflow()
    scene.begin()
    return scene


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / ".loom" / "runs" / "r"
    folder.mkdir(parents=True)
    return folder
