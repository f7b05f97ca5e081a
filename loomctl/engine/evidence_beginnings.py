"""What the files were that a step has to change: as its visit began, and as it came to another checkout.

The first note is the stage's `evidence.json`, with the place that it was made at. What stands at another place is no
work of the step's, so that a second note is made as the visit comes there, in `evidence-places.json`. Both go with the
run, and the visit's entry holds their hashes: a note that was changed since counts nothing. What the visit had changed
where it was pushed from stands in the log, by content: that is its work wherever git brings it.
"""

from __future__ import annotations

import os

from loomctl.disk import (
    artifact_paths,
    checkouts,
    clock,
    digests,
    event_log,
    evidence_files,
    files,
    git,
    machine,
    own_reports,
)
from loomctl.engine import stages
from loomctl.model import places, visits
from loomctl.model.errors import LoomError
from loomctl.model.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.disk.artifact_paths import Roots
    from loomctl.disk.events import Event
    from loomctl.disk.evidence_files import Seen
    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.model.state import State

NOTED, ELSEWHERE = "evidence.json", "evidence-places.json"  # in the stage's folder
HASHED, HASHED_ELSEWHERE = "evidence_sha256", "evidence_places_sha256"  # in the visit's entry
_MOST_PLACES = 20  # that a visit came to, the latest
_MOST_BROUGHT = 20  # files of one declared, in the event


class Known(NamedTuple):
    """What is known of the files as the visit came to this place.

    files, plain: `{declared: {path: hash}}` as `evidence_files.Seen` has them; what was not noted is not in there.
    is_elsewhere: it began at another place; is_late: they were noted only as the step was to end; brought: what it had
    changed at another place as the run was pushed from there, `{declared: {path: hash with LF}}`.
    """

    files: Mapping[str, Mapping[str, str]] = {}
    plain: Mapping[str, Mapping[str, str]] = {}
    is_elsewhere: bool = False
    is_late: bool = False
    brought: Mapping[str, Mapping[str, str]] = {}


def roots(space: Workspace, run: Run) -> Roots:
    """Give where evidence may lie."""
    return artifact_paths.Roots(
        space.project.root, run.folder, space.project.plugin_root, tuple(space.settings.extra_roots)
    )


def begin(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note what the files are that a visit has to change, in its stage's folder. May raise."""
    wanted = _to_change(run, entry)
    if wanted:
        note = {"schema_version": 1, "place": _place(space), **_looked(space, run, wanted)}
        _write(space, run, entry, NOTED, HASHED, note)


def come(space: Workspace, run: Run, *, is_late: bool = False) -> Run:
    """Note the same of an open visit that began at another place and comes to this one for the first time.

    is_late: it comes to be ended, so that nobody knows what was done here before. Gives the run as it is then; raises
    nothing, for no step is held up by it: what was not noted is said as the step ends.
    """
    entry = visits.open_visit(run.state)
    wanted = _to_change(run, entry) if entry is not None else []
    if entry is None or not wanted:
        return run
    try:
        first = _read(run, entry, NOTED, HASHED)
        here = _place(space)
        if not isinstance(first.get("place"), dict) or _is_at(first, here):
            return run
        known = _places(run, entry)
        if any(_is_at(one, here) for one in known):
            return run
        space.store.refuse_held(run.run_id, run.state)
        came = {"place": here, "at": clock.now(), "late": is_late, **_looked(space, run, wanted)}
        note = {"schema_version": 1, "places": [*known, came][-_MOST_PLACES:]}
        return _write(space, run, entry, ELSEWHERE, HASHED_ELSEWHERE, note)
    except Exception:  # noqa: BLE001 - whatever it is, no step is held up by it
        return run


def known_here(space: Workspace, run: Run, entry: Mapping[str, Any]) -> Known:
    """Give what the files were as a visit came to this place. Raises nothing of its own.

    Where the first note does not say where it was made, it counts at every place.
    """
    first = _read(run, entry, NOTED, HASHED)
    if not isinstance(first.get("place"), dict):
        return Known(_by_name(first, "files"), _by_name(first, "plain"))
    here = _place(space)
    if _is_at(first, here):
        return Known(_by_name(first, "files"), _by_name(first, "plain"))
    for one in _places(run, entry):
        if _is_at(one, here):
            found = Known(_by_name(one, "files"), _by_name(one, "plain"), True, one.get("late") is not False)
            return found._replace(brought=_brought(run, entry))
    return Known(is_elsewhere=True, brought=_brought(run, entry))


def changed(known: Known, declared: str, seen: Seen) -> dict[str, str]:
    """Give the files that the visit changed, `{path: hash with LF}`: here, or elsewhere if they are the same here."""
    before = known.files.get(declared)
    own = seen.changed(before, known.plain.get(declared, {})) if before is not None else {}
    brought = known.brought.get(declared, {})
    return own | {path: with_lf for path, with_lf in brought.items() if seen.has(path, with_lf)}


# ---- As the run goes elsewhere.


def to_bring(space: Workspace, run_id: str) -> dict[str, dict[str, dict[str, str]]]:
    """Give what the open visits have changed here, for the log: `{stage: {declared: {path: hash with LF}}}`.

    At most so many files of each that a line stays short; one is enough to show a change. Raises nothing.
    """
    from loomctl.engine import lines

    found = {}
    try:
        for line in lines.every(space.store.read(run_id)):
            entry = visits.open_visit(line.state)
            wanted = _to_change(line, entry) if entry is not None else []
            if entry is None or not wanted:
                continue
            known, seen = known_here(space, line, entry), _seen(space, line, wanted)
            every = {one: changed(known, one, seen[one]) for one in wanted}
            found[str(entry["stage"])] = {one: _first(paths) for one, paths in every.items() if paths}
    except Exception:  # noqa: BLE001 - whatever it is, the run is handed on; its work is asked for there
        return {}
    return {stage: shown for stage, shown in found.items() if shown}


def _first(changed_files: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(changed_files.items())[:_MOST_BROUGHT])


def _brought(run: Run, entry: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Give what the last push that had something of the visit tells of it; empty where none did."""
    began = str(entry.get("started_at") or "")
    found: dict[str, dict[str, str]] = {}
    try:
        for line in event_log.since(run.folder, lambda one: str(one.get("ts")) < began):
            told = line.entry.get("properties") if line.entry and line.entry["event"] == "run.pushed" else None
            shown = told.get("evidence") if isinstance(told, dict) else None
            here = shown.get(str(entry["stage"])) if isinstance(shown, dict) else None
            if isinstance(here, dict):
                found = {name: one for name, one in here.items() if isinstance(one, dict)}
    except (OSError, LoomError):
        return {}
    return found


def _to_change(run: Run, entry: Mapping[str, Any]) -> list[str]:
    place = places.place_of(run.plan, str(entry.get("step_id")))
    listed = place.step.get("evidence") if place else None
    asked = listed if isinstance(listed, list) else []
    return [str(one["file"]) for one in asked if one["kind"] == "file" and one.get("changed")]


def _seen(space: Workspace, run: Run, wanted: list[str]) -> dict[str, Seen]:
    from loomctl.engine import prompts  # a visit that stays where it is asks for none

    values = prompts.placeholder_values(space.project, run)
    ours, where = own_reports.standing(space.store.local), roots(space, run)
    return {one: evidence_files.look(one, values, where, ours) for one in wanted}


def _looked(space: Workspace, run: Run, wanted: list[str]) -> dict[str, Any]:
    seen = _seen(space, run, wanted)
    plain = {one: dict(found.plain) for one, found in seen.items() if found.plain}
    return {"files": {one: found.digests for one, found in seen.items()}, **({"plain": plain} if plain else {})}


def _place(space: Workspace) -> dict[str, Any]:
    """Name the checkout that a session works in. Machine and root count where there is no id; the commit tells people.

    Raises nothing.
    """
    root = space.project.root
    top = git.top_of(root)
    try:
        own = checkouts.here(space.store.local, root)
    except (OSError, LoomError):  # nothing can be written here
        own = ""
    commit = git.head(top).commit if top is not None else None
    return {"id": own, "machine": machine.hostname(), "root": root, "commit": commit}


def _is_at(note: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    place = note.get("place")
    if not isinstance(place, dict):
        return False
    keys = ("id",) if place.get("id") and here["id"] else ("machine", "root")
    return all(place.get(key) == here[key] for key in keys)


def _write(space: Workspace, run: Run, entry: Mapping[str, Any], name: str, key: str, note: Mapping[str, Any]) -> Run:
    """Write a note into the stage's folder, then its hash into the visit's entry; a kill between leaves no note."""
    from loomctl.disk.lock import HOOK_PATIENCE, PATIENCE
    from loomctl.engine import lines

    folder, data = stages.folder(run.folder, entry["stage"]), files.to_json(dict(note))
    files.make_folder(folder, mode=0o755)
    files.write_atomically(os.path.join(folder, name), data)

    def change(state: State) -> tuple[State, list[Event]]:
        now = visits.open_visit(state)
        if now is None or now["stage"] != entry["stage"]:
            return state, []
        return visits.replaced(state, {**now, key: digests.of_bytes(data)}), []

    return lines.update(space, run, change, patience=HOOK_PATIENCE if space.caller.on_hook_path else PATIENCE)


def _read(run: Run, entry: Mapping[str, Any], name: str, key: str) -> dict[str, Any]:
    """Give a note; empty where there is none, or it is not what was noted then."""
    try:
        text = stages.read_text(run.folder, entry["stage"], name) or ""
        if not text or digests.of_text(text) != entry.get(key):
            return {}
        held = files.parse_json(text.encode(), where=name)
    except LoomError:
        return {}
    return held if isinstance(held, dict) else {}


def _places(run: Run, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = _read(run, entry, ELSEWHERE, HASHED_ELSEWHERE).get("places")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _by_name(note: Mapping[str, Any], key: str) -> dict[str, dict[str, str]]:
    found = note.get(key)
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}
