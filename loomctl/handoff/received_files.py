"""What was received of a run, put where it belongs: blobs into the store, and outputs beside those that are there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.handoff import carried, received
from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import LARGEST as LARGEST_BLOB
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.tools import output_files

if TYPE_CHECKING:
    from collections.abc import Iterator


def has_blob(store: str, path: str) -> bool:
    """Tell whether a blob is in the store, and whole: a damaged one is mended by what comes. path: as it is carried."""
    try:
        Blobs(store).get(blobs.ref_to(os.path.basename(path)))
    except LoomError:
        return False
    return True


def put_blobs(store: str, room: str, where: str) -> None:
    """Put the blobs that were written in a room into the store.

    where: as errors name the remote's run. Raises BAD_HANDOFF for one that is not what its name says.
    """
    for path in _below(os.path.join(room, "blobs")):
        data = files.read_bytes(path, limit=LARGEST_BLOB)
        name = os.path.basename(path)
        if digests.of_bytes(data) != name:
            raise received.bad(where, f"the blob {name} is not what its name says")
        Blobs(store).put(data)


def _below(folder: str) -> Iterator[str]:
    for below, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(below, name)


def add_output(room: str, run_dir: str, ref: str, sha256: str) -> bool:
    """Give an output that was written in a room its place in a run that lacks it; tells whether it was given.

    ref: as a tool step names it; sha256: what its bytes must have, empty where the step does not say. Nothing is
    written over. Raises OSError, and UNSAFE_LINK where a link stands for the folder.
    """
    source, target = os.path.join(room, carried.RUN, ref), os.path.join(run_dir, ref)
    data = files.read_bytes(source, limit=carried.LARGEST_FILE)
    if sha256 and digests.of_bytes(data) != sha256:
        return False
    files.refuse_links(run_dir, target)
    files.make_folder(os.path.join(run_dir, output_files.FOLDER))
    if os.path.lexists(target):
        return False
    files.write_atomically(target, data, mode=0o600)
    return True
