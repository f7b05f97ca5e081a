"""What kind of failure a visit ended with, and whether trying it again may help: one table decides."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TERMINAL, TRANSIENT, TIMEOUT, FAILURE = "TERMINAL", "TRANSIENT", "TIMEOUT", "FAILURE"
FIRST_WAIT, LONGEST_WAIT = 5, 60  # seconds
# Words of a failure that passes by itself; in small letters, anywhere in the reason.
TRANSIENT_WORDS = (
    "rate limit",
    "rate-limit",
    "ratelimit",
    "too many requests",
    "overloaded",
    "temporarily unavailable",
    "temporary failure",
    "service unavailable",
    "bad gateway",
    "gateway timeout",
    "try again later",
    "connection reset",
    "connection refused",
    "connection timed out",
    "connection closed",
    "connection aborted",
    "could not resolve host",
    "name resolution",
    "network is unreachable",
    "no route to host",
    "econnreset",
    "econnrefused",
    "etimedout",
    "eai_again",
    "http 429",
    "http 502",
    "http 503",
    "http 504",
    "resource temporarily",
    "database is locked",
)
# Exit codes of a shell whose command cannot run at all; and the one that `sysexits.h` has for "try again later".
_NEVER_RUNS = (126, 127)
_TRY_LATER = 75
_KILLED = ("SIGKILL", "SIGTERM", "SIGHUP")  # from outside: memory ran out, the machine went down


def error_of(reason: str, *, command: Mapping[str, Any] | None = None, final: bool = False) -> dict[str, Any]:
    """Tell a failed visit's error: `{type, message, retryable, details}`.

    TERMINAL: what trying again does not mend, and is not retried: an answer that did not fit its schema though it was
    asked for again (D36) and what a person rejected (final), and a command that cannot be run (exit code 126 or 127).
    TIMEOUT: a command that took too long. TRANSIENT: the reason holds one of TRANSIENT_WORDS; a command ended with 75
    (`EX_TEMPFAIL`), was killed, or was lost with the machine: a retry waits for a while. All others: FAILURE.
    command: what `status.json` tells of a command step.
    """
    kind = TERMINAL if final else _of_words(reason) if command is None else _of_command(command, reason)
    details = {}
    if command is not None:
        details = {key: command[key] for key in ("exit_code", "signal") if command.get(key) is not None}
    return {"type": kind, "message": reason, "retryable": kind != TERMINAL, "details": details}


def _of_command(command: Mapping[str, Any], reason: str) -> str:
    if command.get("timed_out"):
        return TIMEOUT
    if command.get("exit_code") in _NEVER_RUNS:
        return TERMINAL
    passes = command.get("exit_code") == _TRY_LATER or command.get("signal") in _KILLED or reason.startswith("lost:")
    return TRANSIENT if passes else FAILURE


def _of_words(reason: str) -> str:
    small = reason.casefold()
    return TRANSIENT if any(word in small for word in TRANSIENT_WORDS) else FAILURE


def not_before(error: Mapping[str, Any] | None, attempt: int, at: str) -> str | None:
    """Give the time before which a passing failure is not to be tried again; None where there is nothing to wait for.

    It is FIRST_WAIT seconds after the first try's end, twice as long after each other, LONGEST_WAIT at most.
    at: when the try ended, UTC, `YYYY-MM-DDTHH:MM:SSZ`; attempt: which one that was, from 1.
    """
    if error is None or error.get("type") != TRANSIENT:
        return None
    return _later(at, min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(attempt - 1, 10)))


def _later(at: str, seconds: int) -> str | None:
    """Give a time some seconds, less than a day, after another; None where that is none. A hook has no datetime."""
    parts = [at[:4], at[5:7], at[8:10], at[11:13], at[14:16], at[17:19]]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    year, month, day, hour, minute, second = map(int, parts)
    if not 1 <= month <= 12:
        return None
    days, left = divmod(hour * 3600 + minute * 60 + second + seconds, 86_400)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day + days > _DAYS[month - 1] + (month == 2 and leap):
        year, month, day, days = year + month // 12, month % 12 + 1, 1, 0
    return f"{year:04}-{month:02}-{day + days:02}T{left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}Z"


_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
