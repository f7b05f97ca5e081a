"""The values that a run gives to placeholders in its paths, prompts and folders (D8)."""

from __future__ import annotations

from loomctl.expressions import placeholders
from loomctl.kit import ids
from loomctl.runs import artifact_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.project import Project
    from loomctl.runs.store.store import Run

_LONGEST_VALUE = 400


def placeholder_values(project: Project, run: Run) -> dict[str, str | None]:
    """Give every placeholder's value for a run (D8)."""
    state = run.state
    return artifact_paths.values(
        project_root=project.root,
        run_id=run.run_id,
        plan_id=state["plan_id"],
        work_id=state.get("work_id"),
        run_suffix=ids.split_run_id(run.run_id)[1],
        run_dir=run.folder,
        state_path=run.state_path,
        plan_path=run.plan_path,
        plugin_root=project.plugin_root,
    )


def workdir(project: Project, run: Run, step: Mapping[str, Any]) -> str | None:
    """Give the folder that a step works in, its placeholders expanded, as far as they have values; None: no own one."""
    declared = step.get("workdir")
    if not isinstance(declared, str):
        return None
    return placeholders.expand(declared, placeholder_values(project, run)).text


def prompt_values(project: Project, run: Run) -> dict[str, str | None]:
    """Give what a step's prompt may name: the placeholders, and of a FABER run the plain values in its state (D5).

    A value of several lines or of over 400 characters is none that a prompt of FABER's means.
    """
    known = placeholder_values(project, run)
    if not isinstance(run.plan.get("faber"), dict):
        return known
    plain = {key: str(value).strip() for key, value in run.state.items() if type(value) in (str, int, float)}
    said = {key: value for key, value in plain.items() if len(value) <= _LONGEST_VALUE and value.isprintable()}
    return {**said, **known}
