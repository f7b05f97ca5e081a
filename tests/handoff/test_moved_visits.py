"""A run whose older visits stand in a file of their own, handed on: each state, kept ones too, has its visits."""

from __future__ import annotations

import pytest

from loomctl.care import keep
from loomctl.flow import resume
from loomctl.handoff import pull
from loomctl.runs import log_verdict
from loomctl.runs.store import recovery
from loomctl.runs.store.events import Event
from tests.helpers.errors import refused
from tests.helpers.machines import Machine
from tests.helpers.scenes import Json
from tests.helpers.verbs import kept_visits, lengthen

KEY = "build/make"


@pytest.fixture
def laptop(laptop: Machine) -> Machine:
    """A clone with a run of which 64 visits have left the state."""
    laptop.done(laptop.run_dir.name, "Asked.")
    go_on(laptop, 100)
    return laptop


@pytest.fixture
def shared(laptop: Machine, desktop: Machine, run_id: str) -> str:
    laptop.push(run_id)
    desktop.pull(run_id)
    resume.resume(desktop.space(), run_id, take_over=True)
    return run_id


def go_on(machine: Machine, ended: int) -> None:
    lengthen(machine.space().store, machine.run_dirs[0].name, KEY, ended)


def files(machine: Machine, run_id: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in machine.folder(run_id).glob("stages/visits*")}


def steps(machine: Machine, run_id: str) -> list[Json]:
    return list(machine.space().store.read_state(run_id)["steps"])


def held(machine: Machine, run_id: str) -> dict[str, int]:
    """Count the visits of each state of a run, all of which are read, and hold that its log fits."""
    assert log_verdict.verify(machine.space().store, run_id).ok
    return {name: len(visits) for name, visits in kept_visits(machine.space().store, run_id).items()}


def back_before_the_file(machine: Machine, run_id: str) -> None:
    def change(state: Json) -> tuple[Json, list[Event]]:
        return {**state, "steps": state["steps"][:9]}, [Event("run.rewound", {})]

    machine.space().store.update(run_id, change)


def test_a_run_with_moved_visits_goes_there_and_back(laptop: Machine, desktop: Machine, shared: str) -> None:
    assert files(desktop, shared) == files(laptop, shared) != {}
    assert steps(desktop, shared) == steps(laptop, shared)
    go_on(desktop, 70)
    desktop.done(shared, "Made on the desktop.")
    desktop.push(shared)
    before = len(steps(laptop, shared))
    assert laptop.pull(shared).kind == pull.FORWARD
    assert files(laptop, shared) == files(desktop, shared)
    assert steps(laptop, shared) == steps(desktop, shared)
    assert held(laptop, shared) == {"state.json": len(steps(desktop, shared)), "state.backup.json": before}
    resume.resume(laptop.space(), shared, take_over=True)
    go_on(laptop, 70)
    laptop.push(shared)
    assert desktop.pull(shared).kind == pull.FORWARD
    assert steps(desktop, shared) == steps(laptop, shared)
    held(desktop, shared)


@pytest.mark.parametrize("keeps", [pull.TOOK_THEIRS, pull.KEPT_MINE])
def test_both_of_two_states_that_diverged_have_their_visits(
    laptop: Machine, desktop: Machine, shared: str, keeps: str
) -> None:
    """Whichever is taken, the other one is a run with all of its own, and so is the backup."""
    go_on(desktop, 80)
    desktop.done(shared, "Made on the desktop.")
    desktop.push(shared)
    resume.resume(laptop.space(), shared, take_over=True)
    go_on(laptop, 70)
    laptop.done(shared, "Made on the laptop.")
    theirs, mine = steps(desktop, shared), steps(laptop, shared)
    assert theirs != mine
    with refused("DIVERGED"):
        laptop.pull(shared)
    saved = laptop.pull(shared, keeps).saved
    assert saved is not None
    here, other = (theirs, mine) if keeps == pull.TOOK_THEIRS else (mine, theirs)
    assert steps(laptop, shared) == here
    assert steps(laptop, saved) == other
    assert held(laptop, shared)["state.json"] == len(here)
    assert held(laptop, saved)["state.json"] == len(other)
    if keeps == pull.TOOK_THEIRS:
        assert kept_visits(laptop.space().store, shared)["state.backup.json"] == mine
    for one in (shared, saved):
        resume.resume(laptop.space(), one, take_over=True)
        lengthen(laptop.space().store, one, KEY, 70)
        held(laptop, one)
        laptop.push(one)
        desktop.pull(one, pull.TOOK_THEIRS)
        assert steps(desktop, one) == steps(laptop, one)


def test_what_kept_states_refer_to_stays_when_a_pull_brings_another_file(
    laptop: Machine, desktop: Machine, shared: str
) -> None:
    """The backup and a state that was set aside have their visits, and can be put back."""
    state = laptop.folder(shared) / "state.json"
    mine = steps(laptop, shared)
    state.with_name("state.replaced-1.json").write_bytes(state.read_bytes())
    back_before_the_file(desktop, shared)
    go_on(desktop, 90)
    go_on(desktop, 90)
    go_on(desktop, 90)
    assert list(files(desktop, shared)) == ["visits-2.jsonl"]
    desktop.push(shared)
    assert laptop.pull(shared).kind == pull.FORWARD
    assert files(laptop, shared) == files(desktop, shared)
    kept = kept_visits(laptop.space().store, shared)
    assert kept["state.replaced-1.json"] == kept["state.backup.json"] == mine
    space = laptop.space()
    keep.restore_state(space, keep.examine_state(space, shared, source="state.backup.json"))
    assert steps(laptop, shared) == mine
    held(laptop, shared)
    resume.resume(laptop.space(), shared, take_over=True)
    go_on(laptop, 70)
    held(laptop, shared)
    assert len(recovery.kept_states(laptop.space().store.home(shared))) == 3
