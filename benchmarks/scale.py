"""What does not grow: listing, priming and state updates with 10 and 10,000 runs, with 1 and 1,000 sessions of a run.

Run it with a Python that has Loom's packages: `python benchmarks/scale.py [--runs N] [--most N] [--json]`. Whole
processes, medians of interleaved runs; a ratio compares the large project with the small one. It works in a temporary
folder.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import stand
from benchmarks.stand import MAIN, ROOT, SESSION

FEW, MANY = 10, 10_000
SESSIONS = 1_000
FLAT = 1.2
LISTED = 1.0  # seconds


class Project:
    """A project with runs: all completed but one, which the session is bound to."""

    def __init__(self, base: Path, name: str, *, runs: int, sessions: int) -> None:
        self.root = base / name
        self.env = stand.environment(base, self.root)
        (self.root / ".git").mkdir(parents=True)
        stand.project_of(self.root, stand.with_a_spec(self.root, 400))
        began = stand.begin(self.root, self.env)
        self.run_id, self.run_dir = began["run_id"], Path(began["run_dir"])
        self._work_in_sessions(sessions - 1)
        self.loomctl("resume", self.run_id, "--take-over")
        self._add_runs(runs - 1)

    def _work_in_sessions(self, count: int) -> None:
        """Let sessions come and go, through the engine itself, each of a host process that is dead."""
        script = (
            "import sys\n"
            "sys.path.insert(0, sys.argv[1])\n"
            "from loomctl.runs import config, leases, project\n"
            "from loomctl.flow.open_project import workspace\n"
            "from loomctl.runs.project import Caller, Conversation\n"
            "from loomctl.flow.start import bind\n"
            "found = project.find((sys.argv[2],))\n"
            "settings = config.load(found.store, with_yaml=True)\n"
            "for number in range(int(sys.argv[4])):\n"
            "    caller = Caller(f'session-{number:05d}', 'claude-code', None, sys.argv[2], Conversation())\n"
            "    space = leases.taking_over(workspace(found, settings, caller))\n"
            "    bind(space, sys.argv[3])\n"
            "    here = leases.surroundings(space)\n"
            "    space.store.update(sys.argv[3], lambda s: leases.enter(space, s, 'startup', here), durable=False)\n"
            "    space.local.mark_ended(caller.session_id)\n"
            "    leases.leave(space, sys.argv[3], 'logout')\n"
        )
        self._run([sys.executable, "-I", "-c", script, str(ROOT), str(self.root), self.run_id, str(count)])

    def _add_runs(self, count: int) -> None:
        """Add completed runs of the same kind, as copies with names of their own."""
        state = json.loads((self.run_dir / "state.json").read_text())
        plan = (self.run_dir / "plan.json").read_bytes()
        visit = {
            "step_id": "build/step-0",
            "phase": "build",
            "status": "succeeded",
            "started_at": "2026-01-01T00:00:00Z",
        }
        steps = [{**visit, "stage": f"{n:03}-build.step-0@{n}", "visit": n, "rank": n} for n in range(1, 21)]
        for number in range(count):
            run_id = f"shop-work-{number}-run-2026-01-01T00-00-00Z"
            folder = self.root / ".loom" / "runs" / run_id
            folder.mkdir()
            old = {**copy.deepcopy(state), "run_id": run_id, "status": "completed", "steps": steps}
            (folder / "state.json").write_text(json.dumps(old))
            (folder / "plan.json").write_bytes(plan if number < FEW else b"{}")
        for path in (self.root / ".loom" / "runs", *(self.root / ".loom" / "runs").glob("*/state.json")):
            if path.name != self.run_id and self.run_id not in str(path):
                os.utime(path, (time.time() - 3600,) * 2)
        os.utime(self.root / ".loom" / "runs", (time.time() - 3600,) * 2)

    def _run(self, command: list[str], given: str | None = None, **more: str) -> bytes:
        return stand.output_of(command, cwd=self.root, env={**self.env, **more}, given=given)

    def loomctl(self, *arguments: str, given: str | None = None) -> bytes:
        """Run a command."""
        return self._run([sys.executable, "-I", MAIN, *arguments], given)

    def hook(self, word: str, *, session: str = SESSION, **told: Any) -> bytes:
        """Answer a hook event."""
        event = json.dumps({"session_id": session, "cwd": str(self.root), "hook_event_name": word, **told})
        command = [sys.executable, "-I", "-S", MAIN, "hook", word]
        host = os.getpid() if session == SESSION else os.getppid()  # of one process they would be one conversation
        return self._run(command, event, CLAUDE_CODE_SESSION_ID=session, CLAUDE_PID=str(host))


def rows() -> dict[str, Any]:
    """Give what is measured, by name: a function of a project."""
    return {
        "SessionStart of the bound session (compaction)": lambda p: p.hook("session-start", source="compact"),
        "SessionStart of a session without a run": lambda p: p.hook(
            "session-start", session="another-session", source="startup"
        ),
        "Stop, a candidate is kept": lambda p: p.hook("stop", last_assistant_message="so far so good"),
        "loomctl done, a state update": lambda p: p.loomctl("done", given="did it"),
        "loomctl show": lambda p: p.loomctl("show"),
    }


def timed(deed: Any, project: Project) -> float:
    """Time one whole process, in seconds."""
    began = time.perf_counter()
    deed(project)
    return time.perf_counter() - began


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="how often each row is measured")
    parser.add_argument("--most", type=int, help="cut every size to this one, to see that all is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    *_, many = stand.at_most([FEW, MANY], options.most)
    *_, sessions = stand.at_most([SESSIONS], options.most)
    with stand.folder() as base:
        small = Project(base, "small", runs=FEW, sessions=1)
        large = Project(base, "large", runs=many, sessions=1)
        old = Project(base, "old", runs=FEW, sessions=sessions)
        first = timed(lambda p: p.loomctl("runs"), large)
        listed = statistics.median(timed(lambda p: p.loomctl("runs"), large) for _ in range(5))
        found = []
        for name, deed in rows().items():
            times: dict[str, list[float]] = {"small": [], "large": [], "old": []}
            for _ in range(options.runs + 1):
                for which, project in (("small", small), ("large", large), ("old", old)):
                    times[which].append(timed(deed, project))
            medians = {which: statistics.median(taken[1:]) for which, taken in times.items()}
            found.append((name, medians["small"], medians["large"], medians["old"]))
    return _tell(first, listed, found, (many, sessions), as_json=options.json)


def _tell(
    first: float, listed: float, found: list[tuple[str, float, float, float]], sizes: tuple[int, int], *, as_json: bool
) -> int:
    many, sessions = sizes
    over = listed > LISTED  # the first time every state is read; then those that changed
    over = over or any(large / small > FLAT or old / small > FLAT for _, small, large, old in found)
    if as_json:
        measured = [
            {
                "what": name,
                "ms": small * 1000,
                "runs_ratio": large / small,
                "sessions_ratio": old / small,
                "number": FLAT,
            }
            for name, small, large, old in found
        ]
        print(json.dumps({"listed_first_s": first, "listed_s": listed, "number_s": LISTED, "rows": measured}))
        return int(over)
    print(f"loomctl runs, {many:,} runs: {listed:.2f} s, at most {LISTED:g} s ({first:.2f} s the first time here)")
    print(f"\n{'':<50} {FEW} runs, 1 session   {many:,} runs   {sessions:,} sessions   at most")
    for name, small, large, old in found:
        print(f"{name:<50} {small * 1000:>16.1f} ms   {large / small:>9.2f} x   {old / small:>11.2f} x   {FLAT:g} x")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
