"""What a small command costs: whole processes, medians of 20 interleaved runs, as ratios to importing click.

Run it with a Python that has Loom's packages: `python benchmarks/commands.py [--runs N] [--beside CHECKOUT] [--json]`.
It works in a temporary folder, in a project without git, whose time is not Loom's. `--beside` measures another checkout
in turn with this one, for what a change brings. Ratios hold within one run; milliseconds are this machine's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import stand
from benchmarks.stand import ROOT, Case

STEPS = 400  # more than `done` is run here
# What is measured, each with what stands on its standard input and the ratio to hold.
COMMANDS: list[tuple[str, str, float | None]] = [
    ("--version", "", None),
    ("show", "", 1.7),
    ("next", "", 2.0),
    ("done", "The result, in a sentence.\n", 2.2),
    ("debug preamble", "", None),
    ("prime-context", "", None),
    ("status", "", 2.0),
    ("runs", "", None),
    ("steps", "", None),
    ("--help", "", None),
]


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row of this checkout is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with stand.folder() as base:
        env = stand.environment(base, base)
        baseline = [sys.executable, "-I", "-c", "import click"]
        cases = [Case("baseline: python -I -c 'import click'", None, baseline, "", base, env)]
        cases += _of(ROOT, base, "shop", "")
        if options.beside:
            cases += _of(options.beside.resolve(), base, "other", " (beside)")
        stand.in_turn(cases, options.runs)
    return stand.tell(stand.rows_of(cases), as_json=options.json)


def _of(checkout: Path, base: Path, name: str, mark: str) -> list[Case]:
    """Start a run with a checkout's Loom in a project of its own; gives the commands to measure there."""
    root = base / name
    (root / ".git").mkdir(parents=True)
    project = stand.project_of(root, stand.with_a_spec(root, STEPS))
    env = stand.environment(base, project)
    main = str(checkout / "loomctl" / "__main__.py")
    stand.begin(project, env, main=main)
    return [
        Case(
            f"loomctl {words}{mark}",
            None if mark else limit,
            [sys.executable, "-I", main, *words.split()],
            given,
            project,
            env,
        )
        for words, given, limit in COMMANDS
    ]


if __name__ == "__main__":
    sys.exit(main())
