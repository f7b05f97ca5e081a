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


def ago(stamped: str, now: float | None = None) -> str:
    """Say for people when something was, as `ago_of` does; give back what is no stamp. now: by default, this moment."""
    at = seconds_of(stamped)
    return ago_of(at, time.time() if now is None else now) if at else stamped


def ago_of(at: float, now: float) -> str:
    """Say for people when something was: `7 min ago`, `3 h ago`, `yesterday 14:05`, `2026-01-15`; in the local zone.

    at, now: seconds since the epoch.
    """
    gone, then, today = now - at, time.localtime(at), time.localtime(now)
    if gone < -60:
        return "in the future (the clock was set back)"
    if gone < 60:
        return "just now"
    if gone < 3600:
        return f"{gone // 60:.0f} min ago"
    if gone < 6 * 3600 or then[:3] == today[:3]:
        return f"{gone // 3600:.0f} h ago"
    yesterday = time.localtime(time.mktime((today.tm_year, today.tm_mon, today.tm_mday - 1, 12, 0, 0, 0, 0, -1)))
    if then[:3] == yesterday[:3]:
        return time.strftime("yesterday %H:%M", then)
    return time.strftime("%Y-%m-%d", then)


def day_and_time(stamped: str) -> tuple[str, str]:
    """Give a stamp in the local zone as `2026-01-15` and `14:05:33`; no day, and what it says, for what is no stamp."""
    at = seconds_of(stamped)
    if not at:
        return "", stamped
    local = time.localtime(at)
    return time.strftime("%Y-%m-%d", local), time.strftime("%H:%M:%S", local)


def run_stamp() -> str:
    """Give the time as it stands in run ids: UTC, `YYYY-MM-DDTHH-MM-SSZ`."""
    return time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime(time.time()))


def seconds_of(stamped: str) -> int:
    """Give a time of that form, with or without milliseconds, in seconds since the epoch; 0 for what is none.

    By its digits: the library's `strptime` would cost a hook more than all else that it says of a time.
    """
    parts = (stamped[0:4], stamped[5:7], stamped[8:10], stamped[11:13], stamped[14:16], stamped[17:19])
    if not stamped.endswith("Z") or not all(part.isascii() and part.isdigit() for part in parts):
        return 0
    year, month, day, hour, minute, second = (int(part) for part in parts)
    year -= month < 3
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469
    at = ((days * 24 + hour) * 60 + minute) * 60 + second
    return at if stamp(at)[:-1] == stamped[:19] and stamped[19] in "Z." else 0


def exact_seconds_of(stamped: str) -> float:
    """Give a moment as hosts write it in seconds since the epoch; 0 for what is none."""
    whole, milliseconds = seconds_of(stamped), stamped[20:23]
    return whole + int(milliseconds) / 1000 if whole and len(milliseconds) == 3 and milliseconds.isdecimal() else whole
