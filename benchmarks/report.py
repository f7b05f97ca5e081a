"""What a report costs: making it, its size, and the time in which a browser opens it, for runs of up to 10,000 events.

Run it with a Python that has Loom's packages and pytest: `python benchmarks/report.py [--runs N] [--most N] [--json]`.
Medians; `made` is the whole command, `opened` is from the start of the navigation to the end of the page's load event,
as Chromium measures it (it is needed: apt-get install chromium). It works in a temporary folder.

`python benchmarks/report.py --picture FILE.png [--dark] [--width N]` takes the picture of the documentation instead.
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
from tests.helpers import reports
from tests.helpers.browser import Browser
from tests.helpers.scenes import Scene

SIZES = (100, 1_000, 10_000)  # events
LIMIT = 2.0  # seconds, for the largest to open
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"


def measured(base: Path, runs: int, sizes: list[int]) -> list[dict[str, Any]]:
    """Make and open a report of each size so many times."""
    rows = []
    with Browser(base / "profile") as browser:
        browser.show(1440)
        for size in sizes:
            scene = Scene(base / f"run-{size}")
            reports.large(scene, size)
            made, opened = [], []
            for _ in range(runs):
                began = time.perf_counter()
                ended = scene.loomctl("report", "-o", "report.html")
                made.append(time.perf_counter() - began)
                if ended.code != 0:
                    raise SystemExit(ended.stderr)
                browser.open(scene.root / "report.html")
                opened.append(float(browser.tell(f"new Promise((done) => setTimeout(() => done({_LOADED}), 0))")))
            size_of_it = (scene.root / "report.html").stat().st_size
            nodes = browser.tell("document.getElementsByTagName('*').length")
            row = {"events": size, "made": statistics.median(made), "opened": statistics.median(opened)}
            rows.append({**row, "bytes": size_of_it, "elements": nodes})
    return rows


def picture(base: Path, path: Path, *, width: int, dark: bool) -> None:
    """Take a picture of the head and the timeline of a rich run."""
    scene = Scene(base / "shop")
    reports.rich(scene)
    scene.loomctl("report", "-o", "report.html")
    with Browser(base / "profile") as browser:
        browser.show(width, 1150, dark=dark)
        browser.open(scene.root / "report.html")
        browser.tell("document.querySelector('#attention').remove()")
        browser.picture(path, whole=False)


def main() -> int:
    """Measure, print, and tell by the exit code whether the largest opens in time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--most", type=int, help="cut every size to this one, to see that all is measured")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--dark", action="store_true")
    words = parser.parse_args()
    with stand.folder() as base:
        if words.picture is not None:
            picture(base, words.picture, width=words.width, dark=words.dark)
            return 0
        rows = measured(base, words.runs, stand.at_most(SIZES, words.most))
    if words.as_json:
        print(json.dumps({"limit": LIMIT, "rows": rows}, indent=1))
    else:
        for row in rows:
            told = f"{row['events']:>7,} events  made {row['made']:.2f} s  opened {row['opened']:.2f} s"
            print(f"{told}  {row['bytes']:>9,} bytes  {row['elements']:>5,} elements")
    return 0 if rows[-1]["opened"] < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
