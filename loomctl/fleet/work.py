"""A worker: claims runs, has each driven by a process of its own, and gives them back as they stand then (D78).

What it drives holds nothing that could be lost, and neither does the worker. It signs for what it has; a drive ends
itself where it hears of no sign that arrived (`loomctl drive --leash`), so whoever takes its run finds nobody there.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.drive import turn_usage
from loomctl.fleet import mend, runs, steer
from loomctl.fleet.model import (
    CANCEL,
    CANCELLED,
    DONE,
    DRIVEN,
    FAILED,
    LATER,
    LIMIT,
    OF_LIMIT,
    OVER,
    PAUSED,
    QUEUED,
    WAITS,
    Limits,
    Progress,
    Row,
)
from loomctl.fleet.port import Worker
from loomctl.kit import clock, machine, package
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_HELD, EXIT_LIMIT, EXIT_OK, EXIT_WAITS, ON_INTERRUPT, LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from loomctl.fleet.port import Queue
    from loomctl.runs.project import Workspace

_TICK = 0.2  # seconds between two looks where nothing is said
_EAGER = 0.5  # seconds between two signs while costs change
_LOOKS = 2.0  # seconds between two looks at what waits
_LOOKS_THERE = 5.0  # seconds between two looks at the remote, of all workers together
_AGAIN = 1.0  # seconds between two signs while the queue is gone
_CLAIMS = 0.5  # seconds until it is asked again for work, where there was none
_WAIT = 30.0  # seconds that a drive may wait for a time by itself
_PASSES = ("REMOTE_UNREACHABLE", "REMOTE_NEWER", "DIVERGED", "MOVED_MEANWHILE", "HELD")
_BLOCK, _LONGEST, _LAST_WORDS = 1 << 16, 8 << 20, 4000  # bytes


class Orders(NamedTuple):
    """What a worker does. slots: runs at once; limit: seconds without a sign after which it counts as dead.

    more: words for each `loomctl drive`; own: for those of an assistant besides; until_idle: it ends where nothing goes
    on without a person; travels: runs do, over a remote; queue: the environment that names it to Loom's own commands;
    tell_costs: assistants that say what they cost.
    """

    slots: int
    limits: Limits = Limits()
    limit: float = LIMIT
    more: Sequence[str] = ()
    own: Mapping[str, Sequence[str]] = {}
    until_idle: bool = False
    travels: bool = False
    queue: Mapping[str, str] = {}
    tell_costs: Collection[str] = ()


class _Drive:
    """A run that is being driven. row: as it was claimed."""

    def __init__(self, row: Row, command: Sequence[str], cwd: str, environ: Mapping[str, str]) -> None:
        self.row, self.cost, self.step = row, row.cost, row.step
        self.unsent: float | None = None  # what a dead machine paid, and the state that came here does not tell
        self.is_lost = False
        self.asked = self.code = self.error = ""
        self.ended: dict[str, Any] = {}  # as the drive told it
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the drive
        self._buffer = self._lines = b""
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environ, steer.MARK: steer.mark_of(row)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # a Ctrl-C is the worker's
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def hold_on(self) -> None:
        """Let it go on: a sign of the worker's has arrived."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            os.write(self.process.stdin.fileno(), b".")

    def signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self.process.send_signal(number)

    def hear(self) -> bool:
        """Read what it said; tells whether its cost has changed."""
        assert self.process.stdout is not None
        before = self.cost
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.process.stdout.fileno(), _BLOCK):
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                for line in lines:
                    self._said(line)
                if len(self._buffer) > _LONGEST:
                    self._buffer = b""
        return self.cost != before

    def _said(self, line: bytes) -> None:
        try:
            told = as_object(json.loads(line))
        except ValueError:  # an error's document stands in several
            self._lines = (self._lines + line + b"\n")[-_LAST_WORDS:]
            return
        cost, step = told.get("cost"), told.get("step")
        if isinstance(cost, (int, float)) and told.get("event") in ("cost", "step"):
            if self.unsent is None:
                self.unsent = max(0.0, self.row.cost - cost)
            self.cost = max(self.cost, cost + self.unsent)
        if isinstance(step, str):
            self.step = masked_line(step, 120)
        if told.get("event") == "drive.ended":
            self.ended = told

    def close(self) -> int:
        """Let its pipes go; gives the exit code."""
        self.hear()
        with contextlib.suppress(ValueError):
            error = as_object(as_object(json.loads(self._lines)).get("error"))
            self.code = str(error.get("code") or "")
            parts = [str(error.get(key)) for key in ("code", "message", "why") if error.get(key)]
            self.error = masked_line(": ".join(parts), 300)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return self.process.wait()

    def last_words(self) -> str:
        """Give the last line of what it printed on standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        self._errors.close()
        return masked_line(lines[-1], 300) if lines else ""


class Supervisor:
    """One worker. tell: what people are told, a line each."""

    def __init__(
        self,
        space: Workspace,
        queue: Queue,
        orders: Orders,
        *,
        environ: Mapping[str, str],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._space, self._queue, self._orders, self._tell = space, queue, orders, tell
        self._environ = environ
        self.me = Worker(f"{machine.hostname()}-{secrets.token_hex(6)}", machine.hostname(), orders.slots)
        self._drives: dict[str, _Drive] = {}
        self._unsettled: list[Row] = []  # what is to be settled yet
        self._look = mend.Look(space, queue, travels=orders.travels)
        self._drains = self._stops = False
        self._signed = self._heard = time.monotonic()
        self._next = dict.fromkeys(("sign", "claim", "look", "look there", "reap"), 0.0)
        self._looker: subprocess.Popen[bytes] | None = None
        self._has_news = self._is_spent = False
        self._spent = 0.0
        self._trouble = ""

    # ---- What its user asks.

    def interrupt(self) -> None:
        """Claim no more and end each drive after its step; now where this is said again."""
        if self._drains:
            self.end()
        elif self._drives:
            self._tell("each run ends after its step; Ctrl-C again ends all now")
        self._drains = True
        self._signal(signal.SIGINT)

    def end(self) -> None:
        """End every drive now, and then this."""
        self._drains = self._stops = True
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for drive in self._drives.values():
            drive.signal(number)

    # ---- Its life.

    def work(self) -> int:
        """Work until its user ends it, its budget is spent or nothing is left, as ordered; gives an exit code."""
        with selectors.DefaultSelector() as selector:
            self._sign()
            while True:
                now = time.monotonic()
                self._may_go_on(now)
                if self._has_news or self._is_due("sign", self._orders.limit / 6, now):
                    self._sign()
                self._settle()
                if self._is_due("reap", self._orders.limit / 4, now):
                    self._reap()
                if now >= self._next["look"]:
                    self._try(self._look.again)
                    self._next["look"] = time.monotonic() + max(_LOOKS, 20 * (time.monotonic() - now))
                if self._orders.travels and self._is_due("look there", _LOOKS_THERE, now):
                    self._look_there()
                self._claim(now, selector)
                if not self._drives and self._may_end():
                    break
                self._listen(selector)
        if self._looker is not None:
            self._looker.kill()
            self._looker.wait()
        self._try(lambda: self._queue.leave(self.me))
        return ON_INTERRUPT if self._stops else EXIT_LIMIT if self._is_spent else EXIT_OK

    def _is_due(self, what: str, every: float, now: float) -> bool:
        if now < self._next[what]:
            return False
        self._next[what] = now + every
        return True

    def _may_end(self) -> bool:
        if self._unsettled:
            return self._stops and bool(self._trouble)  # the runs themselves tell how they stand
        return self._drains or self._is_spent or self._is_idle()

    def _is_idle(self) -> bool:
        if not self._orders.until_idle:
            return False
        standings = self._try(self._queue.standings)
        if standings is None:
            return False
        counts = [one.counts for one in standings if not one.paused]
        return not any(one.get(state) for one in counts for state in (QUEUED, LATER, DRIVEN))

    def _try(self, verb: Callable[[], Any], *, is_sign: bool = False) -> Any:
        """Ask the queue; where it is gone that is said once, and nothing is given.

        Until a sign arrives again nothing else is asked, for each question may take as long as the queue's patience.
        """
        if self._trouble and not is_sign:
            return None
        try:
            found = verb()
        except LoomError as error:
            if error.code not in ("QUEUE_GONE", "NO_QUEUE"):
                raise
            if not self._trouble:
                way = f"; {error.hint}" if error.code == "NO_QUEUE" else ""
                self._tell(f"waits for the queue: {error.what}: {error.why}{way}")
            self._trouble = error.what
            self._next["sign"] = min(self._next["sign"], time.monotonic() + _AGAIN)
            return None
        if self._trouble:
            self._trouble = ""
            self._tell("the queue is there again")
        return found

    # ---- Signs.

    def _may_go_on(self, now: float) -> None:
        """End what it drives where no sign of it arrived for so long that another may take that soon."""
        if self._drives and now - self._signed > OF_LIMIT * self._orders.limit:
            for drive in self._drives.values():
                if not drive.is_lost:
                    self._tell(f"{drive.row.handle}: ends, for no sign of this worker reached the queue")
                    drive.is_lost = True
                    drive.signal(signal.SIGTERM)

    def _sign(self) -> None:
        now = time.monotonic()
        if self._has_news and now < self._heard + _EAGER:
            return
        self._has_news, self._heard = False, now
        progress = [Progress(one.row.run_id, one.row.attempt, one.cost, one.step) for one in self._drives.values()]
        progress += [Progress(one.run_id, one.attempt, one.cost, one.step) for one in self._unsettled]
        signed = self._try(lambda: self._queue.sign(self.me, progress), is_sign=True)
        if signed is None:
            return
        self._signed = now
        is_fresh = time.monotonic() - now < self._orders.limit / 6  # else a drive that hears of it goes on too long
        for run_id, drive in self._drives.items():
            if run_id in signed.lost:
                if not drive.is_lost:
                    self._tell(f"{drive.row.handle}: ends, for it is this worker's no more")
                    drive.is_lost = True
                    drive.signal(signal.SIGTERM)
            elif not drive.is_lost and is_fresh:
                drive.hold_on()
            asked = signed.asked.get(run_id, "")
            if asked and asked != drive.asked:
                drive.signal(signal.SIGTERM if asked == CANCEL else signal.SIGINT)
            drive.asked = asked
        self._spent = signed.spent
        most = self._orders.limits.cost
        if most is not None and signed.spent >= most and not self._is_spent:
            self._is_spent = True
            self._tell(f"{signed.spent:.2f} of {most:.2f} USD are spent: this worker ends")
            self._signal(signal.SIGTERM)

    def _reap(self) -> None:
        for row in self._try(lambda: self._queue.reap(self._orders.limit)) or ():
            self._tell(f"{row.handle}: offered again, for its worker on {row.machine} gave no sign")

    def _beside(self, words: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """Start another command of Loom's: what asks a remote may be slow, and signs may not wait for it."""
        command, nothing = [sys.executable, "-I", package.MAIN, *words], subprocess.DEVNULL
        around = {**self._environ, **self._orders.queue}
        with contextlib.suppress(OSError):
            return subprocess.Popen(
                command, cwd=self._space.project.root, env=around, stdin=nothing, stdout=nothing, stderr=nothing
            )
        return None

    def _look_there(self) -> None:
        if self._looker is not None and self._looker.poll() is None:
            return
        if self._try(partial(self._queue.may_look, _LOOKS_THERE)):  # so no remote has to bear a look of each
            self._looker = self._beside(("fleet", "look"))

    # ---- Runs.

    def _claim(self, now: float, selector: selectors.BaseSelector) -> None:
        if self._drains or self._is_spent or now < self._next["claim"]:
            return
        while len(self._drives) < self._orders.slots:
            row = self._try(lambda: self._queue.claim(self.me, self._orders.limits))
            if row is None:
                self._next["claim"] = now + _CLAIMS
                return
            self._begin(row, selector)

    def _begin(self, row: Row, selector: selectors.BaseSelector) -> None:
        try:
            if row.attempt > 1:
                steer.end_earlier(row)
            drive = _Drive(row, self._command(row), self._space.project.root, self._environ)
        except OSError as error:
            self._unsettled.append(self._as_failed(row, "crash", f"the drive could not be started: {error}"))
            return
        self._drives[row.run_id] = drive
        selector.register(drive.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self._tell(f"{row.handle}: begins{f', time {row.attempt}' if row.attempt > 1 else ''}")

    def _command(self, row: Row) -> list[str]:
        words = [sys.executable, "-I", package.MAIN, "drive", row.run_id, "--json", "--host", row.lane.host]
        words += ["--leash", f"{OF_LIMIT * self._orders.limit:.3f}s", "--max-wait", f"{_WAIT:.0f}s"]
        most = self._orders.limits.cost
        if most is not None and row.lane.host in self._orders.tell_costs:  # should no sign of it arrive in time
            words += ["--max-cost", f"{row.cost + max(self._share(most - self._spent), 1e-6):.6f}"]
        return [*words, *self._orders.more, *self._orders.own.get(row.lane.host, ())]

    def _share(self, left: float) -> float:
        """Give what one drive may cost of what is left, in USD.

        Until a turn has ended here nobody knows a price, so no sign tells what a drive costs: then all slots share it.
        """
        if turn_usage.prices(self._space.local.folder):
            return left
        return left / max(1, sum(one.slots for one in self._try(self._queue.workers) or (self.me,)))

    def _listen(self, selector: selectors.BaseSelector) -> None:
        if self._drives:
            selector.select(_TICK)
        else:
            time.sleep(_TICK)
        for run_id, drive in [*self._drives.items()]:
            self._has_news |= drive.hear()
            if drive.process.poll() is not None:
                with contextlib.suppress(KeyError, ValueError):
                    selector.unregister(drive.process.stdout)  # type: ignore[arg-type]
                code = drive.close()
                del self._drives[run_id]
                self._unsettled.append(self._ended(drive, code))

    def _settle(self) -> None:
        for row in [*self._unsettled]:
            done = self._try(partial(self._queue.settle, self.me, row))
            if done is None:
                return
            self._unsettled.remove(row)
            if done and row.asked:
                self._beside(("fleet", row.asked, row.run_id))
            self._tell(f"{row.handle}: {_told(row)}" if done else f"{row.handle}: it is this worker's no more")

    # ---- How a drive ended.

    def _ended(self, drive: _Drive, code: int) -> Row:
        """Say how a run stands after its drive."""
        was, ended, words = drive.row, drive.ended, drive.last_words()
        for note in ended.get("notes") or ():  # such as that no hook of Loom's has run
            self._tell(f"{was.handle}: {masked_line(str(note), 300)}")
        try:
            state = self._space.store.read_state(was.run_id)
        except (OSError, LoomError) as error:
            return self._as_failed(was, "state", error.what if isinstance(error, LoomError) else str(error))
        row = runs.row_of(state, was.lane.repository)
        cost = max(row.cost + (drive.unsent or 0.0), was.cost)
        row = row._replace(worker=was.worker, machine=was.machine, attempt=was.attempt, cost=cost)
        if drive.asked and row.state not in OVER:  # what is asked is done once nobody has it
            return row._replace(state=PAUSED, command=f"loomctl fleet resume {row.handle}", asked=drive.asked)
        kind, why = (str(ended.get(key) or "") for key in ("kind", "why"))
        if code == EXIT_HELD and row.state == QUEUED:
            later = time.time() + runs.HELD_FOR
            return row._replace(state=LATER, not_before=later, kind="held", why=why or "somebody else drives it")
        if ended.get("unsent") or drive.code in _PASSES:  # a remote that is away is no failure of the run
            later, why = time.time() + self._orders.limit / 2, str(ended.get("unsent") or drive.error)
            return row._replace(state=LATER, not_before=later, kind="remote", why=masked_line(why, 300))
        if row.state == LATER and row.kind == "limit":
            self._try(lambda: self._queue.hold(was.lane.host, row.not_before, row.why))
        known = code in (EXIT_OK, EXIT_FINDINGS, EXIT_WAITS, EXIT_LIMIT, ON_INTERRUPT) and ended
        if row.state == QUEUED and not known and not (drive.is_lost or self._stops or code < 0):
            return self._as_failed(row, kind or "crash", drive.error or words or f"the drive ended with {code}")
        return row

    def _as_failed(self, row: Row, kind: str, why: str) -> Row:
        """Say that a run failed, in its state too, where that does not tell it."""
        with contextlib.suppress(OSError, LoomError):
            told = {"kind": kind, "why": why, "at": clock.now()}
            runs.mark(self._space, row.run_id, failed=told)
        command = f"loomctl fleet retry {row.handle}"
        return row._replace(state=FAILED, kind=kind, why=why, command=command, not_before=0.0)


def _told(row: Row) -> str:
    if row.state == DONE:
        return "completed" + (f", {row.cost:.2f} USD" if row.cost else "")
    if row.state == WAITS:
        return f"waits for you: {row.why or row.kind}; {row.command}"
    if row.state == FAILED:
        kind = f" ({row.kind})" if row.kind not in ("", FAILED) else ""
        return f"failed{kind}: {row.why}; {row.command}"
    if row.state == LATER:
        return f"goes on after {clock.day_and_time(clock.stamp(row.not_before))[1]}: {row.why}"
    return CANCELLED if row.asked == CANCEL else row.state
