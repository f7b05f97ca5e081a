"""What a session start costs with all of its entries: processor and wall time of four processes that begin at once.

Run it with any Python 3.10 or later: `python benchmarks/starts.py [--runs N] [--json]`. Medians of 30 interleaved runs,
as ratios to `python -I -S -c pass`, in the same measure. The entries are those of the bundle's hooks/claude-code.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import hooks, stand
from benchmarks.stand import ROOT, SESSION, Row

PROCESSOR, WALL = "processor time", "wall time"


class Start:
    """Processes that begin at once with the same input. processor, wall: seconds of each run; given: their text."""

    def __init__(self, name: str, commands: list[list[str]], cwd: Path, env: dict[str, str]) -> None:
        self.name, self.commands, self.cwd, self.env = name, commands, cwd, env
        self.processor, self.wall = list[float](), list[float]()
        self.given = 0

    def run(self) -> None:
        """Time one run."""
        event = json.dumps({"session_id": SESSION, "cwd": str(self.cwd), "source": "compact", "transcript_path": ""})
        at = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        children = []
        for command in self.commands:
            given = os.memfd_create("event") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
            os.write(given, event.encode())
            os.lseek(given, 0, os.SEEK_SET)
            children.append(subprocess.Popen(command, cwd=self.cwd, env=self.env, stdin=given, stdout=subprocess.PIPE))
            os.close(given)
        self.given = sum(len(child.communicate()[0]) for child in children)
        self.wall.append(time.perf_counter() - began)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.processor.append(now.ru_utime + now.ru_stime - at.ru_utime - at.ru_stime)


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with stand.folder() as base:
        starts = _starts(base)
        for number in range(options.runs + 1):
            for start in starts:
                start.run()
                for left in (start.cwd / ".loom/local/parts").glob("*"):  # of a first entry whose others did not come
                    left.unlink()
                if number == 0:
                    start.processor.clear()
                    start.wall.clear()
    return stand.tell(_rows(starts), as_json=options.json)


def _starts(base: Path) -> list[Start]:
    python = os.path.realpath(sys.executable)
    cache = base / "home" / ".cache" / "loom"
    cache.mkdir(parents=True)
    (cache / "python").write_text(f"{python}\n")
    env = stand.environment(base)
    there: dict[str, Path] = {}
    for name in ("ten", "nothing"):
        there[name] = base / name
        there[name].mkdir()
    hooks.begin_with_ten(there["ten"], env)
    entries = [
        entry["command"].replace('"${CLAUDE_PLUGIN_ROOT}/bin/loomctl"', str(ROOT / "bin" / "loomctl")).split()
        for group in json.loads((ROOT / "hooks" / "claude-code.json").read_text())["hooks"]["SessionStart"]
        for entry in group["hooks"]
    ]
    bare = [python, "-I", "-S", "-c", "pass"]

    def of(name: str) -> dict[str, str]:
        return {**env, "CLAUDE_PROJECT_DIR": str(there[name]), "PWD": str(there[name])}

    return [
        Start("baseline: python -I -S -c pass", [bare], there["ten"], env),
        Start("all entries, no .loom upward", entries, there["nothing"], of("nothing")),
        Start("one entry alone, 10 artifacts, 200 KB", [entries[0][:-1]], there["ten"], of("ten")),
        Start("the first of four alone, 10 artifacts, 200 KB", [entries[0]], there["ten"], of("ten")),
        Start("all entries, 10 artifacts, 200 KB", entries, there["ten"], of("ten")),
    ]


def _rows(starts: list[Start]) -> list[Row]:
    bare, nothing, one, first, every = starts
    if every.given < 30_000:
        raise SystemExit(f"the entries gave {every.given:,} bytes: the parts did not come")

    def ratio(start: Start, to: Start, what: str, number: float | None) -> Row:
        measured = [statistics.median(each.processor if what == PROCESSOR else each.wall) for each in (start, to)]
        name = start.name if to is bare else f"{start.name}, against {to.name.partition(',')[0]}"
        return Row(f"{name} ({what})", measured[0] * 1000, measured[0] / measured[1], number)

    return [
        ratio(bare, bare, PROCESSOR, None),
        ratio(nothing, bare, PROCESSOR, 0.8),
        ratio(one, bare, PROCESSOR, None),
        ratio(first, bare, PROCESSOR, None),
        ratio(every, bare, PROCESSOR, 6.0),
        ratio(every, first, WALL, 1.15),
        ratio(every, one, WALL, None),
    ]


if __name__ == "__main__":
    sys.exit(main())
