"""What the choice of the next step costs in graphs of 10, 100 and 1,000 steps, and a resume after as many stages.

Run it with a Python that has Loom's packages: `python benchmarks/engine.py [--runs N] [--json]`. Medians of interleaved
runs; a ratio compares with ten steps, or stages. Choices are timed in this process: a visit begins, ends, and the next
one is chosen among three transitions. A resume is a whole process. It works in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import stand
from benchmarks.stand import MAIN
from loomctl.model import run_life, visits
from loomctl.model.plan import build_plan
from loomctl.model.state import new_state

SIZES = (10, 100, 1_000)
CHOICES = 200  # in one measurement
AT = "2026-01-01T00:00:00Z"
FLAT = 2.0  # a choice, from 10 steps to 1,000
RESUMED = 3.0  # a resume, from 10 stages to 1,000


def workflow(size: int) -> dict[str, Any]:
    """Make a workflow of so many steps, each with a way on, a way back and one by a condition."""
    steps: list[dict[str, Any]] = [{"id": f"s{number}", "prompt": "Do it."} for number in range(size)]
    for number, step in enumerate(steps):
        on = f"s{number + 1}" if number + 1 < size else "end"
        back = {"to": f"s{max(0, number - 1)}", "label": "back"}
        step["transitions"] = [{"to": on, "weight": 1}, back, {"to": "s0", "condition": "context.again == true"}]
    return {"max_visits": 1_000_000, "phases": {"build": {"steps": steps}}}


class Graph:
    """A run in a graph, at a step in its middle, with few visits behind it."""

    def __init__(self, size: int) -> None:
        self.name = f"the next step, {size:,} steps"
        self.times: list[float] = []
        self.plan = build_plan({"id": "bench", **workflow(size)}, plan_id="bench", created_at=AT, sources=[])
        state = new_state(self.plan, run_id="bench", work_id=None, goal="measure", at=AT)
        key = f"build/s{size // 2}"
        self.state, _ = visits.start_visit({**state, "status": "in_progress"}, key, "build", at=AT)

    def measure(self) -> None:
        """Time a choice: the mean of CHOICES."""
        began = time.perf_counter()
        for _ in range(CHOICES):
            ended = run_life.end_visit(self.state, self.plan, outcome="succeeded", at=AT).state
            run_life.advance(ended, self.plan, at=AT)
        self.times.append((time.perf_counter() - began) / CHOICES)


class Resumed:
    """A project whose run has so many stages behind it."""

    def __init__(self, base: Path, size: int) -> None:
        self.name = f"loomctl resume, {size:,} stages"
        self.times: list[float] = []
        self.root = base / f"stages-{size}"
        (self.root / ".git").mkdir(parents=True)
        stand.project_of(self.root, workflow(10))
        self.env = stand.environment(base, self.root)
        began = stand.begin(self.root, self.env)
        self.run_id = str(began["run_id"])
        self._live(Path(began["run_dir"]), size)

    def _live(self, folder: Path, size: int) -> None:
        """Let the run have been round its graph: each stage ended with the way on that led to the next."""
        state = json.loads((folder / "state.json").read_text())
        plan = json.loads((folder / "plan.json").read_text())
        example = (folder / "stages" / state["steps"][0]["stage"] / "prompt.md").read_text()
        while len(state["steps"]) < size:
            open_visit = visits.open_visit(state)
            if open_visit is None:
                raise SystemExit("the run came to its end")
            stage = folder / "stages" / open_visit["stage"]
            again = open_visit["step_id"] == "build/s9"
            state = {**state, "context": {"again": again}}
            state = run_life.end_visit(state, plan, outcome="succeeded", at=AT).state
            ended = state["steps"][-1]
            stage.mkdir(exist_ok=True)
            (stage / "prompt.md").write_text(example)
            (stage / "response.md").write_text("It is done.\n")
            told = {key: ended[key] for key in ("step_id", "stage", "visit", "rank", "status", "next")}
            (stage / "status.json").write_text(json.dumps({"schema_version": 1, "run_id": self.run_id, **told}))
            state, move = run_life.advance(state, plan, at=AT)
            state, _ = visits.start_visit(state, str(move.step), "build", at=AT)
        (folder / "state.json").write_text(json.dumps(state))

    def measure(self) -> None:
        """Time a resume, a whole process."""
        began = time.perf_counter()
        stand.output_of([sys.executable, "-I", MAIN, "resume", self.run_id], cwd=self.root, env=self.env)
        self.times.append(time.perf_counter() - began)


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="how often each row is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with stand.folder() as base:
        groups: list[tuple[float, list[Any]]] = [
            (FLAT, [Graph(size) for size in SIZES]),
            (RESUMED, [Resumed(base, size) for size in SIZES]),
        ]
        for number in range(options.runs + 1):
            for _, cases in groups:
                for case in cases:
                    case.measure()
                    if number == 0:  # compiles, fills caches
                        case.times.clear()
    rows = []
    for limit, cases in groups:
        smallest = statistics.median(cases[0].times)
        for case in cases:
            median = statistics.median(case.times)
            bar = limit if case is cases[-1] else None
            rows.append(stand.Row(case.name, median * 1000, median / smallest, bar))
    return stand.tell(rows, as_json=options.json, digits=3)


if __name__ == "__main__":
    sys.exit(main())
