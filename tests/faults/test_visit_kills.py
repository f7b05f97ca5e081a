"""SIGKILL while visits leave a run's state: each state that is kept has a file with what it refers to, and the run goes
on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.runs.model.visit_list import BATCH, Visits
from loomctl.runs.store import visit_files
from loomctl.runs.store.events import Event
from tests.faults.bench import Answer
from tests.faults.stand import RESPONSE, Stand, essences, litter, sound, strikes
from tests.helpers.verbs import lengthen

pytestmark = pytest.mark.slow
KEY = "frame/ask"


def go_on(stand: Stand, ended: int) -> None:
    lengthen(stand.store, stand.scene.run_dir.name, KEY, ended)


def moved(stand: Stand) -> int:
    steps = stand.store.read_state(stand.scene.run_dir.name)["steps"]
    return steps.earlier.count if isinstance(steps, Visits) else 0


def file(stand: Stand, number: int = 1) -> Path:
    return stand.scene.run_dir / "stages" / ("visits.jsonl" if number == 1 else f"visits-{number}.jsonl")


def before_the_first(stand: Stand) -> None:
    go_on(stand, visit_files.MOST)


def before_an_append(stand: Stand) -> None:
    go_on(stand, visit_files.MOST + 1)
    go_on(stand, visit_files.MOST)


def behind_a_torn_append(stand: Stand) -> None:
    before_an_append(stand)
    with file(stand).open("ab") as out:
        out.write(b'{"prev": "0", "visit": {' * 3000)


def before_another_file(stand: Stand) -> None:
    """Rewind the run while a kept state refers to what the file holds."""
    before_an_append(stand)
    state = stand.scene.run_dir / "state.json"
    (stand.scene.run_dir / "state.replaced-1.json").write_bytes(state.read_bytes())
    stand.store.update(
        stand.scene.run_dir.name, lambda state: ({**state, "steps": state["steps"][:9]}, [Event("run.rewound", {})])
    )
    go_on(stand, visit_files.MOST)


def before_an_old_file_goes(stand: Stand) -> None:
    before_another_file(stand)
    go_on(stand, visit_files.MOST + 1)
    (stand.scene.run_dir / "state.replaced-1.json").unlink()
    go_on(stand, visit_files.MOST)
    assert file(stand).exists()


def done(stand: Stand, **how: Any) -> Answer:
    rank = stand.scene.state["steps"][-1]["rank"]
    return stand.cli("done", "--for", str(rank), given=RESPONSE, **how)


def again(stand: Stand) -> Answer:
    if stand.scene.state["current_step"] == KEY:
        assert done(stand).code == 0
    return stand.cli("next")


# What is done before; the files of visits that there are afterwards; the call by which the deed changes one of them.
MOMENTS: dict[str, tuple[Callable[[Stand], None], list[str], str]] = {
    "the first move": (before_the_first, ["visits.jsonl"], "open"),
    "an append": (before_an_append, ["visits.jsonl"], "write"),
    "a torn append is cut off": (behind_a_torn_append, ["visits.jsonl"], "ftruncate"),
    "another file is begun": (before_another_file, ["visits-2.jsonl", "visits.jsonl"], "open"),
    "an old file goes": (before_an_old_file_goes, ["visits-2.jsonl"], "unlink"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_while_visits_leave_the_state_leaves_each_state_with_its_file(stand: Stand, moment: str) -> None:
    before, left, way = MOMENTS[moment]
    before(stand)
    stand.keep()
    count = moved(stand)
    undisturbed = done(stand, count=True)
    assert undisturbed.code == 0, undisturbed
    assert [call for call in undisturbed.calls if call.startswith(way) and "/stages/visits" in call]
    assert moved(stand) == count + BATCH
    goal = (again(stand).code, essences(stand))
    for fault in strikes(undisturbed.calls):
        stand.put_back()
        assert done(stand, fault=fault).signal == signal.SIGKILL, fault
        sound(stand.scene)
        assert moved(stand) in (count, count + BATCH)
        assert (again(stand).code, essences(stand)) == goal, (fault, undisturbed.calls[fault["at"] - 1])
        sound(stand.scene)
        assert sorted(path.name for path in stand.scene.run_dir.glob("stages/visits*")) == left, fault
        assert litter(stand.scene) == []
