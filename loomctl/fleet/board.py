"""What people see of a fleet: what waits for them, what failed and why, what goes on, what comes next (D78).

It reads a few rows of each kind and the counts that a queue keeps: its cost does not grow with the runs.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.fleet.model import AFTER, CANCELLED, DRIVEN, FAILED, LATER, LIMIT, PAUSED, QUEUED, STATES, WAITS
from loomctl.kit import clock
from loomctl.kit.errors import quoted
from loomctl.kit.text.fences import counted
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loomctl.fleet.model import Row
    from loomctl.fleet.port import Hold, Queue, Standing

MOST = 20  # of each kind that are shown, unless somebody asks for more
_ALL_DRIVEN = 2_000  # of which it is counted where they are driven
_NAME, _TEXT, _COMMAND = 120, 300, 1_000  # UTF-16 units of what is shown
_LOOKED_AT = 100_000  # characters of a text, of which a few hundred are shown
_BEYOND = (FAILED, CANCELLED)  # whoever comes after such a run does not begin by itself
_NAMED = 5  # machines
_PASTED = 76  # columns of a command that names every run of a group


class Some(NamedTuple):
    """The first of many runs. number: of all of them."""

    rows: tuple[Row, ...]
    number: int

    @property
    def more(self) -> int:
        """Give how many are not among them."""
        return max(0, self.number - len(self.rows))


class Later(NamedTuple):
    """A run that is not to begin yet. why: in words; stuck: it never does by itself."""

    row: Row
    why: str
    stuck: bool


class Failures(NamedTuple):
    """Failures of one cause. handles: of a few of them, the newest first; command: lets those, or the newest, go on."""

    workflow: str
    signature: str
    why: str
    number: int
    handles: tuple[str, ...]
    command: str


class Stop(NamedTuple):
    """A workflow of which no run is given out. runs: how many it holds back; command: lets it go on."""

    workflow: str
    why: str
    runs: int
    command: str


class Held(NamedTuple):
    """An assistant that is started no more before a time. until: seconds since 1970; runs: how many wait for it."""

    host: str
    until: float
    why: str
    runs: int


class Machine(NamedTuple):
    """The workers of a machine. slots: of those that live; used: None where too many are driven to count them.

    age: seconds since its last sign; silent: workers without a sign for longer than the limit; lost: runs that these
    have, which other workers take over; is_silent: none of its workers lives.
    """

    name: str
    workers: int
    slots: int
    used: int | None
    age: float
    silent: int
    lost: int

    @property
    def is_silent(self) -> bool:
        """Tell whether no worker of it lives."""
        return self.silent == self.workers


class Board(NamedTuple):
    """A fleet as it stands at a time. Texts are one line each, masked; lists are cut, and counts are of all.

    at: by the queue's clock, seconds since 1970; limit: seconds without a sign after which a worker counts as dead;
    counts: by state, without those of which there is none; spent, budget: USD, None where none is known; failed: by
    their causes; failed_more: runs of causes that are not listed; failures: the runs themselves, the newest first;
    no_worker: runs could go on, at once, later or once they are answered, and nobody lives who would take them.
    """

    at: float
    limit: float
    counts: dict[str, int]
    spent: float
    budget: float | None
    waits: Some
    failed: tuple[Failures, ...]
    failed_more: int
    failures: Some
    driven: Some
    queued: Some
    later: tuple[Later, ...]
    later_more: int
    paused: Some
    stops: tuple[Stop, ...]
    holds: tuple[Held, ...]
    machines: tuple[Machine, ...]
    machines_more: int
    no_worker: bool

    @property
    def runs(self) -> int:
        """Give how many runs the fleet has."""
        return sum(self.counts.values())

    @property
    def lost(self) -> str:
        """Say which machines are silent though they have runs, and what becomes of these; empty for none."""
        lost = [one for one in self.machines if one.lost]
        names = ", ".join(one.name for one in lost[:_NAMED]) + (
            f" and {len(lost) - _NAMED} more" * (len(lost) > _NAMED)
        )
        runs = counted(sum(one.lost for one in lost), "run")
        whom = "a worker takes" if all(one.is_silent for one in self.machines) else "others take"
        return f"no sign of {names}: {whom} over {runs}" if lost else ""

    def is_stopped(self, row: Row) -> bool:
        """Tell whether a run that is queued is not given out, for its workflow is paused or its assistant held."""
        return row.lane.workflow in {one.workflow for one in self.stops} or row.lane.host in {
            one.host for one in self.holds
        }

    def to_dict(self) -> dict[str, Any]:
        """Give it for documents."""
        told: dict[str, Any] = {"at": clock.stamp(self.at), "limit": self.limit, "counts": self.counts}
        told |= {"cost": {"spent": round(self.spent, 6), "budget": self.budget}}
        for name in ("waits", "driven", "queued", "paused"):
            some: Some = getattr(self, name)
            told[name] = {"runs": [one.to_dict() for one in some.rows], "more": some.more}
        later = [{**one.row.to_dict(), "because": one.why, "stuck": one.stuck} for one in self.later]
        told["later"] = {"runs": later, "more": self.later_more}
        groups = [{**one._asdict(), "handles": [*one.handles]} for one in self.failed]
        told["failed"] = {
            "groups": groups,
            "groups_more": self.failed_more,
            "runs": [one.to_dict() for one in self.failures.rows],
            "more": self.failures.more,
        }
        told["paused_workflows"] = [one._asdict() for one in self.stops]
        told["held_hosts"] = [{**one._asdict(), "until": clock.stamp(one.until)} for one in self.holds]
        machines = [{**one._asdict(), "age": round(one.age, 1), "is_silent": one.is_silent} for one in self.machines]
        told["machines"] = {"machines": machines, "more": self.machines_more}
        return {**told, "no_worker": self.no_worker}


def asked(row: Row) -> str:
    """Say what a run waits for: its kind, and the question where that says more."""
    return row.why if row.why.startswith(row.kind) else f"{row.kind}: {row.why}" if row.why else row.kind


def gather(queue: Queue, *, most: int = MOST, limit: float = LIMIT, budget: float | None = None) -> Board:
    """Read how a fleet stands. most: of each kind that are listed. Raises QUEUE_GONE."""
    standings = queue.standings()
    counts = {state: n for state in STATES if (n := sum(one.counts.get(state, 0) for one in standings))}
    at = queue.clock()

    def some(state: str, rows: Sequence[Row] | None = None) -> Some:
        number = counts.get(state, 0)
        rows = rows if rows is not None else queue.rows((state,), most) if number else []
        return Some(tuple(_clean(one, at) for one in rows[:most]), max(len(rows), number))

    driven = queue.rows((DRIVEN,), max(most, _ALL_DRIVEN)) if counts.get(DRIVEN) else []
    are_all = len(driven) >= counts.get(DRIVEN, 0)
    held_back = counts.get(LATER, 0) + counts.get(AFTER, 0)
    rows = [row for state in (LATER, AFTER) if counts.get(state) for row in queue.rows((state,), most)]
    later = sorted((_later(queue, _clean(one, at), at) for one in rows), key=lambda one: not one.stuck)[:most]
    failed = _failures(queue, most) if counts.get(FAILED) else ()
    machines = _machines(queue, driven if are_all else None, at, limit)
    return Board(
        at=at,
        limit=limit,
        counts=counts,
        spent=sum(one.spent for one in standings),
        budget=budget,
        waits=some(WAITS),
        failed=failed,
        failed_more=max(0, counts.get(FAILED, 0) - sum(one.number for one in failed)),
        failures=some(FAILED),
        driven=some(DRIVEN, driven),
        queued=some(QUEUED),
        later=tuple(later),
        later_more=max(0, held_back - len(later)),
        paused=some(PAUSED),
        stops=_stops(standings),
        holds=tuple(_held(one, standings) for one in queue.holds()),
        machines=tuple(machines[:most]),
        machines_more=len(machines[most:]),
        no_worker=any(map(counts.get, (QUEUED, LATER, WAITS))) and all(one.is_silent for one in machines),
    )


def _clean(row: Row, at: float) -> Row:
    """Give a row as it may be shown, whoever wrote it into the queue; what is since the future is since now."""
    lane = row.lane._replace(host=_line(row.lane.host), workflow=_line(row.lane.workflow))
    return row._replace(
        run_id=_line(row.run_id),
        handle=_line(row.handle),
        goal=_line(row.goal),
        lane=lane,
        kind=_line(row.kind),
        why=_line(row.why, _TEXT),
        command=_line(row.command, _COMMAND),
        since=min(row.since, at),
        step=_line(row.step),
        worker=_line(row.worker),
        machine=_line(row.machine),
    )


def _line(text: str, limit: int = _NAME) -> str:
    return masked_line(text[:_LOOKED_AT], limit)


def _later(queue: Queue, row: Row, at: float) -> Later:
    if row.state == LATER:
        return Later(row, f"{when(row.not_before, at)}{f': {row.why}' if row.why else ''}", False)
    behind, stuck = [], False
    for needed in row.after[:2]:
        found = next(iter(queue.find(needed)), None)
        state = found.state if found is not None else "not in the fleet"
        is_lost = found is None or state in _BEYOND
        stuck |= is_lost
        behind.append(_line(found.handle if found is not None else needed) + (f", which is {state}" if is_lost else ""))
    more = len(row.after) - len(behind)
    return Later(row, f"after {' and '.join(behind)}{f', and {more:,} more' if more > 0 else ''}", stuck)


def when(until: float, at: float) -> str:
    """Say for people when something will be: `in 12 min, at 16:20`, in the local zone."""
    left = until - at
    if left < 60:
        return "in a moment"
    day, time = clock.day_and_time(clock.stamp(until))
    is_today = day == clock.day_and_time(clock.stamp(at))[0]
    return f"in {span(left)}, at {time[:5]}" if is_today else f"at {day} {time[:5]}"


def span(seconds: float) -> str:
    """Say how long something takes, in its largest unit: `40 s`, `12 min`, `3 h`, `2 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _failures(queue: Queue, most: int) -> tuple[Failures, ...]:
    found = []
    for one in queue.alike(most):
        handles = tuple(map(_line, one.handles))
        every = f"loomctl fleet retry {' '.join(map(quoted, handles))}"
        command = every if len(handles) == one.number and len(every) <= _PASTED else ""
        command = command or f"loomctl fleet retry {quoted(handles[0])}"
        texts = (_line(one.workflow), _line(one.signature, _TEXT), _line(one.why, _TEXT))
        found.append(Failures(*texts, one.number, handles, command))
    return tuple(found)


def _stops(standings: Sequence[Standing]) -> tuple[Stop, ...]:
    paused = sorted((one for one in standings if one.paused), key=lambda one: one.lane.workflow)
    found = []
    for workflow, lanes in groupby(paused, key=lambda one: one.lane.workflow):
        every = [*lanes]
        command = f"loomctl fleet resume {quoted(_line(workflow))}"
        found.append(Stop(_line(workflow), _line(every[0].paused, _TEXT), _ready(every), command))
    return tuple(found)


def _held(hold: Hold, standings: Sequence[Standing]) -> Held:
    runs = _ready(one for one in standings if one.lane.host == hold.host and not one.paused)
    return Held(_line(hold.host), hold.until, _line(hold.why, _TEXT), runs)


def _ready(standings: Iterable[Standing]) -> int:
    return sum(one.counts.get(QUEUED, 0) + one.counts.get(LATER, 0) for one in standings)


def _machines(queue: Queue, driven: Sequence[Row] | None, at: float, limit: float) -> list[Machine]:
    """Give the machines: first those that have runs and are silent, then by name. driven: None for too many.

    A silent worker that has no run is left out where its machine has a worker that lives.
    """
    has: dict[str, int] = {}
    for row in driven or ():
        has[row.worker] = has.get(row.worker, 0) + 1
    by_machine: dict[str, list[tuple[float, int, int]]] = {}  # age, slots, runs
    for one in queue.workers():
        age = max(0.0, at - one.signed)
        by_machine.setdefault(_line(one.machine), []).append((age, one.slots, has.get(one.id, 0)))
    found = []
    for name, every in by_machine.items():
        living = [one for one in every if one[0] <= limit]
        silent = [one for one in every if one[0] > limit and (one[2] or not living)]
        used = sum(one[2] for one in living) if driven is not None else None
        lost, age = sum(one[2] for one in silent), min(one[0] for one in every)
        slots = sum(one[1] for one in living)
        found.append(Machine(name, len(living) + len(silent), slots, used, age, len(silent), lost))
    return sorted(found, key=lambda one: (not one.lost, one.is_silent, one.name))
