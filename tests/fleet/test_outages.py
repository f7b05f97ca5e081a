"""A fleet whose queue goes away and comes back: its workers wait and say so, and nothing is lost (D78)."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from loomctl.fleet.model import QUEUED, Lane, Limits, Progress, Row
from loomctl.fleet.port import Worker
from loomctl.fleet.postgres import Server, Shared
from loomctl.fleet.schema import VERSION
from loomctl.kit.errors import LoomError
from tests.helpers.driven import WAIT
from tests.helpers.fleets import Fleet
from tests.helpers.lines import Line
from tests.helpers.postgres import Postgres
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow
GONE, THERE, LEASH = "waits for the queue", "the queue is there again", "no sign of this worker reached the queue"
LONG = "20"  # seconds of a limit that is not over while a server starts again
Make = Callable[..., Fleet]


@pytest.fixture
def make(postgres: Postgres, database: str, tmp_path: Path) -> Iterator[Make]:
    """Make a project with a fleet; port: of a line to the server."""
    made: list[Fleet] = []

    def fleet(port: int = 0, limit: str = "") -> Fleet:
        made.append(Fleet(tmp_path / "fleet", words=["--queue", postgres.address(database, port)], pace=0.1))
        made[-1].environment |= {"LOOM_FLEET_LIMIT": limit} if limit else {}
        made[-1].fleet("init")
        return made[-1]

    yield fleet
    for one in made:
        one.close()


def said(fleet: Fleet, words: str) -> int:
    """Count how often workers have said something."""
    return (fleet.root / "workers.log").read_text("utf-8").count(words)


class Held:
    """A worker in the middle of a step of a run."""

    def __init__(self, fleet: Fleet, slots: int = 1) -> None:
        self.fleet = fleet
        (self.run_id,) = fleet.put("make it", workflow="steps-3")
        self.hold = fleet.notes / self.run_id / "hold"
        self.hold.parent.mkdir()
        self.hold.touch()
        self.worker = fleet.work(slots, "--until-idle")
        until(lambda: (fleet.notes / self.run_id / "starts").exists() and bool(fleet.alive()))

    def ends(self, starts: int, *, outages: int = 1) -> None:
        """Let it go on, to the end of the run and the worker; the assistant was started so often in all."""
        self.hold.unlink()
        assert self.worker.wait(WAIT) == 0, (self.fleet.root / "workers.log").read_text("utf-8")
        assert self.fleet.verdict([self.run_id]) == (1, 1, 0, 0, 0, starts)
        assert (said(self.fleet, GONE), said(self.fleet, THERE)) == (outages, outages)
        assert said(self.fleet, "Traceback") == 0


def test_a_server_that_is_back_soon_ends_no_drive(make: Make, postgres: Postgres) -> None:
    held = Held(make(limit=LONG))
    postgres.stop()
    until(lambda: said(held.fleet, GONE))
    postgres.start()
    until(lambda: said(held.fleet, THERE))
    held.ends(1)
    assert said(held.fleet, LEASH) == 0


@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill])
def test_a_server_that_is_gone_for_long_ends_drives_and_they_go_on_after_it(
    make: Make, postgres: Postgres, end: Callable[[Postgres], None]
) -> None:
    held = Held(make())
    end(postgres)
    until(lambda: not held.fleet.alive())
    assert held.worker.poll() is None
    postgres.start()
    held.ends(2)


def test_cut_connections_are_made_anew(make: Make, postgres: Postgres, database: str) -> None:
    held = Held(make(limit=LONG))
    for cuts in (1, 2, 3):
        until(lambda: postgres.cut(database))
        until(lambda number=cuts: said(held.fleet, THERE) == number)  # type: ignore[misc]
    held.ends(1, outages=3)


@pytest.mark.parametrize(("lose", "find"), [(Line.cut, Line.mend), (Line.silence, Line.speak)])
def test_a_worker_whose_line_fails_ends_its_drives_and_goes_on(
    make: Make, line: Line, lose: Callable[[Line], None], find: Callable[[Line], None]
) -> None:
    """Cut, it is told so; silent, it hears nothing for ever."""
    held = Held(make(line.port))
    lose(line)
    until(lambda: not held.fleet.alive())
    until(lambda: said(held.fleet, LEASH) or said(held.fleet, GONE))
    find(line)
    held.ends(2)


def test_a_worker_is_ended_though_its_queue_is_silent(make: Make, line: Line) -> None:
    held = Held(make(line.port))
    line.silence()
    until(lambda: said(held.fleet, "gave no answer"))
    held.worker.send_signal(signal.SIGTERM)
    assert held.worker.wait(WAIT) == 130
    assert held.fleet.alive() == []
    line.speak()
    held.hold.unlink()
    assert held.fleet.work(1, "--until-idle").wait(WAIT) == 0
    assert held.fleet.verdict([held.run_id])[:5] == (1, 1, 0, 0, 0)


def test_a_server_that_stands_still_is_waited_for(make: Make, postgres: Postgres) -> None:
    held = Held(make())
    with postgres.silent():
        until(lambda: not held.fleet.alive())
    held.ends(2)


def test_a_full_disk_loses_nothing(make: Make, postgres: Postgres, database: str) -> None:
    fleet = make()
    runs = fleet.add(6, random.Random(1))
    with postgres.full():
        worker = fleet.work(2, "--until-idle")

        def is_full() -> bool:
            with contextlib.suppress(psycopg.Error):
                postgres.ask("SELECT pg_switch_wal()", database=database)
            return bool(said(fleet, GONE))

        until(is_full)
        assert worker.poll() is None
    assert worker.wait(WAIT) == 0
    assert fleet.verdict(runs)[:5] == (6, 6, 0, 0, 0)
    assert said(fleet, GONE) == said(fleet, THERE)
    assert "agrees" in fleet.fleet("doctor")


def test_a_queue_that_was_dropped_under_its_workers_is_made_anew(make: Make) -> None:
    fleet = make()
    held = Held(fleet)
    fleet.lose()
    until(lambda: said(fleet, "loomctl fleet init"))
    fleet.fleet("status", code=8)
    fleet.fleet("rebuild")
    until(lambda: (fleet.notes / held.run_id / "starts").read_text().count("\n") == 2)  # it lost the run, and took it
    held.ends(2)
    assert "relation" not in (fleet.root / "workers.log").read_text("utf-8")


COMMANDS = [("status",), ("status", "--json"), ("add", "make it"), ("work",), ("doctor",), ("cancel", "any"), ("init",)]


@pytest.mark.parametrize("how", ["stopped", "silent"])
def test_each_command_says_that_the_queue_is_gone(make: Make, postgres: Postgres, how: str) -> None:
    fleet = make()
    with contextlib.ExitStack() as stack:
        if how == "silent":
            stack.enter_context(postgres.silent())
        else:
            postgres.stop()
            stack.callback(postgres.start)
        for words in COMMANDS:
            one = fleet.start("fleet", *words, *fleet.words)
            out, err = told(one)
            assert one.returncode == 8, (words, out, err)
            assert "QUEUE_GONE" in out + err, words
            assert "Traceback" not in out + err
            assert postgres.password not in out + err
    assert not (fleet.project / ".loom" / "runs").exists()


def told(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Give what a command says, which may not take long however silent its queue is (issue 22: 20 seconds)."""
    return process.communicate(timeout=20)


def test_who_falls_silent_with_the_lock_loses_it(postgres: Postgres, database: str) -> None:
    """A worker may be stopped in the middle of a change: nobody else would get on."""
    address = postgres.address(database)
    stopped, other = Server(address, 2.0), Server(address)
    stopped.make()

    def stop() -> None:
        with stopped.transaction() as ask, other.transaction() as theirs:
            assert theirs("SELECT number FROM version") == [(VERSION,)]
            ask("SELECT 1")

    with pytest.raises(LoomError, match="cannot be used") as gone:
        stop()
    assert gone.value.code == "QUEUE_GONE"
    with stopped.transaction() as ask:
        assert ask("SELECT 1") == [(1,)]
    stopped.close()
    other.close()


ALIVE, LANE = Worker("w-1", "alpha", 1), Lane("0123456789abcdef", "claude-code", "core")


@pytest.fixture
def queues(postgres: Postgres, database: str) -> Iterator[tuple[Shared, Shared]]:
    """One queue as two workers have it, with a run that the first drives."""
    servers = [Server(postgres.address(database), 5.0) for _ in range(2)]
    servers[0].make()
    first, second = (Shared(one, LANE.repository) for one in servers)
    first.offer([Row("run-1", "run", "do it", LANE, 1, QUEUED)])
    assert first.claim(ALIVE, Limits()) is not None
    yield first, second
    for one in servers:
        one.close()


def test_signs_wait_for_nobody(postgres: Postgres, database: str, queues: tuple[Shared, Shared]) -> None:
    """All give them all the time: were each to wait for the others, a far server would bear a few workers."""
    other = Server(postgres.address(database))
    with other.transaction() as ask:
        ask("SELECT 1")
        signed = queues[0].sign(ALIVE, [Progress("run-1", 1, 0.5, "build/one")])
    other.close()
    assert (signed.lost, signed.spent) == (frozenset(), 0.5)


def test_who_signs_just_now_is_not_taken_for_dead(
    postgres: Postgres, database: str, queues: tuple[Shared, Shared]
) -> None:
    first, second = queues
    server = Server(postgres.address(database))
    reaped: list[list[Row]] = []
    with server.transaction(alone=False) as ask:
        ask("UPDATE workers SET signed = signed - 100")
    with server.transaction(alone=False) as ask:  # a sign that is under way
        ask("UPDATE workers SET signed = signed + 100")
        reaping = threading.Thread(target=lambda: reaped.append(second.reap(60)))
        reaping.start()
        until(lambda: postgres.ask("SELECT 1 FROM pg_locks WHERE NOT granted"))
    reaping.join()
    server.close()
    assert reaped == [[]]
    assert first.sign(ALIVE, [Progress("run-1", 1, 0.5, "build/one")]).lost == frozenset()
