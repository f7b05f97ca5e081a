"""How a supervisor's hold on a driver is read from its standard input (D73)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from loomctl.drive.leash import Leash

LIMIT = 10.0
SILENT = "nothing came on standard input for 10 s"


class Held(Leash):
    """A leash at a time that the test says, of which a pipe is the other end."""

    time = 1000.0

    def __init__(self) -> None:
        super().__init__(LIMIT)
        self.then = lambda: None

    def _now(self) -> float:
        return self.time

    def after(self, seconds: float) -> str:
        """Look again after so many seconds; gives why it is gone."""
        self.time += seconds
        self._tick()
        return self.gone


@pytest.fixture
def pipe() -> Iterator[int]:
    """Give the writing end of what is standard input meanwhile."""
    before = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    yield writing
    os.dup2(before, 0)
    os.close(before)


def test_whoever_writes_from_time_to_time_holds_it(pipe: int) -> None:
    with (leash := Held()):
        for _ in range(5):
            os.write(pipe, b".")
            assert leash.after(9.0) == ""
        assert leash.after(0.5) == ""
        assert leash.after(1.0) == SILENT


def test_it_is_gone_when_the_other_end_is_closed_also_behind_a_last_word(pipe: int) -> None:
    with (leash := Held()):
        os.write(pipe, b".")
        os.close(pipe)
        assert leash.after(0.5) == "standard input was closed"


def test_what_lay_there_while_the_driver_was_stopped_is_no_news(pipe: int) -> None:
    with (leash := Held()):
        os.write(pipe, b".")
        assert leash.after(LIMIT + 1) == SILENT


def test_what_came_between_two_looks_may_be_as_old_as_the_first(pipe: int) -> None:
    with (leash := Held()):
        os.write(pipe, b".")
        assert leash.after(6.0) == ""
        assert leash.after(4.5) == SILENT


def test_it_calls_once_as_it_goes(pipe: int) -> None:
    called = []
    with (leash := Held()):
        leash.then = lambda: called.append(leash.gone)
        leash.after(LIMIT + 1)
        os.close(pipe)
        leash.after(1.0)
    assert called == [SILENT]


def test_who_waits_for_anything_before_it_drives_is_interrupted(pipe: int) -> None:
    with Leash(LIMIT) as leash:
        os.close(pipe)
        with pytest.raises(KeyboardInterrupt):
            leash._tick()


def test_nothing_that_is_started_reads_from_it_and_all_is_as_it_was(pipe: int) -> None:
    with (leash := Held()):
        os.write(pipe, b".")
        assert os.read(0, 10) == b""
        assert leash.after(1.0) == ""
    os.write(pipe, b"later")
    assert os.get_blocking(0)
    assert os.read(0, 10) == b"later"
    os.close(pipe)
