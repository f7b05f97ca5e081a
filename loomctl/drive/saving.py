"""The checkout's content, saved beside the run as each stage begins, for another machine (D77)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.handoff import work

if TYPE_CHECKING:
    from loomctl.runs.project import Workspace


class BrokenOff(BaseException):
    """A signal came while git was at work: its user waits for no large repository."""


class Saving:
    """What is saved of one run."""

    def __init__(self, space: Workspace, run_id: str) -> None:
        self._space, self._run_id = space, run_id
        self._over: int | None = None
        self._works = False

    def save(self, over: int) -> tuple[str, ...]:
        """Save it, unless that was done at this number of visits; gives notes for the user."""
        if self._over == over:
            return ()
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
        if self._works:
            self._works = False
            raise BrokenOff
