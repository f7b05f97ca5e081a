"""A pause before the next try, in a machine whose clock is put back (D73)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from loomctl.drive import drive
from loomctl.drive.rules import Verdict
from loomctl.drive.watch import Limits

HOUR = 3600.0


class Waiting(drive.Driver):
    """A driver of nothing. off: seconds by which the clock has been put back."""

    def __init__(self) -> None:
        self._limits, self._began, self.off = Limits(), time.monotonic(), 0.0
        self.asked: Any = self  # which asks nothing

    def _look(self, *_: Any) -> Any:
        self.off = HOUR

    def verdict(self) -> None:
        assert time.monotonic() - self._began < 5, "it waits for the clock"


def test_a_clock_that_is_put_back_makes_no_pause_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, real = Waiting(), time.time
    monkeypatch.setattr(time, "time", lambda: real() - driver.off)
    assert driver._waited(Verdict(None, "the API failed", until=-0.3)) is None
    assert driver.off == HOUR
