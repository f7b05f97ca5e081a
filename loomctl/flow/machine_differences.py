"""What is different here from where a run was last worked on: machine and path, commits, files, tools (design §5).

At most a line each, and none for what is the same.
"""

from __future__ import annotations

import os
import shutil
from itertools import islice

from loomctl.changes import stage_changes
from loomctl.kit import git
from loomctl.kit.errors import LoomError
from loomctl.kit.text import programs
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, run_values
from loomctl.runs.artifact_paths import Roots
from loomctl.runs.model import places, sessions, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

_CHANGED = 3  # files with uncommitted changes that are named
_STAGES, _FILES, _NAMED = 20, 400, 5  # the last stages whose files are looked for, of each so many; how many are named


def lines(space: Workspace, run: Run, environment: Mapping[str, Any]) -> list[str]:
    """Say what is not as the last session on record left it, and what the run needs that is not here.

    environment: of the session that takes it up. The caller's own record counts like any other: it may be of another
    place, for a host resumes a conversation where it is moved to, and where it was the last here nothing differs.
    """
    last = _last(run.state)
    said: list[str] = []
    if last:
        if last.get("hostname") != environment["hostname"]:
            said.append(f"machine: {environment['hostname']}, before {masked_line(str(last.get('hostname')), 80)}")
        if last.get("project_root") and last.get("project_root") != space.project.root:
            said.append("the project is at another path; the run's paths were resolved afresh")
        said += _commits(space.project.root, last["last_commit"] or last.get("git_commit"), environment["git_commit"])
    return [*said, *_files(space, run, is_dirty=bool(last and environment["dirty"])), *_tools(run)]


def _last(state: State) -> dict[str, Any]:
    """Give the environment of the session that took the run up last, whatever the clocks of its machines say."""
    record = sessions.last(state)
    environment = record.get("environment")
    return {"last_commit": record.get("last_commit"), **environment} if isinstance(environment, dict) else {}


def _commits(root: str, before: object, now: str | None) -> list[str]:
    if not isinstance(before, str) or not git.is_oid(before) or now is None or before == now:
        return []
    answer = git.output(["rev-list", "--count", "--left-right", f"{before}...{now}"], root, patience=2.0)
    if answer is None:
        return [f"git: the last session's commit {before[:10]} is not in this repository"]
    behind, _, ahead = answer.decode("ascii", "replace").strip().partition("\t")
    if behind == "0":
        return [f"git: {ahead} commit(s) ahead of the last session's {before[:10]}"]
    if ahead == "0":
        return [f"git: {behind} commit(s) behind the last session's {before[:10]}"]
    return [f"git: diverged from the last session's {before[:10]}: {ahead} ahead, {behind} behind"]


def _files(space: Workspace, run: Run, *, is_dirty: bool) -> list[str]:
    said = [f"the working tree has uncommitted changes{_changed(space.project.root)}"] if is_dirty else []
    missing = list(dict.fromkeys([*_artifacts(space, run), *_touched(space, run)]))
    if missing:
        said.append(f"files of the run that are not here: {_few(missing)}")
    return ["; ".join(said)] if said else []


def _changed(root: str) -> str:
    """Name the first files that have such changes; empty where git does not say in time which."""
    names = git.changed(root)
    return f": {_few(names, _CHANGED)}" if names else ""


def _few(names: list[str], most: int = _NAMED) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(masked_line(name, 60) for name in names[:most]) + more


def _artifacts(space: Workspace, run: Run) -> Iterator[str]:
    """Give the files that steps registered and that are not here, as they were registered."""
    known = run_values.placeholder_values(space.project, run)
    roots = Roots(
        space.project.root,
        run.folder,
        space.project.plugin_root,
        tuple(space.settings.extra_roots),
        tuple(sessions.roots(run.state)),
    )
    for value in islice(run.state["artifacts"].values(), _FILES):
        if not isinstance(value, str) or "://" in value or not value:
            continue
        try:
            place = artifact_paths.locate(value, known, roots)
        except (LoomError, ValueError):
            continue
        if not os.path.lexists(place.path):
            yield value.replace("{project_root}/", "")


def _touched(space: Workspace, run: Run) -> Iterator[str]:
    """Give the files that the last stages left and that are not here."""
    left: dict[str, bool] = {}
    entries = [one for one in visits.every(run.state) if one.get("stage")][-_STAGES:]
    for entry in entries:
        try:
            changes = stage_changes.of_visit(run, entry)
        except (LoomError, OSError):  # who reads the stage is told
            continue
        for one in changes.files[:_FILES]:
            left[one["path"]] = one.get("change") not in ("deleted", "D")
    for path, is_left in left.items():
        if is_left and _is_inside(path) and not os.path.lexists(os.path.join(space.project.root, path)):
            yield path


def _is_inside(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split("/") and not path.startswith("{") and "\0" not in path


def _tools(run: Run) -> list[str]:
    """Say which programs the run's command steps, evidence and artifacts name and PATH has not."""
    missing = [name for name in dict.fromkeys(_programs(run.plan)) if shutil.which(name) is None]
    return [f"tools that are not on PATH here: {_few(missing)}"] if missing else []


def _programs(plan: Mapping[str, Any]) -> Iterator[str]:
    for place in places.with_branches(plan):
        if place.step.get("kind") == "command":
            yield from programs.named_in(str(place.step.get("run") or ""))
        evidence = place.step.get("evidence")
        for item in evidence if isinstance(evidence, list) else ():
            if isinstance(item, dict) and isinstance(item.get("run"), str):
                yield from programs.named_in(item["run"])
    artifacts = plan.get("artifacts")
    for one in artifacts if isinstance(artifacts, list) else ():
        if isinstance(one, dict) and one.get("type") == "git_info" and isinstance(one.get("command"), str):
            yield "git"
