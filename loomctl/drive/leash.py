"""What a supervisor holds a driver by: its standard input, on which they write from time to time (D73)."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from loomctl.drive import rules

if TYPE_CHECKING:
    from collections.abc import Callable

_TICK = 0.5  # seconds between two looks
_BLOCK, _MOST = 1 << 16, 16  # bytes, and blocks that are read at a look
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps


def _interrupt() -> None:
    raise KeyboardInterrupt


class Leash:
    """Standard input, until it is closed, or nothing was written to it for so many seconds.

    A timer looks at it, so that it holds whatever is waited for. Nothing else, and nothing that is started, reads from
    it meanwhile. gone: in words, once it is; then: is called as it goes, from within a signal's handler.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.gone = ""
        self.then: Callable[[], None] = _interrupt
        self._looked = self._heard = 0.0

    def __enter__(self) -> Leash:
        self._input = os.dup(0)
        self._blocked, self._handled = os.get_blocking(self._input), signal.getsignal(signal.SIGALRM)
        os.set_blocking(self._input, False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._looked = self._heard = self._now()
        self.gone = self._look()
        if not self.gone:
            signal.signal(signal.SIGALRM, self._tick)
            signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._handled)
        os.set_blocking(self._input, self._blocked)
        os.dup2(self._input, 0)
        os.close(self._input)

    def _now(self) -> float:
        return time.clock_gettime(_CLOCK)

    def _tick(self, *_: Any) -> None:
        if not self.gone and (why := self._look()):
            self.gone = why
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.then()

    def _look(self) -> str:
        """Read what came, which may have come just after the last look: who was stopped since takes it for old."""
        before, self._looked = self._looked, self._now()
        try:
            for _ in range(_MOST):
                if not os.read(self._input, _BLOCK):
                    return "standard input was closed"
                self._heard = before
        except BlockingIOError:
            pass
        except OSError as error:
            return f"standard input cannot be read: {error.strerror}"
        silent = self._looked - self._heard > self._seconds
        return f"nothing came on standard input for {rules.span(self._seconds)}" if silent else ""
