"""Commands of these tests run in this process, ten times faster than in one of their own; and a run that is over."""

from __future__ import annotations

import pytest

from tests.helpers.near import scene, server
from tests.helpers.scenes import SESSION, Scene

__all__ = ["scene", "server"]


@pytest.fixture
def over(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    scene.edit(status="completed")
    scene.space().local.mark_ended(SESSION)
    return scene
