"""Workers drive what is queued, and whatever befalls them nothing is lost, and nothing driven twice."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loomctl.fleet import steer
from loomctl.fleet.model import DRIVEN, Lane, Row
from tests.helpers.driven import WAIT
from tests.helpers.fleets import LIMIT, Fleet
from tests.helpers.postgres import Postgres
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow
Make = Callable[..., Fleet]


both = pytest.mark.parametrize("make", ["here", "postgres"], indirect=True)


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Make a project with a fleet, whose workers are gone at the end."""
    words: list[str] = []
    if getattr(request, "param", "here") == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        words = ["--queue", server.address(request.getfixturevalue("database"))]
    made: list[Fleet] = []

    def fleet(**more: Any) -> Fleet:
        made.append(Fleet(tmp_path / f"fleet-{len(made)}", words=words, **more))
        if words:
            made[-1].fleet("init")
        return made[-1]

    yield fleet
    for one in made:
        one.close()


def worker(fleet: Fleet, slots: int = 2, *words: str) -> subprocess.Popen[bytes]:
    return fleet.work(slots, "--until-idle", *words)


def done(process: subprocess.Popen[bytes], code: int = 0) -> None:
    assert process.wait(WAIT) == code


def hold(fleet: Fleet, run_id: str) -> Path:
    """Let a run's assistant wait in the middle of a step."""
    folder = fleet.notes / run_id
    folder.mkdir(exist_ok=True)
    (folder / "hold").touch()
    return folder / "hold"


def is_begun(fleet: Fleet, run_id: str) -> bool:
    return (fleet.notes / run_id / "starts").exists() and bool(fleet.alive())


@both
def test_what_is_added_is_worked_on_until_all_is_done(make: Make) -> None:
    fleet = make()
    runs = fleet.add(5, random.Random(1))
    assert fleet.counts() == {"queued": 5}
    done(worker(fleet))
    assert fleet.counts() == {"done": 5}
    assert fleet.verdict(runs)[:5] == (5, 5, 0, 0, 0)
    assert fleet.add(5, random.Random(1)) != runs  # their keys are free again
    assert "agrees" in fleet.fleet("doctor")


def test_the_same_list_twice_begins_nothing_twice(make: Make) -> None:
    fleet = make()
    assert fleet.add(3, random.Random(1)) == fleet.add(3, random.Random(1))
    assert fleet.counts() == {"queued": 3}


@both
def test_a_killed_worker_takes_its_drives_along_and_another_goes_on(make: Make) -> None:
    fleet = make(leaves="trap '' TERM")
    runs = fleet.add(2, random.Random(1))
    held = hold(fleet, runs[0])
    first = worker(fleet, 1)
    until(lambda: is_begun(fleet, runs[0]))
    first.kill()
    first.wait()
    until(lambda: not fleet.alive())
    held.unlink()
    done(worker(fleet, 2))
    assert fleet.verdict(runs)[:5] == (2, 2, 0, 0, 0)


@both
def test_a_worker_that_stood_still_too_long_finds_its_runs_gone_on(make: Make) -> None:
    fleet = make(leaves="trap '' TERM")
    (run_id,) = fleet.add(1, random.Random(1))
    held = hold(fleet, run_id)
    first = worker(fleet, 1)
    until(lambda: is_begun(fleet, run_id))
    stopped = [psutil.Process(first.pid), *psutil.Process(first.pid).children(recursive=True)]
    for one in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):  # some of them are sleeps of a moment
            one.suspend()
    held.unlink()
    second = worker(fleet, 1)
    done(second)
    for one in stopped:
        if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
            one.resume()
    done(first)
    assert fleet.verdict(runs=[run_id])[:5] == (1, 1, 0, 0, 0)
    taken = [one["properties"].get("epoch") for one in fleet.events(run_id) if one["event"] == "lease.taken"]
    assert len(taken) == len(set(taken))


def test_who_ends_what_a_dead_drive_started_is_left_alone(tmp_path: Path) -> None:
    """Its run may be over, and then no other drive would end that."""
    fleet = Fleet(tmp_path / "fleet", leaves="trap '' TERM")
    (run_id,) = fleet.add(1, random.Random(1))
    hold(fleet, run_id)
    row = Row(run_id, "make", "make it", Lane("here", "claude-code", "steps"), 1, DRIVEN, attempt=2)
    fleet.environment[steer.MARK] = steer.mark_of(row._replace(attempt=1))
    drive = fleet.start("drive", run_id)
    until(lambda: bool(fleet.left()))
    drive.kill()
    drive.communicate()
    assert steer.end_earlier(row) == 0
    until(lambda: not fleet.alive())


def test_a_worker_alone_that_stood_still_ends_its_drives_and_goes_on(make: Make) -> None:
    """Its drives end by themselves while it stands; then it takes the run again."""
    fleet = make()
    (run_id,) = fleet.add(1, random.Random(1))
    held = hold(fleet, run_id)
    first = worker(fleet, 1)
    until(lambda: is_begun(fleet, run_id))
    psutil.Process(first.pid).suspend()
    until(lambda: not fleet.alive())
    held.unlink()
    psutil.Process(first.pid).resume()
    done(first)
    assert fleet.verdict(runs=[run_id])[:5] == (1, 1, 0, 0, 0)


def test_a_gate_holds_no_slot_and_its_answer_lets_the_run_go_on(make: Make) -> None:
    fleet = make()
    fleet.workflow(
        "gated", [{"id": "step-0", "prompt": "Do it."}, {"id": "ask", "kind": "human", "prompt": "Is it good?"}]
    )
    (gated,) = fleet.put("wait for me", workflow="gated")
    (other,) = fleet.put("go on", workflow="driven")
    process = fleet.work(1)
    until(lambda: fleet.counts() == {"waits": 1, "done": 1})
    assert fleet.alive() == []
    row = fleet.row(gated)
    assert (row["kind"], row["command"]) == ("approval", f"loomctl approve {row['handle']}")
    answered = time.monotonic()
    fleet.loomctl("approve", gated)
    until(lambda: fleet.counts() == {"done": 2})
    assert time.monotonic() - answered < 30
    process.send_signal(signal.SIGINT)
    done(process)
    assert fleet.state(other)["status"] == "completed"


def test_runs_are_paused_resumed_and_cancelled_driven_or_not(make: Make) -> None:
    fleet = make()
    runs = fleet.add(3, random.Random(1), workflow="steps-8")
    held = hold(fleet, runs[0])
    process = fleet.work(1)
    until(lambda: is_begun(fleet, runs[0]))
    assert "told" in fleet.fleet("pause", runs[0])
    assert "paused" in fleet.fleet("pause", runs[1])
    assert "cancelled" in fleet.fleet("cancel", runs[2])
    held.unlink()
    until(lambda: fleet.counts() == {"paused": 2, "cancelled": 1})
    assert fleet.state(runs[2])["status"] == "cancelled"
    fleet.fleet("resume", runs[0], runs[1])
    until(lambda: fleet.counts() == {"done": 2, "cancelled": 1})
    (last,) = fleet.put("one more", workflow="driven")
    hold(fleet, last)
    until(lambda: is_begun(fleet, last))
    fleet.fleet("cancel", last)
    until(lambda: fleet.counts() == {"done": 2, "cancelled": 2})
    assert fleet.alive() == []
    process.send_signal(signal.SIGTERM)
    done(process, 130)
    said = fleet.start("fleet", "cancel", last, *fleet.words).communicate(timeout=WAIT)[1]
    assert "is cancelled" in said


def test_a_pause_that_is_taken_back_pauses_nothing(make: Make) -> None:
    fleet = make()
    (run_id,) = fleet.put("make it", workflow="steps-3")
    held = hold(fleet, run_id)
    process = worker(fleet, 1)
    until(lambda: is_begun(fleet, run_id))
    assert "told" in fleet.fleet("pause", run_id)
    assert ": a worker drives it" in fleet.fleet("resume", run_id)
    held.unlink()
    done(process)
    assert fleet.counts() == {"done": 1}


@both
def test_what_was_asked_and_not_done_is_done_by_whoever_looks(make: Make) -> None:
    fleet = make()
    (paused,) = fleet.put("make it", workflow="steps-3")
    fleet.ask_in_vain(paused, "pause")
    (cancelled,) = fleet.put("make another", workflow="steps-3")
    fleet.ask_in_vain(cancelled, "cancel")
    process = fleet.work(1)
    until(lambda: fleet.counts() == {"paused": 1, "cancelled": 1})
    until(lambda: fleet.state(paused)["fleet"].get("paused") is True)
    assert fleet.state(cancelled)["status"] == "cancelled"
    process.send_signal(signal.SIGTERM)
    done(process, 130)


def test_a_failure_says_how_to_try_again_and_three_alike_pause_the_workflow(make: Make) -> None:
    fleet = make()
    (fleet.notes / "refuses").touch()
    runs = fleet.add(5, random.Random(1), workflow="driven")
    (other,) = fleet.put("another", workflow="steps-3")
    done(worker(fleet, 1))
    assert fleet.counts() == {"failed": 4, "queued": 2}
    (fleet.notes / "refuses").unlink()
    failed = json.loads(fleet.fleet("status", "--json"))
    assert "3 runs in a row failed alike" in json.dumps(failed)
    done(worker(fleet, 1))
    fleet.fleet("resume", "driven")
    fleet.fleet("retry", *(one for one in [*runs, other] if fleet.row(one)["state"] == "failed"))
    done(worker(fleet, 2))
    assert fleet.counts() == {"done": 6}


def test_a_run_begins_after_others(make: Make) -> None:
    fleet = make()
    (first,) = fleet.put("first", workflow="driven", priority=9)
    (second,) = fleet.put("second", workflow="driven", priority=1, after=[first])
    done(worker(fleet, 2))
    assert fleet.counts() == {"done": 2}
    ended, began = fleet.events(first)[-1]["ts"], fleet.begun(second)
    assert began >= ended


def test_a_line_names_what_comes_before_it_by_its_key(make: Make) -> None:
    fleet = make()
    (fleet.root / "work.jsonl").write_text('{"work": "a", "key": "one"}\n{"work": "b", "key": "two", "after": "one"}\n')
    for _ in range(2):
        first, second = json.loads(fleet.fleet("add", "--from", str(fleet.root / "work.jsonl"), "--json"))["runs"]
        assert (first["after"], second["after"]) == ([], [first["run_id"]])
    assert fleet.counts() == {"queued": 1, "after": 1}


def test_ctrl_c_ends_a_worker_after_each_step_and_twice_at_once(make: Make) -> None:
    fleet = make(pace=0.3)
    runs = fleet.add(2, random.Random(1))
    process = fleet.work(2)
    until(lambda: all(is_begun(fleet, one) for one in runs))
    process.send_signal(signal.SIGINT)
    done(process)
    assert fleet.counts() == {"queued": 2}
    held = hold(fleet, runs[0])
    process = fleet.work(1)
    until(lambda: bool(fleet.alive()))
    process.send_signal(signal.SIGINT)
    until(lambda: (fleet.root / "workers.log").read_text().count("again ends all now") == 2)
    process.send_signal(signal.SIGINT)
    done(process, 130)
    assert fleet.alive() == []
    held.unlink()
    done(worker(fleet, 2))
    assert fleet.verdict(runs)[:5] == (2, 2, 0, 0, 0)


def test_no_run_begins_once_the_cost_is_reached(make: Make) -> None:
    fleet = make()
    fleet.add(5, random.Random(1), workflow="driven")
    process = fleet.work(1, "--max-cost", "0.02")
    done(process, 10)
    assert fleet.counts() == {"done": 2, "queued": 3}
    assert "0.02 of 0.02 USD are spent" in (fleet.root / "workers.log").read_text()


@both
def test_what_a_dead_machine_paid_and_had_not_sent_stays_in_the_sum(make: Make) -> None:
    """The next drive's cost begins with what the state tells, which may be less."""
    fleet = make()
    (run_id,) = fleet.put("make it", workflow="driven")
    fleet.ask_in_vain(run_id, "pause", paid=0.5)
    process = fleet.work(1)
    until(lambda: fleet.state(run_id)["fleet"].get("paused") is True)
    fleet.fleet("resume", run_id)
    until(lambda: fleet.counts() == {"done": 1})
    process.send_signal(signal.SIGTERM)
    done(process, 130)
    assert fleet.state(run_id)["driving"]["cost"] == 0.01
    assert fleet.board()["cost"]["spent"] == 0.51


@both
def test_a_queue_that_is_gone_is_made_anew_from_the_runs(make: Make) -> None:
    fleet = make()
    runs = fleet.add(4, random.Random(1))
    fleet.fleet("pause", runs[0])
    fleet.fleet("cancel", runs[1])
    before = {one["run_id"]: one["state"] for one in fleet.rows()}
    fleet.lose()
    fleet.fleet("rebuild")
    open_before = {name: state for name, state in before.items() if state != "cancelled"}
    assert {one["run_id"]: one["state"] for one in fleet.rows()} == open_before
    done(worker(fleet, 2))
    assert fleet.counts() == {"done": 2, "paused": 1, "cancelled": 1}


@both
def test_a_queue_that_was_made_anew_knows_what_was_spent(make: Make) -> None:
    fleet = make()
    fleet.put("make it", workflow="driven")
    done(worker(fleet, 1))
    before = fleet.board()["cost"]["spent"]
    assert before > 0
    fleet.lose()
    assert "1 run" in fleet.fleet("rebuild")
    assert (fleet.counts(), fleet.board()["cost"]["spent"]) == ({"done": 1}, before)


@both
def test_kills_of_workers_lose_nothing(make: Make) -> None:
    fleet = make(pace=0.2, leaves="trap '' TERM")
    luck = random.Random(3)
    runs = fleet.add(10, luck)
    kills = fleet.killed(2, 3, LIMIT / 2, luck, 3 * WAIT)
    assert kills > 1
    assert fleet.verdict(runs)[:4] == (10, 10, 0, 0)
    until(lambda: not fleet.alive())
