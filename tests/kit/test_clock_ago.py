"""When something was, as people say it."""

import time

import pytest

from loomctl.kit import clock
from tests.helpers.tables import each

NOW = "2026-03-10T14:30:00Z"


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@each(
    ("at", "said"),
    [
        ("2026-03-10T14:30:40Z", "just now"),
        ("2026-03-10T14:29:10Z", "just now"),
        ("2026-03-10T14:23:00Z", "7 min ago"),
        ("2026-03-10T13:30:01Z", "59 min ago"),
        ("2026-03-10T11:20:00Z", "3 h ago"),
        ("2026-03-10T00:10:00Z", "14 h ago"),
        ("2026-03-09T14:05:00Z", "yesterday 14:05"),
        ("2026-03-09T00:00:00Z", "yesterday 00:00"),
        ("2026-03-08T23:59:00Z", "2026-03-08"),
        ("2020-01-01T00:00:00Z", "2020-01-01"),
        ("2026-03-10T15:30:00Z", "in the future (the clock was set back)"),
        ("", ""),
        ("soon", "soon"),
    ],
)
def test_times_are_said_as_people_do(at: str, said: str) -> None:
    assert clock.ago(at, clock.seconds_of(NOW)) == said


def test_what_was_before_midnight_a_moment_ago_is_no_day_ago() -> None:
    assert clock.ago("2026-03-09T23:00:00Z", clock.seconds_of("2026-03-10T00:30:00Z")) == "1 h ago"


def test_yesterday_is_the_day_before_also_where_a_day_has_25_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    assert clock.ago("2026-10-24T12:05:00Z", clock.seconds_of("2026-10-25T22:30:00Z")) == "yesterday 14:05"


def test_a_stamp_is_a_day_and_a_time_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    assert clock.day_and_time("2026-03-09T20:05:07Z") == ("2026-03-10", "05:05:07")
    assert clock.day_and_time("soon") == ("", "soon")


def test_the_day_is_the_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    assert clock.ago("2026-03-09T14:05:00Z", clock.seconds_of(NOW)) == "yesterday 23:05"
