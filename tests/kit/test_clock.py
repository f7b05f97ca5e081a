"""Times are UTC, to the second, in the two spellings that files and names need."""

from __future__ import annotations

import re
import time

import pytest

from loomctl.kit import clock
from tests.helpers.tables import each


@each("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
def test_times_are_utc_wherever_the_machine_stands(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """The zone of the machine changes nothing, and both spellings tell the same moment."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        before, now, stamp, after = time.time(), clock.now(), clock.run_stamp(), time.time()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", now)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ", stamp)
    spelled = {time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)) for moment in (before, after)}
    assert now in spelled
    assert stamp in {moment.replace(":", "-") for moment in spelled}


def test_whole_seconds_come_from_the_clock_that_moments_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the turn of a second no time is one second earlier than a moment that was read before it."""
    monkeypatch.setattr(time, "time", lambda: 1_500_000_000.0001)
    assert (clock.now(), clock.run_stamp()) == ("2017-07-14T02:40:00Z", "2017-07-14T02-40-00Z")


@each(
    ("stamped", "seconds"),
    [
        ("1970-01-02T00:00:01Z", 86_401),
        ("2024-02-29T00:00:00Z", 1_709_164_800),
        ("2024-02-29T00:00:00.125Z", 1_709_164_800),
        ("2026-02-29T00:00:00Z", 0),
        ("2026-02-31T00:00:00Z", 0),
        ("2100-02-29T00:00:00Z", 0),
        ("2026-13-01T00:00:00Z", 0),
        ("2026-01-01T03:00:00+09:00", 0),
        ("2026-01-01 03:00:00", 0),
        ("", 0),
    ],
)
def test_a_stamp_is_a_real_moment_in_utc(stamped: str, seconds: int) -> None:
    assert clock.seconds_of(stamped) == seconds
