"""What a driver stands and costs: kills at random moments, races of two drivers, its own part of a turn.

    python benchmarks/drive.py [--assistant claude-code] [--kills N] [--races N] [--runs N] [--seed N] [--json]

Run it with a Python that has Loom's packages, on Linux. A shell script stands in for the assistant, or it is the real
one that LOOM_TEST_CLAUDE names (else the one that ./scripts/test has installed), with a scripted API on loopback. It
ends one step after another and leaves processes behind that ignore TERM, and as it begins it looks whether any earlier
attempt lives, or what one left behind.

`kills`: driver, keeper, assistant or several of them are killed at once, and the run is driven again: it must complete,
no step that ended may be begun again, and nothing of an old attempt may live beside a new one, or at the end. With the
real one, `cost` holds what was booked beside the API's answers, in USD: `off` is the most by which a conversation is
wrong whose turns the assistant told the cost of; `estimated` turns were killed, and say so, and each may be an answer
`apart`, but in `unpriced` runs, in which the assistant never came to tell a price; `untold` answers are of turns whose
end is told nowhere.
`races`: two drivers are started at once: one wins, and the other must end with 6 within a second of both starts, and
ask no model. `a turn`: a drive of one turn as a whole process, with the start of the drive, beside importing click. The
exit code is 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from tests.e2e.assistant import Assistant, Machine  # noqa: E402
from tests.e2e.scripted_api import Request, ScriptedApi  # noqa: E402
from tests.helpers.driven import DRIVE, PRICE, Driven  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEPS = 12  # of a run that is struck
BLOWS = 10  # a run
SLOWEST = {None: 1.5, "claude-code": 5.0}  # seconds until a blow, by the assistant
AT_MOST = 6.0  # times `import click`
WITHIN = 1.0  # seconds in which who lost a race has ended
CENT = 0.005


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assistant", choices=["claude-code"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--races", type=int, default=200)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    luck = random.Random(options.seed)  # noqa: S311 - moments, no secrets
    with stand.folder() as base, ScriptedApi() as api:
        make = real(base, api) if options.assistant else Driven
        struck = kills(base, options.kills, luck, SLOWEST[options.assistant], make, api)
        raced = races(base, options.races, make, api)
        rows = cost(base, options.runs)
    failed = bool(struck["done_again"] or struck["overlaps"] or struck["left"])
    failed |= struck["completed"] < struck["runs"] or bool(struck["wrong_sums"])
    failed |= raced["lost"] != raced["races"] or bool(raced["asked"]) or bool(raced["late"])
    if not options.json:
        print("kills  " + ", ".join(f"{name} {told}" for name, told in struck.items()))
        print("races  " + ", ".join(f"{name} {told}" for name, told in raced.items()))
    return stand.tell(rows, as_json=options.json, kills=struck, races=raced) or int(failed)


def real(base: Path, api: ScriptedApi) -> Callable[..., Driven]:
    """Make ready for the real assistant; gives what makes a project in it, on a machine of its own."""
    bundle = stand.clean_copy(base / "loom")
    stand.prepared(base, bundle)

    def make(root: Path, **more: Any) -> Driven:
        machine = Machine(root=root, cache=Path(os.environ["XDG_CACHE_HOME"]))
        claude, project = os.environ["LOOM_TEST_CLAUDE"], machine.project()
        assistant = Assistant(binary=claude, machine=machine, project=project, api=api, plugin_dir=bundle)
        return Driven(root, assistant=assistant, **more)

    return make


def kills(
    base: Path, number: int, luck: random.Random, slowest: float, make: Callable[..., Driven], api: ScriptedApi
) -> dict[str, Any]:
    """Strike so many times, in as many runs as that takes."""
    found: dict[str, Any] = {"blows": 0, "runs": 0, "completed": 0, "done_again": 0, "overlaps": 0, "left": 0}
    found["wrong_sums"] = 0
    victims, costs = collections.Counter[str](), list[dict[str, float]]()
    began = time.perf_counter()
    while found["blows"] < number:
        leaves = luck.choice(("", "", "trap '' TERM"))
        driven = make(base / f"kills-{found['runs']}", steps=STEPS, leaves=leaves or ":")
        run_id = driven.begin()
        blows = driven.strike(run_id, min(BLOWS, number - found["blows"]), luck, slowest)
        victims.update(" and ".join(sorted(blow.victims)) for blow in blows)
        found["blows"] += len(blows)
        found["runs"] += 1
        found["completed"] += driven.state(run_id)["status"] == "completed"
        found["done_again"] += len(driven.done_again(run_id))
        found["overlaps"] += len(driven.noted("overlaps"))
        found["left"] += len(driven.alive())
        if api.requests:
            costs.append(booked(driven, run_id, api.requests))
            found["wrong_sums"] += is_wrong(costs[-1])
            api.requests.clear()
        print(f"{found} {costs[-1:]}", file=sys.stderr)
    if costs:
        found["cost"] = {name: round(sum(one[name] for one in costs), 6) for name in costs[0]}
    return {**found, "seconds": round(time.perf_counter() - began, 1), "victims": dict(victims)}


def booked(driven: Driven, run_id: str, requests: Sequence[Request]) -> dict[str, float]:
    """Hold what a run's state says that it cost beside the API's answers, in USD."""
    answers = collections.Counter(map(conversation, requests))
    sums, unsure, estimated = collections.defaultdict[str, float](float), set(answers), 0
    for turn in (one["properties"] for one in driven.events(run_id) if one["event"] == "turn.ended"):
        sums[turn["conversation"]] += turn["cost"] or 0.0
        is_sure = turn["cost"] is not None and not turn.get("estimated")
        unsure -= {turn["conversation"]} if is_sure else set()
        estimated += not is_sure
    driving = driven.state(run_id)["driving"]
    is_priced = "unpriced" not in driving
    return {
        "booked": driving["cost"],
        "answered": round(PRICE * answers.total(), 6),
        "off": round(
            max((abs(PRICE * answers[one] - sums[one]) for one in answers if one not in unsure), default=0), 6
        ),
        "estimated": estimated,
        "unpriced": int(not is_priced),
        "apart": round(abs(PRICE * answers.total() - driving["cost"]), 6) if is_priced else 0,
        "untold": sum(answers[one] for one in answers if one not in sums),
    }


def is_wrong(cost: Mapping[str, float]) -> bool:
    """Tell whether a sum is wrong by more than a cent, and than an answer for each turn that is estimated."""
    return bool(cost["untold"] or cost["off"] > CENT or cost["apart"] > CENT + PRICE * cost["estimated"])


def conversation(request: Request) -> str:
    """Give the id of the conversation that asked."""
    return str(json.loads(request.body["metadata"]["user_id"])["session_id"])


def races(
    base: Path, number: int, make: Callable[..., Driven] = Driven, api: ScriptedApi | None = None
) -> dict[str, Any]:
    """Start two drivers at once, so many times. asked: how often the one that lost asked a model."""
    driven = make(base / "races", steps=1)
    hold = driven.notes / "hold"
    times, lost, asked = [], 0, 0
    for at in range(number):
        run_id = driven.begin(f"race {at}")
        hold.touch()
        began = time.perf_counter()
        both = [driven.start(*DRIVE, run_id) for _ in range(2)]
        while all(one.poll() is None for one in both):
            time.sleep(0.005)
        times.append(time.perf_counter() - began)
        hold.unlink()
        for one in both:
            one.communicate()
        lost += sorted(one.returncode for one in both) == [0, 6]
        asked += driven.starts(run_id) - 1
        if api is not None and api.requests:
            asked += len(set(map(conversation, api.requests))) - 1
            api.requests.clear()
    middle, slowest = (round(one, 2) for one in (statistics.median(times or [0]), max(times, default=0)))
    late = sum(one > WITHIN for one in times)
    return {"races": number, "lost": lost, "asked": asked, "median": middle, "slowest": slowest, "late": late}


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
