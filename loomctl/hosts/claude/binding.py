"""How a session of Claude Code inherits the run of the one that it comes from (D2)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace


def inherit(space: Workspace, source: str) -> None:
    """Bind a new session as the one it comes from: of the same process (`/clear`, a switch), or its parent (a fork)."""
    session_id = space.caller.session_id
    if session_id is None or space.local.binding(session_id) is not None:
        return
    parent = None
    if source == "fork":
        parent = space.local.binding(_parent_session(space.caller.pid))
    elif space.caller.pid is not None:
        parent = space.local.of_process(space.caller.pid)
    if parent is not None:
        origin = parent["session_id"]
        space.local.bind(
            session_id, parent["run_id"], host=space.caller.host, pid=space.caller.pid, inherited_from=origin
        )


def _parent_session(pid: int | None) -> str | None:
    """Find a fork's parent in the host's arguments: `--resume ID`, `--resume=ID`, `-r ID`."""
    from loomctl.kit.process import processes

    arguments = processes.arguments(pid) if pid else []
    for index, argument in enumerate(arguments):
        if argument in ("--resume", "-r") and index + 1 < len(arguments):
            return _session_id(arguments[index + 1])
        if argument.startswith("--resume="):
            return _session_id(argument.partition("=")[2])
    return None


def _session_id(text: str) -> str | None:
    fit = bool(text) and len(text) <= 100 and all(c.isascii() and (c.isalnum() or c in "-_") for c in text)
    return text if fit else None
