"""Times as state, events and names spell them.

All come from `time.time`: the C library's own time in whole seconds may lag a tick behind it.
"""

from __future__ import annotations

import time


def now() -> str:
    """Give the time as it stands in state and events: UTC, `YYYY-MM-DDTHH:MM:SSZ`."""
    return stamp(time.time())


def stamp(seconds: float) -> str:
    """Give a file's time in the same form. seconds: since the epoch."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def exact_stamp(nanoseconds: int) -> str:
    """Give a moment as hosts write it, `YYYY-MM-DDTHH:MM:SS.mmmZ`. nanoseconds: since the epoch."""
    return f"{stamp(nanoseconds // 1_000_000_000)[:-1]}.{nanoseconds // 1_000_000 % 1000:03}Z"


def ago(stamped: str, now: float) -> str:
    """Say for people when something was, in the local zone: `7 min ago`, `yesterday 14:05`, `2026-01-15`.

    stamped: in the form above; what is none is given back. now: seconds since the epoch.
    """
    at = seconds_of(stamped)
    if not at:
        return stamped
    gone, then, today = now - at, time.localtime(at), time.localtime(now)
    if -60 <= gone < 60:
        return "just now"
    if 0 <= gone < 3600:
        return f"{gone // 60:.0f} min ago"
    if gone >= 0 and (gone < 6 * 3600 or then[:3] == today[:3]):
        return f"{gone // 3600:.0f} h ago"
    if gone >= 0 and then[:3] == time.localtime(now - (today.tm_hour + 1) * 3600)[:3]:
        return time.strftime("yesterday %H:%M", then)
    return time.strftime("%Y-%m-%d", then)


def run_stamp() -> str:
    """Give the time as it stands in run ids: UTC, `YYYY-MM-DDTHH-MM-SSZ`."""
    return time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime(time.time()))


def seconds_of(stamped: str) -> int:
    """Give a time of that form in seconds since the epoch; 0 for what is none."""
    import calendar

    try:
        return calendar.timegm(time.strptime(stamped[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0


def exact_seconds_of(stamped: str) -> float:
    """Give a moment as hosts write it in seconds since the epoch; 0 for what is none."""
    whole, milliseconds = seconds_of(stamped), stamped[20:23]
    return whole + int(milliseconds) / 1000 if whole and len(milliseconds) == 3 and milliseconds.isdecimal() else whole
