"""What a command is run in: its folder, its environment, and how long it is waited for."""

from __future__ import annotations

import os

from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


PATIENCE = 90.0  # seconds


def workdir(space: Workspace, run: Run, declared: str | None) -> str:
    """Give the absolute folder a command works in: the project's root, or one below it (D10). Raises PATH_ESCAPE."""
    root = space.project.root
    path = os.path.realpath(os.path.join(root, declared or ""))
    allowed = (root, run.folder, *space.settings.extra_roots)
    if "\0" in path or not any(artifact_paths.is_inside(path, artifact_paths.real(one)) for one in allowed):
        raise LoomError(
            "PATH_ESCAPE",
            "the step's workdir leads out of the project",
            where=masked_line(declared or "", 300),
            why="links are followed first; a folder elsewhere is allowed under extra_roots in your own config.yaml",
            hint="loomctl paths",
        )
    return path if declared else root


def environment(run_id: str, step_id: str, stage_dir: str) -> dict[str, str]:
    """Give a command's environment: the caller's, without what the launcher of Loom set for Loom, and who it is for."""
    found = dict(os.environ)
    python = found.pop("LOOM_ENV_PYTHON", "")
    found.pop("LOOM_PLUGIN_ROOT", None)
    if os.path.isabs(python):
        own = os.path.dirname(python)
        if found.get("VIRTUAL_ENV") == os.path.dirname(own):
            del found["VIRTUAL_ENV"]
        folders = found.get("PATH", "").split(os.pathsep)
        found["PATH"] = os.pathsep.join(folder for folder in folders if folder.rstrip(os.sep) != own)
    return {**found, "LOOM_RUN_ID": run_id, "LOOM_STEP_ID": step_id, "LOOM_STAGE_DIR": stage_dir}


def patience() -> float:
    """Give the seconds that `next` waits: `$LOOM_COMMAND_WAIT`, else PATIENCE."""
    try:
        seconds = float(os.environ.get("LOOM_COMMAND_WAIT", ""))
    except ValueError:
        return PATIENCE
    return seconds if 0 <= seconds < float("inf") else PATIENCE
