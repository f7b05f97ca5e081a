"""Waiting in tests for what another process does: as long as it takes, and not for ever."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0  # seconds: a bound for what hangs, never a claim about speed
WORK = 5.0  # seconds of the processor's time: a bound for work that grows with the square of a hostile text


def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fails where it never does. Most of the time is left to what is waited for."""
    began = asked = time.monotonic()
    while not holds():
        now = time.monotonic()
        assert now < began + PATIENCE, f"waited {PATIENCE:g} s in vain: {what}"
        time.sleep(max(0.01, 2 * (now - asked)))
        asked = time.monotonic()


def next_tick(folder: Path) -> None:
    """Wait until the file system's clock has moved on: it tells what happens within some milliseconds not apart."""
    probe = folder / ".tick"

    def touched() -> int:
        probe.write_bytes(b"")
        return probe.stat().st_mtime_ns

    before = touched()
    until(lambda: touched() > before)
    probe.unlink()


@contextmanager
def bounded_work() -> Iterator[None]:
    """Hold that what is done here does not grow out of bounds, however busy the machine is."""
    began = time.process_time()
    yield
    assert time.process_time() - began < WORK


def in_time(attempt: Callable[[float], object], holds: Callable[[], object]) -> None:
    """Try what has a time limit with longer and longer limits, until it was long enough for what must come first.

    attempt: gets the limit in seconds; holds: tells whether what must come first came.
    """
    for limit in (0.5, 2.0, 8.0, PATIENCE):
        attempt(limit)
        if holds():
            return
    raise AssertionError(f"{PATIENCE:g} s were not enough")


class Gate:
    """A place where a shell command waits until the test lets it go on: `cat GATE` in the command."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def __str__(self) -> str:
        return f"cat '{self.path}'"

    def open(self, text: str = "") -> None:
        """Let the command go on, once it is there; its `cat` gives it the text."""
        self.path.write_text(text, encoding="utf-8")
