"""A pause before the next try, in a machine whose clock is put back (D73)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from loomctl.drive import drive
from loomctl.drive.rules import Verdict
from loomctl.drive.watch import Limits
from tests.helpers.tables import each

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


@each(
    "limits, until, ends",
    [
        (Limits(), -0.2, False),
        (Limits(wait=5), -0.2, False),  # a pause that is short enough
        (Limits(wait=5), -20.0, True),
        (Limits(wait=5), HOUR, True),
        (Limits(time=5), -20.0, True),
        (Limits(time=2 * HOUR, wait=5), HOUR, True),
        (Limits(time=0.1, wait=5), 1.0, True),
        (Limits(wait=5), -0.0, False),
    ],
)
def test_a_wait_that_is_too_long_ends_the_drive_and_says_until_when(limits: Limits, until: float, ends: bool) -> None:
    driver, now = Waiting(), time.time()
    driver._limits = limits
    verdict = driver._waited(Verdict(None, "the API failed", until=until if until <= 0 else now + until))
    assert (verdict is not None) == ends
    if verdict is not None:
        assert (verdict.code, verdict.kind) == (9, "time")
        assert verdict.until == pytest.approx(now + abs(until), abs=1)
