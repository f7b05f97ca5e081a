"""The spool digested: what tools gave becomes tool steps in the log of the run that their session drives (D47, D59)."""

from __future__ import annotations

import json
import os
import time

from loomctl.disk import drivers, files, spool, trouble
from loomctl.disk.lock import PATIENCE, Lock
from loomctl.model import ids, tool_rules
from loomctl.model.errors import LoomError
from loomctl.model.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.disk.spool import Spooled
    from loomctl.engine.caller import Workspace
    from loomctl.engine.step_log import StepLog
    from loomctl.model.tool_steps import ToolStep

HOOK_LIMIT = 0.2  # seconds that a hook digests for
NEWEST, NEWEST_BYTES = 24, 2_000_000
"""The newest calls that are reduced for a priming before their turn in the log comes, and what they may weigh."""
_BATCH = 64  # steps that are appended in one write; what a kill repeats of them is found in the log's tail
_SETTLED = 60  # seconds after which nobody writes a file of the spool any more
_EVENTS = ("PostToolUse", "PostToolUseFailure")


class Digested(NamedTuple):
    """What was done: steps that were appended, files that wait, files put aside; trouble: why not all, for its user."""

    steps: int = 0
    left: int = 0
    aside: tuple[str, ...] = ()
    trouble: str = ""


def digest(space: Workspace, limit: float | None = None) -> Digested:
    """Append what waits in the spool to the logs of its runs, oldest first. Raises nothing: what fails waits on.

    limit: seconds after which the rest stays for the next time; at least one batch of steps is digested.
    """
    waiting = [] if space.store.unwritten else spool.waiting(space.store.local)
    if not waiting:
        return Digested()
    try:
        patience = PATIENCE if limit is None else limit
        lock = os.path.join(space.store.local, "locks", "spool.digest")
        files.refuse_links(space.store.folder, lock)
        with Lock(lock, patience=patience):
            return _Digester(space, patience, None if limit is None else time.monotonic() + limit).work()
    except (OSError, LoomError) as error:
        return Digested(left=len(waiting), trouble=f"what tools gave could not be recorded: {trouble.said(error)}")


def foreseen(space: Workspace) -> dict[str, Sequence[ToolStep]]:
    """Give the steps that digesting would append now, by their runs; nothing is written, moved or removed."""
    digester = _Digester(space, 0.0, None, foresees=True)
    for spooled in spool.waiting(space.store.local):
        digester.foresee(spooled)
    return digester.fresh


def newest(space: Workspace, run_id: str) -> tuple[Sequence[ToolStep], int]:
    """Give the steps of a run's newest calls that wait in the spool, and how many other calls of it wait.

    Nothing is written: the log gets them in their order (D59).
    """
    bound: dict[str, bool] = {}

    def drives(session_id: str) -> bool:
        if session_id not in bound:
            binding = space.local.binding(session_id) if ids.is_fit(session_id) else None
            bound[session_id] = binding is not None and binding["run_id"] == run_id
        return bound[session_id]

    waiting = [
        one for one in spool.waiting(space.store.local) if one.plain and any(map(drives, spool.sessions_of(one.name)))
    ]
    chosen: list[Spooled] = []
    room = NEWEST_BYTES
    for spooled in reversed(waiting):
        if spooled.bytes <= room // 2 and len(chosen) < NEWEST:  # no large one takes the room of the others
            chosen.append(spooled)
            room -= spooled.bytes
    left = len(waiting) - len(chosen)
    digester = _Digester(space, 0.0, None, foresees=True, passed_over=left)
    for spooled in reversed(chosen):
        digester.foresee(spooled)
    return digester.fresh.get(run_id, ()), left


def noted(space: Workspace) -> list[str]:
    """Digest all that waits, before a command changes what it belongs to; gives a line for its user if that failed."""
    said = digest(space).trouble
    return [said[:1].upper() + said[1:] + "."] if said else []


class _Digester:
    """Works through the spool, under its lock.

    patience: for a run's own lock, in seconds; deadline: of the monotonic clock, None for none; foresees: as `StepLog`
    takes it; passed_over: calls that will stand in the log before what it sees.
    """

    def __init__(
        self,
        space: Workspace,
        patience: float,
        deadline: float | None,
        *,
        foresees: bool = False,
        passed_over: int = 0,
    ) -> None:
        self._space, self._patience, self._deadline, self._foresees = space, patience, deadline, foresees
        self._passed_over = passed_over
        self._logs: dict[str, StepLog] = {}
        self._signs: dict[tuple[str, str], float] = {}
        self._steps = 0
        self._aside: list[str] = []

    def work(self) -> Digested:
        """Digest until all is done or the time is over."""
        waiting = spool.waiting(self._space.store.local)
        done = 0
        batch: list[Spooled] = []
        for spooled in waiting:
            if done and self._is_over():
                break
            done += 1
            if self._take(spooled):
                batch.append(spooled)
            if len(batch) >= _BATCH or (batch and self._is_over()):
                self._flush(batch)
        self._flush(batch)
        return Digested(self._steps, len(waiting) - done, tuple(self._aside))

    def foresee(self, spooled: Spooled) -> None:
        """Reduce a file, if it is fit to be; the steps of all stand in `fresh`."""
        self._reduce(spooled, self._binding(spooled.name))

    @property
    def fresh(self) -> dict[str, Sequence[ToolStep]]:
        """Give the steps that were not appended yet, by their runs."""
        return {run_id: log.fresh for run_id, log in self._logs.items()}

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _log(self, run_id: str) -> StepLog:
        if run_id not in self._logs:
            from loomctl.engine.step_log import StepLog

            rules = tool_rules.of_settings(self._space.settings.reduce_rules)
            self._logs[run_id] = StepLog(
                self._space.store.run_dir(run_id), rules, foresees=self._foresees, passed_over=self._passed_over
            )
        return self._logs[run_id]

    def _flush(self, batch: list[Spooled]) -> None:
        """Append, and only then let go of the files: a kill in between leaves them to be known again.

        They were signs of who drives the run, and are noted as such.
        """
        for run_id, log in self._logs.items():
            if log.has_news:
                with self._space.store.lock(run_id, self._patience):  # nobody puts the run away meanwhile
                    self._steps += log.flush()
        for (run_id, session_id), at in self._signs.items():
            drivers.sign(self._space.store.local, run_id, session_id, at)
        self._signs.clear()
        for spooled in batch:
            files.remove(spooled.path)
        batch.clear()

    def _take(self, spooled: Spooled) -> bool:
        """Reduce one file; what is no event of a session that drives a run here is put aside, once nobody writes it."""
        binding = self._binding(spooled.name)
        if self._reduce(spooled, binding):
            return True
        if _may_be_written(spooled):
            return False
        try:
            spool.put_aside(spooled)
        except OSError:
            return False
        self._aside.append(spooled.name)
        if binding is not None:
            self._say(binding, spooled)
        return False

    def _reduce(self, spooled: Spooled, binding: dict[str, Any] | None) -> bool:
        """Reduce one file for its run; False for what is no event of the session that is bound to it."""
        event = _event(spooled)
        session_id = event.get("session_id") if event else None
        if event is None or binding is None or binding["session_id"] != session_id:
            return False
        stage = binding.get("stage")
        self._signs[binding["run_id"], binding["session_id"]] = spooled.at / 1e9
        self._log(binding["run_id"]).take(spooled, event, stage if isinstance(stage, str) else "")
        return True

    def _binding(self, name: str) -> dict[str, Any] | None:
        for session_id in filter(ids.is_fit, spool.sessions_of(name)):
            binding = self._space.local.binding(session_id)
            try:
                if binding is not None and self._space.store.has(binding["run_id"]):
                    self._space.store.run_dir(binding["run_id"])
                    return binding
            except LoomError:  # no name of a run, or a link in its place
                pass
        return None

    def _say(self, binding: dict[str, Any], spooled: Spooled) -> None:
        """Say in the run's events what was put aside; where it cannot be said, the file itself is there."""
        from loomctl.disk.events import Event

        told = Event(
            "tools.unreadable", {"file": spooled.name + spool.BAD, "bytes": spooled.bytes}, binding["session_id"]
        )
        try:
            self._space.store.tell(binding["run_id"], lambda _: [told], durable=False, patience=0.5)
        except (OSError, LoomError):
            pass


def _may_be_written(spooled: Spooled) -> bool:
    """Tell whether a file that is no event yet may still become one."""
    return spooled.plain and time.time() - spooled.at / 1e9 < _SETTLED


def _event(spooled: Spooled) -> dict[str, Any] | None:
    if not spooled.plain:
        return None
    try:
        event = json.loads(files.read_bytes(spooled.path).decode("utf-8", "replace"))
    except (OSError, LoomError, ValueError, RecursionError):
        return None
    fit = (
        isinstance(event, dict) and event.get("hook_event_name") in _EVENTS and isinstance(event.get("tool_name"), str)
    )
    return event if fit else None
