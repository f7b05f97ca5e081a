"""Whether the hooks of the session whose shell this is have ever fired here; a host that calls none is silent (D72)."""

from __future__ import annotations

import os

from loomctl.hosts import shells, table
from loomctl.kit import files, processes
from loomctl.kit.errors import LoomError
from loomctl.runs.machine import launcher_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.hosts.asking import Host

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox")


def silent_host(local: str, environ: Mapping[str, str]) -> Host | None:
    """Give the host of which this shell has a session that called no hook in this project; None where all is well.

    Of several the innermost is asked about. A sign is younger than its process, where that is known: a session that is
    resumed may have lost its hooks since. A call that made the project's store, or began before it was there, could
    leave no sign. local: the store's `local`.
    """
    marked = [host for host in table.HOSTS.values() if host.mark and environ.get(host.mark)]
    if not marked or environ.get("LOOM_DISABLED") == "1" or not launcher_files.has_room_for_beats(local):
        return None
    line = processes.line()
    began = line[1] if len(line) > 1 and _is_shell(line[1].pid) else line[0] if line else None
    if began is None or began.started <= _made(local):
        return None
    inner = next(iter(shells.sessions(environ)), None)
    if inner is None:
        known = launcher_files.marked_processes(local)
        return None if any(process.pid in known for process in line) else marked[0]
    since = next((process.started - shells.TICK for process in line if process.pid == inner.pid), 0)
    if since and launcher_files.marks(local, inner.pid or 0).last > since:
        return None
    return None if inner.id in launcher_files.signs(local, since) else inner.host


def _made(local: str) -> float:
    try:
        return os.stat(launcher_files.beats_folder(local)).st_mtime
    except OSError:
        return float("inf")


def _is_shell(pid: int) -> bool:
    try:
        return files.read_bytes(f"/proc/{pid}/comm", limit=64).strip().decode("utf-8", "replace") in _SHELLS
    except (OSError, LoomError):
        return False


def said(host: Host) -> str:
    """Say it in one line, with the way to mend it."""
    return f"loomctl: no hook of Loom has run in this {host.title} session; {host.mend}"
