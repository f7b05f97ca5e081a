"""Which run a session of Claude Code is bound to, its own or by inheritance (D2)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.engine.caller import Workspace


def of_session(space: Workspace, source: str, transcript_path: str | None) -> dict[str, Any] | None:
    """Give the session's binding: its own, or the one it inherits from the same process or from its parent (D2)."""
    session_id = space.caller.session_id
    own = space.local.binding(session_id)
    if own is not None or session_id is None:
        return own
    parent = None
    if source == "fork":
        parent = space.local.binding(_parent_session(space.caller.pid))
    elif space.caller.pid is not None:
        parent = space.local.of_process(space.caller.pid)
    if parent is None:
        return None
    inherited = space.local.bind(
        session_id, parent["run_id"], host=space.caller.host, pid=space.caller.pid, inherited_from=parent["session_id"]
    )
    return space.local.refresh(inherited, pid=space.caller.pid, transcript_path=transcript_path)


def _parent_session(pid: int | None) -> str | None:
    """Find a fork's parent in the host's arguments: `--resume ID`, `--resume=ID`, `-r ID`."""
    from loomctl.disk import processes

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
