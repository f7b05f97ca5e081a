"""The checkout's content, saved beside the run as each stage begins, for another machine (D77)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.handoff import work

if TYPE_CHECKING:
    from loomctl.drive.sharing import Sharing
    from loomctl.runs.project import Workspace


class BrokenOff(BaseException):
    """A signal came while git was at work: its user waits for no large repository."""


class Saving:
    """What is saved of one run."""

    def __init__(self, space: Workspace, run_id: str, sharing: Sharing | None = None) -> None:
        self._space, self._run_id, self._sharing = space, run_id, sharing
        self._over: int | None = None
        self._works = False

    @property
    def elsewhere(self) -> str:
        """Why another machine has the run; empty where none is known to."""
        return self._sharing.elsewhere if self._sharing is not None else ""

    @property
    def pids(self) -> tuple[int, ...]:
        """What is at work for it beside the driver."""
        return (self._sharing.pid,) if self._sharing is not None and self._sharing.pid else ()

    def save(self, over: int) -> tuple[str, ...]:
        """Save it, unless that was done at this number of visits, and send it; gives notes for the user."""
        notes = self._saved(over) if self._over != over else ()
        if self._sharing is not None:
            self._sharing.send(over)
        return notes

    def finish(self) -> str:
        """Send how a drive ended, and wait for that; gives why it could not be, empty where nothing was to be sent."""
        if self._sharing is None:
            return ""
        self._sharing.finish()
        return self._sharing.trouble

    def _saved(self, over: int) -> tuple[str, ...]:
        self._over = over
        try:
            self._works = True
            made = work.snapshot(self._space, self._run_id)
        except BrokenOff:
            return ()
        finally:
            self._works = False
        return tuple(made.notes) if made is not None else ()

    def break_off(self) -> None:
        """Let it be, from within the handler of a signal: git is ended, and what was saved before stands."""
        if self._sharing is not None:
            self._sharing.let_be()
        if self._works:
            self._works = False
            raise BrokenOff
