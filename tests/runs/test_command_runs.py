"""A shell command under its supervisor: real processes, each way of ending, each way of dying."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit import processes
from loomctl.runs import command_runs
from loomctl.runs.command_runs import Order, Standing
from tests.helpers.errors import refusal
from tests.helpers.scenes import MAIN
from tests.helpers.tables import each
from tests.helpers.waiting import Gate, in_time, until


class Bench:
    """A stage's folder, and a folder that its command works in."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "a stage, näher besehen"
        self.work = root / "work é ü"
        self.work.mkdir(parents=True)

    @property
    def log(self) -> Path:
        """Where what a command prints is written."""
        return self.folder / command_runs.LOG

    def order(self, script: str, timeout: float | None = None, cwd: str = "") -> Order:
        """Give an order to run a script here."""
        return Order(
            str(self.folder), "shop-x-run-1", "build/test", "001", script, cwd or str(self.work), timeout, "x-0000"
        )

    def start(self, script: str, timeout: float | None = None, **environ: str) -> None:
        """Start a command."""
        assert command_runs.start(self.order(script, timeout), {**os.environ, **environ})

    def end(self) -> Standing:
        """Wait until it ended, however."""
        standing = command_runs.wait(str(self.folder), time.monotonic() + 60)
        assert standing.kind != command_runs.RUNNING
        return standing

    def run(self, script: str, timeout: float | None = None, **environ: str) -> Standing:
        """Run a command to its end."""
        self.start(script, timeout, **environ)
        return self.end()

    @property
    def record(self) -> dict[str, Any]:
        """What its record holds."""
        found: dict[str, Any] = json.loads((self.folder / command_runs.RECORD).read_text(encoding="utf-8"))
        return found

    def in_time(self, script: str, name: str) -> Standing:
        """Let a command come to its timeout, of which the last is long enough for it to have written a file."""
        ended: list[Standing] = []
        base, written = self.folder, self.work / name

        def tried(limit: float) -> None:
            self.folder = base.parent / f"limit-{limit}"
            self.start(script, timeout=limit)
            ended.append(self.end())
            assert ended[-1].result["timed_out"] is True

        in_time(tried, lambda: written.exists() and written.read_text().endswith("\n"))
        return ended[-1]

    def pid(self, name: str) -> int:
        """Give the number that the command wrote into a file of its own, once it is there."""
        path = self.work / name
        until(lambda: path.exists() and path.read_text().strip(), f"{name} is written")
        return int(path.read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(
    ("script", "expected", "output"),
    [
        ("exit 0", {"exit_code": 0, "signal": None}, b""),
        ("exit 3", {"exit_code": 3, "signal": None}, b""),
        ("echo out; echo err >&2; echo out", {"exit_code": 0}, b"out\nerr\nout\n"),
        ("no-such-program-here", {"exit_code": 127}, None),
        ("if then", {"exit_code": 2}, None),
        ("kill -9 $$", {"exit_code": None, "signal": "SIGKILL"}, b""),
        ("kill -TERM $$", {"exit_code": None, "signal": "SIGTERM", "stopped": False}, b""),
        ("cat; echo $?", {"exit_code": 0}, b"0\n"),
        ("printf '\\000\\377\\001'", {"exit_code": 0}, b"\x00\xff\x01"),
        ("exec >&- 2>&-; exit 4", {"exit_code": 4}, b""),
    ],
)
def test_a_command_ends_as_its_shell_says(
    bench: Bench, script: str, expected: dict[str, object], output: bytes | None
) -> None:
    standing = bench.run(script)
    assert standing.kind == command_runs.ENDED
    assert {key: standing.result[key] for key in expected} == expected
    assert output is None or bench.log.read_bytes() == output
    assert standing.result["error"] == standing.result["log_error"] == ""
    assert standing.result["timed_out"] is False


def test_a_command_works_in_its_folder_with_the_given_environment(bench: Bench) -> None:
    said = bench.run("pwd; echo $PWD; echo $GIVEN; trap", GIVEN="x y")
    assert said.result["exit_code"] == 0
    assert bench.log.read_text(encoding="utf-8") == f"{bench.work}\n{bench.work}\nx y\n"
    ignored = subprocess.run(["/bin/sh", "-c", "kill -INT $$"], check=False).returncode
    bench.folder = bench.folder.parent / "other"
    assert bench.run("kill -INT $$").result["signal"] == signal.Signals(-ignored).name


def test_its_files_are_its_users_alone_and_a_timeout_that_is_not_needed_changes_nothing(bench: Bench) -> None:
    bench.run("echo x")
    for name in (command_runs.LOG, command_runs.RECORD, command_runs.LOCK):
        assert stat.S_IMODE((bench.folder / name).stat().st_mode) == 0o600, name
    bench.folder = bench.folder.parent / "other"
    standing = bench.run("exit 0", timeout=600)
    assert (standing.result["timed_out"], standing.result["exit_code"]) == (False, 0)


def test_output_is_there_while_the_command_runs(bench: Bench, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bench.start(f"echo first; {gate}; echo last")
    until(lambda: bench.log.read_bytes() == b"first\n")
    standing = command_runs.look(str(bench.folder))
    assert (standing.kind, standing.bytes) == (command_runs.RUNNING, 6)
    assert processes.lives(standing.record["supervisor"])
    assert processes.lives(standing.record["command"])
    assert standing.record["script"].startswith("echo first")
    gate.open("more\n")
    assert (bench.end().result["exit_code"], bench.log.read_bytes()) == (0, b"first\nmore\nlast\n")


@pytest.mark.slow
def test_a_timeout_ends_the_command_and_what_it_started(bench: Bench) -> None:
    script = "echo before; sh -c 'sleep 600 & echo $! > grandchild; wait' & echo $! > child; wait"
    bench.in_time(script, "grandchild")
    child, grandchild = bench.pid("child"), bench.pid("grandchild")
    assert bench.log.read_bytes() == b"before\n"
    assert [processes.started(pid) for pid in (child, grandchild)] == ["", ""]


@pytest.mark.slow
def test_what_does_not_want_to_end_is_killed(bench: Bench) -> None:
    standing = bench.in_time("trap '' TERM; echo $$ > own; while :; do sleep 600; done", "own")
    own = bench.pid("own")
    assert (standing.result["signal"], processes.started(own)) == ("SIGKILL", "")


def test_what_a_command_leaves_ends_with_it_and_one_that_was_suspended_can_be_ended(bench: Bench) -> None:
    bench.start("sleep 600 & echo $! > left; echo done")
    left = bench.pid("left")
    assert (bench.end().result["exit_code"], processes.started(left)) == (0, "")
    assert bench.log.read_bytes() == b"done\n"
    bench.folder = bench.folder.parent / "other"
    bench.start("echo there; kill -STOP $$; exit 5")
    until(lambda: bench.log.read_bytes() == b"there\n" and bench.record["command"])
    standing = command_runs.stop(str(bench.folder))
    assert (standing.kind, standing.result["stopped"]) == (command_runs.ENDED, True)


@pytest.mark.slow
def test_a_daemon_that_holds_the_pipe_keeps_nobody_waiting(bench: Bench) -> None:
    daemon = f"'{sys.executable}' -c 'import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)'"
    bench.start(f"{daemon} > /dev/stderr 2>&1 & until [ -s '{bench.log}' ]; do :; done; exit 6")
    assert bench.end().result["exit_code"] == 6
    pid = int(bench.log.read_text())
    assert processes.started(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_flood_is_read_to_its_end_and_stored_in_part_a_line_of_ten_megabytes_whole(bench: Bench) -> None:
    first, last = command_runs.MOST_HEAD, command_runs.MOST_END
    more = 5 * 1024 * 1024
    total = first + last + more
    script = f"head -c {total - 4} /dev/zero | tr '\\000' x; printf END\\\\n"
    standing = bench.run(script)
    assert (standing.result["exit_code"], standing.result["bytes"]) == (0, total)
    data = bench.log.read_bytes()
    note = f"\n[loom: {more:,} bytes of output are left out here]\n".encode()
    assert len(data) == standing.result["stored"] == first + last + len(note)
    assert data[first : first + len(note)] == note
    assert data.endswith(b"xEND\n")
    bench.folder = bench.folder.parent / "other"
    standing = bench.run("head -c 10485760 /dev/zero | tr '\\000' y")
    assert (standing.result["bytes"], bench.log.stat().st_size) == (10485760, 10485760)


@pytest.mark.slow
def test_endless_output_ends_with_its_time(bench: Bench) -> None:
    standing = bench.run("yes", timeout=1.0)
    assert standing.result["timed_out"] is True
    assert bench.log.stat().st_size < command_runs.LARGEST_LOG


def test_what_cannot_be_started_is_an_end_with_its_reason(bench: Bench) -> None:
    assert command_runs.start(bench.order("true", cwd=str(bench.work / "gone")), os.environ)
    assert "could not be started: No such file or directory" in bench.end().result["error"]
    bench.folder = bench.folder.parent / "other"
    assert command_runs.start(bench.order(f": {'x' * (1 << 22)}"), os.environ)
    assert "could not be started" in bench.end().result["error"]


def test_a_stages_command_is_run_once(bench: Bench) -> None:
    """However many ask for it at once, and after it has ended."""
    order = bench.order("echo x >> count; echo done")
    began: list[bool] = []
    threads = [threading.Thread(target=lambda: began.append(command_runs.start(order, os.environ))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(began) == [False] * 4 + [True]
    bench.end()
    assert command_runs.start(order, os.environ) is False
    assert (bench.work / "count").read_text() == "x\n"


def test_a_supervisor_that_was_killed_is_noticed_and_its_command_ended(bench: Bench, tmp_path: Path) -> None:
    """Nobody waits for it; what was logged stays; the command is not left behind."""
    gate = Gate(tmp_path / "gate")
    bench.start(f"echo before; {gate}")
    until(lambda: bench.log.read_bytes() == b"before\n")
    until(lambda: bench.record["command"])
    os.kill(bench.record["supervisor"]["pid"], signal.SIGKILL)
    standing = bench.end()
    assert (standing.kind, standing.result) == (command_runs.LOST, {})
    command = standing.record["command"]
    assert command_runs.end_orphan(standing) is True
    until(lambda: not processes.lives(command))
    assert command_runs.end_orphan(standing) is False
    assert bench.log.read_bytes() == b"before\n"


def test_a_supervisor_and_its_command_that_were_killed_are_noticed(bench: Bench, tmp_path: Path) -> None:
    """As after a crash of the machine."""
    gate = Gate(tmp_path / "gate")
    bench.start(str(gate))
    until(lambda: bench.record["command"])
    record = bench.record
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    os.killpg(record["command"]["pid"], signal.SIGKILL)
    assert bench.end().kind == command_runs.LOST


@pytest.mark.parametrize("changed", [{"boot_id": "another"}, {"started": "1"}, {"pid": 1}])
def test_a_record_from_elsewhere_ends_nobodys_process(bench: Bench, changed: dict[str, object]) -> None:
    """A number alone says nothing: another boot, another start."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        named = {**processes.identity(other.pid), **changed}
        bench.folder.mkdir()
        (bench.folder / command_runs.RECORD).write_text(json.dumps({"supervisor": named, "command": named}))
        standing = command_runs.stop(str(bench.folder))
        assert standing.kind == command_runs.LOST
        assert command_runs.end_orphan(standing) is False
        assert other.poll() is None
        other.kill()


@each("text", ["", "{", "[]", '{"result": 1}', "null", '{"result": null, "supervisor": {"pid": "x"}}'])
def test_a_record_that_says_nothing_is_a_lost_command(bench: Bench, text: str) -> None:
    """And is not run again: it may have been run."""
    bench.folder.mkdir(exist_ok=True)
    (bench.folder / command_runs.RECORD).write_text(text)
    assert command_runs.look(str(bench.folder)).kind == command_runs.LOST
    assert command_runs.start(bench.order("touch ran"), os.environ) is False
    assert not (bench.work / "ran").exists()


def test_a_command_can_be_stopped(bench: Bench, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bench.start(f"sleep 600 & echo $! > child; {gate}")
    child = bench.pid("child")
    standing = command_runs.stop(str(bench.folder))
    assert (standing.kind, standing.result["stopped"]) == (command_runs.ENDED, True)
    assert processes.started(child) == ""
    assert command_runs.stop(str(bench.folder)) == command_runs.look(str(bench.folder))


def test_nothing_of_who_asked_is_held_open(bench: Bench, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    program = (
        f"import sys, os; sys.path.insert(0, {str(MAIN.parents[1])!r}); "
        "from loomctl.runs import command_runs; import json; "
        "command_runs.start(command_runs.Order(*json.loads(sys.argv[1])), os.environ); print('asked')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(bench.order(str(gate)))], capture_output=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == (b"asked\n", b"")
    standing = command_runs.look(str(bench.folder))
    assert standing.kind == command_runs.RUNNING
    assert os.getsid(standing.record["command"]["pid"]) == standing.record["command"]["pid"]
    assert os.getsid(standing.record["supervisor"]["pid"]) != os.getsid(0)
    gate.open()
    assert bench.end().result["exit_code"] == 0


def test_a_log_that_cannot_grow_holds_nobody(bench: Bench) -> None:
    """The command ends as it would; that its output is lost is said (a full disk, here a limit on the file's size)."""
    program = (
        f"import sys, os, resource, signal; sys.path.insert(0, {str(MAIN.parents[1])!r}); "
        "from loomctl.runs import command_runs; import json; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); "
        "command_runs.start(command_runs.Order(*json.loads(sys.argv[1])), os.environ)"
    )
    script = "head -c 300000 /dev/zero; echo done >&2; exit 7"
    subprocess.run([sys.executable, "-c", program, json.dumps(bench.order(script))], timeout=60, check=True)
    standing = bench.end()
    assert (standing.result["exit_code"], standing.result["bytes"]) == (7, 300005)
    assert standing.result["log_error"] == "File too large"
    assert bench.log.stat().st_size <= 65536


@pytest.mark.parametrize("name", [command_runs.LOG, command_runs.LOCK])
def test_a_link_in_a_files_place_is_refused_and_nothing_run(bench: Bench, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    bench.folder.mkdir()
    (bench.folder / name).symlink_to(victim)
    refused = refusal(command_runs.start, bench.order("touch ran"), os.environ)
    assert refused.code == "NOT_STARTED"
    assert "symbolic link" in refused.why
    assert victim.read_text() == "mine"
    assert not (bench.work / "ran").exists()


def test_what_is_stored_of_a_log_is_read_in_parts(bench: Bench) -> None:
    bench.run("head -c 3000000 /dev/zero; echo two")
    parts = list(command_runs.log_parts(str(bench.folder)))
    assert len(parts) > 1
    assert b"".join(parts) == bytes(3_000_000) + b"two\n"
    assert list(command_runs.log_parts(str(bench.work))) == []
    (bench.work / command_runs.LOG).symlink_to("/etc/passwd")
    assert list(command_runs.log_parts(str(bench.work))) == []
    (bench.work / command_runs.LOG).unlink()
    (bench.work / command_runs.LOG).mkdir()
    assert list(command_runs.log_parts(str(bench.work))) == []


def test_a_command_that_removes_its_lock_is_watched_all_the_same(bench: Bench, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bench.start(str(gate))
    until(lambda: bench.record["command"])
    (bench.folder / command_runs.LOCK).unlink()
    assert command_runs.look(str(bench.folder)).kind == command_runs.RUNNING
    gate.open()
    assert bench.end().result["exit_code"] == 0
