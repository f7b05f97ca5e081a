"""Whose shell this is: the assistants' sessions around this process, the innermost first (D71)."""

from __future__ import annotations

import os

from loomctl.hosts import asking, table
from loomctl.kit import files, machine, processes
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.hosts.asking import Host
    from loomctl.kit.processes import Process

TICK = 0.015  # of the clocks from which a process's start and a file's time are taken
_PROCESSES = "/proc"
_LARGEST = 1 << 20  # bytes of a process's environment


class Session(NamedTuple):
    """A host's session. pid: of its process, None where that is not known.

    rivals: variables of hosts of which any may be the innermost, for nothing shows which; empty where that is known.
    """

    host: Host
    id: str
    pid: int | None
    rivals: tuple[str, ...] = ()


def innermost(environ: Mapping[str, str]) -> Session | None:
    """Give the session whose shell this is; None where it is no assistant's. Raises UNCLEAR_SESSION."""
    inner = next(iter(sessions(environ)), None)
    if inner is None or not inner.rivals:
        return inner
    why = "several are around it, and this system does not show which started the other: " + ", ".join(inner.rivals)
    hint = f"unset {inner.rivals[0]}; loomctl status"
    what = "Loom cannot tell which assistant runs this command"
    raise LoomError("UNCLEAR_SESSION", what, why=f"{why}; unset the outer one's", hint=hint, exit_code=EXIT_USAGE)


def sessions(environ: Mapping[str, str]) -> list[Session]:
    """Give the sessions whose shell this is, the innermost first; what stands around one without a name is left out.

    A shell inherits the variables of the assistants around it: the one whose variable the fewest of the processes above
    have is the innermost. A host that gives its shells no id has noted it for its process (`bin/loomctl`). Where those
    processes do not show what they have, the first of several that may be the innermost says so (`rivals`).
    """
    around = [(host, host.session or host.mark) for host in table.HOSTS.values()]
    around = [(host, name) for host, name in around if environ.get(name)]
    nameless = any(not host.session for host, _ in around)
    if not nameless and len(around) < 2:
        return [Session(host, environ[name], asking.process_of(host)) for host, name in around]
    line = processes.line()[1:]
    above = [_environment(process.pid) for process in line]
    depths = {host.name: sum(_has(one, name, environ[name]) for one in above) for host, name in around}
    found: list[Session] = []
    nearest = min(depths.values())
    rivals = tuple(name for host, name in around if depths[host.name] == nearest)
    rivals = rivals if len(rivals) > 1 and _is_hidden(above, {name: environ[name] for name in rivals}) else ()
    for host, name in sorted(around, key=lambda one: depths[one[0].name]):
        if host.session:
            found.append(Session(host, environ[name], asking.process_of(host), () if found else rivals))
            continue
        own = _noted(host, line) or _by_process(
            host, line, [bool(one) and not _has(one, name, environ[name]) for one in above]
        )
        if own is None:
            break
        found.append(own if found else own._replace(rivals=rivals))
    return found


def _is_hidden(above: Sequence[bytes], variables: Mapping[str, str]) -> bool:
    """Tell whether a process does not show what it has, before one that has none of these variables."""
    for one in above:
        if not one:
            return True
        if not any(_has(one, name, value) for name, value in variables.items()):
            return False
    return False


def inherited(line: Sequence[Process], environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment with what processes between had of assistants' variables, though it was taken out since.

    line: those processes, the innermost first.
    """
    names = {name for host in table.HOSTS.values() for name in (host.session, host.mark) if name}
    found: dict[str, str] = {}
    for process in reversed(line):
        for entry in _environment(process.pid).decode("utf-8", "surrogateescape").split("\0"):
            name, _, value = entry.partition("=")
            if name in names and value:
                found[name] = value
    return {**found, **environ}


def _noted(host: Host, line: Sequence[Process]) -> Session | None:
    folder = os.path.join(machine.state_home(), "hosts") if machine.state_home() else ""
    for process in line if folder else ():
        path = os.path.join(folder, str(process.pid))
        try:
            name, _, session_id = files.read_bytes(path, limit=1 << 10).decode("ascii").strip().partition(" ")
            is_its = os.stat(path).st_mtime >= process.started - TICK
        except (OSError, ValueError, LoomError):
            continue
        if is_its and name == host.name and session_id:
            return Session(host, session_id, process.pid)
    return None


def _by_process(host: Host, line: Sequence[Process], outside: Sequence[bool]) -> Session | None:
    """Name a session after its process, the first above the shells that have its mark; its first hook inherits it."""
    pid = next((process.pid for process, is_outside in zip(line, outside, strict=True) if is_outside), None)
    return Session(host, f"{host.name}-{pid}", pid) if pid else None


def _environment(pid: int) -> bytes:
    """Give the variables with which a process began, a zero byte around each; empty where they are not shown."""
    if not os.path.isdir(f"{_PROCESSES}/self"):
        return _environment_by_psutil(pid)
    try:
        with open(f"{_PROCESSES}/{pid}/environ", "rb") as source:
            return b"\0" + source.read(_LARGEST)
    except OSError:
        return b""


def _environment_by_psutil(pid: int) -> bytes:
    try:
        import psutil  # no /proc: macOS, the BSDs
    except ImportError:  # the doctor may run without it
        return b""
    try:
        held = psutil.Process(pid).environ()
    except (OSError, psutil.Error):
        return b""
    told = "".join(f"\0{name}={value}" for name, value in held.items())
    return f"{told}\0".encode("utf-8", "surrogateescape") if told else b""


def _has(environment: bytes, name: str, value: str) -> bool:
    return f"\0{name}={value}\0".encode("utf-8", "surrogateescape") in environment
