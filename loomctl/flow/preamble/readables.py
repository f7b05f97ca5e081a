"""The files that a preamble names to read: those that stand there, and copies that are made when they are named (D42).

Where a step works in a folder from which the store cannot be seen, each file of the store has its copy there.
"""

from __future__ import annotations

import os

from loomctl.flow.preamble.preamble_table import as_text, path
from loomctl.kit import files, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.context import context_values
from loomctl.runs.model import blob_refs
from loomctl.runs.store import blobs, reading_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


class _Copy(NamedTuple):
    """A copy that may be made. at: where; make: gives where it stands; otherwise: what is named without it."""

    at: str
    make: Callable[[], str]
    otherwise: str


class Readables:
    """What can be read by who does a step. workdir: the step's, if it has one. troubles: what cannot be read, in words.

    Each method gives the path to name; nothing is written before `make`.
    """

    def __init__(self, space: Workspace, run: Run, workdir: str | None) -> None:
        self._space, self._run, self._workdir = space, run, workdir
        self._copies: dict[str, _Copy] = {}
        self._stands: dict[str, str] = {}
        self.troubles: list[str] = []
        self._room: str | None = None
        try:
            self._room = context_values.room_of(space, workdir)
        except LoomError as error:
            self.troubles.append(trouble.said(error))

    def blob(self, ref: str) -> str:
        """Give the file in which a blob can be read; one that is gone by its reference."""
        at = os.path.join(self._room or self._run.folder, blobs.FOLDER, f"{blob_refs.sha256_of(ref)}.json")
        return self._copy(ref, at, lambda: self._materialised(ref), ref)

    def artifact(self, ref: str) -> str:
        """Give the file that a `file://` reference names, or its copy."""
        if ref in self._stands:
            return self._stands[ref]
        try:
            named = reading_copies.path_in(ref)
        except LoomError as error:
            self.troubles.append(f"{ref}: {trouble.said(error)}")
            return self._stands.setdefault(ref, ref)
        if self._room is None:
            return named
        at = os.path.join(self._room, "artifacts", os.path.basename(named))
        return self._copy(ref, at, lambda: self._materialised(ref), ref)

    def value(self, key: str, value: Any, limit: int) -> str:
        """Give the file for a value of the context that is not told whole: a text with its lines, else its JSON.

        Empty for one that is told in `limit` UTF-16 units.
        """
        text = as_text(key, value)
        if text is None or len(text) <= limit:
            return ""
        data, ending = context_values.encoded(value), ".json"
        if isinstance(value, str):
            data, ending = value.encode("utf-8", "backslashreplace"), ".txt"
        name = blob_refs.sha256_of(blobs.ref_of(data)) + ending
        folder = self._room or self._run.folder
        at = os.path.join(folder, blobs.FOLDER, name)
        return self._copy(f"context {key}", at, lambda: self._kept(blobs.FOLDER, name, data), "")

    def of_stage(self, stage: str, at: str) -> str:
        """Give a file of a stage, which stands at `at`, or its copy."""
        if self._room is None:
            return at
        folder, name = os.path.join("stages", stage), os.path.basename(at)
        copy = os.path.join(self._room, folder, name)
        return self._copy(copy, copy, lambda: self._kept(folder, name, files.read_bytes(at, limit=blobs.LARGEST)), at)

    def make(self, text: str) -> bool:
        """Make the copies that a text names; tells whether it names them rightly, else it is to be made again."""
        is_right = True
        for what, copy in self._copies.items():
            if what in self._stands or path(copy.at) not in text:
                continue
            try:
                self._stands[what] = copy.make()
            except (OSError, LoomError) as error:
                self.troubles.append(f"{what}: {trouble.said(error)}")
                self._stands[what] = copy.otherwise
            is_right = is_right and self._stands[what] == copy.at
        return is_right

    def _copy(self, what: str, at: str, make: Callable[[], str], otherwise: str) -> str:
        if what in self._stands:
            return self._stands[what]
        self._copies[what] = _Copy(at, make, otherwise)
        return at

    def _materialised(self, ref: str) -> str:
        return context_values.materialised(self._space, self._run, ref, self._workdir)

    def _kept(self, folder: str, name: str, data: bytes) -> str:
        top = self._run.folder if self._room is None else reading_copies.room(os.path.dirname(self._room))
        return reading_copies.keep(top, folder, name, data)
