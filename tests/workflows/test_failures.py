"""What kind of failure a visit ended with, and how long a retry of it waits (D45)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.workflows import routing
from tests.helpers.tables import each

AT = "2026-01-01T00:00:00Z"
REASONS = [
    ("the tests fail", "FAILURE"), ("", "FAILURE"), ("Rate limit exceeded", "TRANSIENT"),
    ("HTTP 429: too many requests", "TRANSIENT"), ("the API is overloaded", "TRANSIENT"),
    ("503 Service Unavailable", "TRANSIENT"), ("502 Bad Gateway", "TRANSIENT"),
    ("curl: (6) Could not resolve host: example.org", "TRANSIENT"),
    ("connect ECONNREFUSED 127.0.0.1:5432", "TRANSIENT"), ("read: Connection reset by peer", "TRANSIENT"),
    ("sqlite3.OperationalError: database is locked", "TRANSIENT"),
    ("Temporary failure in name resolution", "TRANSIENT"), ("please try again later", "TRANSIENT"),
    ("permission denied", "FAILURE"), ("429 tests fail", "FAILURE"),
]  # fmt: skip
COMMANDS: list[tuple[dict[str, Any], str, str]] = [
    ({"exit_code": 1}, "exit code 1", "FAILURE"),
    ({"exit_code": 75}, "exit code 75", "TRANSIENT"),
    ({"exit_code": 126}, "exit code 126", "TERMINAL"),
    ({"exit_code": 127}, "exit code 127", "TERMINAL"),
    ({"exit_code": None, "timed_out": True}, "timed out after 1 s", "TIMEOUT"),
    ({"exit_code": None, "signal": "SIGKILL"}, "ended by SIGKILL", "TRANSIENT"),
    ({"exit_code": None, "signal": "SIGTERM"}, "ended by SIGTERM", "TRANSIENT"),
    ({"exit_code": None, "signal": "SIGSEGV"}, "ended by SIGSEGV", "FAILURE"),
    ({"exit_code": None, "signal": None}, "lost: what watched the command was ended", "TRANSIENT"),
    ({"exit_code": None, "signal": None}, "the folder is not there", "FAILURE"),
]


@each(("reason", "kind"), REASONS)
def test_the_kind_of_a_reason(reason: str, kind: str) -> None:
    assert routing.error_of(reason) == {"type": kind, "message": reason, "retryable": True, "details": {}}


@each(("command", "reason", "kind"), COMMANDS)
def test_the_kind_of_a_commands_end(command: dict[str, Any], reason: str, kind: str) -> None:
    told = routing.error_of(reason, command=command)
    assert (told["type"], told["retryable"]) == (kind, kind != "TERMINAL")
    assert told["details"] == {
        key: value for key, value in command.items() if key in ("exit_code", "signal") and value is not None
    }


def test_an_answer_that_never_fitted_is_not_tried_again_and_only_what_passes_is_waited_for() -> None:
    """Whatever its reason says (D36)."""
    told = routing.error_of("rate limit", final=True)
    assert (told["type"], told["retryable"]) == ("TERMINAL", False)
    assert routing.not_before(routing.error_of("the tests fail"), 1, AT) is None
    assert routing.not_before(None, 1, AT) is None
    assert routing.not_before(routing.error_of("rate limit"), 1, "yesterday") is None
    assert routing.not_before(routing.error_of("rate limit"), 1, "2026-99-01T00:00:00Z") is None


@each(
    ("attempt", "wanted"),
    [(1, "00:00:05"), (2, "00:00:10"), (3, "00:00:20"), (4, "00:00:40"), (5, "00:01:00"), (99, "00:01:00")],
)
def test_how_long_a_retry_waits(attempt: int, wanted: str) -> None:
    error = routing.error_of("rate limit")
    assert routing.not_before(error, attempt, AT) == f"2026-01-01T{wanted}Z"


@given(st.datetimes(datetime(2000, 1, 1), datetime(2400, 1, 1)), st.integers(1, 9))  # noqa: DTZ001 - UTC, as it is written
def test_the_time_that_a_retry_waits_for_is_counted_as_calendars_do(ended: datetime, attempt: int) -> None:
    seconds = min(60, 5 * 2 ** (attempt - 1))
    at, wanted = (f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in (ended, ended + timedelta(seconds=seconds)))
    assert routing.not_before(routing.error_of("rate limit"), attempt, at) == wanted
