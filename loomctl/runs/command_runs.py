"""Commands of stages, seen by who asks for them: started once, awaited, looked at, stopped (D30).

A command is watched by a supervisor, a process of its own (`supervisor`); what is known of it stands in the
stage's folder, so that any process and any session can ask.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from loomctl.kit import digests, files, package, processes
from loomctl.kit.errors import EXIT_SETUP, LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

LOG, RECORD, LOCK = "command.log", "command.json", "command.lock"  # in the stage's folder
# In a command's environment: a word that nobody else has, of which the record holds the hash (`key_sha256`).
KEY = "LOOM_COMMAND_KEY"
# Bytes of output that are stored as they come; of what follows the last MOST_END are.
MOST_HEAD, MOST_END = 63 << 20, 1 << 20
# What the starting process ends with: the command runs; it runs or ran already; it could not be begun.
RUNS, WAS_RUN, FAILED = 0, 3, 4

NONE, RUNNING, ENDED, LOST = "none", "running", "ended", "lost"
LARGEST_LOG = MOST_HEAD + MOST_END + (1 << 20)
_STOP_PATIENCE = 15.0  # seconds: longer than a supervisor takes to end what does not want to
_POLL_FIRST, _POLL_MOST = 0.01, 0.2  # seconds between two looks
_TELL_EACH = 0.5


class Order(NamedTuple):
    """What is to be run. folder: the stage's, absolute; timeout: seconds, None for no end; cwd: absolute."""

    folder: str
    run_id: str
    step_id: str
    stage: str
    script: str
    cwd: str
    timeout: float | None
    handle: str


class Standing(NamedTuple):
    """How a stage's command stands.

    kind: NONE (it was not started), RUNNING, ENDED, or LOST (who watched it is gone, and nobody knows how it ended).
    record: what `command.json` holds; result: of it, how the command ended: `{exit_code|null, signal|null, timed_out,
    stopped, error, completed_at, duration_ms, bytes, stored, log_error}`; bytes: of the log so far.
    """

    kind: str
    record: dict[str, Any]
    result: dict[str, Any]
    bytes: int


def start(order: Order, environ: Mapping[str, str]) -> bool:
    """Start a stage's command, detached; gives whether this call did: a stage's command is run once, whoever asks.

    environ: the command's whole environment, to which its key is added. Raises LoomError NOT_STARTED where nothing was
    run.
    """
    import subprocess
    import sys

    files.make_folder(order.folder, mode=0o755)
    key = os.urandom(16).hex()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", package.MAIN, "supervise"],
            input=json.dumps({**order._asdict(), "key_sha256": digests.of_text(key)}).encode("ascii"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**environ, KEY: key},
            start_new_session=True,
            check=False,
        )
        code, said = done.returncode, done.stderr
    except (OSError, ValueError) as error:
        code, said = FAILED, str(error).encode("utf-8", "replace")
    if code in (RUNS, WAS_RUN):
        return code == RUNS
    lines = said.decode("utf-8", "replace").strip().splitlines()
    what = f"Loom could not start the command of {order.step_id}"
    why = lines[-1][:300] if lines else f"its supervisor ended with {code}"
    hint = f"loomctl next {order.handle}"
    raise LoomError("NOT_STARTED", what, where=order.folder, why=why, hint=hint, exit_code=EXIT_SETUP)


def look(folder: str) -> Standing:
    """Say how a stage's command stands."""
    alive = _is_watched(folder)  # before the record: a supervisor writes the result, then goes
    record = _record(folder)
    result = (record or {}).get("result")
    size = size_of(folder)
    if isinstance(result, dict):
        return Standing(ENDED, record or {}, result, size)
    if alive:
        return Standing(RUNNING, record or {}, {}, size)
    if record is None:
        return Standing(NONE, {}, {}, size)
    return Standing(LOST, record, {}, size)


def is_of(folder: str, key: str) -> bool:
    """Tell whether the command in a folder runs now, and is the one that was given a key."""
    standing = look(folder)
    return bool(key) and standing.kind == RUNNING and standing.record.get("key_sha256") == digests.of_text(key)


def wait(
    folder: str, until: float, tell: Callable[[Standing], None] | None = None, *, seen: Standing | None = None
) -> Standing:
    """Wait for a stage's command until it has ended or a time on the monotonic clock; gives how it stands then.

    tell: is given how it stands, about twice a second. One that was seen to run, here or by the caller (seen), and
    removed its record and its lock since, runs as long as its supervisor does.
    """
    pause, told = _POLL_FIRST, time.monotonic()
    while True:
        standing = look(folder)
        if standing.kind == NONE and seen is not None and _supervisor_lives(seen.record):
            standing = seen._replace(bytes=standing.bytes)
        seen = standing
        now = time.monotonic()
        if standing.kind != RUNNING or now >= until:
            return standing
        if tell is not None and now - told >= _TELL_EACH:
            tell(standing)
            told = now
        time.sleep(min(pause, max(0.0, until - now)))
        pause = min(_POLL_MOST, pause * 1.5)


def stop(folder: str, patience: float = _STOP_PATIENCE) -> Standing:
    """End a running command and all of its process group; gives how it stands then: still RUNNING if nothing helped.

    patience: seconds; with 0 its supervisor is told to end it, and nobody waits for that.
    """
    import signal  # whoever only reads the log needs none

    standing = look(folder)
    supervisor = standing.record.get("supervisor")
    if standing.kind == RUNNING and isinstance(supervisor, dict) and processes.lives(supervisor):
        _send(os.kill, supervisor["pid"], signal.SIGTERM)
        standing = wait(folder, time.monotonic() + patience)
    if standing.kind == LOST:
        end_orphan(standing)
    return standing


def end_orphan(standing: Standing) -> bool:
    """End the process group of a command whose supervisor is gone; tell whether it still ran.

    It is the one that was started, or nothing is ended: same boot, same number, same start, first of its group.
    """
    import signal

    command = standing.record.get("command")
    if not isinstance(command, dict) or not processes.lives(command):
        return False
    try:
        if os.getpgid(command["pid"]) != command["pid"]:
            return False
    except OSError:
        return False
    return _send(os.killpg, command["pid"], signal.SIGKILL)


def log_parts(folder: str) -> Iterator[bytes]:
    """Give what is stored of what the command printed, in parts; nothing where there is no log, or a link.

    Of one that somebody else wrote into, `LARGEST_LOG` bytes at most.
    """
    path = os.path.join(folder, LOG)
    left = LARGEST_LOG
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            left -= len(part)
            yield part
    except OSError:  # a folder, a device: no log
        return
    finally:
        os.close(descriptor)


def _send(how: Callable[[int, int], None], pid: int, number: int) -> bool:
    try:
        how(pid, number)
    except OSError:  # it has ended meanwhile
        return False
    return True


def _is_watched(folder: str) -> bool:
    """Tell whether a supervisor lives: it holds the stage's lock, and the kernel frees that however it dies."""
    try:
        lock = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # somebody removed it
        return _is_named(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return _is_named(folder)
    else:
        return False
    finally:
        os.close(lock)


def _is_named(folder: str) -> bool:
    return _supervisor_lives(_record(folder) or {})


def _supervisor_lives(record: Mapping[str, Any]) -> bool:
    supervisor = record.get("supervisor")
    return isinstance(supervisor, dict) and processes.lives(supervisor)


def _record(folder: str) -> dict[str, Any] | None:
    """Give what `command.json` holds: empty where it cannot be read, None where there is none."""
    try:
        value = files.read_json(os.path.join(folder, RECORD), limit=1 << 22)
    except FileNotFoundError:
        return None
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}


def size_of(folder: str) -> int:
    """Give the bytes that a stage's log holds; 0 where there is none."""
    try:
        return os.lstat(os.path.join(folder, LOG)).st_size
    except OSError:
        return 0
