"""The processes that this one descends from. Never on the hook path: psutil, where there is no /proc."""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

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
