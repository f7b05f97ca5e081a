"""What a driver stands and costs: kills at random moments, races of two drivers, its own part of a turn.

    python benchmarks/drive.py [--kills N] [--races N] [--runs N] [--seed N] [--json]

Run it with a Python that has Loom's packages, on Linux. A shell script stands in for the assistant: it ends one step
after another and leaves processes behind that ignore TERM, and it looks whether any of an earlier attempt lives.

`kills`: driver, keeper, assistant or several of them are killed at once, and the run is driven again: it must complete,
no step that ended may be begun again, and nothing of an old attempt may live beside a new one, or at the end. `races`:
two drivers are started at once: one wins, and the other must end with 6 within a second, and ask no model. `a turn`: a
drive of one turn as a whole process, with the start of the drive, beside importing click. The exit code is 1 where one
of these does not hold.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from tests.helpers.driven import Driven  # noqa: E402

STEPS = 12  # of a run that is struck
BLOWS = 10  # a run
SLOWEST = 1.5  # seconds until a blow
AT_MOST = 6.0  # times `import click`
WITHIN = 1.0  # seconds in which who lost a race has ended


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--races", type=int, default=200)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    luck = random.Random(options.seed)  # noqa: S311 - moments, no secrets
    with stand.folder() as base:
        struck = kills(base, options.kills, luck)
        raced = races(base, options.races)
        rows = cost(base, options.runs)
    failed = bool(struck["done_again"] or struck["overlaps"] or struck["left"])
    failed |= struck["completed"] < struck["runs"] or raced["lost"] != raced["races"] or bool(raced["asked"])
    failed |= raced["slowest"] > WITHIN
    if not options.json:
        print("kills  " + ", ".join(f"{name} {told}" for name, told in struck.items()))
        print("races  " + ", ".join(f"{name} {told}" for name, told in raced.items()))
    return stand.tell(rows, as_json=options.json, kills=struck, races=raced) or int(failed)


def kills(base: Path, number: int, luck: random.Random) -> dict[str, Any]:
    """Strike so many times, in as many runs as that takes."""
    found: dict[str, Any] = {"blows": 0, "runs": 0, "completed": 0, "done_again": 0, "overlaps": 0, "left": 0}
    victims: dict[str, int] = {}
    began = time.perf_counter()
    while found["blows"] < number:
        leaves = luck.choice(("", "", "trap '' TERM"))
        driven = Driven(base / f"kills-{found['runs']}", steps=STEPS, leaves=leaves or ":")
        run_id = driven.begin()
        blows = driven.strike(run_id, min(BLOWS, number - found["blows"]), luck, SLOWEST)
        for blow in blows:
            name = " and ".join(sorted(blow.victims))
            victims[name] = victims.get(name, 0) + 1
        found["blows"] += len(blows)
        found["runs"] += 1
        found["completed"] += driven.state(run_id)["status"] == "completed"
        found["done_again"] += len(driven.done_again(run_id))
        found["overlaps"] += len(driven.noted("overlaps"))
        found["left"] += len(driven.left())
    return {**found, "seconds": round(time.perf_counter() - began, 1), "victims": victims}


def races(base: Path, number: int) -> dict[str, Any]:
    """Start two drivers at once, so many times. asked: how often the one that lost asked a model."""
    driven = Driven(base / "races", steps=1)
    hold = driven.notes / "hold"
    times, lost, asked = [], 0, 0
    for at in range(number):
        run_id = driven.begin(f"race {at}")
        hold.touch()
        began = time.perf_counter()
        both = [driven.start("drive", run_id) for _ in range(2)]
        while all(one.poll() is None for one in both):
            time.sleep(0.005)
        times.append(time.perf_counter() - began)
        hold.unlink()
        for one in both:
            one.communicate()
        lost += sorted(one.returncode for one in both) == [0, 6]
        asked += driven.starts(run_id) - 1
    middle, slowest = (round(one, 2) for one in (statistics.median(times or [0]), max(times, default=0)))
    return {"races": number, "lost": lost, "asked": asked, "median": middle, "slowest": slowest}


def cost(base: Path, runs: int) -> list[stand.Row]:
    """Time a drive of one turn, in which the assistant says one line and ends."""
    driven = Driven(base / "cost", steps=1)
    (driven.root / "bin" / "claude").write_text('#!/bin/sh\necho \'{"type":"result","total_cost_usd":0.01}\'\n')
    run_id = driven.begin()
    click = [sys.executable, "-I", "-c", "import click"]
    # The limit of turns ends the drive, which is no success: a shell says that it went well.
    turn = ["sh", "-c", '"$@"; test $? = 10', "sh", *driven.command, "drive", run_id, "--max-turns", "1"]
    cases = [
        stand.Case("python -I -c 'import click'", None, click, "", driven.project, driven.environment),
        stand.Case("a drive of one turn", AT_MOST, turn, "", driven.project, driven.environment),
    ]
    stand.in_turn(cases, runs)
    return stand.rows_of(cases)


if __name__ == "__main__":
    sys.exit(main())
