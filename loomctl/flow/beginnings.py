"""What the files were that a step has to change, as its visit began: the stage's `evidence.json`.

It goes with the run, and the visit's entry holds its hash: a note that was changed since counts nothing. A visit may
end in another checkout than it began in. There a file may differ for no work of the step's, for another commit stands
there: what was committed before the step began, and stands so, is no change.
"""

from __future__ import annotations

import itertools
import os

from loomctl.changes import evidence_files
from loomctl.flow import lines
from loomctl.kit import clock, digests, files, machine
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, stages
from loomctl.runs.model import frozen_plan, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.changes.evidence_files import Seen
    from loomctl.runs.artifact_paths import Roots
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Run

NOTED = "evidence.json"  # in the stage's folder
HASHED = "evidence_sha256"  # in the visit's entry
CHANGED, UNCHANGED, OLDER = "changed", "unchanged", "older"
"""What became of what had to be changed: it was; it stands as it was; it differs by what is older than the step."""
_MOST_ASKED = 20  # files of one pattern of which git is asked


class Known(NamedTuple):
    """What is known of the files as the visit began.

    files, plain: `{declared: {path: hash}}` as `evidence_files.Seen` has them; what was not noted is not in there.
    since: when it began, in seconds since the epoch, if that was in another checkout; else 0.
    """

    files: Mapping[str, Mapping[str, str]] = {}
    plain: Mapping[str, Mapping[str, str]] = {}
    since: int = 0


def roots(space: Workspace, run: Run) -> Roots:
    """Give where evidence may lie."""
    return artifact_paths.Roots(
        space.project.root, run.folder, space.project.plugin_root, tuple(space.settings.extra_roots)
    )


def begin(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note what the files are that a visit has to change, in its stage's folder. May raise."""
    wanted = _to_change(run, entry)
    if not wanted:
        return
    from loomctl.runs import artifact_paths

    values, where, ours = (
        artifact_paths.placeholder_values(space.project, run),
        roots(space, run),
        evidence_files.own_reports(space.store.local),
    )
    seen = {one: evidence_files.look(one, values, where, ours) for one in wanted}
    plain = {one: dict(found.plain) for one, found in seen.items() if found.plain}
    note = {"schema_version": 1, "place": _place(space), "files": {one: found.digests for one, found in seen.items()}}
    folder, data = (
        stages.folder(run.folder, entry["stage"]),
        files.to_json({**note, **({"plain": plain} if plain else {})}),
    )
    files.make_folder(folder, mode=0o755)
    files.write_atomically(os.path.join(folder, NOTED), data)
    _remember(space, run, entry, digests.of_bytes(data))


def known_of(space: Workspace, run: Run, entry: Mapping[str, Any]) -> Known:
    """Give what the files were as a visit began; nothing where nothing was noted, or it is not what was noted then."""
    try:
        text = stages.read_text(run.folder, entry["stage"], NOTED) or ""
        if not text or digests.of_text(text) != entry.get(HASHED):
            return Known()
        held = files.parse_json(text.encode(), where=NOTED)
    except LoomError:
        return Known()
    note = held if isinstance(held, dict) else {}
    elsewhere = isinstance(note.get("place"), str) and note["place"] != _place(space)
    since = clock.seconds_of(str(entry.get("started_at") or "")) if elsewhere else 0
    return Known(_by_name(note, "files"), _by_name(note, "plain"), since)


def fate(known: Known, declared: str, seen: Seen) -> str:
    """Tell what became of a file or of those of a pattern, which were noted: CHANGED, UNCHANGED or OLDER.

    One that changed is enough.
    """
    changed = seen.changed(known.files[declared], known.plain.get(declared, {}))
    if not changed:
        return UNCHANGED
    asked = itertools.islice(changed, _MOST_ASKED)
    if known.since and all(evidence_files.stands_since_before(seen.paths[path], known.since) for path in asked):
        return OLDER if len(changed) <= _MOST_ASKED else CHANGED
    return CHANGED


def _to_change(run: Run, entry: Mapping[str, Any]) -> list[str]:
    place = frozen_plan.place_of(run.plan, str(entry.get("step_id")))
    listed = place.step.get("evidence") if place else None
    asked = listed if isinstance(listed, list) else []
    return [str(one["file"]) for one in asked if one["kind"] == "file" and one.get("changed")]


def _place(space: Workspace) -> str:
    return digests.of_text(f"{machine.hostname()}\0{os.path.realpath(space.project.root)}")[:16]


def _remember(space: Workspace, run: Run, entry: Mapping[str, Any], sha256: str) -> None:
    from loomctl.kit.lock import HOOK_PATIENCE, PATIENCE

    def change(state: State) -> tuple[State, list[Event]]:
        now = visits.open_visit(state)
        if now is None or now["stage"] != entry["stage"]:
            return state, []
        return visits.replaced(state, {**now, HASHED: sha256}), []

    lines.update(space, run, change, patience=HOOK_PATIENCE if space.caller.on_hook_path else PATIENCE)


def _by_name(note: Mapping[str, Any], key: str) -> dict[str, dict[str, str]]:
    found = note.get(key)
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


FILE, COMMAND, STATE = "file", "command", "state"


TIMEOUT = 600.0  # seconds of a command that says nothing


class Item(NamedTuple):
    """One piece of evidence.

    sha256: of the file, the command's output or the value; pending: nobody could judge it here, and another answer
    would not help. word: what people call its kind, where that is not the kind's own name.
    """

    kind: str
    name: str
    passed: bool
    sha256: str = ""
    why: str = ""
    pending: bool = False
    word: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as `status.json` and the event hold it."""
        found: dict[str, Any] = {"kind": self.kind, "name": self.name, "passed": self.passed}
        return {**found, **({"sha256": self.sha256} if self.sha256 else {}), **({"why": self.why} if self.why else {})}


class Checked(NamedTuple):
    """What a step showed, in declared order."""

    items: Sequence[Item]

    @property
    def passed(self) -> bool:
        """Whether all of it is there."""
        return all(item.passed for item in self.items)

    @property
    def pending(self) -> bool:
        """Whether some of it could not be judged, and nothing that could is missing."""
        return not self.passed and all(item.passed or item.pending for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """Give it as `status.json` and the event hold it."""
        return {"passed": self.passed, "items": [item.to_dict() for item in self.items]}


def name_of(item: Mapping[str, Any]) -> str:
    """Name a piece of evidence as it is declared, for people and files."""
    return masked_line(str(item.get("file") or item.get("run") or item.get("state") or item.get("condition")), 300)


class Command(NamedTuple):
    """A command that is evidence. entry, step: of the visit; number: of the evidence, from 1; claim: see `check`."""

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    wanted: Mapping[str, Any]
    number: int
    claim: str
