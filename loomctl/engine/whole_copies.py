"""Where a file of a run that is not the one that was written may still be whole: in what was last pushed or pulled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loomctl.disk import carried, git_refs
from loomctl.model.errors import LoomError, quoted

if TYPE_CHECKING:
    from loomctl.engine.caller import Workspace

_KEPT = "refs/loom/remotes/"


class WayOn(NamedTuple):
    """What a person does about a file that does not fit. hint: one command line that shows more."""

    said: str
    hint: str


def way_on(space: Workspace, run_id: str, path: str, *, otherwise: str) -> WayOn:
    """Say where another copy of a run's file is. path: below the run's folder; otherwise: the hint where none is.

    The copy is the one that was last pushed or pulled here, as git holds it: no remote is asked. That it is whole
    nobody says; it was masked, and may be older.
    """
    ref = _ref(space, run_id, path)
    if ref:
        said = "the copy that was last pushed or pulled here may be whole (its secrets are masked)"
        return WayOn(said, f"git show {quoted(f'{ref}:{carried.RUN}{path}')}")
    return WayOn("no copy was pushed from here; a backup of yours may have it whole", otherwise)


def _ref(space: Workspace, run_id: str, path: str) -> str:
    """Give the first ref of what was handed on that has a file; empty where none has, or there is no git."""
    try:
        repository = git_refs.of_store(space.store.folder)
        names = [name for name in sorted(repository.refs(_KEPT)) if name.endswith(f"/{run_id}")]
        found = (name for name in names if repository.run("cat-file", "-e", f"{name}:{carried.RUN}{path}").code == 0)
        return next(found, "")
    except (LoomError, OSError):
        return ""
