"""What the items that must survive stand for now: their texts, secrets masked, or why there is none to look for.

A value that the state holds by reference, in a blob or a stage's file, is read from there, as `loomctl context get`
does. This is the hook path: bounded, and what only some items need is imported for them.
"""

from __future__ import annotations

import os

from loomctl.expressions.state_paths import MISSING, compile_path, read
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import due
from loomctl.priming.due import ERROR, LOAD, SKIP
from loomctl.priming.survival.receipts import NOT_SOUGHT
from loomctl.runs.store import blobs
from loomctl.workflows.model import survival, triggers
from loomctl.workflows.model.survival import ARTIFACT, PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.priming.examine import Entry
    from loomctl.priming.packing import Piece
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.workflows.model.survival import Item

LARGEST = 1 << 20
"""Bytes of a referenced value that is looked for; of an artifact it is as many (D17)."""
ALL = 4 << 20
"""Bytes of referenced values and artifacts that are read for all items together: a hook has five seconds."""
_CONTEXT, _SET, _STAGE = "context", "set", "$stage"
_NOTE_UNITS = 300
OF = {
    "listing": "a listing of the folder, not its files",
    "newest": "the folder's newest file",
    "some": "those of the folder's files that can be read",
}
"""What is noted of an artifact whose strategy gives less than all of it: it is that which must survive."""
_ABSENT = {"other_phase": "of another phase", "condition_false": "its condition does not hold"}


class Survivor(NamedTuple):
    """What an item stands for. text: secrets masked; None where there is none that could be looked for.

    absent: there is nothing that could have been lost; note: why there is no text, or what of an artifact it is;
    pointer: one line that says how to read what cannot be given.
    """

    text: str | None
    absent: bool
    note: str
    pointer: str


def found(space: Workspace, run: Run, items: Sequence[Item], *, limit: int = LARGEST) -> dict[str, Survivor]:
    """Give what each item stands for, by its name. limit: bytes above which a referenced value is not read.

    What does not fit into ALL beside what was read before it is not read either, and smaller ones behind it are.
    """
    values = _Values(space, run, limit)
    every = {item.name: _of_state(values, item) for item in items if item.kind != ARTIFACT}
    every.update(_artifacts(values, [item for item in items if item.kind == ARTIFACT]))
    return every


class _Values:
    """The values of a run's state with what its references stand for, each read once."""

    def __init__(self, space: Workspace, run: Run, limit: int) -> None:
        self.space, self.run = space, run
        self._limit = limit
        self.left = ALL
        self._known: dict[str, Any] = {}

    def at(self, path: str) -> Any:
        """Give what the state has at a path; MISSING where it has nothing. Raises as `context_values.value_of`.

        References stand where Loom writes them: as values of the context's keys, and of what open branches set.
        """
        steps = compile_path(path)
        if steps is None:
            return MISSING
        if steps[0] == _CONTEXT:
            context = self.run.state.get(_CONTEXT)
            held = context if isinstance(context, dict) else {}
            names = [steps[1]] if len(steps) > 1 else list(held)
            return read(steps[1:], {name: self._meant(held[name]) for name in names if name in held})
        value = read(steps, self.run.state)
        return self._meant(value) if _SET in steps else value

    def _meant(self, value: Any) -> Any:
        if not blobs.is_ref(value) and not (isinstance(value, dict) and _STAGE in value):
            return value
        from loomctl.runs.context import context_values

        place = context_values.place_of(self.space, self.run, value)
        if place is None:
            return value
        if place not in self._known:
            size = os.stat(place).st_size if os.path.isfile(place) else 0
            hint = f"loomctl state show {self.run.run_id}"
            if size > self._limit:
                what = f"{size:,} bytes; {self._limit:,} is the most that is looked for"
                raise LoomError("TOO_LARGE", what, where=place, hint=hint)
            if size > self.left:
                what = f"{size:,} bytes; of all items together {ALL:,} are read at most"
                raise LoomError("TOO_LARGE", what, where=place, hint=hint)
            self.left -= size
            self._known[place] = context_values.value_of(self.space, self.run, value)
        return self._known[place]


def _of_state(values: _Values, item: Item) -> Survivor:
    pointer = _how_to_read(values.run, item)
    try:
        value = item.value if item.kind != PATH else values.at(item.value)
    except (LoomError, OSError) as error:
        note = _said(values.space, error)
        return Survivor(None, False, note, masked_line(f"{item.name}: {note}", _NOTE_UNITS))
    text = survival.text_of(value)
    if text is None:
        return Survivor(None, True, "", pointer)
    shown = survival.masked(item, text)
    if survival.is_secret(shown):
        return Survivor(None, True, NOT_SOUGHT, pointer)
    return Survivor(shown, False, "", pointer)


def _said(space: Workspace, error: LoomError | OSError) -> str:
    if not isinstance(error, LoomError):
        return masked_line(f"unreadable: {error.strerror or error}", _NOTE_UNITS)
    root = os.path.join(space.project.root, "")
    where = error.where.removeprefix(root) if error.where.startswith(root) else os.path.basename(error.where)
    told = f"{error.code.lower()}: {error.what}"
    return masked_line(f"{told} ({where})" if where else told, _NOTE_UNITS)


def _how_to_read(run: Run, item: Item) -> str:
    """Say where an item of the run's state can be read that is too large to be given."""
    steps = compile_path(item.value) if item.kind == PATH else None
    if steps and steps[0] == _CONTEXT and len(steps) > 1:
        from loomctl.kit.errors import quoted

        return f"{item.name}: `loomctl context get {quoted(masked_line(str(steps[1]), 200))} {run.run_id}`"
    if item.kind == PATH:
        return f"{item.name}: `loomctl state show {run.run_id}`"
    return f"{item.name}: under `{survival.KEY}` in the run's `plan.json`, or `loomctl state show {run.run_id}`"


def _artifacts(values: _Values, items: Sequence[Item]) -> dict[str, Survivor]:
    """Give what artifacts hold now: all that their strategy gives of them (D16).

    Only what has no file, belongs to another phase, or has a condition that does not hold cannot have been lost.
    """
    space, run = values.space, values.run
    names = {item.value: item.name for item in items}
    every = {name: Survivor(None, True, "no such artifact in the plan", "") for name in names.values()}
    declared = [artifact for artifact in run.plan["artifacts"] if artifact["id"] in names]
    if not declared:
        return every
    from loomctl.priming.examine import Examiner

    reader = Examiner(space, run, declared)
    phase = run.state.get("current_phase")
    for artifact in declared:
        name = names[artifact["id"]]
        if values.left <= 0:
            note = f"too_large: of all items together {ALL:,} bytes are read at most"
            every[name] = Survivor(None, False, note, masked_line(f"{name}: {note}", _NOTE_UNITS))
            continue
        condition = reader.condition(artifact)
        verdict = due.wanted(artifact, event=triggers.manual(), phase=phase, only=None, condition=condition)
        entry, piece = reader.examine(artifact, verdict, None, force=True)
        every[name] = _of_artifact(entry, piece)
        values.left -= len((piece.text or "").encode("utf-8", "surrogatepass")) if piece is not None else 0
    return every


def _of_artifact(entry: Entry, piece: Piece | None) -> Survivor:
    text = piece.text if piece is not None else None
    pointer = piece.pointer if piece is not None else ""
    if entry.decision == LOAD and text is not None and text.strip():
        if survival.is_secret(text):
            return Survivor(None, True, NOT_SOUGHT, pointer)
        return Survivor(text, False, OF.get(entry.of, ""), pointer)
    if entry.decision in (LOAD, SKIP):
        return Survivor(None, True, _ABSENT.get(entry.reason, ""), pointer)
    if entry.decision == ERROR and entry.reason == "missing":
        return Survivor(None, True, "", pointer)
    where = f" ({entry.path})" if entry.path else ""
    return Survivor(None, False, masked_line(f"{entry.reason}: {entry.message}{where}", _NOTE_UNITS), pointer)
