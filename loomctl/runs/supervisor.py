"""Watching a shell command to its end, in a process of its own that outlives whoever asked for it (D30).

It belongs to nobody's session and to no terminal. It reads what the command prints, keeps it in `command.log`, ends the
command's process group in time, and writes how it ended. It holds the stage's `command.lock` for as long as it lives,
so that the kernel tells whether it does, whatever became of its number.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time

from loomctl.kit import clock, files, processes
from loomctl.kit.errors import LoomError
from loomctl.runs import command_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

KILL_AFTER = 5.0  # seconds between asking a process group to end (TERM) and ending it (KILL)
_DRAIN = 0.5  # seconds for what stands in the pipe once the group is gone: a daemon may hold it open for ever
_GIVE_UP = 2.0  # seconds after KILL: what is left then is nobody's, or waits for a disk that does not answer
_LOCK_PATIENCE = 2.0  # who only looks holds the lock for a moment
_WRITE_TRIES = 60  # of the result, half a second apart: what filled the disk often goes when the command ends
_BLOCK = 1 << 16
_TOLD = 1 << 17  # characters of the script that the record holds: no system starts a longer one


def main() -> int:
    """Start the command that standard input describes and detach; ends once it runs. Gives RUNS, WAS_RUN or FAILED.

    Standard input: one JSON object `{folder, script, cwd, timeout|null, run_id, step_id, stage, key_sha256}`, paths
    absolute. Why nothing was begun stands on standard error.
    """
    order = json.loads(sys.stdin.buffer.read())
    reading, writing = os.pipe()
    if os.fork():  # a child of a child: whoever asked is no ancestor of the command, and no tree of it is killed
        os.close(writing)
        said = os.read(reading, 4096)
        if said[:1] in (b"0", b"3"):
            return int(said[:1])
        print(said[1:].decode("utf-8", "replace") or "it ended at once", file=sys.stderr)  # noqa: T201 - for the caller
        return command_runs.FAILED
    os.close(reading)
    code = 1
    try:
        _supervise(order, writing)
        code = 0
    finally:
        os._exit(code)


def _supervise(order: dict[str, Any], told: int) -> None:
    folder = order["folder"]
    try:
        if not _is_first(folder):
            os.write(told, b"3")
            return
        record: dict[str, Any] = {
            "schema_version": 1,
            **{key: order[key] for key in ("run_id", "step_id", "stage", "cwd", "timeout", "key_sha256")},
            "script": order["script"][:_TOLD],
            "started_at": clock.now(),
            "supervisor": processes.identity(os.getpid()),
            "command": None,
            "result": None,
        }
        log = _Log(os.path.join(folder, command_runs.LOG))
        watch = _Watch(log, order["timeout"])  # it hears before anybody can read whom to ask
        _write(folder, record)
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing was begun, and the caller says why
        why = error.what if isinstance(error, LoomError) else _why(error)
        os.write(told, b"4" + why.encode("utf-8", "replace")[:4000])
        return
    began = time.monotonic()
    try:
        child = watch.start(order["script"], order["cwd"])
    except (OSError, ValueError) as error:
        os.write(told, b"0")
        result = {**_NOTHING, "error": f"it could not be started: {_why(error)}"}
    else:
        record["command"] = processes.identity(child.pid)
        try:
            _write(folder, record)
        except OSError:  # a full disk: the command goes on without its number on record
            pass
        os.write(told, b"0")
        _leave_streams(told)
        result = watch.follow(child, began)
    ended = {"completed_at": clock.now(), "duration_ms": round((time.monotonic() - began) * 1000)}
    log.close()
    kept = {"bytes": log.seen, "stored": log.stored, "log_error": log.error}
    record["result"] = {**result, **ended, **kept}
    _write_at_last(folder, record)


_NOTHING: dict[str, Any] = {"exit_code": None, "signal": None, "timed_out": False, "stopped": False, "error": ""}


def _is_first(folder: str) -> bool:
    """Take the stage's lock for as long as this process lives; False where the command runs or ran already."""
    lock = files.open_own(os.path.join(folder, command_runs.LOCK), os.O_RDWR)
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
    return not os.path.lexists(os.path.join(folder, command_runs.RECORD))


def _write(folder: str, record: dict[str, Any]) -> None:
    files.write_atomically(os.path.join(folder, command_runs.RECORD), files.to_json(record))


def _write_at_last(folder: str, record: dict[str, Any]) -> None:
    for _ in range(_WRITE_TRIES):
        try:
            return _write(folder, record)
        except FileNotFoundError:  # the stage was removed meanwhile
            return None
        except OSError:
            time.sleep(0.5)
    return None


def _leave_streams(told: int) -> None:
    """Let go of whoever asked: a pipe of theirs that stays open here would keep them waiting."""
    os.close(told)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    os.chdir("/")


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{where}"
    return str(error)


class _Log:
    """What the command prints, kept as it is: the first part of it as it comes, and of a flood its end besides."""

    def __init__(self, path: str) -> None:
        self.seen = self.stored = 0
        self.error = ""
        self._end = bytearray()
        self._file = files.open_own(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, 0)

    def add(self, data: bytes) -> None:
        """Keep what was printed; what cannot be kept is counted, and never holds the command."""
        room = max(0, command_runs.MOST_HEAD - self.seen)
        self.seen += len(data)
        if room and not self.error:
            self._put(data[:room])
        self._end += data[room:]
        if len(self._end) > 2 * command_runs.MOST_END:
            del self._end[: -command_runs.MOST_END]

    def close(self) -> None:
        """Add the end of what was too much, saying how much is left out between."""
        end = bytes(self._end[-command_runs.MOST_END :])
        if end and not self.error:
            left_out = self.seen - command_runs.MOST_HEAD - len(end)
            if left_out:
                self._put(f"\n[loom: {left_out:,} bytes of output are left out here]\n".encode())
            self._put(end)
        elif self.error:
            self._put(f"\n[loom: the output could not be stored any more: {self.error}]\n".encode())
        try:
            os.fsync(self._file)
        except OSError as error:
            self.error = self.error or _why(error)
        os.close(self._file)

    def _put(self, data: bytes) -> None:
        try:
            files.write_all(self._file, data)
            self.stored += len(data)
        except OSError as error:
            self.error = self.error or _why(error)


class _Watch:
    def __init__(self, log: _Log, timeout: float | None) -> None:
        self._log, self._timeout = log, timeout
        self._group = 0
        self._asked = False
        self._why = ""  # why it is being ended: "", "timeout" or "stopped"
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._waking, wakes = os.pipe()
        for end in (self._waking, wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._hear)  # a handler, for a child would inherit that a signal is ignored

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._asked = self._asked or number == signal.SIGTERM

    def start(self, script: str, cwd: str) -> subprocess.Popen[bytes]:
        """Start the command: a session of its own, no input, both streams into one pipe. Raises OSError, ValueError."""
        self._reading, writing = os.pipe()
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", script],
                cwd=cwd,
                env={**os.environ, "PWD": cwd},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        self._group = child.pid
        os.set_blocking(self._reading, False)
        return child

    def follow(self, child: subprocess.Popen[bytes], began: float) -> dict[str, Any]:
        """Read what it prints until it and its process group have ended, by themselves or not."""
        deadline = None if self._timeout is None else began + self._timeout
        is_open, drained_at = True, None
        while True:
            now = time.monotonic()
            code = child.poll()
            if code is None and not self._why:
                if self._asked:
                    self._end("stopped", now)
                elif deadline is not None and now >= deadline:
                    self._end("timeout", now)
            lives = code is None or processes.group_lives(self._group)
            if code is not None and lives and self._kill_at is None and self._give_up_at is None:
                self._signal(signal.SIGTERM)  # what it left behind in its group ends with it
                self._kill_at = now + KILL_AFTER
            if self._kill_at is not None and now >= self._kill_at:
                self._signal(signal.SIGKILL)
                self._kill_at, self._give_up_at = None, now + _GIVE_UP
            gave_up = self._give_up_at is not None and now >= self._give_up_at
            if code is not None and (gave_up or not lives):
                drained_at = drained_at or now + _DRAIN
                if not is_open or now >= drained_at:
                    return self._result(code)
            if is_open:
                is_open = self._read()
            self._wait(is_open, 0.02 if code is not None else self._left(now, deadline))

    def _left(self, now: float, deadline: float | None) -> float:
        """Give how long nothing but an event can change what is to be done."""
        times = [at for at in (self._kill_at, None if self._why else deadline) if at is not None]
        return max(0.0, min(times, default=now + 60) - now)

    def _wait(self, is_open: bool, seconds: float) -> None:  # noqa: FBT001 - a private helper with two arguments
        waiting = select.poll()
        waiting.register(self._waking, select.POLLIN)
        if is_open:
            waiting.register(self._reading, select.POLLIN | select.POLLHUP)
        if waiting.poll(min(60_000, int(seconds * 1000) + 1)):
            try:
                while os.read(self._waking, 512):
                    pass
            except BlockingIOError:
                pass

    def _read(self) -> bool:
        try:
            data = os.read(self._reading, _BLOCK)
        except BlockingIOError:
            return True
        if not data:
            os.close(self._reading)
            return False
        self._log.add(data)
        return True

    def _end(self, why: str, now: float) -> None:
        self._why = why
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # what was stopped could not end
        self._kill_at = now + KILL_AFTER

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._group, number)
        except OSError:  # it has ended; macOS says so by another error
            pass

    def _result(self, code: int) -> dict[str, Any]:
        named = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return {
            **_NOTHING,
            "exit_code": code if code >= 0 else None,
            "signal": named if code < 0 else None,
            "timed_out": self._why == "timeout",
            "stopped": self._why == "stopped",
        }
