"""The artifacts of a report: the critical ones of its plan, those that the run made, and where their files lie."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions import state_paths
from loomctl.kit.errors import LoomError
from loomctl.priming import artifact_files
from loomctl.runs import run_values
from loomctl.runs.artifact_paths import Roots, is_inside, locate, real
from loomctl.runs.model import sessions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

RUN, PROJECT = "run", "project"
"""What a file's path is below: the run's folder, or the project's."""
_SIZED = ("json", "markdown", "directory")
_NEVER = ".git"  # what is in it is git's, and may hold a password of a remote


class _Known(NamedTuple):
    """What a declared path is read with. own: the store's folder, of which the run's alone is anybody's to see."""

    values: Mapping[str, str | None]
    roots: Roots
    own: str


def _known(space: Workspace, run: Run) -> _Known:
    recorded = tuple(sessions.roots(run.state))
    roots = Roots(space.project.root, run.folder, space.project.plugin_root, space.settings.extra_roots, recorded)
    return _Known(run_values.placeholder_values(space.project, run), roots, space.project.store)


def critical(space: Workspace, run: Run, primings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each critical artifact: in which forms it was given, which one is in context, when; its file and size."""
    metadata = run.state.get("context_metadata")
    held = metadata.get("artifacts_in_context") if isinstance(metadata, dict) else None
    current = {str(one.get("artifact_id")): one for one in held or () if isinstance(one, dict)}
    known = _known(space, run)
    return [_artifact(run, one, current.get(str(one["id"]), {}), primings, known) for one in run.plan["artifacts"]]


def _artifact(
    run: Run,
    one: Mapping[str, Any],
    now: Mapping[str, Any],
    primings: Sequence[Mapping[str, Any]],
    known: _Known,
) -> dict[str, Any]:
    name = str(one["id"])
    given = [(priming, priming["loaded"][name]) for priming in primings if name in priming["loaded"]]
    forms: dict[str, int] = {}
    for _, form in given:
        forms[form] = forms.get(form, 0) + 1
    size, path = _on_disk(run, one, known)
    return {
        "id": name,
        "type": _text(one.get("type")),
        "description": _text(one.get("description")),
        "required": one.get("required") is True,
        "forms": forms,
        "form": _text(now.get("form")),
        "at": _text(now.get("loaded_at")) or (given[-1][0]["at"] if given else ""),
        "event": _text(now.get("load_trigger")) or (given[-1][0]["event"] if given else ""),
        "bytes": size,
        "file": _file(path, known),
    }


def _on_disk(run: Run, one: Mapping[str, Any], known: _Known) -> tuple[int | None, str]:
    """Give an artifact's size and its path, links followed; None and empty where it is no file, or is not here."""
    if one.get("type") not in _SIZED:
        return None, ""
    declared = one.get("path")
    if one.get("path_from_state"):
        steps = one.get("path_steps")
        declared = state_paths.read(steps, run.state) if steps is not None else None
    if not isinstance(declared, str) or not declared:
        return None, ""
    found = artifact_files.read(one, declared, known.values, known.roots)
    return found.bytes, found.absolute


def made(space: Workspace, run: Run) -> list[dict[str, Any]]:
    """Give what the run registered: its name, the path as it was said, its file."""
    known = _known(space, run)
    return [
        {"name": str(name), "path": str(path), "file": _made_file(path, known)}
        for name, path in run.state["artifacts"].items()
    ]


def _made_file(path: object, known: _Known) -> dict[str, str] | None:
    if not isinstance(path, str):
        return None
    try:
        return _file(locate(path, known.values, known.roots).path, known)
    except (LoomError, OSError):
        return None


def _file(path: str, known: _Known) -> dict[str, str] | None:
    """Give where a file lies, by a path without links: `below` the run's folder or the project's, and `at`.

    None for what is no file, lies elsewhere, in git's folder, or in Loom's own for another run or for this machine.
    """
    if not path or not os.path.isfile(path):
        return None
    run, project = real(known.roots.run_dir), real(known.roots.project)
    if is_inside(path, run):
        return {"below": RUN, "at": os.path.relpath(path, run)}
    if not is_inside(path, project) or is_inside(path, real(known.own)):
        return None
    at = os.path.relpath(path, project)
    return None if _NEVER in at.split(os.sep) else {"below": PROJECT, "at": at}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
