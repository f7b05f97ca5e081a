"""What the benchmarks of whole processes share: a folder of their own, a bare environment, runs in turn, a table."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
MAIN = str(ROOT / "loomctl" / "__main__.py")
FEWEST = 2  # what a graph with branches needs
SESSION = "5f0c9a52-0000-4000-8000-00000000bench"


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder with an empty home in it; all of it goes afterwards."""
    base = Path(tempfile.mkdtemp(prefix="loom-bench-"))
    try:
        (base / "home").mkdir()
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def at_most(sizes: Sequence[int], most: int | None) -> list[int]:
    """Cut sizes to the one that `--most` gives, if it gives one; ends the benchmark where that is too small."""
    if most is not None and most < FEWEST:
        raise SystemExit(f"--most is at least {FEWEST}, not {most}")
    return sorted({size if most is None else min(size, most) for size in sizes})


def environment(base: Path, project: Path | None = None) -> dict[str, str]:
    """Give the environment of a bound session, its home in `base`; without a project, what is the same for all."""
    here = {} if project is None else {"CLAUDE_PROJECT_DIR": str(project), "PWD": str(project)}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(base / "home"),
        "LOOM_STATE_HOME": str(base / "home" / "state"),
        "CLAUDE_CODE_SESSION_ID": SESSION,
        "CLAUDE_PID": str(os.getpid()),
        **here,
    }


def project_of(root: Path, workflow: Mapping[str, Any]) -> Path:
    """Make a project with one workflow, `bench`, and without git, whose time is not Loom's; gives its folder."""
    workflows = root / ".loom" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "bench.json").write_text(json.dumps({"id": "bench", **workflow}))
    return root


def with_a_spec(root: Path, steps: int) -> dict[str, Any]:
    """Write a specification of 100 lines; gives a workflow of so many steps that loads it as a session starts."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "spec.md").write_text("# What is wanted\n\n" + "a line of the specification\n" * 100)
    spec = {"id": "spec", "type": "markdown", "path": "spec.md", "description": "what is wanted", "required": True}
    critical = {"always_load": [{**spec, "reload_triggers": ["session_start"]}]}
    listed = [{"id": f"step-{number}", "prompt": "Do it."} for number in range(steps)]
    return {"critical_artifacts": critical, "phases": {"build": {"steps": listed}}}


def output_of(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], given: str | bytes | None = None) -> bytes:
    """Run a command to its end; gives what it printed, and ends the benchmark where it failed."""
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        command,
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        cwd=cwd,
        env=env,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")[-800:]
        raise SystemExit(f"{' '.join(command[-4:])}: exit {done.returncode}: {said}")
    return done.stdout


def begin(root: Path, env: Mapping[str, str], *, main: str = MAIN) -> dict[str, Any]:
    """Start a run of the project's workflow; gives what `loomctl run --json` says of it."""
    words = ["run", "measure it", "--workflow", "bench", "--json"]
    told: dict[str, Any] = json.loads(output_of([sys.executable, "-I", main, *words], cwd=root, env=env))
    return told


def clean_copy(base: Path) -> Path:
    """Copy what git has or would add, as a fresh clone would be."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")):
        if (ROOT / name).is_file():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, base / name)
    return base


def prepared(base: Path, bundle: Path) -> None:
    """Find the assistant, and let Loom set up its packages once for all machines."""
    cache = Path(os.environ.get("LOOM_TEST_CACHE") or Path.home() / ".cache" / "loom-tests")
    found = sorted(cache.glob("claude-code-*/node_modules/.bin/claude"))
    os.environ.setdefault("LOOM_TEST_CLAUDE", str(found[-1]) if found else "")
    if not os.access(os.environ["LOOM_TEST_CLAUDE"], os.X_OK):
        raise SystemExit("LOOM_TEST_CLAUDE names no assistant: run ./scripts/test once, which installs one")
    os.environ["XDG_CACHE_HOME"] = os.environ.get("LOOM_TEST_CACHE") or str(base / "cache")
    output_of([str(bundle / "bin" / "loomctl"), "--version"], cwd=base, env=dict(os.environ))


class Case:
    """One row: a command with its input, timed as a whole process. limit: the ratio to hold, None: there is none."""

    def __init__(
        self, name: str, limit: float | None, command: list[str], given: str, cwd: Path, env: dict[str, str]
    ) -> None:
        self.name, self.limit, self.times = name, limit, list[float]()
        self.command, self.given, self.cwd, self.env = command, given, cwd, env

    def run(self) -> None:
        """Time one run."""
        began = time.perf_counter()
        output_of(self.command, cwd=self.cwd, env=self.env, given=self.given)
        self.times.append(time.perf_counter() - began)

    def median(self) -> float:
        """Give the median in milliseconds."""
        return statistics.median(self.times) * 1000


def in_turn(cases: Sequence[Case], runs: int) -> None:
    """Run every case so often, one after the other, after a run that compiles and fills caches."""
    for number in range(runs + 1):
        for case in cases:
            case.run()
            if number == 0:
                case.times.clear()


class Row(NamedTuple):
    """What was measured. ratio: to the first row, or what the benchmark says; number: the ratio to hold."""

    what: str
    ms: float
    ratio: float
    number: float | None

    @property
    def over(self) -> bool:
        """Tell whether it misses its number."""
        return self.number is not None and self.ratio > self.number


def rows_of(cases: Sequence[Case]) -> list[Row]:
    """Give the rows of cases, the first of which is the baseline."""
    baseline = cases[0].median()
    return [Row(case.name, case.median(), case.median() / baseline, case.limit) for case in cases]


def tell(rows: Sequence[Row], *, as_json: bool, digits: int = 1, **more: Any) -> int:
    """Print the table, or the document with `more` in it; gives 1 if a row is over its number."""
    over = any(row.over for row in rows)
    if as_json:
        print(json.dumps({"rows": [row._asdict() for row in rows], **more}))
        return int(over)
    wide = max(len(row.what) for row in rows)
    print(f"{'what':<{wide}} {'ms':>9} {'ratio':>7}  number")
    for row in rows:
        number = "" if row.number is None else f"≤ {row.number:g}" + ("  OVER" if row.over else "")
        print(f"{row.what:<{wide}} {row.ms:>9.{digits}f} {row.ratio:>7.2f}  {number}")
    return int(over)
