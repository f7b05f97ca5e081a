"""What comes to a run while somebody watches it: its events, and what a command step prints (`command.log`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.runs import command_runs, stages
from loomctl.runs.model import visits
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store.event_log import Follower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.event_log import Line

MOST = 64 * 1024  # bytes of a command's output that are told at once
BEFORE = 10  # lines of it that are told of a command that runs already


class Printed(NamedTuple):
    """Lines that a command step printed. left_out: bytes before them that are not told, for there were too many."""

    stage: str
    step_id: str
    lines: Sequence[str]
    left_out: int = 0


class Watch:
    """One run that is watched; from its log's end as it is now, `at` in bytes.

    over: whether the run is completed or cancelled, so that nothing more will come. A state that cannot be read just
    now says nothing. Raises NO_SUCH_RUN once the run is gone.
    """

    def __init__(self, space: Workspace, run_id: str) -> None:
        self._space, self._run_id = space, run_id
        self._folder = space.store.run_dir(run_id)
        self._follower = Follower(self._folder)
        self._stamp: tuple[int, int, int] | None = None
        self._command: _CommandLog | None = None
        self.over = False
        self._look(is_first=True)

    @property
    def at(self) -> int:
        """How far the log was read."""
        return self._follower.at

    @property
    def replaced(self) -> int:
        """How often another log stood in the place of the one before."""
        return self._follower.replaced

    def news(self) -> list[Line | Printed]:
        """Give what came since the last time. Raises OSError, UNSAFE_LINK and NO_SUCH_RUN."""
        before = self._command
        found: list[Line | Printed] = [*before.news()] if before is not None else []
        self._look()  # before the log, so that of a run that is over by now all is told
        if self._command is not None and self._command is not before:
            found += self._command.news()
        found += self._follower.news()
        return found

    def _look(self, *, is_first: bool = False) -> None:
        """Read the state, if it was written meanwhile: whether the run is over, which stage is open."""
        home = self._space.store.home(self._run_id)
        try:
            status = os.stat(home.state)
        except OSError:
            return
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            state = self._space.store.read_home(home)
        except LoomError:
            return
        self._stamp = stamp
        self.over = state["status"] in TERMINAL
        entry = visits.open_visit(state)
        stage = entry.get("stage") if entry is not None else None
        if entry is not None and isinstance(stage, str) and (self._command is None or self._command.stage != stage):
            self._command = _CommandLog(self._folder, entry, from_its_end=is_first)


class _CommandLog:
    """The `command.log` of one stage, which may never come."""

    def __init__(self, run_dir: str, entry: dict[str, Any], *, from_its_end: bool) -> None:
        self.stage: str = entry["stage"]
        self._step_id = str(entry["step_id"])
        self._run_dir = run_dir
        self._at = 0
        self._rest = b""
        path = os.path.join(stages.folder(run_dir, self.stage), command_runs.LOG)
        self._last = BEFORE if from_its_end and os.path.exists(path) else 0

    def news(self) -> list[Printed]:
        """Give the lines that came, whole ones."""
        try:
            data, left_out = self._read()
        except (OSError, LoomError):  # there is none, or none that may be read
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._last:
            lines, self._last = lines[-self._last :], 0
        if len(self._rest) > MOST:  # a line without end
            lines, self._rest = [*lines, self._rest], b""
        # What a carriage return wrote over is not told: it is a progress bar.
        told = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in lines]
        return [Printed(self.stage, self._step_id, told, left_out)] if told or left_out else []

    def _read(self) -> tuple[bytes, int]:
        path = os.path.join(stages.folder(self._run_dir, self.stage), command_runs.LOG)
        files.refuse_links(self._run_dir, path)
        descriptor = files.open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            if size < self._at:  # it was begun anew
                self._at, self._rest = 0, b""
            left_out = max(0, size - self._at - MOST)
            data = os.pread(descriptor, min(MOST, size - self._at), self._at + left_out)
        finally:
            os.close(descriptor)
        self._at += left_out + len(data)
        if left_out:
            skipped = data.find(b"\n") + 1
            data, left_out = data[skipped:], left_out + skipped + len(self._rest)
            self._rest = b""
        return data, 0 if self._last else left_out
