"""What goes wrong while a run is driven ends in time, leaves nothing behind, and loses nothing (D73, D75)."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.e2e.assistant import TIME_LIMIT
from tests.e2e.drives import DIRECTIVE, Drive, running
from tests.e2e.scripted_api import Reply, bash, failing, refused, reply, stopping, text
from tests.helpers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

LATE = 15  # seconds after its limit in which a turn that hangs has ended
WORK = ("make a file", "--workflow", "two")
TWO_STEPS = (DIRECTIVE, reply(bash("loomctl next")), DIRECTIVE)
STUBBORN = (
    "trap '' TERM INT HUP; "
    "(setsid sh -c 'trap \"\" TERM; sleep {0}' &); (setsid env -i sh -c 'trap \"\" TERM; sleep {0}' & ) & "
    "(trap '' TERM; (sleep {0} &) ; sleep {0}) & sleep {0}"
)


@pytest.fixture
def marker() -> str:
    """A number of seconds that nobody else sleeps."""
    return f"32{os.getpid() % 100_000:05d}"


def ended(drive: Drive) -> list[dict[str, Any]]:
    """Give what is told of the turns that ended."""
    return [one["properties"] for one in drive.events() if one["event"] == "turn.ended"]


def started_by(drive: Drive) -> list[psutil.Process]:
    """Give the processes that carry the mark of this run's driver."""
    mark, home, found = f"{drive.state()['run_id']} ", str(drive.machine.home), []
    for one in psutil.process_iter():
        try:
            environ = one.environ()
            if environ.get("LOOM_DRIVEN", "").startswith(mark) and environ.get("HOME") == home:
                found.append(one)
        except psutil.Error:
            continue
    return found


def hang(drive: Drive, hangs: Reply, holds: Callable[[], object]) -> None:
    """Drive into a turn that hangs, and hold that it ends in time, with all that it started.

    holds: tells that it hangs. On a busy machine nothing may come of a short limit: a longer one is tried.
    """
    for limit in (3, 12, 48):
        drive.assistant.api.script(hangs)
        run = WORK if limit == 3 else (drive.state()["plan_id"],)
        process = drive.start("drive", *run, "--allow", "Bash", "--silence", f"{limit}s", "--max-turns", "1")
        began = 0.0
        while process.poll() is None:
            began = began or (time.monotonic() if holds() else 0.0)
            time.sleep(0.05)
        out, err = process.communicate(timeout=TIME_LIMIT)
        assert process.returncode == 10, out + err
        if began:
            break
    assert time.monotonic() - began < limit + LATE
    turn = ended(drive)[-1]
    assert (turn["class"], turn["why"]) == ("infra", "nothing was heard of the assistant for too long")
    assert drive.state()["status"] == "in_progress"
    assert drive.state()["lease"]["session_id"] is None


def test_a_tool_that_hangs_is_ended_with_all_that_it_started(drive: Drive, marker: str) -> None:
    """Children that ignore TERM, with sessions of their own, orphaned, and without a mark in their environment."""
    hang(drive, reply(bash(STUBBORN.format(marker))), lambda: len(running(marker)) == 5)
    assert started_by(drive) == running(marker) == []


@pytest.mark.parametrize("events", [0, 3])
def test_an_api_that_falls_silent_ends_the_turn(drive: Drive, events: int) -> None:
    """It accepts and never answers, or stops in the middle of its answer."""
    hang(drive, stopping(events), lambda: drive.assistant.api.requests)
    assert started_by(drive) == []


def test_an_assistant_that_stands_still_is_ended(drive: Drive, marker: str) -> None:
    """Its output stops while its process lives."""

    def stand_still() -> bool:
        for one in started_by(drive) if running(marker) else ():
            if one.status() != psutil.STATUS_STOPPED:
                one.send_signal(signal.SIGSTOP)
        return bool(running(marker))

    hang(drive, reply("I begin", bash(f"sh -c 'sleep {marker}'")), stand_still)
    assert started_by(drive) == running(marker) == []


def test_a_process_that_stays_after_its_last_word_is_ended(drive: Drive, marker: str) -> None:
    """It holds its output open, too; what it did counts."""
    drive.wrap(f'{{claude}} "$@"; trap "" TERM INT; sleep {marker} & while :; do wait; done')
    drive.assistant.api.script(*TWO_STEPS)
    process = drive.start("drive", *WORK)
    until(lambda: running(marker))
    began = time.monotonic()
    out, err = process.communicate(timeout=TIME_LIMIT)
    assert time.monotonic() - began < 3 + LATE
    assert process.returncode == 0, out + err
    assert started_by(drive) == running(marker) == []
    assert [one["class"] for one in ended(drive)] == ["done"]


def test_a_quiet_command_whose_log_grows_is_alive(drive: Drive) -> None:
    """Its lines reach the assistant at its end; the file that they are written to until then is looked at."""
    slow = "for n in $(seq 40); do sleep 0.5; echo $n; done; loomctl next"
    drive.assistant.api.script(reply(bash(slow)), DIRECTIVE, reply(bash("loomctl next")), DIRECTIVE)
    drive.loomctl("drive", *WORK, "--allow", "Bash", "--silence", "14s")
    (turn,) = ended(drive)
    assert turn["class"] == "done"
    assert turn["seconds"] > 20


@pytest.mark.parametrize("period", [1, 2])
def test_the_same_again_and_again_ends_a_turn_then_the_drive(drive: Drive, period: int) -> None:
    """Five calls of one kind, or eight of two; a new conversation is tried, and then a person is asked."""
    calls = [f"echo {number}" for number in range(period)] * 30
    drive.assistant.api.script(*(reply(bash(one)) for one in calls))
    said = drive.loomctl("drive", *WORK, "--allow", "Bash", code=9)
    assert "led nowhere" in said
    turns = ended(drive)
    assert [one["class"] for one in turns] == ["stuck", "stuck"]
    assert max(one["calls"] for one in turns) <= (6 if period == 1 else 10)
    assert len({one["conversation"] for one in turns}) == 2
    told = [one["properties"] for one in drive.events() if one["event"] == "drive.told"]
    assert [one["by"] for one in told if not one["again"]] == ["loom", "loom"]  # once in each conversation
    asked = [one for one in drive.assistant.api.requests if one.kind == "main"][: turns[0]["calls"]]
    assert sum("again and again" in one.news() for one in asked) == 1  # it was told, once, while it could still turn
    assert drive.state()["status"] == "awaiting_feedback"


def test_an_overloaded_api_is_asked_again_until_it_answers(drive: Drive) -> None:
    """After three refusals the assistant gives up; the driver waits, and begins it anew."""
    drive.assistant.api.script(failing(529), failing(529), failing(529), *TWO_STEPS)
    drive.loomctl("drive", *WORK)
    assert [one["class"] for one in ended(drive)] == ["infra", "done"]
    assert drive.state()["status"] == "completed"
    assert len(drive.assistant.api.requests) == 6


def test_a_plans_limit_is_waited_for_without_a_request(drive: Drive) -> None:
    del drive.environment["ANTHROPIC_API_KEY"]
    drive.environment["CLAUDE_CODE_OAUTH_TOKEN"] = "scripted-token-of-a-plan"
    limit = {"status": "rejected", "reset": "now+5", "representative-claim": "five_hour"}
    headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in limit.items()}
    drive.assistant.api.script(failing(429, **headers), *TWO_STEPS)
    drive.loomctl("drive", *WORK)
    first, second, *_ = drive.assistant.api.requests
    assert second.at > first.at + 4
    assert [one["class"] for one in ended(drive)] == ["limit", "done"]
    assert drive.state()["status"] == "completed"


def test_a_limit_that_lifts_after_the_drives_end_is_written_down(drive: Drive) -> None:
    """Nobody waits for a minute in a process, and nobody asks before its time."""
    drive.assistant.api.script(failing(429, retry_after="60"), *TWO_STEPS)
    began = time.time()
    drive.loomctl("drive", *WORK, "--max-time", "50s", code=9)
    assert len(drive.assistant.api.requests) == 1
    waits = drive.state()["waits_for"]
    assert waits["kind"] == "time"
    assert waits["until"] > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began + 60))
    assert started_by(drive) == []


@pytest.mark.parametrize(("status", "advice"), [(400, "Change what it names"), (401, "Log the assistant in")])
def test_what_the_api_refuses_for_good_is_not_tried_again(drive: Drive, status: int, advice: str) -> None:
    """The assistant itself asks six times at once after a 400, each time with less, and for minutes after a 401."""
    drive.assistant.api.script(*[refused(400) if status == 400 else failing(status)] * 9)
    said = drive.loomctl("drive", *WORK, code=1)
    assert f"({status})" in said
    assert advice in said
    assert [one["class"] for one in ended(drive)] == ["refused"]
    assert len(drive.assistant.api.requests) <= (6 if status == 400 else 3)


@pytest.mark.quick
def test_an_assistant_that_is_not_logged_in_is_not_tried_again(drive: Drive) -> None:
    del drive.environment["ANTHROPIC_API_KEY"]
    said = drive.loomctl("drive", *WORK, code=1)
    assert "Not logged in" in said
    assert [one["class"] for one in ended(drive)] == ["refused"]


def test_an_api_that_cannot_be_reached_is_no_success(drive: Drive) -> None:
    drive.environment |= {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "CLAUDE_CODE_MAX_RETRIES": "1"}
    drive.loomctl("drive", *WORK, "--max-turns", "1", code=10)
    (turn,) = ended(drive)
    assert turn["class"] == "infra"
    assert "refused" in turn["why"]


PRICED = {"input_tokens": 10_000, "output_tokens": 1000}
PRICE = 0.06  # of such an answer in USD, as the assistant says


def priced(answer: str | dict[str, Any]) -> Reply:
    return reply(text(answer) if isinstance(answer, str) else answer, usage=PRICED)


def test_the_cost_is_right_over_conversations_and_kills_and_ends_at_the_limit(drive: Drive, marker: str) -> None:
    """One answer over the limit at most; a turn that was killed is estimated, and says so."""
    api = drive.assistant.api
    api.script(priced(DIRECTIVE), priced("I forgot what to do"), priced("and that, too"))
    drive.loomctl("drive", *WORK, "--max-turns", "1", code=10)
    spent = drive.state()["driving"]["cost"]
    assert spent == pytest.approx(PRICE * len(api.requests), abs=0.005)
    handle = drive.state()["plan_id"]

    before = len(api.requests)
    api.script(priced(bash(f"sh -c 'sleep {marker}'")))
    process = drive.start("drive", handle, "--allow", "Bash")
    until(lambda: running(marker))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=TIME_LIMIT)
    assert len(api.requests) == before + 1

    api.script(*[priced(bash(f"echo {number}")) for number in range(20)])
    said = drive.loomctl("drive", handle, "--allow", "Bash", "--max-cost", f"{spent + PRICE * 3.5:.2f}", code=10)
    assert "limit" in said
    state = drive.state()
    killed, last = ended(drive)[-2:]
    assert (killed["estimated"], killed["why"]) == (True, "its driver was killed")
    assert len({one["conversation"] for one in ended(drive) if one["conversation"]}) == 3
    assert killed["cost"] == pytest.approx(PRICE, rel=0.35)
    assert last["cost"] == pytest.approx(PRICE * 3, abs=0.005)
    assert state["driving"]["cost"] == pytest.approx(sum(one["cost"] for one in ended(drive)), abs=0.00001)
    assert state["waits_for"]["kind"] == "limit"
