"""Many processes that update one run at once while others read it: `STORE RUN WRITERS TIMES READERS`.

Each is forked from this one, and all begin together. Prints one JSON document of what they saw.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Store

PATIENCE = 120.0  # so many wait in line for one lock that somebody's turn may come late
PIECE = 64 * 1024


def write(store: Store, run_id: str, times: int, who: int) -> list[int]:

    def change(state: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
        number = state["context"].get("n", 0) + 1
        by = {**state["context"].get("by", {})}
        by[str(who)] = by.get(str(who), 0) + 1
        return {**state, "context": {"n": number, "by": by, "fill": "x" * 5000}}, [Event("tick", {"n": number})]

    return [store.update(run_id, change, durable=False, patience=PATIENCE)["context"]["n"] for _ in range(times)]


def read(store: Store, run_id: str, over: int) -> dict[str, int]:
    """Read state, backup and the log's end again and again until `over` is closed; gives how often."""
    folder = store.run_dir(run_id)
    reads = last = 0
    while not select.select([over], [], [], 0.001)[0]:
        state = store.read_state(run_id)  # raises for a torn one
        assert state["context"].get("n", 0) >= last
        last = state["context"].get("n", 0)
        assert sum(state["context"].get("by", {}).values()) == last
        with open(os.path.join(folder, "state.backup.json"), "rb") as backup:
            assert json.loads(backup.read())["run_id"] == run_id
        with open(os.path.join(folder, "events.jsonl"), "rb") as log:
            log.seek(max(0, os.path.getsize(log.name) - 2000))
            for line in log.read().split(b"\n")[1:-1]:
                json.loads(line)
        reads += 1
    return {"reads": reads, "last": last}


def main(folder: str, run_id: str, writers: int, times: int, readers: int) -> None:
    store = Store(folder)
    begin, go = os.pipe()
    over, end = os.pipe()
    children: list[tuple[int, int]] = []
    for who in range(writers + readers):
        results, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.close(end)
            code = 1
            try:
                os.read(begin, 1)  # closed when all are there
                gave = write(store, run_id, times, who) if who < writers else read(store, run_id, over)
                data = json.dumps(gave).encode()
                while data:
                    data = data[os.write(told, data) :]
                code = 0
            finally:
                os._exit(code)
        os.close(told)
        children.append((pid, results))
    os.close(begin)
    os.close(go)
    found = []
    for number, (pid, results) in enumerate(children):
        if number == writers:
            os.close(end)
        data = b""
        while piece := os.read(results, PIECE):
            data += piece
        _, status = os.waitpid(pid, 0)
        found.append(json.loads(data) if status == 0 else None)
    sys.stdout.write(json.dumps({"writers": found[:writers], "readers": found[writers:]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(word) for word in sys.argv[3:]))
