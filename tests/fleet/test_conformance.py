"""Every queue of a fleet keeps the same promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loomctl.fleet import model
from loomctl.fleet.here import Sqlite
from loomctl.fleet.model import (
    AFTER,
    CANCEL,
    CANCELLED,
    DONE,
    DRIVEN,
    FAILED,
    LATER,
    PAUSE,
    PAUSED,
    QUEUED,
    STATES,
    WAITS,
    Lane,
    Limits,
    Progress,
    Row,
)  # fmt: skip
from loomctl.fleet.port import Queue, Worker
from loomctl.fleet.postgres import Server, Shared
from loomctl.fleet.table import Table

REPOSITORY = "0123456789abcdef"
LANE = Lane(REPOSITORY, "claude-code", "core")
ANY = Limits()
FIRST, SECOND = Worker("one", "alpha", 4), Worker("two", "beta", 4)
Open = Callable[[str], Queue]


def ask_it(queue: Queue, words: str, value: str) -> None:
    """Change what a queue holds, as time would."""
    assert isinstance(queue, Table)
    with queue._base.transaction() as ask:
        ask(words, value)


@pytest.fixture(params=["here", "postgres"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the same queue for a repository, as another process would."""
    made: list[Sqlite | Server] = []
    if request.param == "postgres":
        address = request.getfixturevalue("postgres").address(request.getfixturevalue("database"))
        first = Server(address)
        first.make()
        made.append(first)

    def open_queue(repository: str = REPOSITORY) -> Queue:
        if request.param == "here":
            made.append(Sqlite(str(tmp_path / "queue")))
            return Table(made[-1], repository)
        server = Server(address)
        made.append(server)
        return Shared(server, repository)

    yield open_queue
    for one in made:
        one.close()


@pytest.fixture
def queue(opens: Open) -> Queue:
    return opens(REPOSITORY)


def row(name: str, **more: object) -> Row:
    return Row(f"{name}-run-1", name, f"do {name}", LANE, 1, QUEUED)._replace(**more)  # type: ignore[arg-type]


def counts(queue: Queue) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in queue.standings():
        for state, number in one.counts.items():
            found[state] = found.get(state, 0) + number
    return found


def claimed(queue: Queue, worker: Worker = FIRST, limits: Limits = ANY) -> Row:
    taken = queue.claim(worker, limits)
    assert taken is not None
    return taken


def test_who_comes_first_is_by_priority_then_by_offer(queue: Queue) -> None:
    queue.offer([row("c"), row("a", priority=9), row("b", priority=1), row("d")])
    assert [claimed(queue).handle for _ in range(4)] == ["b", "c", "d", "a"]
    assert queue.claim(FIRST, ANY) is None


def test_an_offer_is_idempotent_and_a_later_revision_counts(queue: Queue) -> None:
    assert queue.offer([row("a"), row("b")]) == 2
    assert queue.offer([row("a"), row("b")]) == 0
    assert queue.offer([row("a", state=WAITS, kind="approval", revision=3)]) == 1
    assert queue.offer([row("a", revision=2)]) == 0
    assert counts(queue) == {QUEUED: 1, WAITS: 1}
    assert claimed(queue).handle == "b"
    assert queue.claim(FIRST, ANY) is None
    assert queue.offer([row("a", revision=4)]) == 1
    assert claimed(queue).handle == "a"


def test_what_is_driven_is_nobody_elses(queue: Queue) -> None:
    queue.offer([row("a")])
    taken = claimed(queue)
    assert (taken.state, taken.worker, taken.machine, taken.attempt) == (DRIVEN, "one", "alpha", 1)
    assert queue.offer([row("a", state=DONE, revision=9)]) == 0
    assert queue.claim(SECOND, ANY) is None
    assert queue.drop([taken.run_id]) == 0
    assert not queue.settle(SECOND, taken._replace(state=DONE))
    assert not queue.settle(FIRST, taken._replace(state=DONE, attempt=2))
    assert queue.settle(FIRST, taken._replace(state=DONE))
    assert counts(queue) == {DONE: 1}


def test_a_run_that_is_given_back_keeps_its_place(queue: Queue) -> None:
    queue.offer([row("a"), row("b")])
    taken = claimed(queue)
    queue.settle(FIRST, taken._replace(state=QUEUED))
    again = claimed(queue)
    assert (again.handle, again.attempt) == ("a", 2)


def test_nothing_is_claimed_before_its_time(queue: Queue) -> None:
    now = queue.clock()
    queue.offer([row("a", not_before=now + 3600), row("b", not_before=now - 1)])
    assert counts(queue) == {LATER: 1, QUEUED: 1}
    assert claimed(queue).handle == "b"
    assert queue.claim(FIRST, ANY) is None
    queue.offer([row("a", not_before=0.0, revision=2)])
    assert claimed(queue).handle == "a"


def test_a_time_that_comes_lets_go(queue: Queue) -> None:
    queue.offer([row("a", not_before=queue.clock() + 0.2)])
    seen = None
    while queue.clock() < queue.rows(STATES)[0].not_before + 5 and seen is None:
        seen = queue.claim(FIRST, ANY)
    assert seen is not None
    assert queue.clock() >= seen.not_before


def test_who_comes_after_others_waits_for_all_of_them(queue: Queue) -> None:
    queue.offer([row("a"), row("b"), row("c", after=("a-run-1", "b-run-1"))])
    assert counts(queue) == {QUEUED: 2, AFTER: 1}
    first, second = claimed(queue), claimed(queue)
    queue.settle(FIRST, first._replace(state=DONE))
    assert queue.claim(FIRST, ANY) is None
    queue.settle(FIRST, second._replace(state=FAILED, kind="failed"))
    assert counts(queue) == {DONE: 1, FAILED: 1, AFTER: 1}
    queue.offer([second._replace(state=DONE, revision=2)])
    assert claimed(queue).handle == "c"


def test_who_comes_after_what_is_done_goes_at_once(queue: Queue) -> None:
    queue.offer([row("a", state=DONE), row("b", after=("a-run-1",))])
    assert claimed(queue).handle == "b"


def test_what_a_dead_worker_had_is_offered_again_and_nothing_of_it_counts(queue: Queue) -> None:
    queue.offer([row("a"), row("b")])
    queue.sign(FIRST, [])
    taken, other = claimed(queue), claimed(queue, SECOND)
    queue.sign(SECOND, [Progress(other.run_id, 1, 0.0, "")])
    assert queue.reap(3600) == []
    ask_it(queue, "UPDATE workers SET signed = signed - 7200 WHERE id = ?", FIRST.id)
    assert [one.handle for one in queue.reap(3600)] == ["a"]
    assert claimed(queue, SECOND).attempt == 2
    late = queue.sign(FIRST, [Progress(taken.run_id, 1, 5.0, "late")])
    assert late.lost == {taken.run_id}
    assert late.spent == 0.0
    assert not queue.settle(FIRST, taken._replace(state=DONE))
    assert counts(queue) == {DRIVEN: 2}


def test_a_worker_that_never_signed_is_dead(queue: Queue) -> None:
    queue.offer([row("a")])
    claimed(queue)
    assert queue.reap(3600) == []
    assert [one.handle for one in queue.reap(0)] == ["a"]


def test_a_claim_whose_answer_was_lost_is_offered_again(queue: Queue) -> None:
    """Its worker lives and signs, and knows nothing of it."""
    queue.offer([row("a"), row("b")])
    lost, known = claimed(queue), claimed(queue)
    queue.sign(FIRST, [Progress(known.run_id, 1, 0.0, "")])
    assert counts(queue) == {DRIVEN: 1, QUEUED: 1}
    again = claimed(queue, SECOND)
    assert (again.run_id, again.attempt) == (lost.run_id, 2)


def test_a_great_many_are_offered_reaped_and_dropped(queue: Queue) -> None:
    many = [row(f"r{number:03}") for number in range(250)]
    assert queue.offer(many) == 250
    for _ in many:
        claimed(queue)
    assert len(queue.reap(0)) == 250
    assert counts(queue) == {QUEUED: 250}
    assert queue.drop([one.run_id for one in many]) == 250
    assert counts(queue) == {}


def test_signs_tell_costs_steps_and_what_is_asked(queue: Queue) -> None:
    queue.offer([row("a"), row("b", cost=1.0)])
    first, second = claimed(queue), claimed(queue)
    assert queue.ask(first.run_id, CANCEL)
    signed = queue.sign(FIRST, [Progress(first.run_id, 1, 2.5, "build"), Progress(second.run_id, 1, 1.5, "")])
    assert (signed.lost, signed.asked) == (frozenset(), {first.run_id: CANCEL})
    assert signed.spent == pytest.approx(4.0)
    assert [(one.step, one.cost) for one in queue.find("a")] == [("build", 2.5)]
    queue.settle(FIRST, first._replace(state=CANCELLED, cost=3.0))
    assert queue.sign(FIRST, []).spent == pytest.approx(4.5)
    assert not queue.ask(first.run_id, CANCEL)
    assert [one.id for one in queue.workers()] == ["one"]
    queue.leave(FIRST)
    assert queue.workers() == []


def test_what_was_asked_is_known_until_it_is_carried_out(queue: Queue) -> None:
    queue.offer([row("a")])
    taken = claimed(queue)
    queue.ask(taken.run_id, PAUSE)
    queue.settle(FIRST, taken._replace(state=PAUSED, asked=PAUSE))
    assert [(one.state, one.asked) for one in queue.find("a")] == [(PAUSED, PAUSE)]
    queue.offer([row("a", state=PAUSED, revision=taken.revision + 1)])
    assert [(one.state, one.asked) for one in queue.find("a")] == [(PAUSED, "")]


def test_limits_hold_for_the_fleet_the_repository_and_each_host(opens: Open) -> None:
    queue, other = opens(REPOSITORY), opens("another")
    codex = LANE._replace(host="codex")
    queue.offer([row(str(number)) for number in range(4)] + [row(f"c{number}", lane=codex) for number in range(4)])
    other.offer([row("x", lane=LANE._replace(repository="another"))])
    three = Limits(each=3)
    assert [claimed(queue, limits=three).lane.host for _ in range(6)].count("codex") == 3
    assert queue.claim(FIRST, three) is None
    assert queue.claim(FIRST, Limits(each=3, per_host={"codex": 4}, here=6)) is None
    assert queue.claim(FIRST, Limits(each=3, per_host={"codex": 4}, fleet=6)) is None
    assert other.claim(FIRST, three) is None  # one account serves all repositories
    assert claimed(queue, limits=Limits(each=3, per_host={"codex": 4}, fleet=7, here=7)).lane == codex


def test_no_claim_once_the_cost_is_reached(queue: Queue) -> None:
    queue.offer([row("a"), row("b")])
    taken = claimed(queue, limits=Limits(cost=1.0))
    queue.sign(FIRST, [Progress(taken.run_id, 1, 1.0, "")])
    assert queue.claim(FIRST, Limits(cost=1.0)) is None
    assert claimed(queue, limits=Limits(cost=1.1)).handle == "b"


def test_one_of_all_looks_at_what_they_share(opens: Open) -> None:
    queue, again, other = opens("a"), opens("a"), opens("b")
    assert [one.may_look(60) for one in (queue, again, other)] == [True, False, True]
    assert again.may_look(0)


def test_a_limit_that_one_meets_holds_all_back_until_its_time(opens: Open) -> None:
    queue, other = opens(REPOSITORY), opens("another")
    queue.offer([row("a"), row("b", lane=LANE._replace(host="codex"))])
    other.offer([row("x", lane=LANE._replace(repository="another"))])
    until = queue.clock() + 600
    queue.hold("claude-code", until, "a plan's limit")
    queue.hold("claude-code", until - 60, "an earlier one")
    assert [(one.host, one.why) for one in other.holds()] == [("claude-code", "a plan's limit")]
    assert claimed(queue).handle == "b"
    assert other.claim(FIRST, ANY) is None
    ask_it(queue, "UPDATE hosts SET until = until - 1200 WHERE host = ?", "claude-code")
    assert (claimed(queue).handle, claimed(other).handle) == ("a", "x")
    assert queue.holds() == []


def test_three_failures_alike_in_a_row_pause_a_workflow(queue: Queue) -> None:
    other = LANE._replace(workflow="docs")
    queue.offer([row(str(number)) for number in range(6)] + [row("x", lane=other)])
    whys = ("in /a/1.py line 7", "is not alike", "in /b/2.py line 8", "in /c line 9", "in /d line 1")
    for why in whys:
        queue.settle(FIRST, claimed(queue)._replace(state=FAILED, kind="failed", why=why))
    (paused,) = [one for one in queue.standings() if one.paused]
    assert paused.lane == LANE
    assert "3 runs in a row failed alike: in /d line 1" in paused.paused
    assert claimed(queue).handle == "x"
    assert queue.claim(FIRST, ANY) is None
    most, second = queue.alike(5)
    assert (most.number, most.workflow, set(most.handles)) == (4, "core", {"4", "3", "2"})
    assert second.number == 1
    assert queue.pause("core", "") == 1
    assert claimed(queue).handle == "5"


def test_a_success_between_them_begins_the_count_anew(queue: Queue) -> None:
    queue.offer([row(str(number)) for number in range(6)])
    for state in (FAILED, FAILED, DONE, FAILED, FAILED):
        queue.settle(FIRST, claimed(queue)._replace(state=state, kind="failed", why="no"))
    assert all(not one.paused for one in queue.standings())


def test_rows_are_told_in_order_and_found_by_name(queue: Queue) -> None:
    queue.offer([row("b"), row("a", priority=1), row("ab"), row("w", state=WAITS), row("p", state=PAUSED)])
    assert [one.handle for one in queue.rows((QUEUED,))] == ["a", "b", "ab"]
    assert [one.handle for one in queue.rows((WAITS, QUEUED), 2)] == ["w", "a"]
    assert [one.handle for one in queue.find("a")] == ["a"]
    assert [one.handle for one in queue.find("a-")] == ["a"]
    assert {one.handle for one in queue.find("ab-run-1")} == {"ab"}
    assert queue.find("") != []
    assert queue.find("zz") == []


def test_a_queue_forgets_what_it_is_told_to(opens: Open) -> None:
    queue, other = opens(REPOSITORY), opens("another")
    other.offer([row("x", lane=LANE._replace(repository="another"))])
    queue.offer([row("a"), row("b"), row("c", state=DONE)])
    assert queue.drop(["a-run-1", "c-run-1", "none"]) == 2
    assert counts(queue) == {QUEUED: 1}
    queue.clear()
    assert (counts(queue), queue.rows(STATES)) == ({}, [])
    assert queue.claim(FIRST, ANY) is None
    assert claimed(other).handle == "x"
    queue.offer([row("a")])
    assert claimed(queue).handle == "a"


def test_what_is_read_is_what_was_written(queue: Queue) -> None:
    told = row(
        "ä-%s-'\"?", goal="Grüße ☃ %s ? ;--", state=WAITS, kind="approval", why="is it \x00?".replace("\x00", ""),
        command="loomctl approve ä", priority=9, revision=2**40, cost=0.125, commit="abc", step="s",
        after=("x-run-1",), not_before=12.5, since=7.0,
    )  # fmt: skip
    queue.offer([told])
    assert queue.rows(STATES) == [told]
    assert model.signature("x") == "x"


def test_many_claim_at_once_and_each_gets_its_own(opens: Open) -> None:
    opens(REPOSITORY).offer([row(f"r{number:03}") for number in range(60)])
    taken: list[Row] = []

    def take(worker: Worker) -> None:
        queue = opens(REPOSITORY)
        while (one := queue.claim(worker, Limits(each=50))) is not None:
            taken.append(one)

    threads = [threading.Thread(target=take, args=(Worker(f"w{number}", "m", 9),)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(taken) == len({one.run_id for one in taken}) == 50
    assert counts(opens(REPOSITORY)) == {DRIVEN: 50, QUEUED: 10}
