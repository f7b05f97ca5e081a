"""A run that is driven, sent to its remote after each step, in a process beside: no step waits for a network (D77)."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from loomctl.handoff import share
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import one_line

if TYPE_CHECKING:
    from loomctl.runs.project import Workspace

LAST = 120.0  # seconds that a drive's end waits for what is sent
_LONGEST = 2000  # bytes of what a sending says of itself


class Sharing:
    """What is sent of one run. remote: its name, None for the usual one."""

    def __init__(self, space: Workspace, run_id: str, remote: str | None) -> None:
        self._space, self._run_id, self._remote = space, run_id, remote
        self.pid, self._said = 0, -1
        self._missed = 0  # number of calls of let_be that found nothing under way
        self._sent: int | None = None
        self.elsewhere = ""  # why another machine has the run, once that is known
        self.trouble = ""  # of the last sending

    def send(self, over: int) -> None:
        """Send what stands now, unless that was done at this number of visits or another sending is under way."""
        if self._heard() and self._sent != over and not self.elsewhere:
            self._sent = over
            self._begin(self._missed)

    def finish(self) -> None:
        """Send what stands at the end of a drive, and wait for it."""
        until, missed = time.monotonic() + LAST, self._missed
        while not self._heard(wait=0.2):
            if time.monotonic() > until:
                return self.let_be()
        if not self.elsewhere:
            self._begin(missed)
            while not self._heard(wait=0.2):
                if time.monotonic() > until:
                    return self.let_be()
        return None

    def let_be(self) -> None:
        """End what is under way, or is just beginning: what was sent before stands."""
        pid, self.pid = self.pid, 0  # another signal may come meanwhile
        if pid:
            for end in (os.kill, os.killpg):  # it leads no group in its first moment
                with suppress(ProcessLookupError, PermissionError):
                    end(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self._close("-it was cut off")
        else:
            self._missed += 1

    def _begin(self, missed: int) -> None:
        """Begin a sending; it is let be at once where more signals than these have found nothing to end."""
        self._said, says = os.pipe()
        try:
            self.pid = os.fork()
        except OSError as error:
            os.close(says)
            return self._close(f"-it could not be begun: {error.strerror}")
        if self.pid == 0:
            try:
                os.setsid()
                nothing = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nothing, stream)
                os.write(says, _sent(self._space, self._run_id, self._remote).encode("utf-8", "replace")[:_LONGEST])
            finally:
                os._exit(0)
        os.close(says)
        if self._missed != missed:  # a signal came before the pid was known
            self.let_be()
        return None

    def _heard(self, wait: float = 0.0) -> bool:
        """Tell whether no sending is under way, having heard what the last one said."""
        if not self.pid:
            return True
        try:
            if not select.select([self._said], [], [], wait)[0]:
                return False
            said = os.read(self._said, _LONGEST).decode("utf-8", "replace")
        except (OSError, ValueError):
            if self.pid:
                raise
            return True  # a signal came meanwhile, and what was under way was let be
        pid, self.pid = self.pid, 0
        if not pid:
            return True
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        self._close(said or "-it ended without a word")
        return True

    def _close(self, said: str) -> None:
        os.close(self._said)
        self._said = -1
        kind, why = said[:1], said[1:]
        self.trouble = why if kind == "-" else ""
        self.elsewhere = why if kind == "!" else self.elsewhere


def _sent(space: Workspace, run_id: str, remote: str | None) -> str:
    """Send, and give a line of what came of it: `+`, `-` with the trouble, `!` where another machine has the run."""
    try:
        return f"+{share.send(space, run_id, remote, saves=True)}"
    except LoomError as error:
        kind = "!" if error.code in share.ELSEWHERE else "-"
        return f"{kind}{one_line(f'{error.what}: {error.why}' if error.why else error.what, 400)}"
    except Exception as error:  # noqa: BLE001 - a bug in it is told, and the run goes on
        return f"-{one_line(f'{type(error).__name__}: {error}', 400)}"
