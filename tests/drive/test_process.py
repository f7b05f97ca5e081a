"""An assistant's process: read to its end, and ended with all that it started (D74)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loomctl.drive import process
from loomctl.drive.process import Hand, Order

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Hand]:
    def begun(script: str) -> Hand:
        order = Order("r", "h", str(tmp_path), "", mark=f"r {process.new_word(str(tmp_path))}")
        return Hand(["sh", "-c", script], order, {"PATH": "/usr/bin:/bin"})

    return begun


def test_one_that_ends_at_once_is_not_waited_for(begin: Callable[..., Hand], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have ended before its keeper listens for that: nobody waits for a process that only has to be reaped."""
    started = subprocess.Popen

    def and_wait(*words: Any, **more: Any) -> Any:
        child = started(*words, **more)
        time.sleep(0.2)
        return child

    monkeypatch.setattr(subprocess, "Popen", and_wait)
    hand = begin("echo one; printf two")
    while hand.lives():
        time.sleep(0.01)
    began = time.monotonic()
    assert [*hand.lines(0), *hand.rest()] == [b"one", b"two"]
    assert hand.end() == 0
    assert time.monotonic() - began < process.GRACE


def test_what_is_left_behind_may_print_for_ever(begin: Callable[..., Hand]) -> None:
    hand = begin("echo one; yes &")
    while hand.lives():
        time.sleep(0.01)
    assert b"one" in [*hand.lines(1), *hand.rest()]
    hand.end()
    assert hand.tree() == []


def test_one_that_cannot_be_started_says_why() -> None:
    order = Order("r", "h", "/", "", mark="r w-1")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Hand(["/nowhere/claude"], order, {})


def test_a_number_that_is_anothers_by_now_is_let_alone(begin: Callable[..., Hand]) -> None:
    hand = begin("exit 0")
    while hand.lives():
        time.sleep(0.01)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        hand.pid = other.pid
        try:
            assert not hand.lives()
            hand.interrupt()
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.3)
        finally:
            other.kill()
    hand.close()
