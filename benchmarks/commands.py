"""What a small command costs: whole processes, medians of 20 interleaved runs, as ratios to importing click.

Run it with a Python that has Loom's packages: `python benchmarks/commands.py [--runs N] [--beside CHECKOUT] [--json]`.
It works in a temporary folder, in a project without git, whose time is not Loom's. `--beside` measures another checkout
in turn with this one, for what a change brings. Ratios hold within one run; milliseconds are this machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SESSION = "5f0c9a52-0000-4000-8000-00000000bench"
STEPS = 400  # more than `done` is run here
# What is measured, each with what stands on its standard input and the ratio to hold.
COMMANDS: list[tuple[str, str, float | None]] = [
    ("--version", "", None),
    ("show", "", 2.0),
    ("next", "", 2.5),
    ("done", "The result, in a sentence.\n", 2.5),
    ("preamble", "", None),
    ("prime-context", "", None),
    ("runs", "", None),
    ("steps", "", None),
    ("--help", "", None),
]


class Case:
    """One row: a command of a checkout, timed as a whole process in that checkout's project."""

    def __init__(self, name: str, limit: float | None, command: list[str], given: str, project: Path) -> None:
        self.name, self.limit, self.times = name, limit, list[float]()
        self._command, self._given, self._project = command, given.encode(), project

    def run(self) -> bytes:
        """Time one run; gives what it printed."""
        base = self._project.parent
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(base / "home"),
            "LOOM_STATE_HOME": str(base / "home" / "state"),
            "CLAUDE_CODE_SESSION_ID": SESSION,
            "CLAUDE_PROJECT_DIR": str(self._project),
            "CLAUDE_PID": str(os.getpid()),
            "PWD": str(self._project),
        }
        began = time.perf_counter()
        done = subprocess.run(
            self._command, input=self._given, cwd=self._project, env=env, capture_output=True, check=False
        )
        self.times.append(time.perf_counter() - began)
        if done.returncode != 0:
            raise SystemExit(f"{self.name}: exit {done.returncode}: {done.stderr.decode(errors='replace')[:500]}")
        return done.stdout

    def median(self) -> float:
        """Give the median in milliseconds."""
        return statistics.median(self.times) * 1000


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row of this checkout is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="loom-bench-"))
    try:
        (base / "home").mkdir()
        cases = [
            Case("baseline: python -I -c 'import click'", None, [sys.executable, "-I", "-c", "import click"], "", base)
        ]
        cases += _of(ROOT, base / "shop", "")
        if options.beside:
            cases += _of(options.beside.resolve(), base / "other", " (beside)")
        for case in cases:
            case.run()  # compiles, fills caches
            case.times.clear()
        for _ in range(options.runs):
            for case in cases:
                case.run()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return _tell(cases, as_json=options.json)


def _of(checkout: Path, project: Path, mark: str) -> list[Case]:
    """Start a run with a checkout's Loom in a project of its own; gives the commands to measure there."""
    (project / ".git").mkdir(parents=True)
    workflows = project / ".loom" / "workflows"
    workflows.mkdir(parents=True)
    (project / "spec.md").write_text("# What is wanted\n\n" + "a line of the specification\n" * 100)
    spec = {"id": "spec", "type": "markdown", "path": "spec.md", "description": "what is wanted", "required": True}
    critical = {"always_load": [{**spec, "reload_triggers": ["session_start"]}]}
    steps = [{"id": f"step-{number}", "prompt": "Do it."} for number in range(STEPS)]
    raw = {"id": "bench", "critical_artifacts": critical, "phases": {"build": {"steps": steps}}}
    (workflows / "bench.json").write_text(json.dumps(raw))
    loomctl = [sys.executable, "-I", str(checkout / "loomctl" / "__main__.py")]
    Case("run", None, [*loomctl, "run", "measure it", "--workflow", "bench"], "", project).run()
    return [
        Case(f"loomctl {words}{mark}", None if mark else limit, [*loomctl, *words.split()], given, project)
        for words, given, limit in COMMANDS
    ]


def _tell(cases: list[Case], *, as_json: bool) -> int:
    baseline = cases[0].median()
    rows = [(case.name, case.median(), case.median() / baseline, case.limit) for case in cases]
    over = [row for row in rows if row[3] is not None and row[2] > row[3]]
    if as_json:
        print(json.dumps({"rows": [{"what": r[0], "ms": r[1], "ratio": r[2], "number": r[3]} for r in rows]}))
        return 1 if over else 0
    print(f"{'what':<50} {'ms':>7} {'ratio':>7}  number")
    for name, milliseconds, ratio, limit in rows:
        number = f"≤ {limit:g}" + ("" if ratio <= limit else "  OVER") if limit is not None else ""
        print(f"{name:<50} {milliseconds:>7.1f} {ratio:>7.2f}  {number}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
