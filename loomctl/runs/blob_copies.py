"""The blobs that a run takes along in its own folder, so that an archive or a copy of it holds all of it (D42, D56)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.runs import blob_collection, not_here
from loomctl.runs.context import context_values
from loomctl.runs.store import blobs, leftovers
from loomctl.runs.store.blobs import Blobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loomctl.runs.caller import Workspace

_ENDING = ".json"


def put_in(space: Workspace, folder: str) -> None:
    """Copy every whole blob that a run's folder names, and those that they name, into the folder. Raises OSError."""
    for ref, data in named(space, folder, blob_collection.named_below(folder)):
        blobs.keep_copy(folder, blobs.FOLDER, blobs.sha256_of(ref) + _ENDING, data)


def named(space: Workspace, run_dir: str, refs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Give each whole blob of these, and of those that they name in turn: the store's, or the run's own copy of it.

    One that is missing or damaged is left out: whether it is missed, `trouble` says.
    """
    store = Blobs(space.store.folder)
    seen: set[str] = set()
    waiting = sorted(refs)
    while waiting:
        ref = waiting.pop()
        if ref in seen:
            continue
        seen.add(ref)
        try:
            data: bytes | None = store.get(ref)
        except LoomError:
            data = context_values.brought_along(run_dir, ref)
        if data is not None:
            yield ref, data
            waiting += blobs.named_in(data)


def take_out(space: Workspace, folder: str) -> None:
    """Put the whole copies that a run's folder holds into the store; one whose bytes are not its name's is nothing."""
    store = Blobs(space.store.folder)
    for ref in _copies(folder):
        data = context_values.brought_along(folder, ref)
        if data is not None:
            store.put(data)


def _copies(folder: str) -> Iterator[str]:
    for found in leftovers.below(os.path.join(folder, blobs.FOLDER)):
        name = os.path.basename(found.path).removesuffix(_ENDING)
        if blobs.is_sha256(name):
            yield blobs.ref_to(name)


def lost(space: Workspace, folder: str) -> tuple[str, ...]:
    """Give the references in a run's context behind which no whole blob is; none where its state cannot be read."""
    try:
        state = files.read_json(os.path.join(folder, "state.json"))
    except (OSError, LoomError):
        return ()
    return tuple(ref for ref in blobs.refs_of_state(state) if trouble(space.store.folder, folder, ref) is not None)


def trouble(store: str, run_dir: str, ref: str) -> LoomError | None:
    """Say what is wrong with a blob that a run refers to; None where it, or a copy in the run's folder, is whole."""
    try:
        Blobs(store).get(ref)
    except LoomError as error:
        return not_here.instead(error, run_dir, ref) if context_values.brought_along(run_dir, ref) is None else None
    return None
