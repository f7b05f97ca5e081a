"""What is sent of a run beside its drive is let be by a signal, wherever that comes (D77, D78)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.drive import sharing
from loomctl.drive.sharing import Sharing
from tests.helpers.scenes import Scene


@pytest.mark.slow
def test_a_signal_while_its_end_is_sent_lets_that_be_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    monkeypatch.setattr(sharing, "_sent", lambda *_: time.sleep(sharing.LAST))
    shared = Sharing(scene.space(), "a-run", None)
    signals = []

    def let_be(*_: Any) -> None:
        signals.append(1)
        shared.let_be()
        if len(signals) < 2:  # the first ends what is under way, the second the last word
            signal.setitimer(signal.ITIMER_REAL, 0.05)

    before = signal.signal(signal.SIGALRM, let_be)
    try:
        shared.send(1)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        shared.finish()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(signals) == 2
    assert shared.trouble == "it was cut off"


@pytest.mark.slow
def test_what_has_just_begun_is_let_be_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it leads a group of its own nobody could end it by that, and whoever waited for it did so to its end."""
    went_on = tmp_path / "went on"

    def slowly() -> None:
        time.sleep(2)
        went_on.touch()

    monkeypatch.setattr("os.setsid", slowly)
    monkeypatch.setattr(sharing, "_sent", lambda *_: "+")
    shared = Sharing(Scene(tmp_path).space(), "a-run", None)
    shared.send(1)
    shared.let_be()
    assert not went_on.exists()
    assert shared.trouble == "it was cut off"


@pytest.mark.slow
def test_what_is_just_beginning_is_let_be_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork takes its time: a signal that comes meanwhile is not lost."""
    shared, fork = Sharing(Scene(tmp_path).space(), "a-run", None), os.fork

    def signalled() -> int:
        pid = fork()
        if pid:
            shared.let_be()
        return pid

    def slowly(*_: Any) -> str:
        time.sleep(2)
        return "+"

    monkeypatch.setattr("os.fork", signalled)
    monkeypatch.setattr(sharing, "_sent", slowly)
    shared.send(1)
    assert (shared.pid, shared.trouble) == (0, "it was cut off")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["os.kill", "os.waitpid"])
def test_a_signal_within_a_signal_ends_what_was_begun_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Also where it comes as its word was heard and it is waited for: neither is done twice."""
    shared, real = Sharing(Scene(tmp_path).space(), "a-run", None), getattr(os, place.partition(".")[2])
    ended: list[int] = []

    def again(pid: int, *how: int) -> Any:
        ended.append(pid)
        monkeypatch.setattr(place, real)
        shared.let_be()
        return real(pid, *how)

    monkeypatch.setattr(sharing, "_sent", lambda *_: "+")
    shared.send(1)
    begun = shared.pid
    monkeypatch.setattr(place, again)
    if place == "os.kill":
        shared.let_be()
    else:
        while not shared._heard(wait=1):  # in the midst of which a signal comes
            pass
    assert (ended, shared.pid) == ([begun], 0)
    with pytest.raises(ChildProcessError):
        os.waitpid(begun, 0)
    shared.send(2)
    shared.finish()
    assert (shared.pid, shared.trouble) == (0, "")


def test_a_sending_that_cannot_begin_ends_no_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("os.fork", full)
    shared = Sharing(Scene(tmp_path).space(), "a-run", None)
    shared.send(1)
    assert (shared.pid, shared.trouble) == (0, "it could not be begun: Resource temporarily unavailable")


def test_a_signal_between_two_sendings_ends_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes while a drive goes on ends what is sent then, and not its last word."""
    shared, wait = Sharing(Scene(tmp_path).space(), "a-run", None), os.waitpid

    def signalled(pid: int, how: int) -> tuple[int, int]:
        monkeypatch.setattr("os.waitpid", wait)
        shared.let_be()  # what was under way is heard already, and the last word has not begun
        return wait(pid, how)

    monkeypatch.setattr(sharing, "_sent", lambda *_: "+")
    shared.let_be()
    shared.send(1)
    monkeypatch.setattr("os.waitpid", signalled)
    shared.finish()
    assert (shared.pid, shared.trouble) == (0, "it was cut off")
    shared.send(2)
    shared.let_be()
    shared.finish()
    assert (shared.pid, shared.trouble) == (0, "")
