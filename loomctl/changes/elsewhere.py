"""What a step touched and left in a folder of its own outside of the project (D39, D40).

It is told as the project is: by git, where the folder is in a repository, and by a walk for assets. Its names begin
with `{workdir}/`.
"""

from __future__ import annotations

import os

from loomctl.changes import asset_files, own_reports, working_tree
from loomctl.kit import git, trouble
from loomctl.kit.errors import LoomError
from loomctl.runs import artifact_paths
from loomctl.runs.artifact_paths import is_inside, real
from loomctl.runs.model import places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from loomctl.changes.working_tree import Changes
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

NAMED = "{workdir}/"
_GIT = "workdir"
_IN_IT = "in the step's workdir: "


def folder(space: Workspace, run: Run, entry: Mapping[str, Any]) -> str | None:
    """Give a visit's workdir, links followed, if that lies outside of the project; else None."""
    place = places.place_of(run.plan, str(entry.get("step_id")))
    declared = artifact_paths.workdir(space.project, run, place.step) if place is not None else None
    if not declared or "\0" in declared:
        return None
    root = real(space.project.root)
    found = os.path.realpath(os.path.join(root, declared))
    return None if is_inside(found, root) or is_inside(found, real(run.folder)) else found


def begin(space: Workspace, found: str, own: str) -> dict[str, Any]:
    """Note what the folder holds as a visit begins. own: the stage's folder for git. Raises OSError."""
    noted: dict[str, Any] = {"root": found, "shared": _is_shared(space, found)}
    why = _not_looked_at(space, found)
    if why:
        return {**noted, "why": why}
    ours = own_reports.standing(space.store.local)
    looked = asset_files.without(asset_files.look(found), found, ours)
    noted["assets"] = {"found": looked.found, "why_not_all": looked.why_not_all}
    if noted["shared"]:
        return noted
    inner = os.path.join(own, _GIT)
    os.mkdir(inner, 0o700)
    try:
        noted["tree"] = working_tree.note(found, inner, ours).to_dict()
    except working_tree.Unknown as error:
        noted["why"] = str(error)
    except (OSError, LoomError) as error:
        noted["why"] = trouble.said(error)
    return noted


def _is_shared(space: Workspace, found: str) -> bool:
    """Tell whether the folder lies in the project's own checkout, of which git tells anyhow."""
    top = git.top_of(found)
    return top is not None and top == git.top_of(real(space.project.root))


def _not_looked_at(space: Workspace, found: str) -> str:
    if any(is_inside(found, real(one)) for one in space.settings.extra_roots):
        return "" if os.path.isdir(found) else "it is no directory"
    return "it leads out of the project, and is not among your extra_roots"


def changes(found: str, noted: object, own: str, ours: Collection[str]) -> tuple[Changes | None, str]:
    """Give what changed there by content since the visit began, or why that is unknown.

    ours: real paths of Loom's own reports, which are no change.
    """
    if not isinstance(noted, dict) or noted.get("root") != found:
        return None, f"{_IN_IT}on this machine nothing was noted when the step began"
    if noted.get("shared"):
        return None, ""
    if "tree" not in noted:
        return None, _IN_IT + str(noted.get("why") or "git could not tell")
    try:
        before = working_tree.Moment.from_dict(noted["tree"])
        return working_tree.since(found, os.path.join(own, _GIT), before, ours), ""
    except working_tree.Unknown as error:
        return None, f"{_IN_IT}{error}"
    except (OSError, LoomError) as error:
        return None, _IN_IT + trouble.said(error)


def name(found: str, path: str) -> str:
    """Give a path of a checkout that the folder lies in as it is told."""
    return NAMED + os.path.relpath(os.path.join(git.top_of(found) or found, path), found)


def name_of(found: str | None, whole: str) -> str | None:
    """Give an absolute path below the folder as it is told; None for any other."""
    if found is None or not is_inside(whole, found):
        return None
    return NAMED + os.path.relpath(whole, found)
