"""A lock is held by one process, says by which, and dies with it (D53)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.processes import Lock
from tests.helpers.tables import each
from tests.helpers.waiting import PATIENCE

CHECKOUT = Path(__file__).parents[2]
HOLD = """
import sys, time
from loomctl.kit.processes import Lock
with Lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", HOLD, str(path)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    """Another process's lock gives HELD with its pid after the patience; killed, it is free at once."""
    path = tmp_path / "locks" / "run.lock"
    process = holder(path)
    try:
        began = time.monotonic()
        with pytest.raises(LoomError) as error, Lock(str(path), patience=0.2):
            pass
        assert 0.2 <= time.monotonic() - began < PATIENCE
        assert (error.value.code, error.value.exit_code) == ("HELD", EXIT_HELD)
        assert f"process {process.pid} (taken just now)" in error.value.what
        assert str(path) == error.value.where
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with Lock(str(path), patience=PATIENCE):
        assert f'"pid": {os.getpid()}' in path.read_text()


class Told(Lock):
    """A lock that tells when somebody begins to wait for it, its file open."""

    def __init__(self, path: str) -> None:
        super().__init__(path, patience=PATIENCE)
        self.waits = threading.Event()

    def _wait(self, deadline: float) -> None:
        self.waits.set()
        super()._wait(deadline)


def test_a_waiter_gets_the_lock_when_it_is_given_back(tmp_path: Path) -> None:
    """A second holder waits within its patience and goes on as soon as the first is done."""
    path = str(tmp_path / "run.lock")
    order: list[str] = []

    wanted = Told(path)

    def second() -> None:
        with wanted:
            order.append("second")

    with Lock(path):
        waiter = threading.Thread(target=second)
        waiter.start()
        assert wanted.waits.wait(PATIENCE)
        order.append("first")
    waiter.join()
    assert order == ["first", "second"]


def test_a_lock_that_is_removed_is_nobodys(tmp_path: Path) -> None:
    """Who waited for a lock that its holder removed holds the new file, so that two never hold one lock at once."""
    path = tmp_path / "run.lock"
    seen: list[bool] = []

    wanted = Told(str(path))

    def second() -> None:
        with wanted:
            seen.append(path.exists())
            with pytest.raises(LoomError, match="HELD"), Lock(str(path), patience=0):
                pass

    with Lock(str(path)) as lock:
        waiter = threading.Thread(target=second)
        waiter.start()
        assert wanted.waits.wait(PATIENCE)
        lock.remove()
        with Lock(str(path), patience=0):  # the name is free again
            pass
    waiter.join()
    assert seen == [True]


def test_an_error_inside_gives_the_lock_back(tmp_path: Path) -> None:
    path = str(tmp_path / "run.lock")
    with pytest.raises(KeyError), Lock(path):
        raise KeyError("x")
    with Lock(path, patience=0):
        pass


@each("content", ["", "{", "[]", '{"pid": "x"}', "x" * 5000, "\0\0"])
def test_a_damaged_note_names_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.lock"
    with Lock(str(path)):
        path.write_text(content)
        with pytest.raises(LoomError, match="held by another process"), Lock(str(path), patience=0):
            pass


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_refused_locks_leave_no_open_file(tmp_path: Path) -> None:
    path = str(tmp_path / "run.lock")
    with Lock(path):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(LoomError), Lock(path, patience=0):
                pass
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Where the holder's name cannot be written the lock still holds, and is given back."""
    code = (
        "import resource, signal, sys\n"
        "from loomctl.kit.processes import Lock\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "for _ in range(2):\n    with Lock(sys.argv[1], patience=0.1):\n        pass\n"
    )
    subprocess.run([sys.executable, "-B", "-c", code, str(tmp_path / "x.lock")], cwd=CHECKOUT, check=True)


@pytest.mark.shows("A symbolic link where Loom keeps or locks a file is refused (`UNSAFE_LINK`)")
def test_a_link_in_the_locks_place_is_not_followed(tmp_path: Path) -> None:
    """A lock file that a repository brought as a link to a user's file does not empty that file."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run.lock").symlink_to(victim)
    with pytest.raises(LoomError, match="UNSAFE_LINK"), Lock(str(tmp_path / "run.lock")):
        pass
    assert victim.read_text() == "mine"
