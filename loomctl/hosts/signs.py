"""Whether the hooks of the session whose shell this is have ever fired here; a host that calls none is silent (D72)."""

from __future__ import annotations

import os

from loomctl.hosts import table
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

    Of several, as an assistant's shell inherits the marks of those around it, one that has called a hook is enough. A
    call that made the project's store, or began before it was there, could leave no sign. local: the store's `local`.
    """
    named = table.sessions(environ)
    marked = [host for host in table.HOSTS.values() if host.mark and environ.get(host.mark)]
    if not marked or environ.get("LOOM_DISABLED") == "1" or not launcher_files.has_room_for_beats(local):
        return None
    line = processes.line()
    began = line[1] if len(line) > 1 and _is_shell(line[1].pid) else line[0] if line else None
    if began is None or began.started <= _made(local):
        return None
    known = launcher_files.marked_processes(local)
    if any(process.pid in known for process in line):
        return None
    signs = launcher_files.signs(local)
    if any(session_id in signs for _, session_id in named):
        return None
    return next((host for host, _ in named), marked[0])


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
