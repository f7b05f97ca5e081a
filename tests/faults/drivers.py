"""Sessions that contend for one run, each a process of its own: `STORE RUN SESSION HOW TIMES [READY]`.

HOW: `take-over` takes the run in each of TIMES rounds and writes under what it got; a round ends, and every other one
comes to its writes, once all have come so far: `here` on standard output, a line on standard input. `paused` reads the
run, says so by making READY, and writes once the file is gone. Prints what it wrote as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from loomctl.kit.errors import LoomError
from loomctl.runs.model import lease
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Store
from loomctl.runs.store.write_rules import DRIVE, TAKE_OVER, Driver, Fence


def write(store: Store, run_id: str, session: str, number: int) -> dict[str, Any]:
    """Write under the epoch that this process was given; tells it, or that it was refused."""
    written: list[int] = []

    def change(state: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
        written[:] = [lease.epoch(state)]
        context = {**state["context"], "last": [session, number]}
        return {**state, "context": context}, [Event("tick", {"epoch": lease.epoch(state)}, session)]

    try:
        store.update(run_id, change, durable=False, patience=60)
    except LoomError as error:
        return {"session": session, "refused": error.code, "exit": error.exit_code, "asked": bool(written)}
    return {"session": session, "epoch": written[0]}


def take(store: Store, run_id: str, session: str) -> int:
    state = store.writing(TAKE_OVER).update(
        run_id,
        lambda state: ({**state, "context": {**state["context"], "taken": session}}, []),
        durable=False,
        patience=60,
    )
    return lease.epoch(state)


def meets(number: int) -> int:
    """Give how often all meet in a round: in every other one they do before they write, too."""
    return 2 - number % 2


def meet() -> None:
    sys.stdout.write("here\n")
    sys.stdout.flush()
    sys.stdin.readline()


def main(folder: str, run_id: str, session: str, how: str, times: int, ready: str) -> None:
    fence = Fence(os.path.join(folder, "local"), Driver(session, "test", os.getpid()), DRIVE)
    store = Store(folder, fence=fence)
    told: list[dict[str, Any]] = []
    if how == "paused":
        store.read(run_id)
        with open(ready, "w", encoding="utf-8"):
            pass
        while os.path.exists(ready):
            time.sleep(0.005)
        told.append(write(store, run_id, session, 0))
    for number in range(times if how == "take-over" else 0):
        told.append({"session": session, "taken": take(store, run_id, session)})
        for _ in range(meets(number) - 1):
            meet()
        told.append(write(store, run_id, session, number))
        meet()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
