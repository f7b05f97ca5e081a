"""Taking a run as far as it goes without a person, one assistant's process after the other (D73-D77)."""

from __future__ import annotations

import math
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from loomctl.drive import ends, life, process, rules, signs, turn_usage
from loomctl.drive.account import Account
from loomctl.drive.asked import NOW, STEP, Asked
from loomctl.drive.process import Order, Worker
from loomctl.drive.rules import Stand, Tries, Turn, Verdict
from loomctl.drive.saving import BrokenOff, Saving
from loomctl.drive.seen import Ended, Seen
from loomctl.drive.watch import END, TELL, Limits, Watch
from loomctl.flow import route, stop, tell
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_FINDINGS, LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import counted
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import command_runs, leases
from loomctl.runs.machine import drivers, launcher_files
from loomctl.runs.model import driving, lease, standing, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.store import event_log
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from loomctl.drive.dialect import Dialect
    from loomctl.drive.leash import Leash
    from loomctl.drive.sharing import Sharing
    from loomctl.drive.signs import Sign
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

HOST = drivers.HOST
_BY = "loom"  # who tells of a loop
_LOOPS = (
    "The same calls give the same results again and again, the last one is {call}. Do something else, or end the step "
    "and say what is missing. Once more, and the turn is ended."
)
_TICK = 0.5  # seconds between two looks at what nobody tells of


def over(space: Workspace, run_id: str) -> Ended | None:
    """Say how a drive of a run that is over ends, which writes nothing; None of one that is not over.

    Nor of one whose driver was killed in its last turn: what that left is ended, and told.
    """
    run = space.store.read(run_id)
    if run.state["status"] not in OVER or turn_usage.read(space.local.folder, run_id):
        return None
    verdict = rules.before(rules.stand(run.state))
    assert verdict.code is not None
    return Ended(verdict.code, verdict.kind, verdict.why, run)


class Driver:
    """One call of the driver, for one run. space: opened with the driver's own session, and its word."""

    def __init__(
        self,
        space: Workspace,
        run_id: str,
        host: str,
        dialect: Dialect,
        limits: Limits,
        *,
        word: str,
        environ: Mapping[str, str],
        allow: tuple[str, ...] = (),
        show: Callable[[Seen], None] = lambda _: None,
        leash: Leash | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self._space, self._run_id, self._host, self._dialect = space, run_id, host, dialect
        self._limits, self._word, self._allow, self._show = limits, word, allow, show
        self._environ = environ
        self._saving = Saving(space, run_id, sharing)
        self.asked = Asked(space.local.folder, run_id, str(space.caller.session_id), self._saving.break_off, leash)
        self._account = Account(space.local.folder, run_id, space.caller.session_id, tells_cost=dialect.TELLS_COST)
        self._began = time.monotonic()
        self._turn = 0
        self._tries = Tries()
        self._session_id = ""
        self._conversation_goes_on = False
        self._allowed_by: tuple[str, ...] = ()
        self._notes: list[str] = []

    def drive(self) -> Ended:
        """Drive the run to where a person, a time or a limit is needed. Raises HELD_BY_ANOTHER."""
        self._take()
        process.end_all(process.left_over(self._run_id, self._word), process.GRACE)
        verdict = Verdict(rules.FAILED, "the driver failed", "bug")
        try:
            with process.adopting():
                verdict = self._driven()
        except LoomError as error:
            if error.code != leases.HELD_BY_ANOTHER:
                verdict = Verdict(error.exit_code, error.what, "error")
                raise
            verdict = Verdict(rules.HELD, "another took the run over", "held")
        except BrokenOff:  # within a hair of its end
            verdict = self.asked.verdict() or verdict
        finally:
            self._give_back(verdict)
        ended = self._ended(verdict)
        if verdict.kind not in ("held", "leash") and (unsent := self._saving.finish()):
            note = f"The run could not be sent to its remote: {unsent}"
            return ended._replace(notes=(*ended.notes, note), unsent=unsent)
        return ended

    def _ended(self, verdict: Verdict) -> Ended:
        run, why = self._space.store.read(self._run_id), verdict.why
        allow = self._allowed_by if verdict.kind == "denied" else ()
        if verdict.kind == "denied" and not allow:
            why = f"{why}; {self._dialect.WIDENED}"
        assert verdict.code is not None
        return Ended(verdict.code, verdict.kind, why, run, allow, tuple(self._notes), _stamp(verdict.until))

    def _take(self) -> None:
        session_id, host = self._space.caller.session_id, self._host

        def change(state: State) -> tuple[State, list[Event]]:
            state, happened = self._account.open(state)
            # Who drives makes it another state, also within the second in which an earlier driver was killed.
            begun, ended = driving.begun(state, host, session_id, clock.now())
            self._tries = Tries.told(ended)
            limits = {key: value for key, value in self._limits._asdict().items() if value is not None}
            started = Event("drive.started", {"host": host, "limits": limits}, session_id)
            return standing.unlimited(begun), [*happened, started]

        self._space.store.update(self._run_id, change)
        turn_usage.forget(self._space.local.folder, self._run_id)

    def _give_back(self, verdict: Verdict) -> None:
        session_id = self._space.caller.session_id
        until, at = _stamp(verdict.until), clock.now()
        ended = Event("drive.ended", {"code": verdict.code, "kind": verdict.kind, "why": verdict.why}, session_id)
        noted = {**ended.properties, "why": masked_line(verdict.why, driving.LONGEST), "at": at}
        if verdict.kind == "denied" and self._allowed_by:
            noted |= {"allow": [*self._allowed_by]}
        if until:  # it is driven again, and its failures count on
            noted |= {"until": until, "cause": verdict.cause or "retry"} | (
                {"tries": self._tries._asdict()} if any(self._tries) else {}
            )

        def change(state: State) -> tuple[State, list[Event]]:
            if verdict.code == rules.LIMIT or until:
                kind = standing.TIME if until else standing.LIMIT
                state = standing.limited(state, kind, verdict.why, at=at, until=until or None)
            freed, gave_up = leases.release(driving.ended(state, session_id, noted), str(session_id), "drive")
            return freed, [ended, *gave_up]

        try:
            leases.watching(self._space).store.update(self._run_id, change)
        except (OSError, LoomError):  # what cannot be written now is told by whoever drives next
            pass
        leases.forget(self._space, self._run_id)

    def _driven(self) -> Verdict:
        first = True
        while True:
            run = self._space.store.read(self._run_id)
            was = self._stand(run)
            verdict = rules.before(was, told=self._is_told(), first=first)
            if verdict.code is None:
                verdict = self.asked.verdict() or self._spent(run) or self._waited(verdict) or verdict
            if verdict.code is not None:
                return verdict
            first = False
            run, was, plays = self._opened(run, was)
            if not plays:
                continue
            turn = self._play(run, was)
            self._allowed_by = turn.allowed_by
            run = self._space.store.read(self._run_id)
            self._save(self._stand(run))
            verdict = rules.after(was, self._stand(run), turn, self._tries, told=self._is_told())
            if verdict.kind == "stopped":
                verdict = self.asked.verdict() or verdict
            self._tries = verdict.tries
            if verdict.asks:
                self._ask(run, turn)
            if verdict.code is None or turn.end == rules.SPENT:
                verdict = self._spent(run) or self._waited(verdict) or verdict
            if verdict.code is not None:
                return verdict
            self._conversation_goes_on = not verdict.anew

    # ---- Before and after a turn.

    def _opened(self, run: Run, was: Stand) -> tuple[Run, Stand, bool]:
        """Make ready for a turn; gives how the run stands then, and whether there is one to play."""
        return run, was, True

    def _stand(self, run: Run) -> Stand:
        way = route.way_to(run.state, rules.stand(run.state).step)
        not_before = clock.seconds_of(str(way.get("not_before") or ""))
        return rules.stand(run.state, not_before, capped=run.state["status"] == "paused" and _is_capped(run))

    def _is_told(self) -> bool:
        return bool(tell.waiting(self._space, self._run_id))

    def _spent(self, run: Run) -> Verdict | None:
        """Say that one of the driver's own limits was reached; None where none was."""
        limits, cost = self._limits, self._account.so_far(run.state).cost
        if limits.cost is not None and cost >= limits.cost:
            return Verdict(rules.LIMIT, f"{cost:.2f} of {limits.cost:.2f} USD are spent", "cost")
        if limits.turns is not None and self._turn >= limits.turns:
            return Verdict(rules.LIMIT, f"the limit of {counted(limits.turns, 'turn')} is reached", "turns")
        if limits.time is not None and time.monotonic() - self._began >= limits.time:
            return Verdict(rules.LIMIT, f"the time limit of {rules.span(limits.time)} is reached", "time")
        return None

    def _waited(self, verdict: Verdict) -> Verdict | None:
        """Wait until the time that a verdict names; gives how the drive ends, if it does meanwhile."""
        until = time.time() - verdict.until if verdict.until < 0 else verdict.until
        if until <= time.time():
            return None
        longest = [math.inf if self._limits.wait is None else self._limits.wait]
        longest += [] if self._limits.time is None else [self._began + self._limits.time - time.monotonic()]
        if until - time.time() > min(longest):
            why = f"{verdict.why or 'the step is tried again'}; the time to go on is {clock.stamp(until)}"
            return Verdict(rules.WAITS, why, "time", until=until, cause=verdict.kind)
        self._look(None, "waiting", {"until": clock.stamp(until), "class": verdict.kind, "why": verdict.why})
        over = time.monotonic() - verdict.until if verdict.until < 0 else math.inf  # whatever the clock does
        while time.time() < until and time.monotonic() < over:
            if stopped := self.asked.verdict():
                return stopped
            self._look(None)
            time.sleep(min(_TICK, max(0.0, until - time.time())))
        return None

    def _ask(self, run: Run, turn: Turn) -> None:
        entry = visits.open_visit(run.state)
        if entry is not None:
            stop.wait_for_answer(self._space, run, entry, turn.said)

    # ---- A turn.

    def _play(self, run: Run, was: Stand) -> Turn:
        self._turn += 1
        goes_on = self._conversation_goes_on and bool(self._session_id)
        if not goes_on:
            self._session_id = str(uuid.uuid4()) if self._dialect.NAMES_CONVERSATIONS else ""
        self._account.begin(run.state, self._turn, self._session_id, goes_on=goes_on)
        left = None if self._limits.cost is None else self._limits.cost - self._account.so_far(run.state).cost
        order = Order(self._run_id, run.handle, self._space.project.root, self._session_id, goes_on, self._allow, left)
        order = order._replace(mark=f"{self._run_id} {self._word}", store=self._space.store.folder)
        begins = {"turn": self._turn, "conversation": self._session_id or None, "goes_on": goes_on}
        started = Event("turn.started", begins, self._space.caller.session_id, was.step)
        self._note(lambda state: (_without_denied(state), [started]))
        watch = Watch(time.monotonic())
        self._look(watch, "turn.started", begins)
        worker = self._begin(*self._ordered(order))
        self._account.note(watch)
        why = ""
        try:
            why = self._follow(worker, watch, was)
        finally:
            killed = self._end(worker, watch, why)
        return self._judged(worker, watch, why, killed)

    def _ordered(self, order: Order) -> tuple[Order, Mapping[str, str]]:
        """Give what is ordered in a turn, and the environment that it is played in."""
        return order, self._environ

    def _begin(self, order: Order, environ: Mapping[str, str]) -> Worker:
        command = self._dialect.command(order)
        try:
            return Worker(command, order, environ)
        except OSError as error:
            hint = f"loomctl drive {order.handle}"
            if not os.path.isdir(order.root):
                what = "the folder in which the run is driven is gone"
                raise LoomError("FOLDER_GONE", what, where=order.root, hint=hint, exit_code=EXIT_FINDINGS) from error
            what = f"the assistant could not be started: {command[0]}: {error.strerror or error}"
            why = f"it must be on PATH; {self._dialect.INSTALL}"
            raise LoomError("NO_ASSISTANT", what, why=why, hint=hint, exit_code=EXIT_FINDINGS) from error

    def _follow(self, worker: Worker, watch: Watch, was: Stand) -> str:
        """Watch the assistant until its process has ended; gives what it is to be ended for, or an empty text.

        was: how the run stood before it began. Who asks while no visit is open means the one that is opened next.
        """
        limits = self._limits_of_turn()
        looked, place = 0.0, was.place[:3]
        while worker.lives() or worker.is_open:
            now = time.monotonic()
            why, wait = watch.due(limits, now)
            if why == "silence" and self._works(worker, watch, limits):
                continue
            if why:
                return "time" if why == "turn" and limits.turn < self._limits.turn else why
            for line in worker.lines(min(wait, _TICK)):
                for sign in self._dialect.read(line):
                    if (why := self._saw(watch, sign)) != "":
                        return why
                watch.heard(time.monotonic())
            if not worker.lives():  # what it left behind may hold its output open
                found = [self._saw(watch, one) for line in worker.rest() for one in self._dialect.read(line)]
                return next(filter(None, found), "")
            now = time.monotonic()
            if now - looked >= _TICK:
                looked = now
                asked, stand = self.asked.how_soon(), self._look(watch)
                if stand.status == "cancelled":  # nothing that it still does could be kept
                    return "cancelled"
                at = stand.place[:3]
                place = place if place[1] and asked == STEP else at
                if asked == NOW or at != place:
                    return self.asked.what_for()
        return ""

    def _works(self, worker: Worker, watch: Watch, limits: Limits) -> bool:
        """Tell whether anything of the run's tree left a sign of life where the assistant itself is silent."""
        now, run = time.time(), self._space.store.read(self._run_id)
        found = life.last_sign(self._space.local, run, self._session_id, worker.tree(), now)
        age = now - max(found, min(worker.complained_at(), now))
        watch.heard(time.monotonic() - age)
        return watch.due(limits, time.monotonic())[0] != "silence"

    def _limits_of_turn(self) -> Limits:
        if self._limits.time is None:
            return self._limits
        left = self._began + self._limits.time - time.monotonic()
        return self._limits._replace(turn=min(self._limits.turn, max(1.0, left)))

    def _saw(self, watch: Watch, sign: Sign) -> str:
        """Take up a sign; gives what the turn is to be ended for."""
        denied = len(watch.denied)
        watch.saw(sign, time.monotonic())
        self._session_id = watch.session_id or self._session_id  # some hosts give conversations their names
        if len(watch.denied) > denied:
            self._note_denied(watch)
        if isinstance(sign, signs.Used):
            self._account.note(watch)
        if why := ends.due(watch, time.time()):
            return why
        loops = watch.loop() if isinstance(sign, signs.Result) else ""
        if loops == END:
            return "loop"
        if loops == TELL:
            self._tell_of_loop(watch)
        return ""

    def _tell_of_loop(self, watch: Watch) -> None:
        try:
            tell.tell(self._space, self._run_id, _LOOPS.format(call=watch.last_call), by=_BY)
        except LoomError:  # it is over by now, or has been told enough: the next round ends the turn
            pass

    def _note_denied(self, watch: Watch) -> None:
        """Note on the open stage what was refused: such a step does not succeed without evidence (D75)."""
        calls = watch.denied.values()
        refused = [{"what": one.what, "rule": rule} for one in calls for rule in one.rules or ("",)][-20:]

        def change(state: State) -> tuple[State, list[Event]]:
            entry = visits.open_visit(state)
            if entry is None:
                return state, []
            return visits.replaced(state, {**entry, "denied": refused}), []

        self._note(change)

    def _end(self, worker: Worker, watch: Watch, why: str) -> int:
        if why and worker.lives() and watch.over is None:
            worker.interrupt()
            until = time.monotonic() + process.POLITE
            while worker.lives() and time.monotonic() < until:
                self._heed(worker.lines(0.1), watch)
            self._heed(worker.rest(), watch)
        killed = worker.end((*self._saving.pids, *(self._spared() if why in ("", "lingers") else ())))
        if why:
            launcher_files.excuse(self._space.local.folder, time.time() - (time.monotonic() - watch.began))
        return killed

    def _heed(self, lines: Iterable[bytes], watch: Watch) -> None:
        for line in lines:
            for sign in self._dialect.read(line):
                watch.saw(sign, time.monotonic())

    def _spared(self) -> tuple[int, ...]:
        """Give the processes that outlive a turn by right: who watches the open step's own command (D30)."""
        try:
            run = self._space.store.read(self._run_id)
        except (OSError, LoomError):  # the run is gone, or cannot be read: nothing of it is to go on
            return ()
        entry = visits.open_visit(run.state)
        if entry is None or not entry.get("stage"):
            return ()
        folder = os.path.join(run.folder, "stages", entry["stage"])
        pid = as_object(command_runs.look(folder).record.get("supervisor")).get("pid")
        return (pid,) if type(pid) is int else ()

    def _judged(self, worker: Worker, watch: Watch, why: str, killed: int) -> Turn:
        """Say how a turn ended, and write it down."""
        turn = self._outcome(worker, watch, why)
        began = time.time() - (time.monotonic() - watch.began)
        if watch.session_id and life.is_without_hooks(self._space.local, began):
            self._add_note(self._dialect.SILENT)
        told: dict[str, Any] = {"turn": self._turn, "class": turn.end, "why": turn.why}
        told |= {"conversation": self._session_id or None}
        told |= {"calls": watch.calls, "seconds": round(time.monotonic() - watch.began, 1)}
        told |= {"killed": killed} if killed else {}
        told |= {"denials": [one.what for one in watch.denied.values()]} if watch.denied else {}
        ended: dict[str, Any] = {}

        def change(state: State) -> tuple[State, list[Event]]:
            now, happened = self._account.book(state, watch, told)
            ended.update(happened.properties)
            return now, [happened]

        self._note(change)
        self._account.close(watch)
        self._look(watch, "turn.ended", ended)
        return turn

    def _outcome(self, worker: Worker, watch: Watch, why: str) -> Turn:
        """Say how a turn ended."""
        return ends.of(watch, why, worker.last_words(), time.time())

    # ---- What is looked at meanwhile.

    def _look(self, watch: Watch | None, what: str = "", told: Mapping[str, Any] = {}) -> Stand:
        """Look at the run, and show it: who took it ends this. Raises HELD_BY_ANOTHER."""
        run = self._space.store.read(self._run_id)
        found = lease.holder(run.state)
        if found is None or found.session_id != self._space.caller.session_id:
            raise LoomError(leases.HELD_BY_ANOTHER, "another drives the run")
        leases.refresh(self._space, self._run_id)
        stand = self._stand(run)
        self._save(stand)
        spent, seconds = self._account.so_far(run.state, watch), time.monotonic() - self._began
        asked = self.asked.how_soon()
        self._show(Seen(run, stand, self._turn, watch, spent, self._limits, seconds, asked, what, told))
        return stand

    def _save(self, stand: Stand) -> None:
        """Save the checkout's content beside the run as each stage begins, for another machine (D77)."""
        for note in self._saving.save(stand.over) if self.asked.how_soon() != NOW else ():
            self._add_note(note)

    def _add_note(self, note: str) -> None:
        self._notes += [note] if note not in self._notes else []

    def _note(self, change: Callable[[State], tuple[State, list[Event]]]) -> None:
        self._space.store.update(self._run_id, change)


def _stamp(until: float) -> str:
    return clock.stamp(until) if until > 0 else ""


def _is_capped(run: Run) -> bool:
    """Tell whether a run was paused at the host's cap of blocks, and not by a person (D28)."""
    last = event_log.tail(run.folder, 1, lambda entry: entry.get("event") == "run.paused", (b'"run.paused"',))
    return any(as_object((one.entry or {}).get("properties")).get("reason") == stop.CAP for one in last)


def _without_denied(state: State) -> State:
    """Forget what was refused in a turn before: the next one may have the permission."""
    entry = visits.open_visit(state)
    if entry is None or "denied" not in entry:
        return state
    return visits.replaced(state, {key: value for key, value in entry.items() if key != "denied"})
