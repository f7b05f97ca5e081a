"""What the outputs of steps cost: reading a response for the objects in it.

    python benchmarks/outputs.py [--json]

Run it with a Python that has Loom's packages. Each row is a text of 1 MB and of 2 MB, read in this process; the best of
interleaved rounds. "x json.loads" compares with the standard library parsing a JSON text of 1 MB, "2 MB / 1 MB" says
how the cost grows: 2 is linear. The exit code is 1 where a row misses its bar.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from loomctl.model import directives, json_objects  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 1_000_000
ROUNDS = 3
LINEAR = 2.2
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
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for part in PARTS for row in part()]
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


def best(*works: Callable[[], Any]) -> list[float]:
    """Give the least processor time of each, in seconds, over interleaved rounds."""
    least = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for at, work in enumerate(works):
            gc.collect()
            gc.disable()  # as in a hook
            began = time.process_time()
            work()
            least[at] = min(least[at], time.process_time() - began)
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


def scan() -> list[Row]:
    """Measure reading a response in the validated mode, which looks for broken JSON too, and the scan alone."""
    rows = []
    whole = json.dumps([json.loads(RECORD)] * (MEGABYTE // len(RECORD)))
    for name, (pattern, end) in TEXTS.items():
        one, two = (pattern * (size // len(pattern)) + end for size in (MEGABYTE, 2 * MEGABYTE))
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


PARTS: tuple[Callable[[], list[Row]], ...] = (scan,)


if __name__ == "__main__":
    sys.exit(main())
