"""Who drives a run: one session at a time, by an epoch that grows with each change of hands. Pure: no disk, no clock.

`state["lease"]` is `{epoch, session_id, host, hostname, since, seen}`; a session_id of null: nobody drives, the epoch
stays. A state without it, or with what nobody can read, is a run that nobody drives, at epoch 0. After the largest
number that every reader counts to comes 1, so that whatever stands there, the next epoch can be written.
"""

from __future__ import annotations

from loomctl.kit.quick_json import LARGEST, as_object, following
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

KEY = "lease"
# A driver whose process cannot be seen from here drives for this long after its last sign, in seconds.
SILENT_AFTER = 30 * 60
# A sign from the future is believed this far ahead: clocks differ. What lies farther ahead is no sign at all, so nobody
# is locked out for longer than these two together.
AHEAD = 60
_ASIDE = "lease_before_loom"  # what stood under the key and was no lease, in its words (D5)


class Holder(NamedTuple):
    """Who drives. since, seen: UTC, `YYYY-MM-DDTHH:MM:SSZ`; whatever is not known is empty."""

    epoch: int
    session_id: str
    host: str
    hostname: str
    since: str
    seen: str


class Sight(NamedTuple):
    """What can be seen from here of a run's driver.

    known: this machine's own files know it under this epoch; same_boot, same_names: it is of this boot and of this
    namespace of processes, so that a process number means here what it means there; pid: its process is known; running:
    it runs; same_host: its machine has this one's name; came: a pull brought the run while it drove, which it may
    still do in another copy of the project; ages: seconds since each of its signs, less than 0 for one from the
    future.
    """

    known: bool
    same_boot: bool
    same_names: bool
    pid: bool
    running: bool
    same_host: bool
    came: bool
    ages: Sequence[float]


def epoch(state: Mapping[str, Any]) -> int:
    """Give the epoch of a run's lease; 0 where nobody ever drove it."""
    found = as_object(state.get(KEY)).get("epoch")
    return found if type(found) is int and 0 <= found <= LARGEST else 0


def holder(state: Mapping[str, Any]) -> Holder | None:
    """Give who drives a run, alive or not; None where nobody does."""
    found = as_object(state.get(KEY))
    session_id = found.get("session_id")
    if not isinstance(session_id, str) or not session_id or found.get("epoch") != epoch(state):
        return None
    told = [found.get(key) for key in ("host", "hostname", "since", "seen")]
    return Holder(epoch(state), session_id, *(one if isinstance(one, str) else "" for one in told))


def lives(sight: Sight) -> bool:
    """Tell whether a driver may live.

    One whose process can be seen lives as long as that does; one of before this machine's restart, or of this machine
    and unknown to it (its files were copied, or removed), does not. Any other lives until it gave no sign for half an
    hour; so does one of this machine whose run came here by a pull, for it drives where that came from.
    """
    if sight.known and sight.same_boot and sight.same_names and sight.pid:
        return sight.running
    elsewhere = sight.came and not sight.known
    if sight.same_host and not elsewhere and not (sight.known and sight.same_boot):
        return False
    return any(-AHEAD <= age < SILENT_AFTER for age in sight.ages)


def taken(state: State, session_id: str, *, host: str, hostname: str, at: str) -> State:
    """Give the lease to a session, under the next epoch."""
    now = {"session_id": session_id, "host": host, "hostname": hostname, "since": at, "seen": at}
    return _with(state, {**as_object(state.get(KEY)), "epoch": following(epoch(state)), **now})


def seen(state: State, at: str) -> State:
    """Note a sign of who drives; nothing where nobody does."""
    return state if holder(state) is None else {**state, KEY: {**as_object(state.get(KEY)), "seen": at}}


def released(state: State, at: str) -> State:
    """Let nobody drive; the epoch stays, so that the next one is another."""
    return (
        state
        if holder(state) is None
        else {**state, KEY: {**as_object(state.get(KEY)), "session_id": None, "seen": at}}
    )


def anew(state: State, last: int) -> State:
    """Let nobody drive a state that takes another's place, under an epoch that no driver has yet. last: the latest."""
    last = max(last, epoch(state))
    return _with(state, {**as_object(state.get(KEY)), "epoch": following(last), "session_id": None}) if last else state


def as_told(state: State, entries: Sequence[Mapping[str, Any]]) -> State:
    """Give a state with the lease that the log's later entries tell of, for one that cannot be read came after it."""
    held = dict(as_object(state.get(KEY)))
    for entry in entries:
        name, told, session_id = entry.get("event"), entry.get("properties"), entry.get("session_id")
        if name in ("lease.taken", "lease.taken_over") and isinstance(told, dict):
            since = {"session_id": session_id, "since": entry.get("ts"), "seen": entry.get("ts")}
            held = {key: told.get(key) for key in ("epoch", "host", "hostname")} | since
        elif name == "lease.released":
            held["session_id"] = None
        elif session_id is not None and session_id == held.get("session_id"):
            held["seen"] = entry.get("ts")
    return {**state, KEY: held} if held else state


def without(state: State) -> State:
    """Give the state of a run that nobody drives or drove: a fork's."""
    return {key: value for key, value in state.items() if key != KEY}


def brief(found: Holder) -> dict[str, Any]:
    """Give who drives as events and documents tell it."""
    return {key: value for key, value in found._asdict().items() if key != "epoch"}


def _with(state: State, held: dict[str, Any]) -> State:
    """Give a state its lease; what stood there and was none is kept beside it."""
    other = {} if isinstance(state.get(KEY, {}), dict) else {_ASIDE: state[KEY]}
    return {**state, **other, KEY: held}
