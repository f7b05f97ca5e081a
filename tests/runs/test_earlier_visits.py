"""Visits that left a run's state: the run is the same with them in their file as with all of them in the state."""

from __future__ import annotations

import copy
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from loomctl.flow import route
from loomctl.kit.errors import LoomError
from loomctl.kit.files import to_json
from loomctl.runs.model import visits
from loomctl.runs.model.state import new_state
from loomctl.runs.model.visit_list import Visits, stored
from loomctl.runs.store import events, visit_files
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Store
from loomctl.views import facts
from loomctl.workflows.workflow import build_plan
from tests.helpers.runs import AT, RUN_ID

if TYPE_CHECKING:
    from pathlib import Path

STEPS = [
    {"id": "a", "prompt": "Do.", "max_retries": 2},
    {"id": "b", "prompt": "Do.", "transitions": [{"to": "a", "condition": "context.again == true"}, {"to": "end"}]},
]
PLAN = build_plan(
    {"id": "core", "max_visits": 10_000, "phases": {"build": {"steps": STEPS}}},
    plan_id="shop-258",
    created_at=AT,
    sources=[],
)


def made(folder: Path, kept: int = visit_files.MOST) -> Store:
    store = Store(str(folder / ".loom"))
    store.kept_visits = kept
    store.prepare()
    state = new_state(PLAN, run_id=RUN_ID, work_id="258", goal="", at=AT)
    store.create({**state, "context": {"again": True}}, PLAN, [Event("run.created", {})])
    return store


def go_on(store: Store, stages: int) -> dict[str, Any]:
    """End so many stages, each by a write of its own; every fifth fails, and is tried again."""
    for number in range(stages):

        def step(state: dict[str, Any], number: int = number) -> tuple[dict[str, Any], list[Event]]:
            state, move = route.advance(state, PLAN, at=AT)
            state, _ = visits.start_visit(state, str(move.step), "build", at=AT)
            outcome = "failed" if number % 5 == 2 and move.step == "build/a" else "succeeded"
            state = route.end_visit(state, PLAN, outcome=outcome, at=AT).state
            return state, [Event("stage.completed", {"number": number})]

        store.update(RUN_ID, step, durable=False)
    return store.read_state(RUN_ID)


def answers(state: dict[str, Any]) -> dict[str, Any]:
    """Tell what routing and counting say of a run."""
    place = route.onward(state, PLAN)
    return {
        "next": place.key if place else None,
        "counts": visits.counts(state),
        "count": [visits.count(state, key) for key in ("build/a", "build/b", "x")],
        "bounded": [visits.count_bounded(state, key) for key in ("build/a", "build/b", "x")],
        "last": visits.last_of_each(state),
        "ranks": [visits.highest_rank(state), visits.main_rank(state)],
        "ended": visits.count_ended(state),
        "newest": [one["stage"] for one in visits.newest_ended(state)],
        "attempt": visits.attempt_of(state, state["steps"][-1]),
        "last ended": visits.last_ended(state),
        "named": [visits.named(state, word) for word in ("3", "70", "199", "none")],
        "every": list(visits.every(state)),
    }


@pytest.mark.parametrize("stages", [63, 64, 65, 96, 97, 200])
def test_a_run_is_the_same_wherever_its_visits_stand(tmp_path: Path, stages: int) -> None:
    moved, whole = go_on(made(tmp_path / "a"), stages), go_on(made(tmp_path / "b", 10**9), stages)
    assert answers(moved) == answers(whole)
    assert isinstance(moved["steps"], Visits) == (stages > visit_files.MOST)
    assert os.path.exists(tmp_path / "a/.loom/runs" / RUN_ID / visit_files.FIRST) == (stages > visit_files.MOST)
    assert to_json(moved["steps"]) == to_json(whole["steps"])
    assert len(visits.recent(moved)) <= visit_files.MOST


def test_visits_behave_as_the_list_of_all(tmp_path: Path) -> None:
    state = go_on(made(tmp_path), 120)
    steps, whole = state["steps"], list(state["steps"])
    assert isinstance(steps, Visits)
    assert len(steps) == 120
    for at in (0, 1, 50, 119, -1, -100, -120):
        assert steps[at] == whole[at]
    for at in (120, -121):
        with pytest.raises(IndexError):
            steps[at]
    cuts = (None, 0, 1, 30, 63, 64, 65, 96, 119, 120, 200, -1, -50, -119)
    for start in cuts:
        for stop in cuts:
            for step in (None, 2, -1):
                assert list(steps[start:stop:step]) == whole[start:stop:step]
                assert steps[start:stop:step] == whole[start:stop:step]
    assert steps == whole
    assert whole == steps
    assert steps != whole[1:]
    assert [*steps, 1] == [*whole, 1] == [*(steps + [1])]  # noqa: RUF005 - the very thing
    assert [1] + steps == [1, *whole]  # noqa: RUF005
    assert list(reversed(steps)) == whole[::-1]
    assert (steps.index(whole[3]), steps.index(whole[110]), whole[5] in steps, {} in steps) == (3, 110, True, False)
    with pytest.raises(ValueError, match="not in the list"):
        steps.index({})
    assert type(copy.deepcopy(steps)) is list
    assert json.loads(json.dumps(state))["steps"] == whole


def test_a_steps_end_reads_no_visit_that_left_the_state(tmp_path: Path) -> None:
    store = made(tmp_path)
    go_on(store, 130)
    (tmp_path / ".loom/runs" / RUN_ID / visit_files.FIRST).rename(tmp_path / "elsewhere")
    state = go_on(store, 1)
    assert len(state["steps"]) == 131
    tasks = {**state, "steps": state["steps"] + [{**state["steps"][-1], "task": {"text": "x"}}]}
    for key in ("build/a", "build/b"):
        assert visits.count_bounded(tasks, key) == visits.count(tasks, key)
        assert next(visits.newest_of(tasks, key))["step_id"] == key
    assert (visits.count_bounded(tasks, "x"), list(visits.newest_of(tasks, "x")), facts.approvals(tasks)) == (0, [], [])
    with pytest.raises(LoomError, match="cannot be read") as error:
        list(state["steps"])
    assert (error.value.code, error.value.hint) == ("BAD_STATE", f"loomctl debug state restore {RUN_ID}")


def test_a_record_of_before_rounds_were_counted_has_as_many_as_visits(tmp_path: Path) -> None:
    store = made(tmp_path)
    go_on(store, 130)
    path = tmp_path / ".loom/runs" / RUN_ID / "state.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    for record in kept["earlier"]["steps"].values():
        del record["rounds"]
    path.write_text(json.dumps(kept), encoding="utf-8")
    state = store.read_state(RUN_ID)
    counts = [visits.count(state, key) for key in ("build/a", "build/b")]
    assert [visits.count_bounded(state, key) for key in ("build/a", "build/b")] == counts
    state = go_on(store, 40)
    assert sum(visits.count_bounded(state, key) for key in ("build/a", "build/b")) == 170


def test_a_visit_that_goes_on_with_the_next_task_ends_no_round_where_it_moved() -> None:
    def visit(number: int, reason: str) -> dict[str, Any]:
        way = {"step_id": "build/a", "reason": reason}
        return {"step_id": "build/a", "status": "succeeded", "task": {"text": str(number)}, "next": way}

    leaving = [visit(1, visits.NEXT_TASK), visit(2, visits.NEXT_TASK), visit(3, "order"), visit(4, visits.NEXT_TASK)]
    record = visits.record_of(None, leaving[:2])
    assert record["steps"]["build/a"]["rounds"] == 0
    assert visits.record_of(record, leaving[2:])["steps"]["build/a"] == {
        "count": 4,
        "rounds": 1,
        "last": leaving[3],
    }


def test_the_log_holds_the_checksum_of_what_is_stored(tmp_path: Path) -> None:
    state = go_on(made(tmp_path), 100)
    folder = tmp_path / ".loom/runs" / RUN_ID
    last = json.loads((folder / events.FILE).read_text().splitlines()[-1])
    assert last["state"] == events.of_state(json.loads((folder / "state.json").read_text())) == events.of_state(state)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def cut_front(path: Path) -> None:
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"rank":9,', b'"rank":8,'))


def foreign(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30] + b"x" * 29 + b"\n")


def link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [shorten, cut_front, change, foreign, link, folder, fifo])
def test_a_damaged_file_is_told_where_it_is_read_and_holds_nothing_up(tmp_path: Path, damage: Any) -> None:
    store = made(tmp_path)
    go_on(store, 130)
    path = tmp_path / ".loom/runs" / RUN_ID / visit_files.FIRST
    damage(path)
    with pytest.raises(LoomError) as error:
        list(store.read_state(RUN_ID)["steps"])
    assert error.value.code in ("BAD_STATE", "UNSAFE_LINK")
    state = go_on(store, 70)
    assert len(state["steps"]) == 200
    assert visits.count(state, "build/a") + visits.count(state, "build/b") == 200


def test_what_stands_behind_the_known_bytes_is_cut_off_by_the_next_append(tmp_path: Path) -> None:
    store = made(tmp_path)
    go_on(store, 70)
    path = tmp_path / ".loom/runs" / RUN_ID / visit_files.FIRST
    with path.open("ab") as out:
        out.write(b"a killed write's" * 100)
    assert len(list(store.read_state(RUN_ID)["steps"])) == 70
    state = go_on(store, 60)
    assert len(list(state["steps"])) == 130
    assert path.stat().st_size == stored(state)["earlier"]["bytes"]


def test_a_state_before_the_boundary_goes_on_in_another_file_while_a_kept_one_refers_to_the_first(
    tmp_path: Path,
) -> None:
    store = made(tmp_path)
    go_on(store, 100)
    folder = tmp_path / ".loom/runs" / RUN_ID
    late = (folder / "state.json").read_bytes()
    store.update(
        RUN_ID, lambda state: ({**state, "steps": state["steps"][:20]}, [Event("run.rewound", {})]), durable=False
    )
    assert type(store.read_state(RUN_ID)["steps"]) is list
    (folder / "state.replaced-1.json").write_bytes(late)
    state = go_on(store, 60)
    assert stored(state)["earlier"]["file"] == "visits-2.jsonl"
    kept = store.read_home(store.home(RUN_ID)._replace(state=str(folder / "state.replaced-1.json")))
    assert len(list(kept["steps"])) == 100
    (folder / "state.replaced-1.json").unlink()
    state = go_on(store, 100)
    assert len(list(state["steps"])) == 180
    assert not (folder / visit_files.FIRST).exists()


def test_an_old_long_state_lets_its_visits_go_with_its_next_write(tmp_path: Path) -> None:
    store = made(tmp_path, 10**9)
    whole = list(go_on(store, 150)["steps"])
    store.kept_visits = visit_files.MOST
    state = go_on(store, 1)
    assert list(state["steps"])[:150] == whole
    assert len(visits.recent(state)) <= visit_files.MOST
