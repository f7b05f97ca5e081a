"""Where a file of a run that is not the one that was written may still be whole: in what was last pushed or pulled."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from loomctl.handoff import carried, git_refs
from loomctl.kit import files
from loomctl.kit.errors import LoomError, quoted
from loomctl.runs import log_verdict
from loomctl.runs.store import event_log, events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.handoff.git_refs import Repository
    from loomctl.runs.caller import Workspace

_KEPT = "refs/loom/remotes/"
_MOST = 20  # commits before the last that are looked at
_LARGEST = 64 << 20  # bytes of a copy that is looked at


class WayOn(NamedTuple):
    """What a person does about a file that does not fit. hint: one command line that shows more."""

    said: str
    hint: str


def way_on(space: Workspace, run_id: str, path: str, *, otherwise: str) -> WayOn:
    """Say where another copy of a run's file is. path: below the run's folder; otherwise: the hint where none is.

    The copy is what was last pushed or pulled here, as git holds it, or the newest before it that is not damaged as it
    is; no remote is asked. A log is held against its own chain, another file against the one that is here. That a copy
    is whole nobody says: it was masked, and may be older.
    """
    found, looked = _copy(space, run_id, path)
    if found and looked == 0:
        said = "the copy that was last pushed or pulled here may be whole (its secrets are masked)"
    elif found:
        said = "an earlier copy that was pushed or pulled here may be whole (its secrets are masked); the last is not"
    elif looked:
        said = "no whole copy is known: what was pushed or pulled here is damaged, too; a backup of yours may have it"
    else:
        said = "no copy was pushed from here; a backup of yours may have it whole"
    return WayOn(said, f"git show {quoted(f'{found}:{carried.RUN}{path}')}" if found else otherwise)


def _copy(space: Workspace, run_id: str, path: str) -> tuple[str, int]:
    """Give a ref or commit whose copy of a file is not known to be damaged, "" for none; and how many were before."""
    looked = 0
    try:
        repository = git_refs.of_store(space.store.folder)
        names = [name for name in sorted(repository.refs(_KEPT)) if name.endswith(f"/{run_id}")]
        for name in names:
            for commit in (name, *_earlier(repository, name)):
                there = f"{commit}:{carried.RUN}{path}"
                if repository.run("cat-file", "-e", there).code != 0:
                    continue
                if not _is_damaged(space, repository, run_id, path, there):
                    return commit, looked
                looked += 1
    except (LoomError, OSError):
        return "", looked
    return "", looked


def _earlier(repository: Repository, name: str) -> Iterator[str]:
    """Give the commits before a ref's, the newest first; they are asked for where the ref's own does not do."""
    done = repository.run("rev-list", "--first-parent", f"--max-count={_MOST}", "--skip=1", name)
    yield from done.out.decode("ascii", "replace").split() if done.code == 0 else ()


def _is_damaged(space: Workspace, repository: Repository, run_id: str, path: str, there: str) -> bool:
    """Tell of a copy that it is no better than what is here; of one that is too large to be looked at nobody knows."""
    size = repository.run("cat-file", "-s", there).out.strip()
    if not size.isdigit() or int(size) > _LARGEST:
        return False
    data = repository.run("cat-file", "blob", there).out
    try:
        if path != events.FILE:
            return files.read_bytes(os.path.join(space.store.run_dir(run_id), path), limit=_LARGEST) == data
        with tempfile.NamedTemporaryFile(prefix="loom-log-") as copy:
            copy.write(data)
            copy.flush()
            return not log_verdict.of_log(copy.name, run_id, None, event_log.all_of(copy.name)).ok
    except (LoomError, OSError):
        return False
