"""Whoever asks a driver to end after the step means the one that is open then, however seldom it looks (D73)."""

from __future__ import annotations

import os

import pytest

from loomctl.drive import drive, process
from loomctl.drive.drive import Driver
from loomctl.drive.seen import Ended, Seen
from loomctl.drive.watch import Limits
from loomctl.flow import advance
from loomctl.flow.open_project import workspace
from loomctl.hosts import headless
from loomctl.runs.machine.local import TERMINAL
from tests.helpers.fake_assistant import FakeAssistant


class Asking:
    """A driver that is asked to end after the step just as its assistant begins.

    ends_step: the assistant ends its step then, before the driver looks. It goes on once the driver has looked twice at
    an open step.
    """

    def __init__(self, fake: FakeAssistant, *, ends_step: bool) -> None:
        self._ends_step, self._goes_on, self._looks = ends_step, fake.folder / "goes-on", 0
        fake.play(f"until test -e '{self._goes_on}'; do sleep 0.01; done; ends; sleep 76")
        scene = fake.scene
        self._run_id = scene.run_dir.name
        space = scene.space("drive-1", host=drive.HOST, pid=os.getpid())
        word = process.new_word(space.store.folder)
        self._space = workspace(space.project, space.settings, space.caller, word)
        self._driver = Driver(
            self._space, self._run_id, "claude-code", headless.of("claude-code"), Limits(), word=word,
            environ={**scene.environ(None), "PATH": fake.path}, show=self._look,
        )  # fmt: skip

    def drive(self) -> Ended:
        return self._driver.drive()

    def _look(self, seen: Seen) -> None:
        if seen.what == "turn.started":
            self._driver.asked.interrupt()
            if self._ends_step:
                advance.done(self._space, self._run_id, response="It is done.")
        elif not seen.what and seen.stand.visit:
            self._looks += 1
            if self._looks == 2:
                self._goes_on.touch()


@pytest.mark.slow
def test_a_step_that_ends_before_the_first_look_is_the_one_that_was_meant(fake: FakeAssistant) -> None:
    fake.scene.begin(session=None)
    assert Asking(fake, ends_step=True).drive().kind == "stopped"
    assert [one["status"] for one in fake.scene.state["steps"]] == ["succeeded", "in_progress"]


@pytest.mark.slow
def test_a_step_that_the_assistant_opens_only_then_is_done_first(fake: FakeAssistant) -> None:
    run = fake.scene.begin(session=None).run
    advance.done(fake.scene.space(None, host=TERMINAL), run.run_id, response=None, outcome="failed")
    assert Asking(fake, ends_step=False).drive().kind == "stopped"
    assert [one["status"] for one in fake.scene.state["steps"]] == ["failed", "succeeded", "in_progress"]
