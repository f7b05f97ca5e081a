"""Which processes live, and since when (a pid alone says nothing); programs run to their end; the lock between them."""

from __future__ import annotations

import fcntl
import os
import sys
import time

from loomctl.kit import clock, files, quick_json
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any

_boot: list[str] = []  # no process outlives its boot


def boot_id() -> str:
    """Name this boot of this machine; empty where the system does not tell."""
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id", "rb") as source:
                _boot.append(source.read().strip().decode("ascii"))
        except (OSError, ValueError):
            return ""
    return _boot[0]


def namespace() -> str:
    """Name the namespace in which process numbers mean something here; empty where the system knows of none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def started(pid: int) -> str:
    """Give when a process began, in the system's own words; empty if it does not live (or is a zombie)."""
    if pid <= 0:
        return ""
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return ""
    except (OSError, IndexError, ValueError):
        return ""
    return _started_by_ps(pid)


def _started_by_ps(pid: int) -> str:
    import subprocess  # no /proc: macOS, the BSDs

    try:
        done = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)],
            capture_output=True,
            timeout=1,
            env={"LC_ALL": "C", "PATH": "/bin:/usr/bin"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("ascii", "replace").strip()


def group_lives(group: int) -> bool:
    """Tell whether a process group still runs; one of which only zombies are left, which nobody reaps, does not."""
    try:
        os.killpg(group, 0)
    except OSError:  # it has ended; macOS says so by another error
        return False
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:  # no /proc: what can be signalled counts
        return True
    if str(os.getpid()) not in numbers:
        return True
    for number in numbers:
        try:
            with open(f"/proc/{number}/stat", "rb") as source:
                fields = source.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 2 and fields[2] == b"%d" % group and fields[0] not in (b"Z", b"X"):
            return True
    return False


def session_is_empty(leader: int) -> bool:
    """Tell whether no process of a session, named by the process that began it, runs any more.

    False where that cannot be seen: without /proc, and where it hides other users' processes.
    """
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return False
    return {1, os.getpid()} <= set(numbers) and not any(_is_in(number, leader) for number in numbers)


def _is_in(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader and bool(started(pid))
    except ProcessLookupError:  # it ended meanwhile
        return False
    except OSError:
        return True


def arguments(pid: int) -> list[str]:
    """Give the command line of a process, as far as the system tells; else an empty list."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            return [part.decode("utf-8", "replace") for part in source.read(65536).split(b"\0") if part]
    except OSError:
        return []


def identity(pid: int | None) -> dict[str, Any]:
    """Name a process for later: `{pid, started, boot_id}`; pid None where it is not known."""
    if pid is None:
        return {"pid": None, "started": "", "boot_id": boot_id()}
    return {"pid": pid, "started": started(pid), "boot_id": boot_id()}


def same(known: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two identities name one process."""
    keys = ("pid", "started", "boot_id")
    return (
        bool(known.get("pid")) and bool(known.get("started")) and all(known.get(key) == other.get(key) for key in keys)
    )


def lives(known: Mapping[str, Any]) -> bool:
    """Tell whether the process that was named still runs: same boot, same pid, same start."""
    pid = known.get("pid")
    if not isinstance(pid, int) or known.get("boot_id") != boot_id():
        return False
    return bool(known.get("started")) and started(pid) == known.get("started")


class Ended(NamedTuple):
    """code: negative for a signal, None where it was stopped because its time was over; seconds: how long it took."""

    code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float


def run(command: Sequence[str], *, cwd: str, environ: Mapping[str, str], patience: float, given: bytes = b"") -> Ended:
    """Run a command without a shell. given: its standard input; patience: seconds. Raises OSError where none starts."""
    import subprocess  # hooks start none

    began = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(given, timeout=patience)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            return Ended(None, b"", b"", time.monotonic() - began)
        except BaseException:
            _end(process.pid)
            raise
        return Ended(process.returncode, stdout, stderr, time.monotonic() - began)


def _end(group: int) -> None:
    import signal

    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:  # all of them have ended meanwhile
        pass


_FIRST_NAMESPACE = 0xEFFFFFFC  # of processes: Linux' own number for the one that it starts with


class Process(NamedTuple):
    """started: in seconds since 1970, exact to a hundredth; 0 where it is not known."""

    pid: int
    started: float


def line() -> list[Process]:
    """Give this process, its parent, and so on, as far as they can be seen."""
    return _from_proc() if os.path.isdir("/proc/self") else _from_psutil()


def first_is_the_systems() -> bool:
    """Tell whether process 1 is the machine's own first one, which every other descends from, and not a container's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_NAMESPACE
    except OSError:
        return sys.platform == "darwin"


def _from_proc() -> list[Process]:
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = os.sysconf("SC_CLK_TCK")
    found: list[Process] = []
    pid = os.getpid()
    while pid > 0:
        try:
            with open(f"/proc/{pid}/stat", "rb") as source:
                fields = source.read().rpartition(b")")[2].split()
            found.append(Process(pid, booted + int(fields[19]) / ticks))
            pid = int(fields[1])
        except (OSError, IndexError, ValueError):
            break
    return found


def _from_psutil() -> list[Process]:
    import psutil

    try:
        one = psutil.Process()
        return [Process(process.pid, process.create_time()) for process in (one, *one.parents())]
    except psutil.Error:
        return []


PATIENCE = 10.0  # seconds
HOOK_PATIENCE = 2.0


class Lock:
    """`with Lock(path):` holds the lock; waits `patience` seconds, then raises HELD naming the holder.

    The kernel frees it when its process dies, however it dies; the file stays until somebody who holds it removes it.
    signed: the file says who holds it; False for one of another program's, whose content is not Loom's. what: it, in
    the words of HELD.
    """

    def __init__(
        self, path: str, *, patience: float = PATIENCE, signed: bool = True, what: str = "the run's lock"
    ) -> None:
        self._path, self._patience, self._descriptor, self._signed = path, patience, -1, signed
        self._what = what

    def __enter__(self) -> Lock:
        deadline = time.monotonic() + self._patience
        while True:
            files.make_folder(os.path.dirname(self._path))
            self._descriptor = files.open_own(self._path, os.O_RDWR)
            try:
                self._wait(deadline)
            except BaseException:
                os.close(self._descriptor)
                raise
            if os.fstat(self._descriptor).st_nlink:
                break
            os.close(self._descriptor)  # its holder removed the file meanwhile: another may hold the new one
        if not self._signed:
            return self
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, quick_json.dumps({"pid": os.getpid(), "since": clock.now()}).encode(), 0)
        except OSError:  # a full disk: the lock holds without its owner's name
            pass
        return self

    def remove(self) -> None:
        """Remove the file of a lock that is held, with what it was for; whoever waits for it makes a new one."""
        files.remove(self._path)

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LoomError(
                        "HELD",
                        f"{self._what} is held by {self._holder()}",
                        where=self._path,
                        why=f"Loom waited {self._patience:g} s. A process that dies frees its lock, so try again",
                        hint="loomctl doctor",
                        exit_code=EXIT_HELD,
                    ) from None
                time.sleep(0.005)
            else:
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _holder(self) -> str:
        return _named(self._descriptor)


def holder(path: str) -> str:
    """Say who holds a lock, `process 123 (taken 7 min ago)`; empty if nobody does. Make nothing, and follow no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(descriptor)
    except OSError:  # a file system without locks
        return ""
    else:
        return ""
    finally:
        os.close(descriptor)


def _named(descriptor: int) -> str:
    try:
        owner = quick_json.loads(os.pread(descriptor, 400, 0).decode("utf-8", "replace"))
        return f"process {int(owner['pid'])} (taken {clock.ago(str(owner['since'])[:20])})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
