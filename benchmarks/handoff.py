"""What it costs to hand a run on: time and bytes of push and pull for runs of 10, 100 and 1,000 stages.

    python benchmarks/handoff.py [--most N] [--json]

Run it with a Python that has Loom's packages. Each run has so many stages, with a prompt and a response of 2 KB of
words that differ, a status and changes, and a log of events; two clones and a bare repository stand on one disk, so
that the times are Loom's and git's and no network's. Push and pull are whole `loomctl` commands; bytes are those of the
files that are carried, sent those of the pack: of a push made anew from the two commits, of a pull as git received it.
"again" is a push after one more stage. The exit code is 1 where a second push of a run of 1,000 stages sends over a
twentieth of what the first one did.

"save" is what saves the code of a run after a step, in a checkout of ten files for each of so many stages, of which one
changed: in this process, the median of five. It fails where the largest costs over its share of the smallest, doubled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from loomctl.flow import start  # noqa: E402
from loomctl.flow.open_project import workspace  # noqa: E402
from loomctl.handoff import work  # noqa: E402
from loomctl.kit import files  # noqa: E402
from loomctl.runs import config, project  # noqa: E402
from loomctl.runs.project import Caller, Conversation, Workspace  # noqa: E402
from loomctl.runs.store.events import Event  # noqa: E402

if TYPE_CHECKING:
    from loomctl.runs.store.store import Store

SIZES = (10, 100, 1_000)
NEW_AT_MOST, FILES_EACH, SAVES = 0.05, 10, 5
WORDS = "the a parser test finds every third line of its output before it writes one more file".split()  # noqa: SIM905


class Row(NamedTuple):
    """What was measured. ms: of the whole command; bytes: of files carried; sent: of the pack for them."""

    what: str
    stages: int
    ms: float
    files: int
    bytes: int
    sent: int


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, help="cut every size to this one, to see that all is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = stand.at_most(SIZES, options.most)
    with stand.folder() as base:
        os.environ |= {"HOME": str(base / "home"), "LOOM_STATE_HOME": str(base / "home" / "state")}
        rows = [row for stages in sizes for row in measured(base / str(stages), stages)]
    whole, again = (
        next(row for row in rows if (row.what, row.stages) == (what, sizes[-1])) for what in ("push", "again")
    )
    ratio = again.sent / whole.sent
    saves = [row for row in rows if row.what == "save"]
    growth = saves[-1].ms / saves[0].ms / (2 * sizes[-1] / sizes[0])
    if options.json:
        document = {"rows": [row._asdict() for row in rows], "new": ratio, "at_most": NEW_AT_MOST, "saving": growth}
        print(json.dumps(document))
    else:
        print(f"{'':8}{'stages':>8}{'ms':>10}{'files':>8}{'bytes':>12}{'sent':>12}")
        for row in rows:
            print(f"{row.what:8}{row.stages:8,}{row.ms:10,.0f}{row.files:8,}{row.bytes:12,}{row.sent:12,}")
        over = "  OVER" if ratio > NEW_AT_MOST else ""
        told = f"a push of one more stage behind {sizes[-1]:,} sends {ratio:.1%} of what the first did"
        print(f"\n{told} (at most {NEW_AT_MOST:.0%}){over}")
    return int(ratio > NEW_AT_MOST or growth > 1)


def measured(base: Path, stages: int) -> list[Row]:
    """Make a run of so many stages on one clone, and hand it to the other."""
    base.mkdir()
    git(base, "init", "-q", "--bare", "server.git")
    for name in ("here", "there"):
        git(base, "clone", "-q", "server.git", name)
    here, there = base / "here", base / "there"
    stand.project_of(here, {"phases": {"build": {"steps": [{"id": "make", "prompt": "Make it."}]}}})
    space = workspace(
        project.find((str(here),)) or project.new(str(here)),
        config.load(str(here / ".loom"), with_yaml=True),
        Caller("bench", "terminal", None, str(here), Conversation(), False),
    )
    run_id = start.start(space, "measure it", workflow="bench").run.run_id
    chance = random.Random(stages)  # noqa: S311
    grown(space.store, run_id, 1, stages, chance)
    rows = [timed("push", stages, here, base, ["push", run_id, "--yes"])]
    rows.append(timed("pull", stages, there, base, ["pull", run_id]))
    grown(space.store, run_id, stages + 1, stages + 1, chance)
    rows.append(timed("again", stages, here, base, ["push", run_id, "--yes"]))
    rows.append(timed("pull", stages, there, base, ["pull", run_id]))
    return [*rows, saved(space, run_id, here, stages)]


def saved(space: Workspace, run_id: str, here: Path, stages: int) -> Row:
    """Time how a run's code is saved, in a checkout of so many files."""
    count = stages * FILES_EACH
    for number in range(count):
        folder = here / f"folder {number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(f"file {number}\n" * 100)
    git(here, "add", "-A")
    git(here, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "files")
    took = []
    for number in range(SAVES + 1):
        (here / "changed.txt").write_text(f"{number}\n")
        began = time.perf_counter()
        found = work.snapshot(space, run_id)
        took.append((time.perf_counter() - began) * 1000)
        assert found is not None  # git is here
        assert found.is_new, found.notes
    return Row("save", stages, statistics.median(took[1:]), count, 0, 0)


def git(folder: Path, *words: str) -> None:
    """Ask git, to whom it does not matter that a clone is empty."""
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def text(chance: random.Random) -> str:
    """Make 2 KB of words."""
    return "".join(
        chance.choice(WORDS) + (" " if chance.random() > 0.1 else f" {chance.random()}\n") for _ in range(330)
    )


def grown(store: Store, run_id: str, first: int, last: int, chance: random.Random) -> None:
    """Add ended stages to a run, as its engine writes them."""
    entries: list[dict[str, Any]] = []
    events: list[Event] = []
    for rank in range(first, last + 1):
        stage = f"{rank + 1:03}-build.make@{rank + 1}"
        folder = Path(store.run_dir(run_id), "stages", stage)
        folder.mkdir(parents=True)
        told = {"step_id": "build/make", "phase": "build", "visit": rank + 1, "rank": rank + 1, "stage": stage}
        entry = {**told, "status": "succeeded", "started_at": "2026-01-01T00:00:00Z"}
        for name in ("prompt.md", "response.md"):
            (folder / name).write_text(text(chance))
        (folder / "status.json").write_bytes(files.to_json({"run_id": run_id, **entry, "outcome": "succeeded"}))
        (folder / "changes.json").write_bytes(
            files.to_json({"run_id": run_id, "stage": stage, "files": [], "count": 0})
        )
        entries.append(entry)
        events += [Event("stage.started", {"stage": stage}), Event("stage.completed", {"stage": stage})]
    store.update(run_id, lambda state: ({**state, "steps": [*state["steps"], *entries]}, events))


def timed(what: str, stages: int, cwd: Path, base: Path, words: list[str]) -> Row:
    """Time a command; what it carried it says itself."""
    pack = base / f"{what}.pack"
    pack.unlink(missing_ok=True)
    terminal = {"CLAUDE_CODE_SESSION_ID": ""}  # in a session its user would be asked
    environment = stand.environment(base.parent, cwd) | terminal | {"GIT_TRACE_PACKFILE": str(pack)}
    began = time.perf_counter()
    told = json.loads(stand.output_of([sys.executable, "-I", stand.MAIN, *words, "--json"], cwd=cwd, env=environment))
    took = (time.perf_counter() - began) * 1000
    count = told["files"] if isinstance(told["files"], int) else len(told["files"])
    server, ref = base / "server.git", f"refs/loom/runs/{told['run_id']}"
    moved = pack.stat().st_size if words[0] == "pull" else sent(server, ref)
    return Row(what, stages, took, count, told["bytes"], moved)


def sent(server: Path, ref: str) -> int:
    """Give the bytes of the pack by which a run's newest commit comes to who has the one before."""
    words = ["git", "pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "-q"]
    parent = subprocess.run(
        ["git", "rev-parse", "-q", "--verify", f"{ref}^"], cwd=server, capture_output=True, text=True, check=False
    )
    given = f"{ref}\n" + (f"^{parent.stdout.strip()}\n" if parent.returncode == 0 else "")
    return len(subprocess.run(words, cwd=server, input=given.encode(), capture_output=True, check=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
