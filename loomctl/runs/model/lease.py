"""Who drives a run: one session at a time, by an epoch that grows with each change of hands. Pure: no disk, no clock.

`state["lease"]` is `{epoch, session_id, host, hostname, since, seen}`; a session_id of null: nobody drives, the epoch
stays. A state without it, or with what nobody can read, is a run that nobody drives, at epoch 0. After the largest
number that every reader counts to comes 1, so that whatever stands there, the next epoch can be written.
"""

from __future__ import annotations

from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.quick_json import LARGEST, as_object, following
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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


def seconds(stamp: str) -> int | None:
    """Give a time of the state's form in seconds since 1970; None for what is none."""
    parts = (stamp[0:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:19])
    if stamp[4:5] + stamp[7:8] + stamp[10:11] + stamp[13:14] + stamp[16:17] + stamp[19:] != "--T::Z":
        return None
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    year, month, day, hour, minute, second = (int(part) for part in parts)
    year -= month < 3
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469
    return ((days * 24 + hour) * 60 + minute) * 60 + second


def told(found: Holder, ago: Callable[[str], str]) -> str:
    """Say who drives, in a few words. ago: how a time is said to people, as `clock.ago` does."""
    from loomctl.kit.text.fences import one_line  # most hooks say nothing of it

    name = " on ".join(filter(None, (one_line(found.host, 40), one_line(found.hostname, 80))))
    came = f"came {ago(one_line(found.since, 20))}" if found.since else ""
    known = ", ".join(filter(None, (name, came)))
    return f"the session {one_line(found.session_id, 60)}" + (f" ({known})" if known else "")


def brief(found: Holder) -> dict[str, Any]:
    """Give who drives as events and documents tell it."""
    return {key: value for key, value in found._asdict().items() if key != "epoch"}


def fate(*, is_here: bool) -> str:
    """Say what becomes of a driver from whom the run is taken. is_here: it drives in this store, and not in a copy."""
    if is_here:
        return "which can no longer write to it"
    return "which learns of this when it pulls; if it goes on there, you will have to choose between two states"


def refusal(
    handle: str, found: Holder | None, began: int, ago: Callable[[str], str], *, is_here: bool = True
) -> LoomError:
    """Say that a run is another's to drive, and the ways that are left.

    found: who drives it, None where nobody does by now; began: the epoch at which the command that is refused began;
    ago: as in `told`; is_here: the driver drives in this store.
    """
    if found is None:
        return LoomError(
            "HELD_BY_ANOTHER",
            f"the run {handle} got another driver while this command ran",
            why=f"Loom wrote nothing: another session took the run over after epoch {began}",
            hint=f"loomctl show {handle}",
            exit_code=EXIT_HELD,
        )
    from loomctl.kit.text.fences import one_line

    sign = f"its last sign was {ago(one_line(found.seen, 20))}; " if found.seen else ""
    return LoomError(
        "HELD_BY_ANOTHER",
        f"the run {handle} is driven by {told(found, ago)}",
        why=f"{sign}one session drives a run at a time. You can still read it: loomctl show {handle}, "
        f"loomctl prime-context --run-id {handle}. "
        f"To drive it from here, take it from that session, {fate(is_here=is_here)}",
        hint=f"loomctl resume {handle} --take-over",
        exit_code=EXIT_HELD,
    )


def _with(state: State, held: dict[str, Any]) -> State:
    """Give a state its lease; what stood there and was none is kept beside it."""
    other = {} if isinstance(state.get(KEY, {}), dict) else {_ASIDE: state[KEY]}
    return {**state, **other, KEY: held}
