"""Times are UTC, to the second, in the two spellings that files and names need."""

from __future__ import annotations

import re
import time

import pytest

from loomctl.disk import clock


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
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
