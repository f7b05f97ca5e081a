"""Registering a file that later steps need: it is there, may be read, and its name holds on every machine (D9, D10)."""

from __future__ import annotations

import os

from loomctl.expressions import placeholders
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.runs.artifact_paths import is_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace


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
