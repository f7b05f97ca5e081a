"""A fleet of two machines that share a queue and a git remote: two clones, two homes."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.driven import WAIT
from tests.helpers.fleets import LIMIT, Fleet
from tests.helpers.postgres import Postgres
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Machines:
    """Two clones of a bare remote, each with a home of its own, and one queue."""

    def __init__(self, root: Path, address: str) -> None:
        self.remote = root / "remote.git"
        self.all: list[Fleet] = []
        git(root, "init", "-q", "--bare", str(self.remote))
        for name in ("alpha", "beta"):
            one = Fleet(root / name, words=["--queue", address])
            if self.all:
                shutil.rmtree(one.project)
                git(root, "clone", "-q", str(self.remote), str(one.project))
            else:
                self._first(one.project)
            one.environment |= {"STORE": str(one.project), "WRITES": "work.txt", "PACE": "0.2"}
            self.all.append(one)
        self.all[0].fleet("init")

    def _first(self, project: Path) -> None:
        git(project, "init", "-q")
        (project / ".loom" / ".gitignore").write_text("*\n!.gitignore\n!workflows/\n!workflows/*\n")
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "First")
        git(project, "remote", "add", "origin", str(self.remote))
        git(project, "push", "-q", "origin", "main")

    def code(self, run_id: str) -> str:
        """Give what the remote has of a run's file."""
        return git(self.remote, "show", f"refs/loom/work/{run_id}:work.txt")

    def state(self, run_id: str) -> str:
        return git(self.remote, "show", f"refs/loom/runs/{run_id}:run/state.json")


@pytest.fixture
def machines(postgres: Postgres, database: str, tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path, postgres.address(database))
    yield made
    for one in made.all:
        one.close()


def steps(number: int) -> str:
    return "\n".join(f"step-{at}" for at in range(number))


def test_what_one_machine_adds_the_other_drives_with_its_code(machines: Machines) -> None:
    alpha, beta = machines.all
    (run_id,) = alpha.put("make it", workflow="steps-3")
    process = beta.work(1, "--until-idle")
    assert process.wait(WAIT) == 0, (beta.root / "workers.log").read_text()
    assert beta.state(run_id)["status"] == "completed"
    assert '"completed"' in machines.state(run_id)
    assert [line.rpartition("/")[2] for line in machines.code(run_id).splitlines()] == steps(3).split()
    assert alpha.counts() == beta.counts() == {"done": 1}
    assert alpha.state(run_id)["status"] == "in_progress"
    assert "agrees" in alpha.fleet("doctor", "--dry-run")
    alpha.loomctl("pull", run_id)
    assert alpha.state(run_id)["status"] == "completed"


def test_a_machine_that_dies_leaves_its_run_to_the_other(machines: Machines) -> None:
    alpha, beta = machines.all
    (run_id,) = alpha.put("make it", workflow="steps-8")
    alpha.environment["PACE"] = "1.5"
    process = alpha.work(1)
    until(lambda: len(machines_code(machines, run_id)) >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ended = beta.work(1, "--until-idle")
    assert ended.wait(WAIT) == 0, (beta.root / "workers.log").read_text()
    done = [line.rpartition("/")[2] for line in machines.code(run_id).splitlines()]
    assert list(dict.fromkeys(done)) == steps(8).split()
    assert len(done) <= 8 + 2  # what was under way, and what had not arrived yet
    assert not alpha.alive()


def machines_code(machines: Machines, run_id: str) -> list[str]:
    try:
        return machines.code(run_id).splitlines()
    except AssertionError:
        return []


def test_whoever_has_the_remote_lets_a_waiting_run_go_on(machines: Machines) -> None:
    alpha, beta = machines.all
    for one in machines.all:
        one.workflow("gated", [{"id": "step-0", "prompt": "Do it."}, {"id": "ask", "kind": "human", "prompt": "Good?"}])
    (run_id,) = alpha.put("make it", workflow="gated")
    process = beta.work(1)
    until(lambda: alpha.counts() == {"waits": 1})
    alpha.loomctl("approve", run_id)
    until(lambda: alpha.counts() == {"done": 1})
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 0


def test_a_remote_that_is_away_is_no_failure_and_gets_the_end_later(machines: Machines) -> None:
    alpha, beta = machines.all
    (run_id,) = alpha.put("make it", workflow="steps-3")
    beta.environment["PACE"] = "1"
    process = beta.work(1)
    until(lambda: len(machines_code(machines, run_id)) >= 1)
    away = machines.remote.rename(machines.remote.with_name("away"))
    until(lambda: [one["kind"] for one in beta.rows()] == ["remote"])
    assert beta.state(run_id)["status"] == "completed"
    away.rename(machines.remote)
    until(lambda: beta.counts() == {"done": 1})
    assert '"completed"' in machines.state(run_id)
    assert [line.rpartition("/")[2] for line in machines.code(run_id).splitlines()] == steps(3).split()
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 0


def test_a_machine_that_never_had_a_run_decides_of_it_by_what_the_board_says(machines: Machines) -> None:
    alpha, beta = machines.all
    for one in machines.all:
        one.workflow("gated", [{"id": "step-0", "prompt": "Do it."}, {"id": "ask", "kind": "human", "prompt": "Good?"}])
    (run_id,) = beta.put("make it", workflow="gated")
    process = beta.work(1)
    until(lambda: alpha.counts() == {"waits": 1})
    alpha.environment["LOOM_QUEUE"] = alpha.words[-1]
    alpha.loomctl(*alpha.row(run_id)["command"].split()[1:])
    until(lambda: alpha.counts() == {"done": 1})
    (run_id,) = alpha.put("make another", workflow="gated")
    until(lambda: alpha.counts() == {"waits": 1, "done": 1})
    alpha.loomctl("approve", alpha.row(run_id)["handle"][:-2])  # a run is named by the beginning of its handle, too
    until(lambda: alpha.counts() == {"done": 2})
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 0


@pytest.mark.parametrize("verb", ["rebuild", "doctor"])
def test_runs_of_one_machine_are_sent_as_its_queue_becomes_one_of_several(machines: Machines, verb: str) -> None:
    alpha, beta = machines.all
    shared, alpha.words = alpha.words, []
    (run_id,) = alpha.put("make it", workflow="steps-3")
    alpha.words = shared
    alpha.fleet(verb)
    assert beta.work(1, "--until-idle").wait(WAIT) == 0, (beta.root / "workers.log").read_text()
    assert '"completed"' in machines.state(run_id)


def test_two_machines_under_kills_lose_nothing(machines: Machines) -> None:
    luck, alpha = random.Random(5), machines.all[0]
    runs = alpha.add(6, luck, workflow="steps-4")
    working = {one: one.work(2) for one in machines.all}
    for _ in range(4):
        until(lambda: alpha.counts().get("done", 0) >= 0)
        victim = luck.choice(machines.all)
        with contextlib.suppress(subprocess.TimeoutExpired):
            working[victim].wait(LIMIT / 2)
        working[victim].kill()
        working[victim].wait()
        working[victim] = victim.work(2)
    ended = time.monotonic() + WAIT
    while alpha.counts() != {"done": 6}:
        assert time.monotonic() < ended, alpha.fleet("status")
        time.sleep(1)
    for process in working.values():
        process.send_signal(signal.SIGINT)
    for process in working.values():
        assert process.wait(WAIT) == 0
    for run_id in runs:
        done = [line.rpartition("/")[2] for line in machines.code(run_id).splitlines()]
        assert list(dict.fromkeys(done)) == steps(4).split()
        assert '"completed"' in machines.state(run_id)
