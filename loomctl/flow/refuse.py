"""What a verb that drives a run is refused for: the run is over or stands still, or the step is not the caller's."""

from __future__ import annotations

import os

from loomctl.expressions import placeholders
from loomctl.flow import finish_records
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.workflows import branches, gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run


def refuse_over(state: Mapping[str, Any], run_id: str) -> None:
    """Refuse what is to be done in a run that is completed or cancelled, or in a branch that has ended (D4, D43).

    Raises BAD_STATUS and BRANCH_ENDED.
    """
    branches.refuse_ended(state)
    if state["status"] in OVER:
        raise LoomError(
            "BAD_STATUS",
            f"the run is {state['status']}",
            hint=f"loomctl resume {run_id} --reopen",
            exit_code=EXIT_USAGE,
        )


def refuse_standing(state: Mapping[str, Any], run_id: str) -> None:
    """Refuse to go on in a run that is paused, failed or over. Raises BAD_STATUS and BRANCH_ENDED."""
    branches.refuse_ended(state)
    status = state["status"]
    if status in ("paused", "failed"):
        raise LoomError(
            "BAD_STATUS",
            f"the run is {status}",
            why="a run that is paused or failed goes on after it was resumed",
            hint=f"loomctl resume {run_id}",
            exit_code=EXIT_USAGE,
        )
    refuse_over(state, run_id)


def open_for(run: Run, state: State, told: Mapping[str, Any]) -> dict[str, Any]:
    """Give the visit that a `done` may end; a paused run keeps the result, and goes no further."""
    refuse_over(state, run.run_id)
    entry = visits.open_visit(state)
    if entry is None:
        raise _nothing_open(run, state)
    _refuse_moved(run.run_id, entry, told)
    _refuse_human(run, state)
    if "branches" in entry:
        raise _has_branches(run, entry)
    return entry


def refuse_unheard(run: Run, entry: Mapping[str, Any], given: finish_records.Given) -> None:
    """Refuse to wait for the final message of a step that has a command to pass: no hook runs one (D23).

    Raises NO_RESPONSE.
    """
    place = frozen_plan.place_of(run.plan, entry["step_id"])
    wanted = (place.step.get("evidence") or ()) if place else ()
    if given.outcome in finish_records.WITHOUT_RESULT or all(one["kind"] != "command" for one in wanted):
        return
    raise LoomError(
        "NO_RESPONSE",
        f"{masked_line(entry['step_id'], 120)} is ended with its result on standard input",
        why="a command has to pass before it counts as done, and only `loomctl done` runs it",
        hint=f"{visits.done_command(entry)} {run.run_id} --response-file result.md",
        exit_code=EXIT_USAGE,
    )


def _refuse_human(run: Run, state: State) -> None:
    """Refuse to end a step that a person decides: the assistant's word is not theirs. Raises HUMAN_STEP."""
    found = gates.open_human(state, run.plan)
    if found is None:
        return
    offered, branch = gates.choices(found[1].step), visits.seen_from(state).name
    raise LoomError(
        "HUMAN_STEP",
        f"{found[1].key} is decided by a person, not ended by its result",
        why=f"they choose one of {', '.join(masked_line(one, 60) for one in offered)}" if offered else "",
        hint=gates.command(gates.CHOOSE if offered else gates.APPROVE, run.run_id, (*offered, "")[0], branch),
        exit_code=EXIT_USAGE,
    )


def _refuse_moved(run_id: str, entry: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Refuse a `done` that was meant for another visit than the open one: the caller was not told of this one."""
    if not told or told["stage"] == entry.get("stage"):
        return
    raise LoomError(
        "STAGE_MOVED",
        f"the run has gone on to {entry['step_id']} since this session was told of {told.get('step')}",
        why="a step is ended by who worked on it",
        hint=f"loomctl next {run_id}",
        exit_code=EXIT_USAGE,
    )


_AFTER = {"paused": "resume", "failed": "resume"}


def _nothing_open(run: Run, state: Mapping[str, Any]) -> LoomError:
    waits = bool(state["pending_approvals"])
    branch = "" if state["status"] in _AFTER else visits.seen_from(state).name
    return LoomError(
        "NO_OPEN_STEP",
        f"no step of {f'the branch {masked_line(branch, 80)}' if branch else 'this run'} is being worked on "
        f"(status {state['status']})",
        where=run.state_path,
        why="the run waits for its user's approval" if waits else "next begins it" if branch else "",
        hint=gates.command("approve" if waits else _AFTER.get(state["status"], "next"), run.run_id, "", branch),
        exit_code=EXIT_USAGE,
    )


def _has_branches(run: Run, entry: Mapping[str, Any]) -> LoomError:
    left = [
        str(record["id"]) for record in entry["branches"] if record["status"] not in (*visits.OUTCOMES, "cancelled")
    ]
    return LoomError(
        "PARALLEL_STEP",
        f"{entry['step_id']} is a parallel step: it ends with its branches",
        where=run.state_path,
        why=f"open: {', '.join(left)}; one that cannot be done is ended with --branch and --outcome failed",
        hint=f"loomctl next --branch {left[0] if left else 'NAME'}",
        exit_code=EXIT_USAGE,
    )


def portable(space: Workspace, run_id: str, path: str) -> str:
    """Give the portable name of a file, for `state.artifacts`.

    path: absolute, or relative to the caller's folder, else to the project's root. Raises MISSING, and PATH_ESCAPE for
    what no priming would read.
    """
    root, run_dir = space.project.root, space.store.run_dir(run_id)
    found = os.path.normpath(os.path.join(space.caller.cwd, path))
    if not os.path.exists(found):
        found = os.path.normpath(os.path.join(root, path))
    if not os.path.exists(found):
        raise LoomError(
            "MISSING",
            f"there is no {path}",
            where=os.path.normpath(os.path.join(space.caller.cwd, path)),
            why="a file is written first; a relative path counts from here or from the project's root",
            hint=trouble.look(os.path.normpath(os.path.join(space.caller.cwd, path))),
            exit_code=EXIT_USAGE,
        )
    allowed = (root, run_dir, space.project.plugin_root, *space.settings.extra_roots)
    if not any(is_inside(os.path.realpath(found), os.path.realpath(folder)) for folder in allowed):
        raise LoomError(
            "PATH_ESCAPE",
            f"{path} lies outside of the project, so no session could be given it",
            where=found,
            why="symbolic links are followed before this is decided",
            hint=f"cp -r {quoted(found)} {quoted(root)}",
            exit_code=EXIT_USAGE,
        )
    found = os.path.join(os.path.realpath(os.path.dirname(found)), os.path.basename(found))
    return placeholders.to_portable(found, root, run_dir=run_dir)
