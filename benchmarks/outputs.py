"""What the outputs of steps cost: reading a response for the objects in it, appending events, ending a step.

    python benchmarks/outputs.py [--most N] [--json]

Run it with a Python that has Loom's packages. Of a response each row is a text of 1 MB and of 2 MB, read in this
process; the best of interleaved rounds. "x json.loads" compares with the standard library parsing a JSON text of 1 MB,
"2 MB / 1 MB" says how the cost grows: 2 is linear, 4 the square; a row differs by a tenth from run to run. Events are
appended one by one, synced or not, behind 10 and behind 100,000 others. Steps of a run of 1,000 are ended one after the
other, in this process, in a git repository of 100 files: what the first hundred and the last hundred took, medians. The
exit code is 1 where a row misses its bar.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from loomctl.flow import advance, start  # noqa: E402
from loomctl.flow.open_project import workspace  # noqa: E402
from loomctl.flow.outcomes import directives, json_objects  # noqa: E402
from loomctl.runs import config, project  # noqa: E402
from loomctl.runs.project import Caller, Conversation  # noqa: E402
from loomctl.runs.store import events  # noqa: E402
from loomctl.runs.store.events import Event  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEGABYTE = 1_000_000
ROUNDS = 3
LINEAR = 2.5
FLAT = 1.2
FEW_EVENTS, MANY_EVENTS, APPENDED = 10, 100_000, 200
STAGES = 1_000
SENTENCE = 'The review found that `parse()` drops the "last" line, so it\'s {not} done; see src/app.py:12.\n'
DIRECTIVE = '{"outcome": "failed", "failure_reason": "tests failed", "context_updates": {"coverage": 72}}\n'
RECORD = '{"id": 1, "name": "a \\"quoted\\" {name}", "tags": ["x", "y"], "more": {"ok": true, "n": 0.5}}\n'


class Row(NamedTuple):
    """What was measured of one thing. bars: the most that a value of `values` may be."""

    part: str
    name: str
    values: dict[str, float]
    bars: dict[str, float]

    @property
    def missed(self) -> list[str]:
        """The values over their bars."""
        return [name for name, bar in self.bars.items() if self.values[name] > bar]


def main() -> int:
    """Measure every part and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, help="cut every size to this one, to see that all is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for part in PARTS for row in part(options.most)]
    if options.json:
        print(json.dumps([{**row._asdict(), "missed": row.missed} for row in rows]))
    else:
        _print(rows)
    return 1 if any(row.missed for row in rows) else 0


def _print(rows: list[Row]) -> None:
    part = ""
    for row in rows:
        if row.part != part:
            part = row.part
            print(f"\n{part}\n" + f"{'':34}" + "".join(f"{name:>16}" for name in row.values))
        missed = f"  over its bar: {', '.join(row.missed)}" if row.missed else ""
        print(f"{row.name:34}" + "".join(f"{value:16.2f}" for value in row.values.values()) + missed)


def best(*works: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> list[float]:
    """Give the least time of each, in seconds by the clock, over interleaved rounds."""
    least = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for at, work in enumerate(works):
            gc.collect()
            gc.disable()  # as in a hook
            began = clock()
            work()
            least[at] = min(least[at], clock() - began)
            gc.enable()
    return least


# ---- Scanning a response.

TEXTS: dict[str, tuple[str, str]] = {
    "prose": (SENTENCE, ""),
    "prose, then a directive": (SENTENCE, DIRECTIVE),
    "prose with directives": (SENTENCE * 20 + DIRECTIVE, ""),
    "objects, line by line": (RECORD, ""),
    "objects with a comma too many": (RECORD.replace("0.5}}", "0.5},}"), DIRECTIVE),
    "a megabyte of {": ("{", ""),
    'a megabyte of {"a":': ('{"a":', ""),
    'a megabyte of "': ('"', ""),
    "a megabyte of \\": ("\\", ""),
    "a megabyte of {}": ("{}", ""),
    'a megabyte of {"': ('{"', ""),
    'a megabyte of {"b\\"{': ('{"b\\"{', ""),
    'a megabyte of {"a":[{},': ('{"a":[{},', ""),
    'a megabyte of {"outcome":': ('{"outcome":', ""),
}


def scan(most: int | None) -> list[Row]:
    """Measure reading a response in the validated mode, which looks for broken JSON too, and the scan alone."""
    rows = []
    (size,) = stand.at_most([MEGABYTE], most)
    whole = json.dumps([json.loads(RECORD)] * (MEGABYTE // len(RECORD)))
    for name, (pattern, end) in TEXTS.items():
        one, two = (pattern * (of // len(pattern)) + end for of in (size, 2 * size))
        parsed, scanned, once, twice = best(
            partial(json.loads, whole),
            partial(_scan, one),
            partial(_read, one),
            partial(_read, two),
        )
        values = {
            "scan ms": scanned * 1000,
            "read ms": once * 1000,
            "x json.loads": once / parsed,
            "2 MB / 1 MB": twice / once,
        }
        # What takes less than some milliseconds is measured too coarsely for a ratio.
        rows.append(Row("Reading a response of 1 MB", name, values, {"2 MB / 1 MB": LINEAR} if once > 0.02 else {}))
    return rows


def _scan(text: str) -> None:
    for _ in json_objects.objects(text):
        pass


def _read(text: str) -> None:
    directives.read([directives.Source(directives.RESPONSE, text)], directives.ROUTING)


# ---- Appending events.


def append(most: int | None) -> list[Row]:
    """Measure one event's append to a short log and to a long one."""
    rows = []
    with _folder() as base:
        logs = [base / "few", base / "many"]
        for folder, size in zip(logs, (FEW_EVENTS, MANY_EVENTS), strict=True):
            (count,) = stand.at_most([size], most)
            folder.mkdir()
            events.append(str(folder), "bench", [_event(number) for number in range(count)], durable=False)
        for name, durable in (("without a sync", False), ("synced", True)):
            few, many = best(
                *(partial(_append, str(folder), durable=durable) for folder in logs), clock=time.perf_counter
            )
            values = {"per second": APPENDED / many, "100,000 / 10": many / few}
            rows.append(Row("Appending an event", name, values, {"100,000 / 10": FLAT}))
    return rows


def _append(folder: str, *, durable: bool) -> None:
    for number in range(APPENDED):
        events.append(folder, "bench", [_event(number)], durable=durable)


def _event(number: int) -> Event:
    properties = {"stage": "001-build.review@1", "status": "succeeded", "number": number, "files_touched": ["a", "b"]}
    return Event("stage.completed", properties, "a-session", "build/review")


# ---- Ending a step.


def capture(most: int | None) -> list[Row]:
    """Measure the end of each step of a long run, all of what `loomctl done` does but its start."""
    (stages,) = stand.at_most([STAGES], most)
    with _folder() as base:
        root = base / "project"
        _project(root, stages)
        found = project.find((str(root),)) or project.new(str(root))
        caller = Caller("bench", "terminal", None, str(root), Conversation())
        space = workspace(found, config.load(found.store, with_yaml=True), caller)
        run_id = start.start(space, "measure it", workflow="bench").run.run_id
        took = []
        for number in range(stages):
            (root / "notes.md").write_text(f"{number}\n")
            answer = f'Step {number} is done.\n{{"context_updates": {{"last": {number}}}}}'
            began = time.perf_counter()
            advance.done(space, run_id, response=answer)
            took.append(time.perf_counter() - began)
    first, last = statistics.median(took[:100]), statistics.median(took[-100:])
    values = {"first ms": first * 1000, "last ms": last * 1000, "per second": 1 / last, "last / first": last / first}
    return [Row("Ending a step of 1,000", "with its files and git", values, {"last / first": FLAT})]


def _project(root: Path, stages: int) -> None:
    workflows = root / ".loom" / "workflows"
    workflows.mkdir(parents=True)
    steps = [{"id": f"step-{number}", "prompt": "Do it."} for number in range(stages)]
    (workflows / "bench.json").write_text(json.dumps({"id": "bench", "phases": {"build": {"steps": steps}}}))
    for number in range(100):
        (root / f"file-{number}.txt").write_text("a line\n" * 40)
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "Start"]):
        subprocess.run(["git", *words], cwd=root, check=True)


@contextmanager
def _folder() -> Iterator[Path]:
    """Give a folder of this benchmark's own, in which Loom keeps what it keeps of this machine, too."""
    base = Path(tempfile.mkdtemp(prefix="loom-bench-"))
    os.environ["LOOM_STATE_HOME"] = str(base / "state")
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


PARTS: tuple[Callable[[int | None], list[Row]], ...] = (scan, append, capture)


if __name__ == "__main__":
    sys.exit(main())
