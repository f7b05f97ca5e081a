"""From an artifact's declared path to a file that may be read: placeholders, foreign paths, confinement (D8-D10)."""

from __future__ import annotations

import os

from loomctl.expressions import placeholders
from loomctl.kit import ids
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import visits
from loomctl.runs.store import layouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.project import Project
    from loomctl.runs.store.store import Run

# No system takes a longer path, and following one costs a look at the disk for each of its components.
LONGEST = 4096
_LONGEST_VALUE = 400
REJECTED = "step.rejected"  # as the next
TASK_LINE = "task.line"  # among the values of placeholders, and none that a text can name


class Place(NamedTuple):
    """path: absolute, symbolic links resolved, inside an allowed root; shown: for people; rebased: D9 helped."""

    path: str
    shown: str
    rebased: bool


class Roots(NamedTuple):
    """Where artifacts may lie (D10): the project, the run's folder, the bundle, and what the user's config allows."""

    project: str
    run_dir: str
    plugin: str
    extra: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()


def locate(declared: str, known: Mapping[str, str | None], roots: Roots) -> Place:
    """Find the file that a declared path means. It need not exist, but it lies inside an allowed root.

    Only a foreign path is looked for elsewhere (D9): one that leads into an allowed root and finds nothing is missing.
    Raises LoomError UNRESOLVED_PLACEHOLDER, PATH_ESCAPE or BAD_PATH; nothing of a refused path was read.
    """
    text = _own_file(expanded(declared, known), known, roots)
    if not _is_path(text):
        shown_name, why = masked_line(declared, 200), "a path names a file of the project, such as specs/258.md"
        raise LoomError("BAD_PATH", f"{shown_name!r} is not a path", why=why, hint="loomctl paths")
    absolute = placeholders.is_absolute(text)
    wanted = text if absolute else os.path.join(roots.project, text)
    path = os.path.realpath(wanted) if wanted.startswith("/") else ""
    inside = bool(path) and (_inside(path, roots) or path in (known.get("state_path"), known.get("plan_path")))
    if inside and (absolute or os.path.exists(path)):
        return Place(path, shown(path, roots), rebased=False)
    rebased = _rebased(text, roots)
    if rebased is not None:
        return rebased
    if inside:
        return Place(path, shown(path, roots), rebased=False)
    absent = placeholders.below_recorded(text, roots.recorded)
    if absent is not None:  # it was inside the project there
        path = os.path.realpath(os.path.join(roots.project, absent))
        if _inside(path, roots):
            return Place(path, shown(path, roots), rebased=False)
    raise LoomError(
        "PATH_ESCAPE",
        "the path leads out of the project, the run's folder and the bundle",
        where=masked_line(declared, 300),
        why="Loom follows links first; you can allow a folder elsewhere with extra_roots in your own config.yaml",
        hint="loomctl paths",
    )


def _own_file(text: str, known: Mapping[str, str | None], roots: Roots) -> str:
    """Give the run's own state or plan where a path names it by another of the places that a run may have (D5)."""
    run_id, plan_id = known.get("run_id") or "", known.get("plan_id") or ""
    path = os.path.normpath(os.path.join(roots.project, text))
    name = os.path.relpath(path, roots.project) if text else ""
    state, plan = known.get("state_path"), known.get("plan_path")
    if path == os.path.join(roots.run_dir, "plan.json") and plan:
        return plan
    if os.path.lexists(path):
        return text
    if path == os.path.join(roots.run_dir, "state.json") or name in layouts.state_names(run_id):
        return state or text
    return plan if plan and name in layouts.plan_names(run_id, plan_id) else text


def expanded(declared: str, known: Mapping[str, str | None]) -> str:
    """Give a declared path or command with its placeholders replaced. Raises UNRESOLVED_PLACEHOLDER (D8)."""
    expansion = placeholders.expand(declared, known)
    if expansion.missing:
        what = f"{{{expansion.missing[0]:.80}}} has no value in this run"
        why = "known placeholders: " + " ".join(f"{{{name}}}" for name in placeholders.NAMES)
        raise LoomError("UNRESOLVED_PLACEHOLDER", what, where=masked_line(declared, 300), why=why, hint="loomctl paths")
    return expansion.text


def _is_path(text: str) -> bool:
    try:
        return 0 < len(os.fsencode(text)) <= LONGEST and "\0" not in text
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _rebased(text: str, roots: Roots) -> Place | None:
    """Look for a foreign absolute path here, and for a plugin's document in the bundle (D9)."""
    parts = placeholders.parts_of(text)
    if not placeholders.is_absolute(text):
        if len(parts) > 3 and parts[0] == "plugins" and parts[2] == "docs" and ".." not in parts:
            path = os.path.realpath(os.path.join(roots.plugin, *parts[2:]))
            if os.path.exists(path) and _inside(path, roots):
                return Place(path, shown(path, roots), rebased=True)
        return None
    for candidate in placeholders.candidates(text, roots.recorded):
        path = os.path.realpath(os.path.join(roots.project, candidate))
        if os.path.exists(path) and _inside(path, roots):
            return Place(path, shown(path, roots), rebased=True)
    return None


def is_inside(path: str, folder: str) -> bool:
    """Tell whether a resolved path is a folder or lies below it."""
    folder = folder.rstrip("/") or "/"
    return path == folder or path.startswith(folder if folder == "/" else folder + "/")


_REAL: dict[str, str] = {}


def real(folder: str) -> str:
    """Resolve a root's symbolic links, once a process: each artifact is compared with every root."""
    found = _REAL.get(folder)
    if found is None:
        found = _REAL[folder] = os.path.realpath(folder)
    return found


def _inside(path: str, roots: Roots) -> bool:
    return any(
        is_inside(path, real(root)) for root in (roots.project, roots.run_dir, roots.plugin, *roots.extra) if root
    )


def shown(path: str, roots: Roots) -> str:
    """Name a path for people and files: relative to the project, `{plugin_root}/…`, or absolute."""
    for root, prefix in ((roots.project, ""), (roots.plugin, "{plugin_root}/")):
        top = real(root)
        if path != top and is_inside(path, top):
            return prefix + os.path.relpath(path, top)
    return path


def placeholder_values(project: Project, run: Run) -> dict[str, str | None]:
    """Give every placeholder's value for a run (D8)."""
    state = run.state
    task = visits.task(state)
    own = {"task": str(task["text"]), TASK_LINE: visits.task_line(task)} if task else {}
    return {
        **own,
        "project_root": project.root,
        "run_id": run.run_id,
        "plan_id": state["plan_id"],
        "work_id": state.get("work_id"),
        "run_suffix": ids.split_run_id(run.run_id)[1],
        "run_dir": run.folder,
        "state_path": run.state_path,
        "plan_path": run.plan_path,
        "plugin_root": project.plugin_root,
    }


def workdir(project: Project, run: Run, step: Mapping[str, Any]) -> str | None:
    """Give the folder that a step works in, its placeholders expanded, as far as they have values; None: no own one."""
    declared = step.get("workdir")
    if not isinstance(declared, str):
        return None
    return placeholders.expand(declared, placeholder_values(project, run)).text


def _rejected(state: Mapping[str, Any]) -> dict[str, str | None]:
    """Give the words with which somebody refused the open step's result before; nothing where nobody did."""
    said = (visits.open_visit(state) or {}).get("rejected")
    if not isinstance(said, dict) or not said.get("note"):
        return {}
    by, note = (masked_line(str(said.get(key) or ""), _LONGEST_VALUE) for key in ("by", "note"))
    return {REJECTED: f"{by or 'The user'} rejected the result of this step before, and said:\n\n> {note}"}


def prompt_values(project: Project, run: Run) -> dict[str, str | None]:
    """Give what a step's prompt may name: the placeholders, and of a FABER run the plain values in its state (D5).

    A value of several lines or of over 400 characters is none that a prompt of FABER's means.
    """
    known = {**_rejected(run.state), **placeholder_values(project, run)}
    if not isinstance(run.plan.get("faber"), dict):
        return known
    plain = {key: str(value).strip() for key, value in run.state.items() if type(value) in (str, int, float)}
    said = {key: value for key, value in plain.items() if len(value) <= _LONGEST_VALUE and value.isprintable()}
    return {**said, **known}
