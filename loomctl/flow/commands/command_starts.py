"""A command is started: once, in its folder, with its environment, from a moment that is noted (D10, D30, D40)."""

from __future__ import annotations

import os

from loomctl.flow import visit_notes
from loomctl.flow.commands import command_ends, command_events, command_trust
from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths
from loomctl.runs.commands import command_runs
from loomctl.runs.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.flow.commands.command_ends import Work
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


def begun(space: Workspace, run: Run, work: Work) -> Run:
    """Start a command, unless another process does; gives the run with the event of it.

    What the project is as it begins is noted by who starts it, before it does (D40). Raises PATH_ESCAPE, NOT_STARTED.
    """
    order = _order(space, run, work)
    # A lock beside the run's own, which nobody is to wait for while git is asked.
    with space.store.lock(f"{run.run_id}.command") as lock:
        if command_runs.look(work.folder).kind == command_runs.NONE:
            visit_notes.begin(space, run, work.entry)
            command_runs.start(order, environment(run.run_id, work.step_id, work.folder))
        lock.remove()
    run = command_events.tell_start(space, run, work, command_runs.look(work.folder))
    if run.state["status"] in OVER:  # somebody cancelled it in this moment
        command_ends.stop_open(space, run)
    return run


def _order(space: Workspace, run: Run, work: Work) -> command_runs.Order:
    command = command_trust.expanded(space, run, work.step)
    cwd = workdir(space, run, command.get("workdir"))
    timeout = work.step.get("timeout")
    seconds = float(timeout) if isinstance(timeout, (int, float)) else None
    return command_runs.Order(work.folder, run.run_id, work.step_id, work.stage, command["run"], cwd, seconds)


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
