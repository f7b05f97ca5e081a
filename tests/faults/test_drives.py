"""A driven run outlives kills, races and broken disks, wherever it is driven from (D73, D74)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from benchmarks import drive as benchmark
from loomctl.kit import clock
from tests.helpers.driven import WAIT, Driven
from tests.helpers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in for the assistant looks into /proc")


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    return Driven(tmp_path / "driven", leaves=":")


def held(driven: Driven, run_id: str, *words: str, **more: Any) -> subprocess.Popen[str]:
    """Drive a run until its assistant works, which then waits."""
    (driven.notes / "hold").touch()
    process = driven.start("drive", run_id, *words, **more)
    until(lambda: driven.noted("starts"))
    until(driven.left)
    return process


def ends(driven: Driven, process: subprocess.Popen[str]) -> str:
    """Wait for the end of a drive that says why it ends, and of all that it started."""
    out, err = process.communicate(timeout=WAIT)
    assert "Traceback" not in err
    assert driven.left() == []
    return f"{process.returncode} {out}{err}"


@pytest.mark.slow
def test_a_run_completes_whoever_is_killed_and_no_step_is_done_again(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "driven", steps=6, leaves="trap '' TERM")
    run_id = driven.begin()
    blows = driven.strike(run_id, 5, random.Random(7), 1.0)
    assert driven.state(run_id)["status"] == "completed", blows
    assert (driven.done_again(run_id), driven.noted("overlaps"), driven.left()) == ([], [], []), blows


@pytest.mark.slow
def test_of_two_drivers_one_wins_and_the_other_asks_no_model(tmp_path: Path) -> None:
    raced = benchmark.races(tmp_path, 10)
    assert (raced["lost"], raced["asked"]) == (10, 0)


@pytest.fixture
def container(driven: Driven) -> Iterator[list[str]]:
    """Give how a command enters another numbering of processes: `docker exec` does it so, its session is number 0."""
    begin = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    tools = all(shutil.which(name) for name in ("unshare", "nsenter"))
    if not tools or subprocess.run([*begin, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no namespace of processes")
    with subprocess.Popen([*begin, "sleep", "600"]) as first:
        until(lambda: psutil.Process(first.pid).children())
        (inside,) = psutil.Process(first.pid).children()
        yield ["nsenter", "-t", str(inside.pid), "-p", "-m", "sh", "-c", f'cd {driven.project}; "$@"', "sh"]
        first.kill()


@pytest.mark.slow
def test_a_run_that_was_made_in_a_shell_is_driven_by_cron_and_again_after_a_kill(driven: Driven) -> None:
    """With a home, a short path, and nothing else. Nobody is told that he drives it himself."""
    run_id = driven.begin()
    driven.environment = {key: driven.environment[key] for key in ("HOME", "NOTES", "LEAVES")}
    driven.environment["PATH"] = f"{driven.root / 'bin'}:/usr/bin:/bin"
    killed = held(driven, run_id)
    killed.kill()
    ends_after_kill(driven, killed, run_id)


@pytest.mark.slow
def test_a_run_is_made_and_driven_in_a_container_and_again_after_a_kill(driven: Driven, container: list[str]) -> None:
    driven.command = [*container, *driven.command]
    run_id = driven.begin()
    killed = held(driven, run_id)
    below = psutil.Process(killed.pid).children(recursive=True)
    next(one for one in below if one.cmdline()[0] == sys.executable).kill()
    ends_after_kill(driven, killed, run_id)


@pytest.mark.slow
def test_a_run_that_was_made_outside_is_driven_in_a_container(driven: Driven, container: list[str]) -> None:
    run_id = driven.begin()
    driven.command = [*container, *driven.command]
    driven.loomctl("drive", run_id)
    assert driven.state(run_id)["status"] == "completed"


def ends_after_kill(driven: Driven, killed: subprocess.Popen[str], run_id: str) -> None:
    """Drive a run at once after its driver was killed."""
    (driven.notes / "hold").unlink()
    driven.loomctl("drive", run_id)
    killed.communicate(timeout=WAIT)
    assert driven.state(run_id)["status"] == "completed"
    assert (driven.left(), driven.done_again(run_id), driven.noted("overlaps")) == ([], [], [])
    turns = [(one["event"], one["properties"].get("why")) for one in driven.events(run_id) if "turn." in one["event"]]
    begins, killed, ends = ("turn.started", None), ("turn.ended", "its driver was killed"), ("turn.ended", "")
    assert turns == [begins, killed, begins, ends]  # also of one that was killed before anything was heard of its cost


@pytest.mark.slow
def test_a_drive_of_a_run_that_is_over_ends_what_a_killed_driver_left_and_tells_of_its_turn(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "driven", leaves="trap '' TERM")
    claude = driven.root / "bin" / "claude"
    claude.write_text(claude.read_text().replace('say \'{"type":"result"', 'sleep 600; say \'{"type":"result"'))
    run_id = driven.begin()
    process = driven.start("drive", run_id)
    until(lambda: driven.state(run_id)["status"] == "completed" and driven.left())
    driver = psutil.Process(process.pid)
    for one in (driver, *driver.children()):
        one.kill()
    process.communicate(timeout=WAIT)
    assert driven.left()
    driven.loomctl("drive", run_id)
    assert driven.alive() == []
    events = driven.events(run_id)
    ended = [one["properties"]["why"] for one in events if one["event"] == "turn.ended"]
    assert ended == ["its driver was killed"]
    driven.loomctl("drive", run_id)
    assert driven.events(run_id) == events


@pytest.mark.slow
def test_a_driver_that_can_write_no_more_ends_says_so_and_loses_nothing(driven: Driven) -> None:
    run_id = driven.begin()
    process = held(driven, run_id)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))
    (driven.notes / "hold").unlink()
    said = ends(driven, process)
    assert "too large" in said
    assert not said.startswith("0 ")
    driven.loomctl("drive", run_id)
    assert driven.state(run_id)["status"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["SIGTERM", "leash"])
def test_who_ends_a_drive_waits_for_no_repository(driven: Driven, way: str) -> None:
    """What is saved for another machine may take minutes where a repository is large, or its disk is far away.

    The assistant goes on for as long as it is let: what it ends meanwhile is not saved either.
    """
    claude = driven.root / "bin" / "claude"
    claude.write_text(claude.read_text().replace("\n", "\ntrap '' INT\n", 1))
    run_id = driven.begin()
    git = shutil.which("git")
    words = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    subprocess.run(words, shell=True, cwd=driven.project, check=True)
    slow = f'#!/bin/sh\ncase $* in *write-tree*) : >"$NOTES/slow"; sleep 60;; esac\nexec {git} "$@"\n'
    (driven.root / "bin" / "git").write_text(slow)
    (driven.root / "bin" / "git").chmod(0o755)
    process = driven.start("drive", run_id, "--leash", "60s", stdin=subprocess.PIPE)
    until((driven.notes / "slow").exists)
    began = time.monotonic()
    if way == "SIGTERM":
        process.terminate()
    else:
        let_go(process)
    assert ends(driven, process).startswith("9 ")
    assert time.monotonic() - began < 15
    assert driven.state(run_id)["lease"]["session_id"] is None


@pytest.mark.slow
def test_a_state_that_breaks_meanwhile_ends_the_drive_and_is_named(driven: Driven) -> None:
    run_id = driven.begin()
    process = held(driven, run_id)
    path = driven.project / ".loom" / "runs" / run_id / "state.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    said = ends(driven, process)
    assert "state.json" in said
    assert not said.startswith("0 ")
    path.write_bytes(whole)
    (driven.notes / "hold").unlink()
    driven.loomctl("drive", run_id)


@pytest.mark.slow
def test_a_project_that_is_gone_ends_the_drive(driven: Driven) -> None:
    run_id = driven.begin()
    process = held(driven, run_id)
    driven.project.rename(driven.root / "gone")
    assert not ends(driven, process).startswith("0 ")


def test_a_forged_word_drives_nothing(driven: Driven) -> None:
    run_id = driven.begin()
    process = held(driven, run_id)
    driven.environment["LOOM_DRIVEN"] = f"{run_id} 0123456789abcdef-forged"
    before = driven.state(run_id)["steps"]
    assert "HELD_BY_ANOTHER" in driven.loomctl("done", "--outcome", "succeeded", "--note", "Done.", code=6)
    assert "ASK_FIRST" in driven.loomctl("drive", run_id, code=2)  # nothing that is driven drives
    assert driven.state(run_id)["steps"] == before
    (driven.notes / "hold").unlink()
    assert ends(driven, process).startswith("0 ")


def refused(driven: Driven, run_id: str, code: int = 9) -> dict[str, Any]:
    """Drive with an assistant that fails at once, and wait for nothing; gives how the state tells that it ended."""
    driven.loomctl("drive", run_id, "--max-wait", "5s", code=code)
    ended: dict[str, Any] = driven.state(run_id)["driving"]["ended"]
    return ended


@pytest.mark.slow
def test_failures_count_on_over_drives_that_wait_for_nothing(driven: Driven) -> None:
    (driven.root / "bin" / "claude").write_text("#!/bin/sh\nexit 3\n")
    run_id = driven.begin()
    ended = [refused(driven, run_id) for _ in range(4)]
    assert [one["tries"]["failed"] for one in ended] == [2, 3, 4, 5]
    pauses = [clock.seconds_of(one["until"]) - clock.seconds_of(one["at"]) for one in ended]
    assert pauses == pytest.approx([20, 40, 80, 160], abs=2)
    assert driven.state(run_id)["waits_for"]["until"] == ended[-1]["until"]
    last = refused(driven, run_id, code=1)
    assert (last["code"], last["kind"], "until" in last, "tries" in last) == (1, "infra", False, False)
    assert "6 times in a row" in last["why"]


@pytest.mark.slow
def test_who_reads_the_state_alone_knows_how_the_last_drive_ended_and_that_one_goes_on_or_was_killed(
    driven: Driven,
) -> None:
    run_id = driven.begin()
    process = held(driven, run_id, "--leash", "60s", stdin=subprocess.PIPE)
    assert "ended" not in driven.state(run_id)["driving"]
    let_go(process)
    ends(driven, process)
    ended = driven.state(run_id)["driving"]["ended"]
    assert {key: ended[key] for key in ("code", "kind", "why")} == {
        "code": 9, "kind": "leash", "why": "the leash is gone: standard input was closed"
    }  # fmt: skip
    assert ended.keys() == {"code", "kind", "why", "at"}
    (driven.notes / "starts").unlink()
    process = held(driven, run_id)
    process.kill()
    process.communicate(timeout=WAIT)
    assert "ended" not in driven.state(run_id)["driving"]
    (driven.notes / "hold").unlink()
    driven.loomctl("drive", run_id)
    assert driven.state(run_id)["driving"]["ended"]["kind"] == "completed"


# ---- What a supervisor holds it by.


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None  # nothing is left to be flushed


def ended_for(driven: Driven, run_id: str) -> str:
    assert driven.state(run_id)["lease"]["session_id"] is None
    return str(driven.state(run_id)["driving"]["ended"]["kind"])


_SUPERVISOR = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
while True:
    child.stdin.write(b".")
    child.stdin.flush()
    time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_driver_whose_supervisor_is_killed_is_gone_with_all_that_it_started(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "driven", leaves="trap '' TERM INT")
    run_id = driven.begin()
    (driven.notes / "hold").touch()
    words = [sys.executable, "-c", _SUPERVISOR, *driven.command, "drive", run_id, "--leash", "60s"]
    with subprocess.Popen(
        words, cwd=driven.project, env=driven.environment, stdout=subprocess.PIPE, start_new_session=True
    ) as supervisor:
        assert supervisor.stdout is not None
        driver = psutil.Process(int(supervisor.stdout.readline()))
        until(driven.left)
        supervisor.kill()
        began = time.monotonic()
        until(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE)
    assert time.monotonic() - began < 15
    assert driven.left() == []
    assert ended_for(driven, run_id) == "leash"


@pytest.mark.slow
def test_a_driver_to_whom_nobody_writes_ends_now_and_goes_on_when_it_is_driven_again(driven: Driven) -> None:
    run_id = driven.begin()
    process = held(driven, run_id, "--leash", "2s", stdin=subprocess.PIPE)
    process.wait(WAIT)
    said = ends(driven, process)
    assert said.startswith("9 ")
    assert "the leash is gone: nothing came on standard input for 2 s" in said
    assert ended_for(driven, run_id) == "leash"
    (driven.notes / "hold").unlink()
    driven.loomctl("drive", run_id)
    assert driven.state(run_id)["status"] == "completed"


@pytest.mark.slow
def test_a_driver_that_was_stopped_for_too_long_believes_no_old_word(driven: Driven) -> None:
    run_id = driven.begin()
    (driven.notes / "hold").touch()
    process = driven.start("drive", run_id, "--leash", "8s", stdin=subprocess.PIPE)
    assert process.stdin is not None
    word = process.stdin.fileno()
    until(lambda: os.write(word, b".") and driven.left())
    process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    until(lambda: os.write(word, b".") and time.monotonic() - stopped > 8)
    process.send_signal(signal.SIGCONT)
    with contextlib.suppress(BrokenPipeError):
        until(lambda: os.write(word, b".") and process.poll() is not None)
    process.wait(WAIT)
    assert "nothing came on standard input for 8 s" in ends(driven, process)
    assert ended_for(driven, run_id) == "leash"


@pytest.mark.slow
def test_a_driver_that_waits_for_a_time_is_held_too(driven: Driven) -> None:
    (driven.root / "bin" / "claude").write_text("#!/bin/sh\nexit 3\n")
    run_id = driven.begin()
    process = driven.start("drive", run_id, "--leash", "60s", "--json", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert any('"waiting"' in line for line in iter(process.stdout.readline, ""))
    let_go(process)
    assert ends(driven, process).startswith("9 ")
    assert ended_for(driven, run_id) == "leash"


@pytest.mark.slow
def test_a_leash_that_nobody_holds_starts_no_assistant(driven: Driven) -> None:
    run_id = driven.begin()
    assert "standard input was closed" in driven.loomctl("drive", run_id, "--leash", "60s", code=9)
    assert driven.starts(run_id) == 0


@pytest.mark.slow
def test_what_a_driver_started_ends_no_command_step(driven: Driven) -> None:
    """Without a host's marks it looks like a person's terminal; the exit code of the command is its result."""
    steps = [{"id": "step-0", "prompt": "Do it."}, {"id": "test", "run": "touch tested; exit 1"}]
    workflow = {"id": "tested", "autonomy": "autonomous", "phases": {"build": {"steps": steps}}}
    (driven.project / ".loom" / "workflows" / "tested.json").write_text(json.dumps(workflow))
    run_id = str(json.loads(driven.loomctl("run", "x", "--workflow", "tested", "--json"))["run_id"])
    driven.loomctl("trust", run_id, "--yes")
    out, err = driven.start("drive", run_id, "--max-turns", "1").communicate(timeout=WAIT)
    ended = [one["step_id"] for one in driven.events(run_id) if one["event"] == "stage.completed"]
    assert "build/test" not in ended or (driven.project / "tested").exists(), out + err
    assert driven.state(run_id)["status"] != "completed"
