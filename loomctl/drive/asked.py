"""Who asks a driver to end, and how soon: its user by a signal, another session by a file, a leash (D73)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.drive import rules
from loomctl.drive.rules import Verdict
from loomctl.kit.errors import ON_INTERRUPT
from loomctl.runs.machine import drivers

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomctl.drive.leash import Leash

STEP, NOW = drivers.AFTER_STEP, drivers.NOW  # how soon to end
_ENDED = "you ended the driver"
_SOONER = ("", STEP, NOW)


class Asked:
    """What a driver of a run is asked. local: the store's folder of this machine; now: is called where it is to be now.

    `interrupt` and `end` may be called from within the handler of a signal, and a leash calls the latter so.
    """

    def __init__(
        self, local: str, run_id: str, session_id: str, now: Callable[[], None], leash: Leash | None = None
    ) -> None:
        self._local, self._run_id, self._session_id, self._now = local, run_id, session_id, now
        self._leash, self._asked = leash, ""
        if leash is not None:
            leash.then = self.end
        self._interrupts = 0

    def interrupt(self) -> None:
        """End after the step, and now where that was asked for already."""
        self._interrupts += 1
        if self.how_soon():
            self.end()
        else:
            self._asked = STEP

    def end(self) -> None:
        """End now."""
        self._asked = NOW
        self._now()

    def how_soon(self) -> str:
        """Give how soon to end; empty where nobody asked."""
        if self._lost():
            return NOW
        return max(self._asked, drivers.asked_to_end(self._local, self._run_id, self._session_id), key=_SOONER.index)

    def verdict(self) -> Verdict | None:
        """Give how the drive ends by this, however soon; None where nobody asked."""
        if not self.how_soon():
            return None
        if lost := self._lost():
            return Verdict(rules.WAITS, f"the leash is gone: {lost}", "leash")
        return Verdict(ON_INTERRUPT if self._interrupts > 1 else rules.WAITS, _ENDED, "stopped")

    def what_for(self) -> str:
        """Say in a word what it ends for, once that was asked."""
        return "leash" if self._lost() else "stopped"

    def _lost(self) -> str:
        return self._leash.gone if self._leash is not None else ""
