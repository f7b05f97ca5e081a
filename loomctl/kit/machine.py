"""What a session record says of the machine (D25): no environment variables, no tokens."""

from __future__ import annotations

import os
import sys

from loomctl.kit import git
from loomctl.kit.package import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def hostname() -> str:
    """Give the recorded name of this machine: `$LOOM_HOSTNAME`, else the system's."""
    return os.environ.get("LOOM_HOSTNAME") or (os.uname().nodename if hasattr(os, "uname") else "") or "unknown"


def platform() -> str:
    """Give `linux`, `darwin` or `win32`."""
    return "win32" if sys.platform in ("cygwin", "msys") else sys.platform


def environment(project_root: str, cwd: str, *, on_hook_path: bool) -> dict[str, Any]:
    """Describe where a session works: machine, folder, git, Python; cores and memory where time allows (D25).

    memory: bytes. dirty: None where git did not answer in time or there is no repository.
    """
    top = git.top_of(project_root)
    head = git.head(top) if top is not None else git.Head(None, None)
    described: dict[str, Any] = {
        "hostname": hostname(),
        "platform": platform(),
        "cwd": cwd,
        "project_root": project_root,
        "git_branch": head.branch,
        "git_commit": head.commit,
        "dirty": git.is_dirty(project_root) if top is not None else None,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "loom": __version__,
    }
    if not on_hook_path:
        import psutil

        described["cores"] = psutil.cpu_count()
        described["memory"] = psutil.virtual_memory().total
    return described
