"""Which session a subagent's shell belongs to, in hosts that give it the subagent's own id."""

from __future__ import annotations

import os

from loomctl.hosts import asking
from loomctl.kit import processes
from loomctl.runs.machine import launcher_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.hosts.asking import Host
    from loomctl.runs.machine.local import Local


def main_session(host: Host, session_id: str, local: Local) -> str:
    """Give the session of a shell: its own, unless nothing knows that and the host's process marked this call.

    The hook before the call has noted for the process whose call it is, and it knows a subagent's parent. An id with a
    conversation of its own is no subagent's.
    """
    if local.binding(session_id) is not None:
        return session_id
    kept = asking.conversation(host, None).kept_at(session_id)
    if kept and os.path.isfile(kept):
        return session_id
    noted = (launcher_files.session_of(local.folder, process.pid, host.name) for process in processes.line()[1:])
    return next(filter(None, noted), session_id)
