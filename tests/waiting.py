"""Waiting in tests for what another process does: as long as it takes, and not for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 30.0  # seconds: a bound for what hangs, never a claim about speed


def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fails where it never does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s in vain: {what}"
        time.sleep(0.01)


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
