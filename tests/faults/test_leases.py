"""Real processes contend for a run: one drives at a time, and no older driver writes after a newer one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit import processes
from loomctl.runs.model import lease
from tests.faults.drivers import meets
from tests.faults.stand import chain
from tests.helpers.scenes import CHECKOUT, MAIN, OTHER, SESSION, Ended, Json, Scene
from tests.helpers.verbs import read, statuses
from tests.helpers.waiting import until

PIPES: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
CONTENDERS = 6
TIMES = 8


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    assert scene.loomctl("run", "add dark mode", "--workflow", "tiny").code == 0
    return scene


def contender(scene: Scene, session: str, how: str, times: int = 1, ready: Path | None = None) -> subprocess.Popen[str]:
    words = [str(scene.store), scene.run_dir.name, session, how, str(times), str(ready or "")]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen([sys.executable, "-m", "tests.faults.drivers", *words], cwd=CHECKOUT, env=environ, **PIPES)


def gather(every: list[subprocess.Popen[str]]) -> None:
    """Wait until each of them has come as far as the others, and let all go on."""
    for process in every:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    for process in every:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def told(process: subprocess.Popen[str]) -> list[Json]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    found: list[Json] = json.loads(output)
    return found


@pytest.mark.slow
def test_each_epoch_is_one_drivers_and_no_older_one_writes_after_a_newer(begun: Scene) -> None:
    """Processes that take the run from each other: the log has each write under its own epoch.

    In every round each takes it; in every other one all have before the first writes, so that one alone may.
    """
    started = [contender(begun, f"session-{number}", "take-over", TIMES) for number in range(CONTENDERS)]
    for number in range(TIMES):
        for _ in range(meets(number)):
            gather(started)
    each = [told(process) for process in started]
    every = [one for mine in each for one in mine]
    owners: dict[int, set[str]] = {}
    for one in every:
        if "taken" in one:  # who holds it already keeps its epoch
            owners.setdefault(one["taken"], set()).add(one["session"])
    assert sorted(owners) == list(range(2, 2 + len(owners)))
    assert len(owners) >= TIMES * (CONTENDERS - 1) + 1  # a round's first may be the last one's last
    for number in range(0, TIMES, 2):
        of_round = [mine[2 * number + 1] for mine in each]
        assert sum("refused" in one for one in of_round) == CONTENDERS - 1
    owner = {epoch: session for epoch, (session,) in owners.items()}
    assert all(one.get("refused") in (None, "HELD_BY_ANOTHER") for one in every)
    assert not any(one.get("asked") for one in every if "refused" in one)  # nothing was decided either
    now = 1
    for entry in chain(begun.run_dir):
        if entry["event"] in ("lease.taken", "lease.taken_over") and entry["session_id"] != SESSION:
            assert entry["properties"]["epoch"] == now + 1
            now += 1
            assert entry["session_id"] == owner[now]
        if entry["event"] == "tick":
            assert (entry["properties"]["epoch"], entry["session_id"]) == (now, owner[now])
    refused = [one for one in chain(begun.run_dir) if one["event"] == "lease.refused"]
    assert len(refused) == sum("refused" in one for one in every)
    assert lease.epoch(begun.state) == now == 1 + len(owner)


def test_a_paused_driver_that_goes_on_after_a_take_over_is_refused(begun: Scene, tmp_path: Path) -> None:
    """It had read the run, and was stopped before its write; another drove meanwhile, and has left by then."""
    old = contender(begun, SESSION, "paused", ready=tmp_path / "ready")
    until((tmp_path / "ready").exists)
    os.kill(old.pid, signal.SIGSTOP)
    (tmp_path / "ready").unlink()
    assert begun.loomctl("resume", "--take-over", session=OTHER).code == 0
    assert begun.loomctl("done", session=OTHER, given="theirs").code == 0
    begun.let_go()
    before = begun.state
    os.kill(old.pid, signal.SIGCONT)
    (said,) = told(old)
    assert said == {"session": SESSION, "refused": "HELD_BY_ANOTHER", "exit": 6, "asked": False}
    after = begun.state
    apart = ("revision", "ledger_head", "updated_at")
    assert {**after, **dict.fromkeys(apart)} == {**before, **dict.fromkeys(apart)}
    assert begun.event_names()[-1] == "lease.refused"


@pytest.mark.slow
def test_a_loomctl_that_is_stopped_in_its_work_does_not_write_over_who_came(begun: Scene, tmp_path: Path) -> None:
    """A real `done`, stopped while it waits for its result on standard input: exit code 6, its result kept."""
    begun.write("s.md", "x")
    command = [sys.executable, "-I", str(MAIN), "done", "--json", "--artifact", "spec_path=s.md"]
    with subprocess.Popen(command, cwd=begun.root, env=begun.environ(SESSION), **PIPES) as old:
        until(lambda: _waits_for_input(old.pid))
        os.kill(old.pid, signal.SIGSTOP)
        assert begun.loomctl("resume", "--take-over", session=OTHER).code == 0
        assert begun.loomctl("done", session=OTHER, given="theirs").code == 0
        os.kill(old.pid, signal.SIGCONT)
        output, _ = old.communicate("mine, of hours", timeout=60)
    assert old.returncode == 6
    error = json.loads(output)["error"]
    assert error["code"] == "HELD_BY_ANOTHER"
    assert " --artifact 'spec_path=s.md' --response-file " in error["why"]
    assert Path(error["why"].split("--response-file ")[1]).read_text() == "mine, of hours"
    assert (read(begun, "001-frame.ask@1", "response.md"), statuses(begun)) == ("theirs", ["succeeded", "in_progress"])
    assert "mine" not in "".join(path.name for path in tmp_path.iterdir())


def _waits_for_input(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()
    except OSError:
        return False
    return words[:2] == ["0", "0x0"]


def in_a_shell_of_its_own(scene: Scene, *command: str) -> Ended:
    how: Any = {"cwd": scene.root, "env": scene.environ(None), "start_new_session": True}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.slow
def test_an_assistant_drives_what_a_terminal_of_its_user_drove(begun: Scene) -> None:
    """Nothing works in a terminal by itself, so it need not be the one that the assistant was started in (D74)."""
    begun.let_go()
    run_id = begun.run_dir.name
    loomctl = f'"{sys.executable}" -I "{MAIN}"'
    session = "CLAUDE_CODE_SESSION_ID=of-the-shell CLAUDE_PID=$$"
    resumed = f"{session} {loomctl} resume {run_id} --json"

    def shell(*lines: str) -> Ended:
        return in_a_shell_of_its_own(begun, "/bin/sh", "-c", "\n".join(lines))

    own = shell(f"{loomctl} resume {run_id} >/dev/null", resumed, "exit $?")
    assert own.code == 0, own.stdout
    assert begun.state["lease"]["session_id"] == "of-the-shell"
    begun.let_go()
    in_another = f"setsid sh -c '{session} {loomctl} resume {run_id} --json'"
    other = shell(f"{loomctl} resume {run_id} >/dev/null", in_another, "exit $?")
    assert other.code == 0, other.stdout
    assert begun.state["lease"]["session_id"] == "of-the-shell"


@pytest.mark.slow
def test_of_two_terminals_one_drives_until_its_shell_is_gone(begun: Scene) -> None:
    """Two shells at once: the second is refused while the first lives, and drives when it is killed."""
    begun.let_go()
    run_id = begun.run_dir.name
    line = f'"{sys.executable}" -I "{MAIN}" resume {run_id} >/dev/null'
    script = ["/bin/sh", "-c", f"{line} && {line} && echo drives; read x"]
    how: Any = {"cwd": begun.root, "env": begun.environ(None), "start_new_session": True}
    first: Any = subprocess.Popen(script, **how, **PIPES)
    assert first.stdout.readline() == "drives\n"  # both commands of one script
    epoch = lease.epoch(begun.state)
    second = [sys.executable, "-I", str(MAIN), "resume", run_id, "--json"]

    ended = in_a_shell_of_its_own(begun, *second)
    assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
    first.kill()
    first.communicate()
    until(lambda: not processes.started(first.pid))
    began = time.monotonic()
    assert in_a_shell_of_its_own(begun, *second).code == 0
    assert time.monotonic() - began < 30
    assert lease.epoch(begun.state) == epoch + 1


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="nothing else tells which processes a session has")
def test_a_script_that_outlived_its_shell_drives_until_it_ends(begun: Scene) -> None:
    """It has no leader that could be asked. While it runs nobody takes the run; then the next command has it."""
    begun.let_go()
    loomctl = f'"{sys.executable}" -I "{MAIN}" resume {begun.run_dir.name}'
    wait = "while kill -0 $(cut -d' ' -f6 /proc/$$/stat) 2>/dev/null; do sleep 0.02; done"
    begun.write("script.sh", f"{wait}\n{loomctl} && echo drives >said\nread x <go\n")
    os.mkfifo(begun.root / "go")
    in_a_shell_of_its_own(begun, "/bin/sh", "-c", "sh script.sh >/dev/null 2>&1 &")
    until((begun.root / "said").exists)
    second = [sys.executable, "-I", str(MAIN), "resume", begun.run_dir.name, "--json"]

    ended = in_a_shell_of_its_own(begun, *second)
    assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
    epoch = lease.epoch(begun.state)
    (begun.root / "go").write_text("on\n")
    until(lambda: in_a_shell_of_its_own(begun, *second).code == 0)
    (*_, taken) = [one for one in begun.events() if one["event"] == "lease.taken"]
    assert (taken["properties"]["why"], lease.epoch(begun.state)) == ("gone", epoch + 1)


@pytest.mark.slow
def test_many_that_come_at_once_to_a_free_run_make_one_driver(begun: Scene) -> None:
    """Each in a process of its own, without a word of taking over: one gets it, all others are told."""
    begun.let_go()
    command = [sys.executable, "-I", str(MAIN), "resume", begun.run_dir.name, "--json"]
    pid = {"CLAUDE_PID": str(os.getpid())}
    environs = [begun.environ(f"session-{number}", **pid) for number in range(CONTENDERS)]
    started = [subprocess.Popen(command, cwd=begun.root, env=environ, **PIPES) for environ in environs]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in started]
    assert sorted(process.returncode for process in started) == [0, *[6] * (CONTENDERS - 1)]
    (winner,) = [number for number, process in enumerate(started) if process.returncode == 0]
    assert begun.state["lease"]["session_id"] == f"session-{winner}"
    assert {answer["error"]["code"] for answer in answers if "error" in answer} == {"HELD_BY_ANOTHER"}
    bound = [f"session-{number}" for number in range(CONTENDERS) if begun.space().local.binding(f"session-{number}")]
    assert bound == [f"session-{winner}"]
