"""Trust in what a run's command steps run: read off the steps, kept by its hash for one run in one place (D23)."""

from __future__ import annotations

import os

from loomctl.expressions import placeholders
from loomctl.kit import clock, digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import HOOK_PATIENCE, PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, command_runs, leases, stages
from loomctl.runs.machine import run_notes
from loomctl.runs.model import frozen_plan, standing, visits
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_WAIT = 90.0  # seconds


def is_command(step: Mapping[str, Any]) -> bool:
    """Tell whether Loom runs a step of a plan itself."""
    return step.get("kind") == "command" and isinstance(step.get("run"), str)


def listed(space: Workspace, run: Run) -> list[dict[str, str]]:
    """List what a run's steps run on this machine, in their order: `{step, run, workdir?}`, placeholders expanded.

    It is read off the steps themselves, for they are what is executed, and expanded, for what a state holds goes into
    the command. Raises UNRESOLVED_PLACEHOLDER, PLACEHOLDER_UNQUOTABLE.
    """
    return [
        expanded(space, run, {**place.step, "run": script})
        for place in frozen_plan.with_branches(run.plan)
        for script in scripts_of(place.step)
    ]


def scripts_of(step: Mapping[str, Any]) -> list[str]:
    """Give what a step of a plan runs: its own command, then those that its evidence asks for."""
    listed = step.get("evidence")
    own = [step["run"]] if is_command(step) else []
    return [*own, *(one["run"] for one in (listed if isinstance(listed, list) else ()) if one["kind"] == "command")]


def expanded(space: Workspace, run: Run, step: Mapping[str, Any]) -> dict[str, str]:
    """Give one step's command as it is run here: `{step, run, workdir?}`. Raises as `listed`."""
    values = artifact_paths.placeholder_values(space.project, run)
    key, found = str(step["key"]), placeholders.expand_in_shell(str(step["run"]), values)
    if found.missing:
        raise LoomError(
            "UNRESOLVED_PLACEHOLDER",
            f"{key} needs {{{found.missing[0]:.80}}}, which has no value in this run",
            where=run.plan_path,
            hint="loomctl paths",
        )
    if found.refused:
        raise LoomError(
            "PLACEHOLDER_UNQUOTABLE",
            f"{{{found.refused[0]:.80}}} has signs that mean something to a shell, in a place that Loom cannot quote",
            where=f"{run.plan_path} {key}",
            why='outside of $(…), here-documents and comments it is quoted; so write it into a variable first: x="{…}"',
            hint="loomctl paths",
        )
    command = {"step": key, "run": found.text}
    if step.get("workdir"):
        command["workdir"] = artifact_paths.expanded(str(step["workdir"]), values)
    return command


def digest_of(commands: Sequence[Mapping[str, str]]) -> str:
    """Give the hash by which a list of commands is trusted."""
    return digests.of_bytes(files.to_json(list(commands)))


def is_trusted(space: Workspace, run: Run) -> bool:
    """Tell whether this machine trusts exactly what the run would run here."""
    said = run_notes.known(run.run_id, space.store.folder).get("trusted")
    return isinstance(said, str) and said == digest_of(listed(space, run))


def trust(space: Workspace, run: Run, commands: Sequence[Mapping[str, str]]) -> str:
    """Trust exactly these commands of a run, as they were shown; gives what went wrong, or an empty string."""
    return run_notes.note_known(run.run_id, space.store.folder, trusted=digest_of(commands))


def untrusted(space: Workspace, run: Run) -> list[dict[str, str]]:
    """Give what the run would run here if this machine does not trust it; else nothing."""
    commands = listed(space, run)
    return commands if commands and not is_trusted(space, run) else []


def wait(space: Workspace, run: Run, commands: Sequence[Mapping[str, str]]) -> Run:
    """Let a run that stands at a command step wait for its user's trust, and say so in its state; gives the run.

    A branch waits for nobody: who works on it is told, and the others go on.
    """
    if visits.is_branch(run.state):
        return run

    def change(state: State) -> tuple[State, list[Event]]:
        entry = visits.open_visit(state)
        if entry is None or standing.waits_for_trust(state) or not standing.goes_on(standing.answered(state)):
            return state, []
        asked = standing.await_trust(state, entry, commands, at=clock.now())
        properties = {"stage": entry["stage"], "reason": "trust"}
        return asked, [Event("run.awaiting_feedback", properties, space.caller.session_id, entry["step_id"])]

    patience = HOOK_PATIENCE if space.caller.on_hook_path else PATIENCE
    return run._replace(state=space.store.update(run.run_id, change, patience=patience))


def answer(space: Workspace, run: Run) -> bool:
    """Put a run under way that waited for trust, once it is given; tells whether it did."""
    waited: list[bool] = []

    def change(state: State) -> tuple[State, list[Event]]:
        waited[:] = [standing.waits_for_trust(state)]
        if not waited[0]:
            return state, []
        given = Event("run.feedback_given", {"stage": state["feedback"].get("stage")}, space.caller.session_id)
        return standing.answered(state), [given]

    if standing.waits_for_trust(run.state):
        leases.deciding(space).store.update(run.run_id, change)
    return waited == [True]


def trust_the_bundles(space: Workspace, run: Run, sources: Sequence[Mapping[str, str]]) -> str:
    """Trust a run that has just been made of the bundle's own workflows alone; gives what went wrong.

    sources: as the resolver found them, never as a plan on disk tells it, which anybody may have written.
    """
    own = all(source["path"].startswith("{plugin_root}/") for source in sources)
    commands = listed(space, run) if own and sources else []
    return trust(space, run, commands) if commands else ""


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
    """Give the seconds that `next` waits: `$LOOM_COMMAND_WAIT`, else 90."""
    try:
        seconds = float(os.environ.get("LOOM_COMMAND_WAIT", ""))
    except ValueError:
        return _WAIT
    return seconds if 0 <= seconds < float("inf") else _WAIT


class Work(NamedTuple):
    """An open visit of a command step. entry: as the state has it; folder: its stage's, absolute."""

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    folder: str

    @property
    def stage(self) -> str:
        """The stage's name."""
        return str(self.entry["stage"])

    @property
    def step_id(self) -> str:
        """The step's key."""
        return str(self.entry["step_id"])

    @property
    def log(self) -> str:
        """The file with all that its command printed."""
        return os.path.join(self.folder, command_runs.LOG)


def open_work(run: Run) -> Work | None:
    """Give the command step whose visit is open; None where none is."""
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or not is_command(place.step) or not entry.get("stage"):
        return None
    return Work(entry, place.step, stages.folder(run.folder, entry["stage"]))
