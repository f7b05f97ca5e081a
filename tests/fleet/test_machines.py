"""A fleet of two machines that share a queue and a git remote: two clones, two homes."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.driven import WAIT
from tests.helpers.fleets import LIMIT
from tests.helpers.postgres import Postgres
from tests.helpers.shared_fleets import Machines, git
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def machines(postgres: Postgres, database: str, tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path, postgres.address(database))
    yield made
    made.close()


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


def test_a_machine_that_never_had_a_run_decides_of_it_by_what_the_board_says(machines: Machines) -> None:
    alpha, beta = machines.all
    for one in machines.all:
        one.workflow("gated", [{"id": "step-0", "prompt": "Do it."}, {"id": "ask", "kind": "human", "prompt": "Good?"}])
    (run_id,) = beta.put("make it", workflow="gated")
    process = beta.work(1)
    until(lambda: alpha.counts() == {"waits": 1})
    alpha.environment["LOOM_QUEUE"] = alpha.words[-1]
    alpha.loomctl("choose", "purple", run_id, code=2)
    alpha.loomctl(*alpha.row(run_id)["command"].split()[1:])
    assert "NOT_KNOWN_HERE" in alpha.loomctl("next", run_id, code=3)  # to decide of it took it up nowhere (D23)
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
    alpha.words = []
    assert alpha.counts() == {}  # nobody drives it a second time
    alpha.lose()
    assert alpha.counts() == {}
    alpha.words = shared
    assert beta.work(1, "--until-idle").wait(WAIT) == 0, (beta.root / "workers.log").read_text()
    assert '"completed"' in machines.state(run_id)


def test_a_gate_in_the_middle_holds_no_run_that_was_approved(machines: Machines) -> None:
    alpha, beta = machines.all
    gate = {"id": "ask", "kind": "human", "prompt": "Good?"}
    alpha.workflow("gated", [{"id": "step-0", "prompt": "Do it."}, gate, {"id": "step-1", "prompt": "Do it."}])
    (run_id,) = alpha.put("make it", workflow="gated")
    done(beta.work(1, "--until-idle"))
    assert alpha.counts() == {"waits": 1}
    alpha.loomctl("approve", run_id)
    process = beta.work(1)
    until(lambda: alpha.counts() == {"done": 1})
    process.send_signal(signal.SIGINT)
    done(process)


def test_two_machines_under_kills_lose_nothing(machines: Machines) -> None:
    luck, alpha = random.Random(5), machines.all[0]
    runs = alpha.add(6, luck, workflow="steps-4")
    working = {one: one.work(2, "--until-idle") for one in machines.all}
    for _ in range(4):
        until(lambda: alpha.counts().get("done", 0) >= 0)
        victim = luck.choice(machines.all)
        with contextlib.suppress(subprocess.TimeoutExpired):
            working[victim].wait(LIMIT / 2)
        working[victim].kill()
        working[victim].wait()
        working[victim] = victim.work(2, "--until-idle")
    ended = time.monotonic() + WAIT
    while alpha.counts() != {"done": 6}:
        assert time.monotonic() < ended, alpha.fleet("status")
        time.sleep(1)
    for process in working.values():
        done(process)
    for run_id in runs:
        made = [line.rpartition("/")[2] for line in machines.code(run_id).splitlines()]
        assert list(dict.fromkeys(made)) == steps(4).split()
        assert '"completed"' in machines.state(run_id)


def done(process: subprocess.Popen[bytes], code: int = 0) -> None:
    assert process.wait(WAIT) == code


def completed_without(machines: Machines) -> tuple[str, subprocess.Popen[bytes], Path]:
    """Let the first machine complete a run while the remote is away; gives it, the worker, and where the remote is."""
    alpha = machines.all[0]
    (run_id,) = alpha.put("make it", workflow="steps-3")
    machines.hold(run_id)
    process = alpha.work(1)
    until(lambda: machines.is_begun(run_id))
    away = machines.remote.rename(machines.root / "away.git")
    machines.let_go(run_id)
    until(lambda: alpha.state(run_id)["status"] == "completed")
    return run_id, process, away


def has_all(machines: Machines, run_id: str) -> bool:
    """Tell whether the remote has the end of such a run, and what each step wrote."""
    assert [line.rpartition("/")[2] for line in machines.code(run_id).splitlines()] == steps(3).split()
    return bool(machines.told(run_id)["status"] == "completed")


def test_an_end_that_could_not_be_sent_is_sent_as_the_remote_is_there_again(machines: Machines) -> None:
    """A remote that is away is no failure of the run."""
    alpha = machines.all[0]
    run_id, process, away = completed_without(machines)
    until(lambda: [one["kind"] for one in alpha.rows()] == ["remote"])
    assert json.loads(git(away, "show", f"refs/loom/runs/{run_id}:run/state.json"))["status"] == "in_progress"
    away.rename(machines.remote)
    until(lambda: alpha.counts() == {"done": 1})
    assert has_all(machines, run_id)
    process.send_signal(signal.SIGINT)
    done(process)


def test_an_end_before_which_its_machine_died_is_sent_by_the_next_drive(machines: Machines) -> None:
    alpha = machines.all[0]
    run_id, process, away = completed_without(machines)
    for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.wait()
    away.rename(machines.remote)
    assert machines.told(run_id)["status"] == "in_progress"
    done(alpha.work(1, "--until-idle"))
    assert has_all(machines, run_id)
    assert alpha.counts() == {"done": 1}


def test_runs_are_steered_from_a_machine_that_never_saw_them(machines: Machines) -> None:
    alpha, beta = machines.all
    first, second = (alpha.put(work, workflow="steps-3")[0] for work in ("make it", "make another"))
    assert "paused" in beta.fleet("pause", first)
    assert machines.told(first)["fleet"]["paused"] is True
    beta.fleet("cancel", second)
    assert machines.told(second)["status"] == "cancelled"
    alpha.lose()
    alpha.fleet("rebuild")
    assert alpha.counts() == {"paused": 1, "cancelled": 1}
    done(beta.work(1, "--until-idle"))
    alpha.fleet("resume", first)
    assert "paused" not in machines.told(first)["fleet"]
    done(beta.work(1, "--until-idle"))
    assert alpha.counts() == {"done": 1, "cancelled": 1}
    assert "again" not in machines.told(first)["fleet"]


def test_what_is_asked_of_who_drives_elsewhere_is_told_on_the_remote(machines: Machines) -> None:
    alpha, beta = machines.all
    first, second = (alpha.put(work, workflow="steps-8")[0] for work in ("make it", "make another"))
    for run_id in (first, second):
        machines.hold(run_id)
    process = beta.work(2)
    until(lambda: machines.is_begun(first) and machines.is_begun(second))
    assert "told" in alpha.fleet("cancel", second)
    until(lambda: machines.told(second)["status"] == "cancelled")
    assert "told" in alpha.fleet("pause", first)
    machines.let_go(first)
    until(lambda: machines.told(first)["fleet"].get("paused") is True)
    until(lambda: alpha.counts() == {"paused": 1, "cancelled": 1})
    process.send_signal(signal.SIGINT)
    done(process)
    alpha.lose()
    alpha.fleet("rebuild")
    assert alpha.counts() == {"paused": 1, "cancelled": 1}


def test_what_was_asked_and_not_done_is_done_by_another_machine(machines: Machines) -> None:
    alpha, beta = machines.all
    (run_id,) = alpha.put("make it", workflow="steps-3")
    alpha.ask_in_vain(run_id, "cancel")
    process = beta.work(1)
    until(lambda: alpha.counts() == {"cancelled": 1})
    assert machines.told(run_id)["status"] == "cancelled"
    process.send_signal(signal.SIGINT)
    done(process)


def test_a_run_is_resumed_at_once_after_it_was_paused_elsewhere(machines: Machines) -> None:
    """Who drove it writes the pause down just then, and must not meet what lets it go on, nor come behind it."""
    alpha, beta = machines.all
    (run_id,) = alpha.put("make it", workflow="steps-8")
    machines.hold(run_id)
    process = beta.work(1)
    until(lambda: machines.is_begun(run_id))
    alpha.fleet("pause", run_id)
    machines.let_go(run_id)
    until(lambda: alpha.counts() == {"paused": 1})
    alpha.fleet("resume", run_id)
    until(lambda: alpha.counts() == {"done": 1})
    process.send_signal(signal.SIGINT)
    done(process)
    assert "paused" not in machines.told(run_id)["fleet"]


def test_a_failure_elsewhere_is_tried_again_from_here(machines: Machines) -> None:
    alpha, beta = machines.all
    for one in machines.all:
        (one.notes / "refuses").touch()
    (run_id,) = alpha.put("make it", workflow="steps-3")
    done(beta.work(1, "--until-idle"))
    assert alpha.counts() == {"failed": 1}
    for one in machines.all:
        (one.notes / "refuses").unlink()
    alpha.fleet("retry", run_id)
    done(beta.work(1, "--until-idle"))
    assert alpha.counts() == {"done": 1}
    assert {"failed", "again"}.isdisjoint(machines.told(run_id)["fleet"])


def test_what_a_machine_knew_before_others_went_on_lets_nothing_go(machines: Machines) -> None:
    """Its state counts more changes than the one that waits now, and is none of them."""
    alpha, beta = machines.all
    alpha.workflow("gated", [{"id": "step-0", "prompt": "Do it."}, {"id": "ask", "kind": "human", "prompt": "Good?"}])
    (run_id,) = alpha.put("make it", workflow="gated")
    for at in range(15):
        alpha.loomctl("context", "set", "only", str(at), run_id)
    done(beta.work(1, "--until-idle"))
    before = alpha.row(run_id)
    assert before["state"] == "waits"
    done(alpha.work(1, "--until-idle"))
    assert alpha.row(run_id) == before
    alpha.loomctl("approve", run_id)
    done(alpha.work(1, "--until-idle"))
    assert alpha.counts() == {"done": 1}
    (kept,) = [one for one in alpha.project.glob(".loom/runs/*") if one.name != run_id]
    assert json.loads((kept / "state.json").read_text())["saved_from"]["run_id"] == run_id
    alpha.fleet("rebuild")
    assert alpha.counts() == {"done": 1}  # what was kept beside is none of them


def test_a_machine_needs_no_workflow_that_another_began_a_run_with(machines: Machines) -> None:
    alpha, beta = machines.all
    alpha.workflow("only-here", [{"id": "step-0", "prompt": "Do it."}])
    (run_id,) = alpha.put("make it", workflow="only-here")
    done(beta.work(1, "--until-idle"))
    assert machines.told(run_id)["status"] == "completed"
