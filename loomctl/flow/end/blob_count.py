"""How many values of a run were offloaded (D38, D41): counted from what its stages wrote down, each content once."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.runs import stages
from loomctl.runs.model import blob_refs, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MARK = blob_refs.PREFIX.encode()


def offloaded(run_folder: str, state: Mapping[str, Any]) -> int:
    """Count the values that became blobs over the whole run: those of its context, and those that were replaced since.

    A stage whose `status.json` cannot be read counts nothing. It is asked once, as a run ends; a stage costs the
    reading of one small file, and no parsing where nothing was offloaded.
    """
    found = set(blob_refs.refs_of_state(state))
    for entry in visits.every(state):
        stage = entry.get("stage")
        if isinstance(stage, str):
            found.update(_refs_of(run_folder, stage))
    return len(found)


def _refs_of(run_folder: str, stage: str) -> list[str]:
    try:
        path = os.path.join(stages.folder(run_folder, stage), stages.STATUS)
        data = files.read_bytes(path)
        if _MARK not in data:
            return []
        status = files.parse_json(data, where=path)
    except (OSError, LoomError):
        return []
    return blob_refs.refs_of_status(status)
