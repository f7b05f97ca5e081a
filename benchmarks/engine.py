"""What a choice of the next step costs in graphs of 10 to 1,000 steps, a resume, and the end of a step in a branch.

Run it with a Python that has Loom's packages: `python benchmarks/engine.py [--runs N] [--most N] [--json]`. Medians of
interleaved runs; a ratio compares with ten steps, stages or branches. Choices are timed in this process: a visit
begins, ends, and the next one is chosen among three transitions. A resume and a `loomctl done --branch` are whole
processes. It works in a temporary folder.
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
from loomctl.flow import route
from loomctl.runs.model import visits
from loomctl.runs.model.state import new_state
from loomctl.runs.model.visit_list import Earlier, Visits
from loomctl.workflows import branches
from loomctl.workflows.workflow import build_plan

SIZES = (10, 100, 1_000)
CHOICES = 200  # in one measurement
AT = "2026-01-01T00:00:00Z"
FLAT = 2.0  # a choice, from 10 steps to 1,000
RESUMED = 3.0  # a resume, from 10 stages to 1,000
STAGES = (10, 1_000, 10_000)
ENDED = 1.2  # the end of a step, from 10 stages to 10,000
FANS = (10, 100)  # branches
JOINED = 3.0  # the end of a branch's step, from 10 branches to 100


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
            ended = route.end_visit(self.state, self.plan, outcome="succeeded", at=AT).state
            route.advance(ended, self.plan, at=AT)
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
        older: list[dict[str, Any]] = []
        record = None
        while len(state["steps"]) < size:
            if count := visits.due(state, 64):  # else each visit would look at all that went before
                held = visits.recent(state)
                older += held[:count]
                record = visits.record_of(record, held[:count])
                state = {**state, "steps": Visits(held[count:], Earlier(record, lambda _: iter(())))}
            open_visit = visits.open_visit(state)
            if open_visit is None:
                raise SystemExit("the run came to its end")
            stage = folder / "stages" / open_visit["stage"]
            again = open_visit["step_id"] == "build/s9"
            state = {**state, "context": {"again": again}}
            state = route.end_visit(state, plan, outcome="succeeded", at=AT).state
            ended = state["steps"][-1]
            stage.mkdir(exist_ok=True)
            (stage / "prompt.md").write_text(example)
            (stage / "response.md").write_text("It is done.\n")
            told = {key: ended[key] for key in ("step_id", "stage", "visit", "rank", "status", "next")}
            (stage / "status.json").write_text(json.dumps({"schema_version": 1, "run_id": self.run_id, **told}))
            state, move = route.advance(state, plan, at=AT)
            state, _ = visits.start_visit(state, str(move.step), "build", at=AT)
        (folder / "state.json").write_text(json.dumps({**state, "steps": [*older, *visits.recent(state)]}))

    def measure(self) -> None:
        """Time a resume, a whole process."""
        began = time.perf_counter()
        stand.output_of([sys.executable, "-I", MAIN, "resume", self.run_id], cwd=self.root, env=self.env)
        self.times.append(time.perf_counter() - began)


class Ended(Resumed):
    """The same, whose open step is ended. Each measurement ends another, so that some of them let visits leave."""

    def __init__(self, base: Path, size: int) -> None:
        super().__init__(base / "ended", size)
        self.name = f"loomctl done, {size:,} stages"
        path = self.root / ".loom" / "runs" / self.run_id / "state.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "context": {"again": True}}))
        (self.root / "answer.md").write_text("It is done.\n")
        stand.output_of([sys.executable, "-I", MAIN, "next"], cwd=self.root, env=self.env)

    def measure(self) -> None:
        """Time the end of a step, a whole process, and open the next one."""
        began = time.perf_counter()
        command = [sys.executable, "-I", MAIN, "done", "--outcome", "succeeded", "--response-file", "answer.md"]
        stand.output_of(command, cwd=self.root, env=self.env)
        self.times.append(time.perf_counter() - began)
        stand.output_of([sys.executable, "-I", MAIN, "next"], cwd=self.root, env=self.env)


class Fan:
    """A project whose run is at a parallel step of so many branches, each with one step that is open.

    joins: all but one have ended, so that its end joins them.
    """

    def __init__(self, base: Path, size: int, *, joins: bool) -> None:
        self.name = f"loomctl done --branch, {size:,} branches" + (", the join" if joins else "")
        self.times: list[float] = []
        self.joins = joins
        self.root = base / f"fan-{size}-{joins}"
        (self.root / ".git").mkdir(parents=True)
        held = [{"id": f"b{number}", "steps": [{"id": "do", "prompt": "Do it."}]} for number in range(size)]
        steps = [{"id": "fan", "parallel": {"branches": held}}, {"id": "sum", "prompt": "Sum it up."}]
        stand.project_of(self.root, {"phases": {"build": {"steps": steps}}})
        (self.root / "answer.md").write_text("It is done.\n")
        self.env = stand.environment(base, self.root)
        self.folder = Path(stand.begin(self.root, self.env)["run_dir"])
        self._begin(size, size - 1 if joins else 0)
        self.kept = {name: (self.folder / name).read_bytes() for name in ("state.json", "events.jsonl")}

    def _begin(self, size: int, ended: int) -> None:
        """Open the step of each branch, and end so many of them."""
        state = json.loads((self.folder / "state.json").read_bytes())
        plan = json.loads((self.folder / "plan.json").read_bytes())
        for number in range(size):
            seen = branches.view(state, plan, f"b{number}")
            one, move = route.advance(seen.state, seen.plan, at=AT)
            one, _ = visits.start_visit(one, str(move.step), "build", at=AT)
            if number >= size - ended:
                one = route.end_visit(one, seen.plan, outcome="succeeded", at=AT).state
                one, _ = route.advance({**one, "context": {f"k{number}": number}}, seen.plan, at=AT)
            state = branches.fold(state, one)
        (self.folder / "state.json").write_text(json.dumps(state))

    def measure(self) -> None:
        """Time the end of the first branch's step, a whole process, and put the run back."""
        began = time.perf_counter()
        command = [sys.executable, "-I", MAIN, "done", "--branch", "b0", "--response-file", "answer.md"]
        stand.output_of(command, cwd=self.root, env=self.env)
        self.times.append(time.perf_counter() - began)
        ended = json.loads((self.folder / "state.json").read_bytes())["steps"][0]
        if ended["branches"][0]["status"] != "succeeded" or (ended["status"] == "succeeded") != self.joins:
            raise SystemExit(f"{self.name}: the branch did not end as it was to end")
        for name, data in self.kept.items():
            (self.folder / name).write_bytes(data)


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="how often each row is measured")
    parser.add_argument("--most", type=int, help="cut every size to this one, to see that all is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with stand.folder() as base:
        groups: list[tuple[float, list[Any]]] = [
            (FLAT, [Graph(size) for size in stand.at_most(SIZES, options.most)]),
            (RESUMED, [Resumed(base, size) for size in stand.at_most(SIZES, options.most)]),
            (ENDED, [Ended(base, size) for size in stand.at_most(STAGES, options.most)]),
            (JOINED, [Fan(base, size, joins=False) for size in stand.at_most(FANS, options.most)]),
            (JOINED, [Fan(base, size, joins=True) for size in stand.at_most(FANS, options.most)]),
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
