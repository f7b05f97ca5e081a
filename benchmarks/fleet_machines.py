"""What a fleet of two machines stands with the real assistant: what kills leave, beside what one machine makes.

    python benchmarks/fleet_machines.py [--runs N] [--every SECONDS] [--slots N] [--seed N] [--json]

Run it with a Python that has Loom's packages and psycopg, on Linux, with PostgreSQL. The assistant is the one that
LOOM_TEST_CLAUDE names (else the one that ./scripts/test has installed), with a scripted API on loopback. Two machines
are two clones of a bare remote with a home each; they share the queue, a database.

One machine works on a fleet of so many runs, each of 3 to 8 steps that write files of what the steps before left. Two
machines work on the same fleet while every few seconds a worker is killed with all that it started, or alone, or a
driver or an assistant of its; a killed worker's machine comes back at once, or after others took its runs. Of each
run's two ends on the two remotes code, plan, prompts and results of the steps must be equal byte for byte, and the
states, without what `LEFT_OUT` of tests/helpers/shared_fleets.py names. `overlaps`: attempts that met an earlier one
that lived, on whatever machine. The exit code is 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from tests.e2e.scripted_api import ScriptedApi  # noqa: E402
from tests.helpers.driven import PRICE  # noqa: E402
from tests.helpers.fleets import LIMIT, STEPS  # noqa: E402
from tests.helpers.postgres import Postgres  # noqa: E402
from tests.helpers.shared_fleets import Client, Machines  # noqa: E402

if TYPE_CHECKING:
    from tests.helpers.fleets import Fleet

PATIENCE = 1800.0  # seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--every", type=float, default=8.0)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    luck = random.Random(options.seed)  # noqa: S311 - moments, no secrets
    orders = [(f"make {at}", luck.choice(STEPS)) for at in range(options.runs)]
    with stand.folder() as base, ScriptedApi() as api:
        bundle = stand.clean_copy(base / "loom")
        stand.prepared(base, bundle)
        client = Client(os.environ["LOOM_TEST_CLAUDE"], bundle, Path(os.environ["XDG_CACHE_HOME"]), api)
        server = Postgres(base / "postgres.log")
        server.recover()
        try:
            alone = work(base / "alone", server, client, orders, options.slots, None)
            struck = work(base / "struck", server, client, orders, options.slots, (luck, options.every))
        finally:
            server.close()
    differs = [work for work, _ in orders if alone["kept"].get(work) != struck["kept"].get(work)]
    for one in differs:
        print(json.dumps({one: [alone["kept"].get(one), struck["kept"].get(one)]}), file=sys.stderr)
    told = {"alone": bare(alone), "struck": bare(struck), "differs": differs}
    print(json.dumps(told) if options.json else "\n".join(f"{name}  {one}" for name, one in told.items()))
    held = [not one["overlaps"] and not one["left"] and one["completed"] == options.runs for one in (alone, struck)]
    return int(bool(differs) or not all(held))


def bare(found: dict[str, Any]) -> dict[str, Any]:
    """Give what became of a fleet without the runs themselves."""
    return {key: value for key, value in found.items() if key != "kept"}


def work(
    root: Path,
    server: Postgres,
    client: Client,
    orders: list[tuple[str, int]],
    slots: int,
    kills: tuple[random.Random, float] | None,
) -> dict[str, Any]:
    """Work on a fleet with one machine, or with two that are struck; gives what became of it."""
    names = ("alpha", "beta") if kills else ("alpha",)
    machines = Machines(root, server.address(server.createdb()), names, client)
    try:
        first = machines.all[0]
        began = time.perf_counter()
        runs = {work: first.put(work, workflow=f"steps-{number}")[0] for work, number in orders}
        client.api.requests.clear()
        struck = strike(machines, slots, kills, len(runs))
        seconds = round(time.perf_counter() - began, 1)
        answers = sum(one.kind == "main" for one in client.api.requests)
        return {
            "runs": len(runs),
            "completed": sum('"status": "completed"' in machines.state(one) for one in runs.values()),
            "steps": sum(number for _, number in orders),
            "starts": sum(len(machines.noted(one, "starts")) for one in runs.values()),
            "overlaps": sum(len(machines.noted(one, "overlaps")) for one in runs.values()),
            "left": sum(len(one.alive()) for one in machines.all),
            "saved": machines.saved(),
            "answers": answers,
            "answered": round(PRICE * answers, 2),
            "booked": round(sum(map(machines.cost, runs.values())), 2),
            "kills": dict(struck),
            "seconds": seconds,
            "kept": {work: machines.kept(one) for work, one in runs.items()},
        }
    finally:
        machines.close()


def strike(
    machines: Machines, slots: int, kills: tuple[random.Random, float] | None, number: int
) -> collections.Counter[str]:
    """Have all machines work until all is done, and kill every few seconds; gives what was killed how often."""
    working = {one: one.work(slots) for one in machines.all}
    back: dict[Fleet, float] = {}  # when a machine comes back
    struck, until = collections.Counter[str](), time.monotonic() + PATIENCE
    due = time.monotonic() + kills[1] if kills else until
    while machines.all[0].counts() != {"done": number} and time.monotonic() < until:
        now = time.monotonic()
        if kills and now >= due:
            due = now + kills[0].uniform(0.5, 1.5) * kills[1]
            machine = kills[0].choice(machines.all)
            if machine not in back and (what := machines.strike(kills[0], working[machine])):
                struck[what] += 1
                if working[machine].poll() is not None:
                    back[machine] = now + kills[0].choice((0.0, 1.5 * LIMIT))
        for machine in [one for one, at in back.items() if now >= at]:
            del back[machine]
            working[machine] = machine.work(slots)
        time.sleep(0.5)
    for process in working.values():
        process.send_signal(signal.SIGTERM)  # a shell's background ignores the other
        process.wait()
    return struck


if __name__ == "__main__":
    sys.exit(main())
