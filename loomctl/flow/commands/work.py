"""A command step that is being worked on: its visit, its folder."""

from __future__ import annotations

import os

from loomctl.flow.commands import command_trust
from loomctl.kit.records import NamedTuple
from loomctl.runs import stages
from loomctl.runs.commands import command_files
from loomctl.runs.model import places, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.store.store import Run


class Work(NamedTuple):
    """An open visit of a command step. entry: as the state has it; folder: its stage's, absolute."""

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    folder: str

    @property
    def stage(self) -> str:
        """The stage's name."""
        return str(self.entry["stage"])

    @property
    def step_id(self) -> str:
        """The step's key."""
        return str(self.entry["step_id"])

    @property
    def log(self) -> str:
        """The file with all that its command printed."""
        return os.path.join(self.folder, command_files.LOG)


def open_work(run: Run) -> Work | None:
    """Give the command step whose visit is open; None where none is."""
    entry = visits.open_visit(run.state)
    place = places.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or not command_trust.is_command(place.step) or not entry.get("stage"):
        return None
    return Work(entry, place.step, stages.folder(run.folder, entry["stage"]))
