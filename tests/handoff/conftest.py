"""Commands of these tests run in this process, ten times faster than in one of their own."""

from __future__ import annotations

import pytest

from tests.helpers.near import near_machines, scene, server

__all__ = ["near_machines", "scene", "server"]


@pytest.fixture(autouse=True)
def near(near_machines: None) -> None:
    """Let machines run their commands in this process."""
