"""What a run here names and lacks, and a remote's state of it has: it comes, whichever of both states is newer (D47).

An output that a tool step here names, and a blob, are known by what they are: they replace nothing, and belong to no
state alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.handoff import carried, received, received_files
from loomctl.runs.store import arrivals
from loomctl.runs.tools import tool_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.handoff.handoff import Desk


def bring_in(desk: Desk, run_id: str, theirs: str) -> list[str]:
    """Take what is missing here of a commit that was fetched; gives the paths, as they are carried.

    Raises BAD_HANDOFF, GIT_FAILED, OSError; what was taken by then stays, for it is missed by nobody else.
    """
    store, run_dir = desk.space.store, desk.space.store.run_dir(run_id)
    tree = desk.tree(theirs, run_id)
    outputs = dict(_missing_outputs(run_dir)) if desk.told(theirs, run_id).outputs else {}
    wanted = [carried.RUN + ref for ref in outputs if carried.RUN + ref in tree]
    wanted += [path for path in tree if carried.is_blob(path) and not received_files.has_blob(store.folder, path)]
    if not wanted:
        return []
    with arrivals.room(store, "missing-") as room:
        received.write(desk.repository, {path: tree[path] for path in wanted}, room)
        received_files.put_blobs(store.folder, room, received.where_of(desk.remote, run_id))
        return [path for path in wanted if carried.is_blob(path) or _given(room, run_dir, path, outputs)]


def _given(room: str, run_dir: str, path: str, outputs: dict[str, str]) -> bool:
    ref = path.removeprefix(carried.RUN)
    return received_files.add_output(room, run_dir, ref, outputs[ref])


def _missing_outputs(run_dir: str) -> Iterator[tuple[str, str]]:
    """Give the outputs that tool steps name and that are not here, with their hashes, as far as the steps say them."""
    for step in tool_log.read(run_dir):
        for ref, sha256 in ((step.outcome_ref, step.sha256), (step.rest_ref, "")):
            if (
                ref
                and f"{carried.RUN}{ref}".startswith(carried.OUTPUTS)
                and not os.path.lexists(os.path.join(run_dir, ref))
            ):
                yield ref, sha256
