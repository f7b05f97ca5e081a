"""Which processes live, and since when (a pid alone says nothing), and programs run to their end within a time."""

from __future__ import annotations

import os
import sys
import time

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
