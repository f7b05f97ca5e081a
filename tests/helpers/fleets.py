"""Fleets of runs that a stand-in drives, workers that are killed, and what became of each run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from loomctl.fleet.here import Sqlite
from loomctl.fleet.model import PAUSED, Limits, Progress
from loomctl.fleet.port import Worker
from loomctl.fleet.postgres import Server
from loomctl.fleet.table import Table
from tests.helpers.driven import PROMPTS, Driven

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.e2e.assistant import Assistant

LIMIT = 6.0  # seconds without a sign after which a worker counts as dead, of 60
STEPS = range(3, 9)  # of a run


class Verdict(NamedTuple):
    """What became of a fleet. lost: runs that are not completed; overlaps: an attempt met another that lived."""

    runs: int
    completed: int
    overlaps: int
    done_again: int
    left: int
    starts: int


class Fleet(Driven):
    """A project whose runs a fleet drives. words: for each command of the fleet, such as a queue."""

    def __init__(
        self,
        root: Path,
        *,
        pace: float = 0.0,
        leaves: str = "",
        words: Sequence[str] = (),
        assistant: Assistant | None = None,
    ) -> None:
        super().__init__(root, leaves=leaves, assistant=assistant)
        self.allows = ("--allow", "Bash") if assistant else ()
        if assistant is not None:  # what it works with has no way to a queue; who works on the fleet has
            self.command = [sys.executable, "-I", f"{assistant.plugin_dir}/loomctl/__main__.py"]
        self.words, self._workers = list(words), list[subprocess.Popen[bytes]]()
        self.environment |= {"APART": "1", "PACE": str(pace), "LOOM_FLEET_LIMIT": str(LIMIT)}
        for number in STEPS:
            self.workflow(f"steps-{number}", [{"id": f"step-{at}", "prompt": PROMPTS[at % 2]} for at in range(number)])

    def workflow(self, name: str, steps: list[dict[str, Any]]) -> None:
        workflow = {"id": name, "autonomy": "autonomous", "phases": {"build": {"steps": steps}}}
        (self.project / ".loom" / "workflows" / f"{name}.json").write_text(json.dumps(workflow))

    def add(self, number: int, luck: random.Random, *, workflow: str = "") -> list[str]:
        """Put so many runs into the fleet, of that workflow, or of 3 to 8 steps; gives their ids."""
        named = [workflow or f"steps-{luck.choice(STEPS)}" for _ in range(number)]
        return self._added(
            [{"work": f"make {at}", "workflow": one, "key": f"key-{at}"} for at, one in enumerate(named)]
        )

    def put(self, work: str, **more: Any) -> list[str]:
        """Put a run into the fleet; gives its id, in a list."""
        return self._added([{"work": work, **more}])

    def _added(self, lines: list[dict[str, Any]]) -> list[str]:
        source = self.root / "work.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        told = json.loads(self.fleet("add", "--from", str(source), "--json"))
        return [str(one["run_id"]) for one in told["runs"]]

    def fleet(self, *words: str, code: int = 0) -> str:
        process = self.start("fleet", *words, *self.words)
        out, err = process.communicate()
        assert process.returncode == code, f"{words} gave {process.returncode}:\n{out}\n{err}"
        return out

    def work(self, slots: int, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker; what it says is added to `workers.log`."""
        with (self.root / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.command, "fleet", "work", "-j", str(slots), "--per-host", "99", *self.allows, *words,
                 *self.words],
                cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._workers.append(process)
        return process

    def board(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.fleet("status", "--json"))
        return found

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.board()["counts"]
        return found

    def rows(self) -> list[dict[str, Any]]:
        told = self.board()
        kinds = ("driven", "waits", "failed", "paused", "later", "queued")
        return [one for kind in kinds for one in told[kind]["runs"]]

    def row(self, run_id: str) -> dict[str, Any]:
        return next(one for one in self.rows() if one["run_id"] == run_id)

    def begun(self, run_id: str) -> str:
        """Give when a run was first driven."""
        return str(next(one["ts"] for one in self.events(run_id) if one["event"] == "drive.started"))

    def lose(self) -> None:
        """Lose the queue."""
        for path in (self.project / ".loom" / "local").glob("fleet.sqlite3*"):
            path.unlink()
        if self.words:
            with psycopg.connect(self.words[-1], autocommit=True) as connection:
                connection.execute("DROP SCHEMA loom_fleet CASCADE")

    def ask_in_vain(self, run_id: str, what: str, *, paid: float = 0.0) -> None:
        """Leave a run as who drove it does that died, or had no remote, before it did what was asked: a minute ago.

        paid: USD that it had signed for, of which the run's state tells nothing.
        """
        store = self.project / ".loom"
        base: Any = Sqlite(str(store / "local" / "fleet.sqlite3"), str(store))
        if self.words:
            base = Server(self.words[-1])
        with base.transaction() as ask:
            ((repository,),) = ask("SELECT repository FROM runs WHERE run_id = ?", run_id)
        queue, worker = Table(base, repository), Worker("gone", "gone", 1)
        row = queue.claim(worker, Limits())
        assert row is not None
        assert (row.run_id, queue.ask(run_id, what)) == (run_id, True)
        queue.sign(worker, [Progress(run_id, row.attempt, paid, "")])
        assert queue.settle(worker, row._replace(state=PAUSED, asked=what, cost=paid))
        with base.transaction() as ask:
            ask("UPDATE runs SET since = since - 60 WHERE run_id = ?", run_id)
        base.close()

    def close(self) -> None:
        """End the workers that still run."""
        for one in self._workers:
            one.kill()
            one.wait()

    def killed(self, workers: int, slots: int, every: float, luck: random.Random, patience: float) -> int:
        """Work with so many workers, one of which is killed every few seconds, until nothing is queued or driven."""
        alive = [self.work(slots) for _ in range(workers)]
        kills, until, strike = 0, time.monotonic() + patience, time.monotonic() + every
        while time.monotonic() < until:
            counts = self.counts()
            if not any(counts.get(state) for state in ("queued", "later", "driven")):
                break
            if time.monotonic() >= strike:
                victim = alive.pop(luck.randrange(len(alive)))
                victim.kill()
                victim.wait()
                kills, strike = kills + 1, time.monotonic() + every
                alive.append(self.work(slots))
            time.sleep(min(1.0, max(0.0, strike - time.monotonic())))
        for one in alive:
            one.send_signal(signal.SIGINT)
        for one in alive:
            one.wait(60)
        return kills

    def verdict(self, runs: Sequence[str]) -> Verdict:
        """Say what became of runs."""
        notes, found = self.notes, [0, 0, 0, 0]
        for run_id in runs:
            self.notes = notes / run_id
            found[0] += self.state(run_id)["status"] == "completed"
            found[1] += len(self.noted("overlaps"))
            found[2] += len(self.done_again(run_id))
            found[3] += len(self.noted("starts"))
        self.notes = notes
        completed, overlaps, again, starts = found
        return Verdict(len(runs), completed, overlaps, again, len(self.alive()), starts)
