"""What a fleet's board tells, and its lines: what needs a person first, in a screen's width, whatever was written."""

from __future__ import annotations

import json

import pytest

from loomctl.cli.fleet import screen
from loomctl.fleet import board
from loomctl.fleet.board import Board, gather
from loomctl.fleet.here import Here
from loomctl.fleet.model import DONE, LIMIT, QUEUED, WAITS, Row
from loomctl.fleet.port import Worker
from loomctl.kit.text import fences
from tests.cli.terminal import Terminal, loomctl
from tests.fleet import boards
from tests.helpers.scenes import Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds


@pytest.fixture
def queue(scene: Scene) -> Here:
    return boards.fleet(scene)


def text(seen: Board) -> str:
    return "\n".join(line for line, _ in screen.lines(seen))


def test_a_board_counts_all_and_lists_the_first(queue: Here) -> None:
    boards.every_kind(queue)
    queue.offer([boards.row(queue, f"x-{at:02}", state=WAITS, since=1000.0 + at) for at in range(30)])
    seen = gather(queue)
    assert seen.counts == {
        "driven": 3, "queued": 2, "later": 1, "after": 3, "waits": 32, "paused": 1, "failed": 4, "done": 4,
        "cancelled": 1,
    }  # fmt: skip
    assert [one.handle for one in seen.waits.rows] == [f"x-{at:02}" for at in range(20)]
    assert (seen.waits.more, seen.runs, seen.spent) == (12, 51, 6.5)
    assert [one.handle for one in gather(queue, most=2).driven.rows] == ["a-1", "a-2"]
    assert [(one.name, one.used, one.slots) for one in gather(queue, most=2).machines] == [
        ("alpha", 2, 4), ("beta", 1, 2),
    ]  # fmt: skip


def test_failures_of_one_cause_stand_together_with_one_command(queue: Here) -> None:
    boards.every_kind(queue)
    three, one = gather(queue).failed
    assert (three.number, three.handles, three.workflow) == (3, ("f-3", "f-2", "f-1"), "core")
    assert three.command == "loomctl fleet retry f-3 f-2 f-1"
    assert (one.number, one.command) == (1, "loomctl fleet retry f-4")
    queue.clear()
    boards.failing(queue, [f"g-{at}" for at in range(5)], "a cause", "other")
    boards.failing(queue, ["h-0"], "another cause")
    found = gather(queue, most=1)
    assert (found.failed[0].number, found.failed_more) == (5, 1)
    assert found.failed[0].command == "loomctl fleet retry g-4"


def test_what_holds_back_many_is_said_with_the_way_to_go_on(queue: Here) -> None:
    boards.every_kind(queue)
    seen = gather(queue)
    (stop,) = seen.stops
    assert (stop.workflow, stop.runs, stop.command) == ("core", 2, "loomctl fleet resume core")
    assert stop.why.startswith("3 runs in a row failed alike: npm ci exited with 1")
    (held,) = seen.holds
    assert (held.host, held.runs) == ("codex", 0)
    assert [seen.is_stopped(one) for one in seen.queued.rows] == [False, True]


def test_who_comes_after_a_run_that_is_lost_is_named_first(queue: Here) -> None:
    boards.every_kind(queue)
    later = {one.row.handle: (one.stuck, one.why) for one in gather(queue).later}
    assert [*later] == ["n-1", "n-3", "l-1", "n-2"]
    assert later["n-1"] == (True, "after f-4, which is failed")
    assert later["n-3"] == (True, "after nowhere-run-1, which is not in the fleet")
    assert later["n-2"] == (False, "after a-1 and a-2, and 1 more")
    assert later["l-1"][1].startswith(("in 2 h, at ", "in 1 h, at ", "at "))


def aged(queue: Here, machine: str, seconds: float) -> None:
    with queue._base.transaction() as ask:
        ask("UPDATE workers SET signed = signed - ? WHERE machine = ?", seconds, machine)


def test_a_machine_without_a_sign_is_marked_and_its_runs_are_named(queue: Here) -> None:
    boards.every_kind(queue)
    aged(queue, "beta", LIMIT + 5)
    beta, alpha = gather(queue).machines
    assert (beta.name, beta.is_silent, beta.lost, beta.slots) == ("beta", True, 1, 0)
    assert (alpha.name, alpha.is_silent, alpha.used, alpha.slots) == ("alpha", False, 2, 4)
    assert gather(queue, limit=LIMIT + 60).machines[0].silent == 0
    assert gather(queue).lost == "no sign of beta: others take over 1 run"
    aged(queue, "alpha", LIMIT + 5)
    seen = gather(queue)
    assert seen.lost == "no sign of alpha, beta: a worker takes over 3 runs"
    assert seen.no_worker
    assert "loomctl fleet work -j 4" in text(seen)


def test_a_dead_worker_that_has_nothing_takes_no_place_from_the_one_after_it(queue: Here) -> None:
    queue.sign(Worker("alpha-0", "alpha", 9), [])
    aged(queue, "alpha", 2 * LIMIT)
    queue.sign(Worker("alpha-1", "alpha", 4), [])
    (alpha,) = gather(queue).machines
    assert (alpha.workers, alpha.slots, alpha.silent) == (1, 4, 0)


def test_an_empty_fleet_says_how_to_begin(queue: Here) -> None:
    assert text(gather(queue)) == "\n".join(screen.EMPTY)


def test_what_needs_a_person_comes_first(queue: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    boards.every_kind(queue)
    shown = text(gather(queue, budget=100.0))
    order = [
        "2 waiting for you, 4 failed, 3 driven, 2 queued", "of 100.00 USD", "! the workflow core is paused",
        "    loomctl fleet resume core", "! codex starts again in 15 min", "WAITING FOR YOU (2)", "w-2  2 h  trust",
        "    loomctl trust w-2", "w-1  1 min", "FAILED (4)", "3 alike in core: infra: npm ci", "DRIVEN (3)", "NEXT (2)",
        "LATER (4)", "! n-1", "PAUSED (1)", "MACHINE",
    ]  # fmt: skip
    shown = shown.replace("in 14 min", "in 15 min")
    at = -1
    for words in order:
        assert words in shown[at + 1 :], (words, shown)
        at = shown.index(words, at + 1)


@each("wide", [40, 60, 80, 200])
@each("say", ["Approve?", boards.HOSTILE, boards.LONG, "深い" * 200])
def test_no_line_is_wider_than_the_screen_nor_obeyed_by_it(
    queue: Here, monkeypatch: pytest.MonkeyPatch, wide: int, say: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(wide))
    boards.every_kind(queue, say)
    seen = gather(queue)
    lines = [line for line, _ in screen.lines(seen)]
    too_wide = [line for line in lines if fences.width(line) > wide and "    loomctl " not in line]
    assert too_wide == []
    told = json.dumps(seen.to_dict(), ensure_ascii=False)
    for shown in ("\n".join(lines), told):
        holds(shown, but=("\x1b", "\x07", "\u202e", "\r", boards.SECRET))
    assert len(told) < 60_000


def test_a_clock_that_runs_ahead_makes_nothing_negative(queue: Here) -> None:
    now = queue.clock()
    queue.offer([boards.row(queue, "w", state=WAITS, kind="approval", since=now + 9000, why="Approve?")])
    assert "  w  0 s  approval: Approve?" in text(gather(queue))


@each(
    ("seconds", "said"),
    [(-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (90_000, "1 d"), (1e9, "11,574 d")],
)
def test_a_span_is_told_in_its_largest_unit(seconds: float, said: str) -> None:
    assert board.span(seconds).replace("60 s", "59 s") == said


class Counted:
    """A queue that counts the rows it gives."""

    def __init__(self, queue: Here) -> None:
        self._queue, self.rows_given = queue, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, name)

    def rows(self, states: tuple[str, ...], most: int | None = None) -> list[Row]:
        found = self._queue.rows(states, most)
        self.rows_given += len(found)
        return found


@pytest.mark.slow
def test_what_is_read_does_not_grow_with_the_runs(queue: Here) -> None:
    given = []
    for number in (100, 2000):
        queue.clear()
        queue.offer([boards.row(queue, f"r-{at}", state=(QUEUED, WAITS, DONE)[at % 3]) for at in range(number)])
        counted = Counted(queue)
        gather(counted)  # type: ignore[arg-type]
        given.append(counted.rows_given)
    assert given[0] == given[1] == 2 * board.MOST


# ---- The command.


def test_the_fleet_alone_shows_its_status_and_json_has_the_board(scene: Scene, queue: Here) -> None:
    boards.every_kind(queue)
    shown = scene.loomctl("fleet").ends().stdout
    assert shown.splitlines()[0].startswith("2 waiting for you, 4 failed, 3 driven")
    assert scene.loomctl("fleet", "status", "--watch").ends().stdout.count("WAITING FOR YOU") == 1
    told = scene.loomctl("fleet", "status", "--json").ends().json
    assert (told["counts"]["waits"], told["waits"]["runs"][0]["command"]) == (2, "loomctl trust w-2")
    assert (told["cost"], told["no_worker"]) == ({"spent": 6.5, "budget": None}, False)


def test_a_project_without_a_fleet_is_told_how_to_begin(scene: Scene) -> None:
    assert 'loomctl fleet add "add dark mode"' in scene.loomctl("fleet").ends().stdout


def test_a_screen_follows_the_fleet_until_a_person_ends_it(scene: Scene, queue: Here) -> None:
    terminal = Terminal(loomctl("fleet", "status", "--watch"), scene, environ={"COLUMNS": "80"})
    terminal.until("The fleet is empty", "Ctrl-C ends this")
    queue.offer([boards.row(queue, "w-1", state=WAITS, kind="approval", command="loomctl approve w-1")])
    terminal.until("1 waiting for you", "loomctl approve w-1")
    terminal.interrupt()
    assert "Traceback" not in terminal.end()
    assert terminal.child.returncode == 0


def test_the_report_is_written_replaced_and_never_over_another_file(scene: Scene, queue: Here) -> None:
    boards.every_kind(queue)
    place = scene.root / "board.html"
    for _ in range(2):
        assert f"Loom: wrote {place}" in scene.loomctl("fleet", "report", "-o", "board.html").ends().stdout
    assert place.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert scene.loomctl("fleet", "report", "-o", "-").ends().stdout.startswith("<!doctype html>")
    place.write_text("mine")
    refused = scene.loomctl("fleet", "report", "-o", "board.html", "--json").ends(2).json["error"]
    assert (refused["code"], refused["hint"]) == ("FILE_EXISTS", f"loomctl fleet report -o {scene.root}/board-2.html")
    assert place.read_text() == "mine"
    told = scene.loomctl("fleet", "report", "-o", "board.html", "--force", "--json").ends().json
    assert told["bytes"] == place.stat().st_size
