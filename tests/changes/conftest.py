"""Commands of these tests run in this process, ten times faster than in one of their own."""

from __future__ import annotations

from tests.helpers.near import scene, server

__all__ = ["scene", "server"]
