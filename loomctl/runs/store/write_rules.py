"""The fence around a run's state: what a caller may write, judged under the run's lock against the state as it is.

Every write passes here (`Store.update`). A store without a fence is one that nobody drives through.
"""

from __future__ import annotations

import os

from loomctl.kit import clock
from loomctl.kit.quick_json import as_object, following
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import lease
from loomctl.runs.model.state import TERMINAL, handle
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from loomctl.kit.errors import LoomError
    from loomctl.runs.model.lease import Holder
    from loomctl.runs.model.state import State

    # A lease as it was met: epoch, session, hostname, since. By its epoch alone two machines' could be one, after a
    # pull (D53).
    Met: TypeAlias = tuple[int, str, str, str]

# How a caller writes.
DRIVE = "drive"  # a run's course: needs the lease, takes a free one, is refused beside a living driver
TAKE_OVER = "take_over"  # as that, and takes it from a living one
ENTER = "enter"  # a session's start: takes a free lease; beside a living driver its events alone are written
WATCH = "watch"  # what reading notes: never takes the lease; beside a living driver as above
ONCE = "once"  # a value that is set by hand: refused beside a living driver, and never takes the lease
BESIDE = "beside"  # a person's decision, and what the run's own command puts into its context: beside whoever drives

STARTED_FOR = "LOOM_DRIVEN"  # in the environment of what a driver starts: the run's id, and the driver's word

# What a write does to the lease.
KEEP, TAKE, PASS, DROP = "keep", "take", "pass", "drop"


def started_for() -> tuple[str, str]:
    """Give the run that this process was started to work on, and its driver's word; both empty where no driver did."""
    run_id, _, word = os.environ.get(STARTED_FOR, "").partition(" ")
    return run_id, word


class Driver(NamedTuple):
    """Who writes. session_id: None for nobody; pid: of the host; heir_of: gives whose run the session took over.

    shared: the process may hold other people's sessions. word: with which it lets others work in its place, as it holds
    a lease; started_for: the run for which such a one started the caller, and the word (D74).
    """

    session_id: str | None
    host: str
    pid: int | None
    heir_of: Callable[[], object] = str
    shared: bool = False
    word: str = ""
    started_for: tuple[str, str] = ("", "")


class Claim(NamedTuple):
    """What one write does to the lease: KEEP, TAKE, PASS it by, or DROP all but the events. why: it is free to take."""

    what: str
    why: str = ""


class Fence:
    """What one process may write, in one of the ways above. local: the store's machine-local folder."""

    def __init__(self, local: str, driver: Driver, way: str = DRIVE) -> None:
        self.driver, self.way = driver, way
        self._local = local
        # The lease under which this process met each run: what it decided since holds under no other.
        self._began: dict[str, Met] = {}

    def turned(self, way: str) -> Fence:
        """Give the same caller's fence for another way of writing."""
        made = Fence(self._local, self.driver, way)
        made._began = self._began
        return made

    def begin_anew(self) -> None:
        """Begin another command in the same process: what is read from now on counts."""
        self._began.clear()

    def saw(self, run_id: str, state: State) -> None:
        """Note the lease under which a run is first read."""
        if run_id not in self._began:
            self._began[run_id] = _met(state)

    def held(self, run_id: str, state: State) -> Holder | None:
        """Give who else drives a run and may live; None where the caller may drive it."""
        found = lease.holder(state)
        return found if found is not None and self._free(run_id, state, found) is None else None

    def claim(self, run_id: str, before: State) -> Claim:
        """Judge a write. Raises HELD_BY_ANOTHER for one that drives and may not."""
        self.saw(run_id, before)
        if self.way == BESIDE:
            return Claim(PASS)
        found = lease.holder(before)
        why = self._free(run_id, before, found)
        if self.way == TAKE_OVER:
            return Claim(TAKE, why or "") if why != "mine" else Claim(KEEP)
        began, now = self._began[run_id], _met(before)
        mine = why == "mine"
        if why is None or not (_is_same(began, now) or (mine and now[0] == following(began[0]))):
            if self.way in (ENTER, WATCH):
                return Claim(DROP)
            raise self._refusal(run_id, before, None if why is not None else found)
        if mine:
            return Claim(KEEP)
        return Claim(PASS if self.way in (WATCH, ONCE) or self.driver.session_id is None else TAKE, why)

    def _refusal(self, run_id: str, state: State, found: Holder | None) -> LoomError:
        from loomctl.runs.machine import drivers

        if run_id == self.driver.started_for[0]:
            return drivers.outlived(handle(state))
        if found is None:
            return drivers.refusal(handle(state), None)
        at = (self._local, str(state["run_id"]), found)
        return drivers.refusal(handle(state), found, is_here=drivers.is_here(*at), is_seen=drivers.is_seen(*at))

    def written(
        self, run_id: str, claim: Claim, before: State, after: State, happened: Sequence[Event]
    ) -> tuple[State, Sequence[Event]]:
        """Give what is written: with the lease as it is then; the driver's process is noted first (`drivers`)."""
        if claim.what == DROP:
            return before, happened
        if claim.what == PASS or after == before:
            return after, happened
        at = clock.now()
        from loomctl.runs.machine import drivers

        driver, was = self.driver, lease.holder(before)
        if claim.what == KEEP:
            if was is not None and was.session_id == driver.session_id:
                drivers.complete(self._local, run_id, was, driver.pid)
            return lease.seen(after, at), happened
        from loomctl.kit import machine  # most writes take nothing

        assert driver.session_id is not None  # who is nobody takes nothing
        drivers.note(self._local, run_id, following(lease.epoch(after)), driver.session_id, driver.pid, driver.word)
        host = machine.hostname()
        after = lease.taken(after, driver.session_id, host=driver.host, hostname=host, at=at)
        last = {"from": lease.brief(was)} if was is not None else {}
        told = {"epoch": lease.epoch(after), "host": driver.host, "hostname": host, **last}
        if claim.why:
            taken = Event("lease.taken", {"why": claim.why, **told}, driver.session_id)
        else:
            taken = Event("lease.taken_over", told, driver.session_id)
        return after, [taken, *happened]

    def settled(self, run_id: str, state: State) -> None:
        """Note what was written: this process goes on under its epoch."""
        self._began[run_id] = _met(state)

    def refused(self, run_id: str, before: State) -> list[Event]:
        """Give the event of a write that was refused."""
        found = lease.holder(before)
        holder = {"holder": lease.brief(found)} if found is not None else {}
        why = {"began": self._began[run_id][0] if run_id in self._began else 0, "epoch": lease.epoch(before), **holder}
        return [Event("lease.refused", why, self.driver.session_id)]

    def _free(self, run_id: str, state: State, found: Holder | None) -> str | None:
        """Say why the caller may drive; None: it may not.

        `mine`, `free`, `over`, `restarted`, `inherited`, `terminal` (it is this user's, and nothing works there by
        itself), `gone`.
        """
        if run_id == self.driver.started_for[0]:
            from loomctl.runs.machine import drivers

            word = self.driver.started_for[1]
            return "mine" if found is not None and drivers.delegates(self._local, run_id, found, word) else None
        if found is None:
            return "free"
        own = found.session_id == self.driver.session_id
        from loomctl.runs.machine import drivers  # most runs have one driver
        from loomctl.runs.machine.local import TERMINAL as SHELL

        if own:
            other = drivers.of_own_session(self._local, run_id, found, self.driver.pid)
            if other != "alive":
                return "restarted" if other else "mine"
        elif state.get("status") in TERMINAL:
            return "over"
        elif drivers.is_process(self._local, run_id, found, self.driver.pid) and (
            (self.way == ENTER and not self.driver.shared) or self.driver.heir_of() == found.session_id
        ):
            return "inherited"
        elif self.driver.host != SHELL and drivers.is_users_terminal(self._local, run_id, found):
            return "terminal"
        elif not drivers.lives(self._local, run_id, found):
            return "gone"
        return None


def _met(state: State) -> Met:
    held = as_object(state.get(lease.KEY))
    told = (held.get(key) for key in ("session_id", "hostname", "since"))
    session_id, hostname, since = (one if isinstance(one, str) else "" for one in told)
    return lease.epoch(state), session_id, hostname, since


def _is_same(began: Met, now: Met) -> bool:
    """Tell whether a lease is the one that was met; it is, too, where its session gave it up since."""
    gave_up = not (began[1] and now[1])
    return (began[0], *began[2:]) == (now[0], *now[2:]) and (began[1] == now[1] or gave_up)
