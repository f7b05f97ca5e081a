"""What the queue that machines share, and a git remote, bear as a fleet grows: figures for its page of growth.

    python benchmarks/fleet_growth.py [--workers N] [--slots N] [--seconds S] [--refs N,N] [--pace S] [--json]

Run it with a Python that has Loom's packages and its extra `fleet`, where PostgreSQL's server is installed; it starts
one. So many workers that live, each with all its slots driven, are written into its tables; beside them others claim,
sign and settle. `there and back` is what a network adds: a line between the two that holds all it carries back for half
of that, each way. `a second` are verbs of eight workers at once, which all take the one lock: their `ratio` is that
number. The remote is a bare repository on this disk.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from loomctl.fleet.model import LIMIT, QUEUED, Lane, Limits, Progress, Row  # noqa: E402
from loomctl.fleet.port import Worker  # noqa: E402
from loomctl.fleet.postgres import Server, Shared  # noqa: E402
from tests.helpers.fleets import STEPS  # noqa: E402
from tests.helpers.lines import Line  # noqa: E402
from tests.helpers.postgres import Postgres  # noqa: E402
from tests.helpers.shared_fleets import Machines  # noqa: E402

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

REPOSITORY = "0123456789abcdef"
LANE = Lane(REPOSITORY, "claude-code", "core")
TRIPS = (0.0, 1.0, 2.0)  # milliseconds there and back that are added
AT_ONCE = 8  # workers
LONGEST = max(STEPS)  # steps of the run that is driven
TIMES = 100
_FILL = """
INSERT INTO loom_fleet.workers SELECT 'w' || n, '{repository}', 'm' || n, {slots}, extract(epoch FROM now())
    FROM generate_series(1, {workers}) n;
INSERT INTO loom_fleet.runs SELECT '{repository}', 'run-' || n, 'run-' || n, '{lane}', 'driven', 5, n, 0, 0, 1, 0.5, '',
    'w' || (n / {slots} + 1), 1, '', 'build/test', '{{"goal": "do it"}}' FROM generate_series(0, {number} - 1) n;
INSERT INTO loom_fleet.lanes VALUES ('{lane}', '{repository}', 'claude-code', 'core', '', '', 0, 0);
INSERT INTO loom_fleet.counts VALUES ('{lane}', 'driven', {number});
"""


class Slow(Line):
    """A line that holds each piece back for a while, while what follows it comes in."""

    def __init__(self, server: int, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(server)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while said := source.recv(65536):
                until = time.perf_counter() + self.seconds
                while (left := until - time.perf_counter()) > 0:
                    time.sleep(left)
                target.sendall(said)
        except OSError:
            return


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--refs", default="1000,10000")
    parser.add_argument("--pace", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with stand.folder() as base:
        rows = [*remote(base / "git", sorted(map(int, options.refs.split(","))))]
        server = Postgres(base / "postgres.log")
        try:
            server.start()
            rows = [*queue(server, options), *rows]
            rows += asked(base / "run", server.address(server.createdb()), options.pace)
        finally:
            server.close()
    return stand.tell(rows, as_json=options.json, digits=2)


# ---- The queue.


def queue(server: Postgres, options: argparse.Namespace) -> Iterable[stand.Row]:
    """Time verbs beside so many workers, over lines of several lengths."""
    name = server.createdb()
    Server(server.address(name)).make()
    known = {"repository": REPOSITORY, "lane": LANE.name, "slots": options.slots, "workers": options.workers}
    for words in filter(str.strip, _FILL.format(**known, number=options.workers * options.slots).split(";")):
        server.ask(words, database=name)
    base = Shared(Server(server.address(name)), REPOSITORY)
    base.offer([Row(f"new-{n}", f"new-{n}", "do it", LANE, 1, QUEUED) for n in range(2 * AT_ONCE * options.slots)])
    first = 0.0
    for trip in TRIPS:
        line = Slow(server.port, trip / 2000)
        address = server.address(name, line.port if trip else 0)
        probe = Server(address)
        plain = timed(lambda probe=probe: _ask(probe))  # type: ignore[misc]
        first = first or plain
        where = f"{trip:g} ms there and back"
        yield stand.Row(f"{where}: three empty questions", plain * 1000, plain / first, None)
        busy = Drives(Shared(probe, REPOSITORY), f"probe-{trip:g}", options.slots)
        for verb, does in (("claim, settle", busy.change), ("sign", busy.sign), ("look for dead", busy.look)):
            seconds = timed(does)
            yield stand.Row(f"{where}: {verb}", seconds * 1000, seconds / plain, None)
        if not trip:
            yield stand.Row("memory of a connection, in MB", 0.0, server.memory(name) / 1e6, None)
        for verb in ("change", "sign"):
            number = together(address, verb, options)
            what = "claims with their settles" if verb == "change" else "signs"
            yield stand.Row(f"{where}: {what} a second", 1000 / number, number, None)
        busy.end()
        probe.close()
        line.cut()
    yield stand.Row(f"signs a second that {options.workers:,} workers give", 0.0, options.workers / (LIMIT / 6), None)


def _ask(server: Server) -> None:
    with server.transaction(writes=False) as ask:
        ask("SELECT 1")


class Drives:
    """A worker with all its slots driven but one."""

    def __init__(self, shared: Shared, name: str, slots: int) -> None:
        self.queue, self.me = shared, Worker(name, name, slots)
        self.has = [self._claim() for _ in range(max(1, slots - 1))]
        self.cost = 0.0

    def _claim(self) -> Row:
        found = self.queue.claim(self.me, Limits(cost=1e9))
        assert found is not None
        return found

    def change(self) -> None:
        """Claim a run and give it back."""
        self.queue.settle(self.me, self._claim()._replace(state=QUEUED))

    def sign(self) -> None:
        """Sign for all, one of which costs more than before."""
        self.cost += 0.01
        costs = [self.cost] + [0.0] * (len(self.has) - 1)
        progress = [Progress(one.run_id, one.attempt, cost, "a") for one, cost in zip(self.has, costs, strict=True)]
        self.queue.sign(self.me, progress)

    def look(self) -> None:
        """Look for workers that are dead."""
        assert self.queue.reap(3600) == []

    def end(self) -> None:
        """Give all back."""
        for one in self.has:
            self.queue.settle(self.me, one._replace(state=QUEUED))
        self.queue.leave(self.me)


def timed(does: Callable[[], Any]) -> float:
    """Give the median of many, in seconds."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        does()
        times.append(time.perf_counter() - began)
    return statistics.median(times[TIMES // 10 :])


def together(address: str, verb: str, options: argparse.Namespace) -> float:
    """Give how many a second workers do at once."""
    done, over = [0] * AT_ONCE, threading.Event()

    def work(at: int) -> None:
        server = Server(address)
        drives = Drives(Shared(server, REPOSITORY), f"w-{verb}-{at}", options.slots)
        ready.wait()
        while not over.is_set():
            getattr(drives, verb)()
            done[at] += 1
        drives.end()
        server.close()

    ready = threading.Barrier(AT_ONCE + 1)
    threads = [threading.Thread(target=work, args=(at,)) for at in range(AT_ONCE)]
    for one in threads:
        one.start()
    ready.wait()
    began = time.perf_counter()
    time.sleep(options.seconds)
    over.set()
    number = sum(done) / (time.perf_counter() - began)
    for one in threads:
        one.join()
    return max(number, 0.001)


# ---- The remote.


def git(folder: Path, *words: str, given: str = "") -> bytes:
    """Run git to its end."""
    own = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    return subprocess.run(
        ["git", *own, *words], cwd=folder, input=given.encode(), capture_output=True, check=True
    ).stdout


def remote(base: Path, numbers: Iterable[int]) -> Iterable[stand.Row]:
    """Time a list of a remote's runs and a push, with so many of them."""
    base.mkdir()
    git(base, "init", "-q", "--bare", "remote.git")
    git(base, "init", "-q", "clone")
    clone, there = base / "clone", base / "remote.git"
    git(clone, "remote", "add", "origin", str(there))
    firsts: dict[str, float] = {}
    for number in numbers:
        tree = git(clone, "write-tree").decode().strip()
        commit = git(clone, "commit-tree", tree, "-m", "state").decode().strip()
        git(clone, "push", "-q", "--force", "origin", f"{commit}:refs/heads/main")
        names = [f"refs/loom/{kind}/run-{at:06}-2026-10-01" for at in range(number) for kind in ("runs", "work")]
        git(there, "update-ref", "--stdin", given="".join(f"update {name} {commit}\n" for name in names))
        git(there, "pack-refs", "--all")
        listed = git(clone, "ls-remote", "--refs", "origin", "refs/loom/runs/*")
        count = iter(range(1_000_000))

        def push(number: int = number, count: Any = count, tree: str = tree) -> None:
            made = git(clone, "commit-tree", tree, "-m", f"{number} {next(count)}").decode().strip()
            git(clone, "push", "-q", "--force", "origin", f"{made}:refs/loom/runs/run-000001-2026-10-01")

        ways: dict[str, Callable[[], Any]] = {
            "a list": lambda: git(clone, "ls-remote", "--refs", "origin", "refs/loom/runs/*"),
            "a push": push,
        }
        for what, does in ways.items():
            times = []
            for _ in range(7):
                began = time.perf_counter()
                does()
                times.append(time.perf_counter() - began)
            seconds = statistics.median(times)
            told = f", {len(listed) / 1e6:.2f} MB" if what == "a list" else ""
            first = firsts.setdefault(what, seconds)
            yield stand.Row(f"remote of {number:,} runs: {what}{told}", seconds * 1000, seconds / first, None)


def asked(base: Path, address: str, pace: float) -> Iterable[stand.Row]:
    """Count what a run of several steps asks of its remote."""
    machines = Machines(base, address, ("alpha",))
    (alpha,) = machines.all
    for what, program in (("reads", "upload"), ("pushes", "receive")):
        counts = base / what
        counts.write_text(f'#!/bin/sh\necho >>"{base}/{what}.log"\nexec git-{program}-pack "$@"\n')
        counts.chmod(0o755)
        git(alpha.project, "config", f"remote.origin.{program}pack", str(counts))
    alpha.environment["PACE"] = str(pace)
    alpha.put("make it", workflow=f"steps-{LONGEST}")
    if alpha.work(1, "--until-idle").wait():
        raise SystemExit((alpha.root / "workers.log").read_text("utf-8"))
    for what in ("reads", "pushes"):
        number = len((base / f"{what}.log").read_text("utf-8").splitlines())
        yield stand.Row(f"a run of {LONGEST} steps: {what} of its remote", 0.0, number, None)


if __name__ == "__main__":
    sys.exit(main())
