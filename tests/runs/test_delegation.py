"""A driver lets what it starts work in its place, for as long as it drives (D74)."""

from __future__ import annotations

import json
import os

import pytest

from loomctl.flow.open_project import workspace
from loomctl.runs import leases
from loomctl.runs.model import lease
from loomctl.runs.project import Caller, Conversation, Workspace
from loomctl.runs.store.write_rules import STARTED_FOR
from tests.helpers.scenes import OTHER, SESSION, Ended, Scene

WORD = "a word of the driver's"


@pytest.fixture
def driver(begun: Scene) -> Workspace:
    """A driver that has taken the run, and is this process."""
    begun.let_go()
    space = begun.space()
    caller = Caller("drive-1", "loomctl", os.getpid(), str(begun.root), Conversation())
    own = workspace(space.project, space.settings, caller, WORD)
    own.store.update(begun.run_dir.name, lambda state: ({**state, "driving": {}}, []))
    assert lease.holder(begun.state).session_id == "drive-1"  # type: ignore[union-attr]
    return own


def started(scene: Scene, word: str, *words: str, run_id: str = "", session: str | None = OTHER) -> Ended:
    """Run a command as what a driver started does."""
    os.environ[STARTED_FOR] = f"{run_id or scene.run_dir.name} {word}"
    try:
        return scene.loomctl(*words, session=session)
    finally:
        del os.environ[STARTED_FOR]


@pytest.mark.usefixtures("driver")
def test_who_has_the_word_works_and_the_lease_stays_the_drivers(begun: Scene) -> None:
    run_id = begun.run_dir.name
    assert started(begun, WORD, "resume", run_id).ends(0)
    assert started(begun, WORD, "done", run_id, "--outcome", "succeeded", "--note", "x").ends(0)
    held = begun.state["lease"]
    assert (held["session_id"], held["host"]) == ("drive-1", "loomctl")
    begun.loomctl("next", run_id, session=SESSION).ends(6)  # anybody else is refused as before


@pytest.mark.usefixtures("driver")
def test_a_wrong_word_and_none_are_refused(begun: Scene) -> None:
    before = (begun.run_dir / "state.json").read_bytes()
    for word in ("another word", ""):
        refused = started(begun, word, "next", begun.run_dir.name, "--json").ends(6)
        assert refused.json["error"]["code"] == leases.HELD_BY_ANOTHER
    assert (begun.run_dir / "state.json").read_bytes() == before


def test_what_outlives_its_driver_writes_nothing_though_nobody_drives(begun: Scene, driver: Workspace) -> None:
    run_id = begun.run_dir.name
    driver.store.update(run_id, lambda state: leases.release(state, "drive-1", "drive"))
    leases.forget(driver, run_id)
    refused = started(begun, WORD, "next", run_id, "--json").ends(6)
    assert "works on the run" in refused.json["error"]["message"]
    begun.loomctl("next", run_id, session=SESSION).ends(0)


def test_what_outlives_a_killed_driver_writes_nothing(begun: Scene, driver: Workspace) -> None:
    path = begun.store / "local" / "drivers" / f"{begun.run_dir.name}.json"
    known = json.loads(path.read_text())
    known["process"]["started"] = "1"  # a process of this number that began at another time is another
    path.write_text(json.dumps(known))
    started(begun, WORD, "next", begun.run_dir.name).ends(6)
    del driver


@pytest.mark.usefixtures("driver")
def test_a_word_for_another_run_means_nothing(begun: Scene) -> None:
    started(begun, WORD, "next", begun.run_dir.name, run_id="another").ends(6)


@pytest.mark.usefixtures("driver")
def test_the_word_itself_stands_nowhere(begun: Scene) -> None:
    for path in begun.store.rglob("*"):
        assert not path.is_file() or WORD.encode() not in path.read_bytes(), path


def test_an_assistant_takes_its_users_terminal_over_from_anywhere(begun: Scene) -> None:
    """Nothing works in a terminal by itself; another terminal is told who drives, as before."""
    run_id = begun.run_dir.name
    begun.let_go()
    begun.loomctl("resume", run_id, session=None).ends(0)
    assert begun.state["lease"]["host"] == "terminal"
    begun.loomctl("resume", run_id, session=OTHER).ends(0)
    assert begun.state["lease"]["session_id"] == OTHER
