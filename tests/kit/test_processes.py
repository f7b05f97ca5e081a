"""A process is known by its pid, its start and its boot; a pid alone proves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loomctl.kit import processes
from tests.helpers.tables import each
from tests.helpers.waiting import until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "mark ü", ""])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_running_process_lives(child: subprocess.Popen[bytes]) -> None:
    """A child is alive under its identity, and that identity is the same each time it is asked."""
    identity = processes.identity(child.pid)
    assert identity["pid"] == child.pid
    assert identity["started"]
    assert processes.lives(identity)
    assert processes.same(identity, processes.identity(child.pid))
    assert not processes.same(identity, processes.identity(os.getpid()))


def test_a_killed_process_is_gone_even_before_it_is_reaped(child: subprocess.Popen[bytes]) -> None:
    identity = processes.identity(child.pid)
    child.send_signal(signal.SIGKILL)
    until(lambda: not processes.lives(identity), "a killed process to be gone")
    child.wait()
    assert not processes.lives(identity)
    assert processes.identity(child.pid)["started"] == ""


@pytest.mark.parametrize("key", ["started", "boot_id"])
def test_a_pid_that_was_used_again_is_another_process(child: subprocess.Popen[bytes], key: str) -> None:
    """The same pid with another start, or from another boot, is not the process that was known."""
    known = {**processes.identity(child.pid), key: "another"}
    assert not processes.lives(known)
    assert not processes.same(known, processes.identity(child.pid))


@each(
    "known",
    [
        {},
        {"pid": None, "started": "", "boot_id": ""},
        {"pid": "1", "started": "1", "boot_id": ""},
        {"pid": -1, "started": "", "boot_id": ""},
        {"pid": 0, "started": "", "boot_id": ""},
        {"pid": 10**30, "started": "1", "boot_id": ""},
        {"pid": True, "started": "1", "boot_id": ""},
    ],
)
def test_what_names_no_process_neither_lives_nor_equals(known: dict[str, object]) -> None:
    assert not processes.lives({"boot_id": processes.boot_id(), **known})
    assert not processes.lives({**known, "boot_id": processes.boot_id()})
    assert not processes.same(known, processes.identity(os.getpid()))


def test_an_unknown_process_has_an_identity_that_equals_nothing() -> None:
    unknown = processes.identity(None)
    assert unknown["pid"] is None
    assert not processes.lives(unknown)
    assert not processes.same(unknown, unknown)


def test_a_command_line_is_read_word_by_word(child: subprocess.Popen[bytes]) -> None:
    """The words of a process's command line are told apart, blanks and letters beyond ASCII included."""
    words = processes.arguments(child.pid)
    if words:  # a system without /proc tells nothing
        assert (words[-1], words[1]) == ("mark ü", "-c")
    assert processes.arguments(2**22 + 12345) == []


def test_a_system_without_proc_asks_ps(child: subprocess.Popen[bytes]) -> None:
    """The way that other systems need gives the same answer twice, and none for nobody."""
    began = processes._started_by_ps(child.pid)
    if began:  # the program ps may be missing here
        assert began == processes._started_by_ps(child.pid)
    assert processes._started_by_ps(2**22 + 12345) == ""
