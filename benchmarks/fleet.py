"""What a fleet stands and costs: workers that are killed and stopped, queues that grow and are lost, a budget.

    python benchmarks/fleet.py [--queue here|postgres|both] [--runs N] [--jobs N] [--workers N] [--slots N]
        [--every SECONDS] [--restarts N] [--limit SECONDS] [--stops N] [--only PART]… [--seed N] [--json]

Run it with a Python that has Loom's packages and its extra `fleet`, on Linux; `postgres` takes the programs of a
PostgreSQL server, which it starts by itself. A shell script stands in for the assistant, minutes are scaled to seconds
(a worker counts as dead after 6 s, not 60), and each step leaves a process behind that ignores TERM.

`kills`: runs of 3 to 8 steps, and a worker killed every few seconds: all must be completed, no attempt may meet another
that lives, and no step that ended may be done again. `restarts`: all workers are killed in the middle of all they can
drive, and others started: all must go on within twice the limit, here `--limit`; `slowest` is in seconds. `stops`:
a worker is stopped with all it started until another has ended its run, then woken: it may write nothing more. `budget`
is of so many USD for all: no run may begin once they are spent, and no more than an answer a slot be spent beyond.
`lost`: the queue is dropped and made anew: it must have the same open runs, standing alike; `seconds` is for the
rebuild. `growth`: a queue of 100 jobs and of many, half of them queued: what a claim, a sign and a settle take in one
process, and `fleet status` as a whole one; held are ratios to 100 jobs, and for 10,000 the seconds. The exit code is 1
where one of these does not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from loomctl.fleet import here, postgres  # noqa: E402
from loomctl.fleet.model import DONE, FAILED, OVER, QUEUED, STATES, WAITS, Lane, Limits, Progress, Row  # noqa: E402
from loomctl.fleet.port import Worker  # noqa: E402
from loomctl.fleet.table import Table  # noqa: E402
from tests.helpers.fleets import Fleet, Verdict  # noqa: E402
from tests.helpers.postgres import Postgres  # noqa: E402

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

FEW, LISTED = 100, 10_000
FLAT = 1.2
ANSWER = 0.01  # USD of each run, as the stand-in says
SHARES = (QUEUED,) * 5 + (DONE,) * 3 + (WAITS, FAILED)
PATIENCE = 120.0  # seconds for what should take some
EACH = 4.0  # seconds that a run may take when workers are killed


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", choices=["here", "postgres", "both"], default="both")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--every", type=float, default=8.0)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--limit", type=float, default=30.0)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--only", choices=[*PARTS, "growth"], action="append")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in a shell's background it is ignored, by workers too
    told: dict[str, Any] = {}
    rows: list[stand.Row] = []
    for name in ("here", "postgres") if options.queue == "both" else (options.queue,):
        luck = random.Random(options.seed)  # noqa: S311 - moments, no secrets
        with ExitStack() as stack:
            stage = Stage(stack.enter_context(stand.folder()), name)
            stack.callback(stage.close)
            for part, does in PARTS.items():
                if not options.only or part in options.only:
                    told[f"{part}, {name}"] = found = does(stage, options, luck)
                    print(f"{part}, {name}: {found}", file=sys.stderr, flush=True)
            if not options.only or "growth" in options.only:
                rows += growth(stage, options.jobs)
    if not options.json:
        for part, found in told.items():
            print(f"{part}  " + ", ".join(f"{name} {value}" for name, value in found.items()))
    return stand.tell(rows, as_json=options.json, digits=2, **told) or int(
        not all(one["holds"] for one in told.values())
    )


class Stage:
    """Where fleets are made. name: of their queue."""

    def __init__(self, base: Path, name: str) -> None:
        self.base, self.name = base, name
        self._fleets: list[Fleet] = []
        self._server: Postgres | None = None
        if name == "postgres":
            self._server = Postgres(base / "postgres.log")
            self._server.start()

    def fleet(self, **more: Any) -> Fleet:
        """Make a project with a fleet, and a queue of its own."""
        words = []
        if self._server is not None:
            words = ["--queue", self._server.address(self._server.createdb())]
        made = Fleet(self.base / f"fleet-{len(self._fleets)}", leaves="trap '' TERM", words=words, **more)
        if words:
            made.fleet("init")
        self._fleets.append(made)
        return made

    def queue(self, fleet: Fleet) -> Table:
        """Open a fleet's queue, in which there is a run."""
        told = json.loads(fleet.fleet("status", "--json"))
        repository = next(one["repository"] for kind in STATES if kind in told for one in told[kind]["runs"])
        if self._server is not None:
            return postgres.Shared(postgres.Server(fleet.words[-1]), repository)
        store = fleet.project / ".loom"
        return Table(here.Sqlite(str(store / "local" / here.NAME), str(store.resolve())), repository)

    def close(self) -> None:
        """End all that was started."""
        for one in self._fleets:
            one.close()
        if self._server is not None:
            self._server.close()


def wait_for(holds: Callable[[], object], patience: float = PATIENCE) -> bool:
    """Wait until something holds; tells whether it did in time."""
    until = time.monotonic() + patience
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def is_sound(verdict: Verdict) -> bool:
    """Tell whether runs are completed, and nothing was driven twice or is left."""
    return verdict[:5] == (verdict.runs, verdict.runs, 0, 0, 0)


# ---- Deaths.


def kills(stage: Stage, options: argparse.Namespace, luck: random.Random) -> dict[str, Any]:
    """Kill a worker every few seconds. lost: neither completed nor open in the queue; stranded: still open."""
    fleet = stage.fleet()
    runs = fleet.add(options.runs, luck)
    began = time.monotonic()
    patience = PATIENCE + EACH * options.runs
    number = fleet.killed(options.workers, options.slots, options.every, luck, patience)
    seconds = round(time.monotonic() - began, 1)
    wait_for(lambda: not fleet.alive())
    verdict = fleet.verdict(runs)
    stranded = sum(n for state, n in fleet.counts().items() if state not in OVER)
    lost = verdict.runs - verdict.completed - stranded
    log = (fleet.root / "workers.log").read_text("utf-8")
    return {
        "holds": is_sound(verdict) and not (stranded or lost),
        "runs": verdict.runs,
        "kills": number,
        "lost": lost,
        "stranded": stranded,
        "overlaps": verdict.overlaps,
        "done_again": verdict.done_again,
        "left": verdict.left,
        "attempts": verdict.starts,
        "reaped": log.count("gave no sign"),
        "without_queue": log.count("waits for the queue"),
        "seconds": seconds,
    }


class Busy(NamedTuple):
    """A fleet whose workers are all in the middle of steps that do not end yet."""

    fleet: Fleet
    runs: list[str]
    workers: list[subprocess.Popen[bytes]]

    def starts(self) -> int:
        """Count how often their runs were begun, the least of them."""
        paths = [self.fleet.notes / one / "starts" for one in self.runs]
        return min(len(path.read_text().splitlines()) if path.exists() else 0 for path in paths)

    def release(self) -> None:
        """Let the steps end."""
        for one in self.runs:
            (self.fleet.notes / one / "hold").unlink(missing_ok=True)


def busy(fleet: Fleet, workers: int, slots: int, *words: str) -> Busy:
    """Begin as many runs as there are slots."""
    runs = fleet.add(workers * slots, random.Random(1), workflow="steps-3")  # noqa: S311
    for one in runs:
        (fleet.notes / one).mkdir(exist_ok=True)
        (fleet.notes / one / "hold").touch()
    made = Busy(fleet, runs, [fleet.work(slots, *words) for _ in range(workers)])
    if not wait_for(lambda: made.starts() > 0):
        raise SystemExit("no worker began what it has slots for")
    return made


def restarts(stage: Stage, options: argparse.Namespace, _: random.Random) -> dict[str, Any]:
    """Kill all workers at once, and start others."""
    held = 2 * options.limit
    found: dict[str, Any] = {"holds": True, "times": options.restarts, "runs": 0, "slowest": 0.0, "held": held}
    for _number in range(options.restarts):
        fleet = stage.fleet()
        fleet.environment["LOOM_FLEET_LIMIT"] = str(options.limit)
        struck = busy(fleet, options.workers, options.slots)
        for one in struck.workers:
            one.kill()
        began = time.monotonic()
        for one in struck.workers:
            one.wait()
        again = [struck.fleet.work(options.slots, "--until-idle") for _ in range(options.workers)]
        went_on = wait_for(lambda one=struck: one.starts() > 1, 2 * held)  # type: ignore[misc]
        took = time.monotonic() - began
        struck.release()
        ended = wait_for(lambda workers=again: all(one.poll() is not None for one in workers))  # type: ignore[misc]
        found["runs"] += len(struck.runs)
        found["slowest"] = max(found["slowest"], round(took, 2))
        found["holds"] &= went_on and ended and took <= held and is_sound(struck.fleet.verdict(struck.runs))
    return found


def stops(stage: Stage, options: argparse.Namespace, _: random.Random) -> dict[str, Any]:
    """Stop a worker for longer than the limit, with what it started, and wake it. late: what it wrote afterwards."""
    found: dict[str, Any] = {
        "holds": True,
        "times": options.stops,
        "overlaps": 0,
        "done_again": 0,
        "late": 0,
        "left": 0,
    }
    for _number in range(options.stops):
        struck = busy(stage.fleet(), 1, 1, "--until-idle")
        (worker,), (run_id,), fleet = struck.workers, struck.runs, struck.fleet
        stopped = stop(worker.pid)
        struck.release()
        other = fleet.work(1, "--until-idle")
        ended = wait_for(lambda one=other: one.poll() is not None)  # type: ignore[misc]
        before = len(fleet.events(run_id))
        for one in stopped:
            with suppress(psutil.Error):
                one.resume()
        ended &= wait_for(lambda one=worker: one.poll() is not None)  # type: ignore[misc]
        wait_for(lambda one=fleet: not one.alive())  # type: ignore[misc]
        verdict = fleet.verdict([run_id])
        late = len(fleet.events(run_id)) - before
        for name, number in (
            ("overlaps", verdict.overlaps),
            ("done_again", verdict.done_again),
            ("left", verdict.left),
        ):
            found[name] += number
        found["late"] += late
        found["holds"] &= ended and is_sound(verdict) and late == 0
    return found


def stop(pid: int) -> list[psutil.Process]:
    """Stop a process and its descendants."""
    first = psutil.Process(pid)
    first.suspend()
    stopped = [first]
    for one in first.children(recursive=True):
        with suppress(psutil.Error):  # ended meanwhile
            one.suspend()
            stopped.append(one)
    return stopped


# ---- Money, and a queue that is lost.


def budget(stage: Stage, options: argparse.Namespace, luck: random.Random) -> dict[str, Any]:
    """Give a worker less money than its runs cost."""
    fleet = stage.fleet()
    most = round(options.slots * 2 * ANSWER, 2)
    runs = fleet.add(options.slots * 4, luck, workflow="driven")
    code = fleet.work(options.slots, "--max-cost", str(most)).wait(PATIENCE)
    log = (fleet.root / "workers.log").read_text("utf-8")
    after = log.partition("are spent: everything ends")[2].count(": begins")
    again = fleet.work(options.slots, "--max-cost", str(most)).wait(PATIENCE)
    begun = fleet.verdict(runs).starts
    spent = round(stage.queue(fleet).sign(Worker("probe", "here", 1), []).spent, 4)
    overshoot = round(spent - most, 4)
    return {
        "holds": (code, again, after) == (10, 10, 0) and 0 <= overshoot <= ANSWER * options.slots + 1e-9,
        "most": most,
        "spent": spent,
        "overshoot": overshoot,
        "held": round(ANSWER * options.slots, 4),
        "begun": begun,
        "begun_after": after,
    }


def lost(stage: Stage, options: argparse.Namespace, luck: random.Random) -> dict[str, Any]:
    """Drop the queue, and make it anew from the runs."""
    fleet = stage.fleet()
    runs = fleet.add(options.runs, luck)
    share = runs[: max(2, len(runs) // 20)]
    fleet.fleet("pause", *share[::2])
    fleet.fleet("cancel", *share[1::2])
    before = standing(stage, fleet)
    fleet.lose()
    began = time.monotonic()
    fleet.fleet("rebuild")
    seconds = time.monotonic() - began
    after = standing(stage, fleet)
    return {"holds": before == after, "open": len(before), "again": len(after), "seconds": round(seconds, 2)}


def standing(stage: Stage, fleet: Fleet) -> dict[str, tuple[object, ...]]:
    """Give the open runs, by id, with how they stand."""
    rows = stage.queue(fleet).rows([state for state in STATES if state not in OVER])
    return {one.run_id: (one.state, one.priority, one.lane, one.after, one.revision, one.cost) for one in rows}


PARTS = {"kills": kills, "restarts": restarts, "stops": stops, "budget": budget, "lost": lost}


# ---- Growth.


class Grown(NamedTuple):
    """A fleet with so many jobs, and how long verbs took, in seconds."""

    number: int
    fleet: Fleet
    queue: Table
    took: dict[str, list[float]]


def growth(stage: Stage, most: int) -> list[stand.Row]:
    """Time the verbs of a queue, and `fleet status`, with few jobs and many."""
    grown = [filled(stage, number) for number in sorted({FEW, min(LISTED, most), most})]
    for _ in range(200):
        for one in grown:
            use(one)
    rows = []
    for verb in grown[0].took:
        times = [statistics.median(one.took[verb]) for one in grown]
        for one, seconds in zip(grown, times, strict=True):
            what = f"{stage.name}: {verb}, {one.number:,} jobs"
            rows.append(stand.Row(what, seconds * 1000, seconds / times[0], FLAT if one.number > FEW else None))
    cases = []
    for one in grown:
        words = [*one.fleet.command, "fleet", "status", "--json", *one.fleet.words]
        what, held = f"{stage.name}: fleet status, {one.number:,} jobs", FLAT if one.number > FEW else None
        cases.append(stand.Case(what, held, words, "", one.fleet.project, one.fleet.environment))
    stand.in_turn(cases, 15)
    rows += stand.rows_of(cases)
    seconds = cases[min(1, len(cases) - 1)].median() / 1000
    return [*rows, stand.Row(f"{stage.name}: fleet status, {grown[min(1, len(cases) - 1)].number:,} jobs, in seconds",
                             seconds * 1000, seconds, 1.0)]  # fmt: skip


def filled(stage: Stage, number: int) -> Grown:
    """Make a fleet of so many jobs that are no runs."""
    fleet = stage.fleet()
    fleet.put("the first", workflow="driven")
    queue = stage.queue(fleet)
    repository = queue._repository  # noqa: SLF001 - of the rows that are made up
    lanes = [Lane(repository, "claude-code", workflow) for workflow in ("core", "review", "release")]
    began = time.monotonic()
    rows = []
    for at in range(number - 1):
        state = SHARES[at % len(SHARES)]
        row = Row(f"work-{at:06}-2026", f"work-{at:06}", f"do {at}", lanes[at % 3], 1, state, priority=1 + at % 9)
        why = {WAITS: "Is it good?", FAILED: f"the suite of {at % 7} ended with 1"}.get(state, "")
        kind = {WAITS: "approval", FAILED: f"kind-{at % 5}"}.get(state, "")
        rows.append(row._replace(kind=kind, why=why, command=f"loomctl approve {row.handle}" if kind else ""))
    queue.offer(rows)
    each = (time.monotonic() - began) / number * 1000
    print(f"{stage.name}: {number:,} jobs offered, {each:.2f} ms each", file=sys.stderr, flush=True)
    return Grown(number, fleet, queue, {"claim": [], "sign": [], "settle": []})


def use(one: Grown) -> None:
    """Time one of each verb; the run is queued again."""
    me, limits = Worker("bench", "here", 1), Limits(each=3, cost=1_000_000.0)

    def timed(verb: str, does: Callable[..., Any], *given: Any) -> Any:
        began = time.perf_counter()
        found = does(*given)
        one.took[verb].append(time.perf_counter() - began)
        return found

    row = timed("claim", one.queue.claim, me, limits)
    timed("sign", one.queue.sign, me, [Progress(row.run_id, row.attempt, 0.0, "build/test")])
    timed("settle", one.queue.settle, me, row._replace(state=QUEUED))


if __name__ == "__main__":
    sys.exit(main())
