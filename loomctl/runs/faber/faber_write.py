"""A change of a run written into FABER's own state file: in its words, and nothing else of it touched (D5)."""

from __future__ import annotations

from loomctl.kit.json.shapes import as_list, as_object
from loomctl.runs.faber import faber_state
from loomctl.runs.faber.faber_state import asked
from loomctl.runs.model.visits import OPEN, is_last_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.faber.faber_state import View
    from loomctl.runs.model.state import State

# What is written in a form of its own, or is Loom's and not the file's.
_APART = ("schema_version", "run_id", "steps", "phases", "current_step", "pending_approvals")
# What Loom notes at a visit for as long as it is so.
_PASSING = ("closing", "note", "passed", "stopped", "reopened", "artifacts")
# Lists whose entries have a name: a change of one entry is written to that entry, whatever else stands in the list.
_NAMED = {"session_history": "session_id", "artifacts_in_context": "artifact_id", "approvals": "id"}
# What a key held in a shape that the engine cannot work in stands under this name from the first change of it on.
_SET_ASIDE = "{}_before_loom"


def written(view: View, after: State) -> dict[str, Any]:
    """Give the file's content with what changed between the view's state and `after`, and nothing else changed."""
    before = view.state
    raw = _changed(view.raw, _without(before, _APART), _without(after, _APART))
    if (after["current_step"], after["current_phase"]) != (before["current_step"], before["current_phase"]):
        _write_position(raw, after)
    if after["pending_approvals"] != before["pending_approvals"]:
        _put(raw, "pending_approvals", _approvals(view.raw, after))
    visits = _write_visits(raw, view, after)
    _write_phases(raw, view, after, visits)
    _write_counters(raw, view, after, visits)
    return raw


def _without(state: State, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in keys}


def _write_position(raw: dict[str, Any], after: State) -> None:
    phase, key = after["current_phase"], after["current_step"]
    of, _, step_id = key.partition("/") if key else ("", "", "")
    if "current_step_id" in raw:
        _put(raw, "current_step_id", f"{of}:{step_id}" if key else None)
    if "current_step" in raw or "current_step_id" not in raw:
        _put(raw, "current_step", None if not key else step_id if of == phase else key)


def _approvals(raw: Mapping[str, Any], after: State) -> list[Any]:
    """Give what is asked for, each entry that was there as it stood, and those that nobody here understands."""
    listed = raw.get("pending_approvals")
    if not isinstance(listed, list):
        return list(after["pending_approvals"])
    read = {index: entry["id"] for index, entry in asked(raw)}
    wanted = {entry["id"]: entry for entry in after["pending_approvals"]}
    kept = [entry for index, entry in enumerate(listed) if index not in read or read[index] in wanted]
    return [*kept, *(entry for name, entry in wanted.items() if name not in read.values())]


# ---- Steps.


def _write_visits(raw: dict[str, Any], view: View, after: State) -> list[dict[str, Any]]:
    """Write the visits that changed into the list of steps; gives those that did."""
    before = {(visit["step_id"], visit["visit"]): visit for visit in view.state["steps"]}
    now = {(visit["step_id"], visit["visit"]): visit for visit in after["steps"]}
    changed = [visit for key, visit in now.items() if visit != before.get(key)]
    # Loom takes back visits of its own; what FABER noted stays.
    gone = {
        view.entries[key]
        for key, visit in before.items()
        if key not in now and key in view.entries and visit.get("by") != faber_state.BY_FABER
    }
    if not changed and not gone:
        return []
    old = view.raw.get("steps")
    listed = list(as_list(old))
    for visit in changed:
        index = view.entries.get((visit["step_id"], visit["visit"]))
        if index is None and visit.get("by") == faber_state.BY_FABER:
            continue  # it stands below its phase
        index = _begun(listed, visit) if index is None else index
        if index is None:
            listed.append(_entry({}, visit))
        else:
            listed[index] = _entry(listed[index], visit)
    _put(raw, "steps", [entry for index, entry in enumerate(listed) if index not in gone])
    return changed


def _begun(listed: list[Any], visit: Mapping[str, Any]) -> int | None:
    """Find the entry that calls the same step pending or begun: Loom's visit takes its place."""
    of, _, step_id = visit["step_id"].partition("/")
    for index, entry in enumerate(listed):
        if not isinstance(entry, dict) or "visit" in entry or faber_state.outcome_of(entry.get("status")) is not None:
            continue
        if faber_state.name_of(entry, "step_id", "id", "name") == step_id and entry.get("phase") in (of, None):
            return index
    return None


def _entry(old: Mapping[str, Any], visit: Mapping[str, Any]) -> dict[str, Any]:
    """Write a visit as FABER writes a step, with what Loom needs besides."""
    status = visit["status"]
    kept = {key: value for key, value in old.items() if key not in _PASSING or "visit" not in old}
    word = "in_progress" if status in OPEN else faber_state.ENDS[status][0]
    if faber_state.outcome_of(old.get("status")) == status:
        word = old["status"]
    return _over(kept, {**visit, "step_id": visit["step_id"].partition("/")[2], "status": word})


def _step_below(old: object, visit: Mapping[str, Any]) -> dict[str, Any]:
    """Write a visit as the record that stands below its phase."""
    record = dict(as_object(old))
    status = visit["status"]
    if status in OPEN:
        for key in ("completed_at", "result", "error"):  # of the attempt before
            _put(record, key, None)
            del record[key]
        ended = {"status": "in_progress"}
    else:
        word = faber_state.ENDS[status][0]
        result = {} if status == "skipped" else {"result": word}
        named = {"failed": "failed", "skipped": "skipped"}.get(status, "completed")
        ended = {"status": named, "completed_at": visit["completed_at"], **result}
    return _over(record, {**ended, "started_at": visit["started_at"], "attempts": visit["visit"] or 1})


# ---- Phases and counters.


def _write_phases(raw: dict[str, Any], view: View, after: State, visits: list[dict[str, Any]]) -> None:
    before, listed = view.state["phases"], view.raw.get("phases")
    stood = dict(faber_state.phases_in(listed))
    worked = {visit["step_id"].partition("/")[0] for visit in visits}
    changed: dict[str, dict[str, Any]] = {}
    for name, phase in after["phases"].items():
        if phase == before.get(name) and name not in worked:
            continue
        found = _changed(stood.get(name, {}), before.get(name, {}), phase)
        if isinstance(found.get("steps"), dict):
            mine = {visit["step_id"].partition("/")[2]: visit for visit in visits if visit["phase"] == name}
            below = {step_id: _step_below(found["steps"].get(step_id), visit) for step_id, visit in mine.items()}
            found["steps"] = _over(found["steps"], below)
        if found != stood.get(name):
            changed[name] = found
    if isinstance(listed, list):
        names = [faber_state.name_of(entry, "name", "id", "phase") for entry in listed]
        last = {
            name: index for index, name in enumerate(names)
        }  # of two with one name, which is read (`faber_state.phases_in`)
        kept = [
            changed[name] if name in changed and last[name] == index else listed[index]
            for index, name in enumerate(names)
        ]
        raw["phases"] = [*kept, *({"name": name, **phase} for name, phase in changed.items() if name not in names)]
    elif changed:
        merged = dict(as_object(listed))
        for name, phase in changed.items():
            _put(merged, name, phase)
        _put(raw, "phases", merged)


def _write_counters(raw: dict[str, Any], view: View, after: State, visits: list[dict[str, Any]]) -> None:
    """Keep true the counters that the file has; none is added."""
    for visit in visits:
        name, _, step_id = visit["step_id"].partition("/")
        holders: list[tuple[dict[str, Any], str, str]] = [(raw, "steps_completed", f"{name}:{step_id}")]
        for phase_name, phase in faber_state.phases_in(raw.get("phases")):
            if phase_name == name:
                holders += [(phase, "completed_steps", step_id), (phase, "completed_step_ids", f"{name}:{step_id}")]
        for holder, counter, entry in holders:
            listed = holder.get(counter)
            if isinstance(listed, list):
                rest = [other for other in listed if other != entry]
                was = listed if entry in listed else [*listed, entry]
                holder[counter] = was if is_last_word(visit) else rest
    metadata = raw.get("context_metadata")
    told = metadata.get("compaction_events") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(told, list):
        new = _compactions(after)[len(_compactions(view.state)) :]
        events = [
            {"detected_at": one.get("at"), "phase": after["current_phase"], "action_taken": "reload_critical_artifacts"}
            for one in new
        ]
        metadata["compaction_events"] = [*told, *events]


def _compactions(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for record in state["sessions"]["session_history"] for one in record.get("compactions") or []]


# ---- Everything else: what differs is changed, at the place where it stands.


def _changed(raw: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Give `raw` with every key changed that differs between `before` and `after`; what it has besides stays."""
    found = {key: value for key, value in raw.items() if key not in before or key in after}
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        here, was = raw.get(key), before.get(key)
        if isinstance(here, dict) and isinstance(was, dict) and isinstance(value, dict):
            found[key] = _changed(here, was, value)
        elif isinstance(here, list) and isinstance(was, list) and isinstance(value, list):
            found[key] = _changed_list(key, here, was, value)
        else:
            _put(found, key, value)
    return found


def _over(raw: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Give an entry with what is said now; what a key held in another shape is set aside as `_put` does."""
    found = dict(raw)
    for key, value in said.items():
        _put(found, key, value)
    return found


def _put(raw: dict[str, Any], key: str, value: Any) -> None:
    """Set a key; what it held and the engine did not see, being of another kind, is set aside beside it."""
    held = raw.get(key)
    kinds = {type(held), type(value)}
    if held not in (None, "", [], {}) and len(kinds) > 1 and kinds & {list, dict}:
        aside = _SET_ASIDE.format(key)
        while aside in raw:
            aside += "_"
        raw[aside] = held
    raw[key] = value


def _changed_list(key: str, raw: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Change a list: named entries each by its name, others where the list only grew; else it is replaced."""
    name = _NAMED.get(key)
    if name is None:
        unseen = [entry for entry in raw if entry not in before]
        return [*raw, *after[len(before) :]] if after[: len(before)] == before else [*unseen, *after]
    was, now = _counted_by(before, name), _counted_by(after, name)
    read = {place: named for named, (place, _) in _counted_by(raw, name).items() if named in was}
    found: list[Any] = []
    for place, entry in enumerate(raw):
        named = read.get(place)
        if named is None:
            found.append(entry)
        elif named in now:
            (_, old), (_, new) = was[named], now.pop(named)
            found.append(_changed(entry, old, {**{key: old[key] for key in old if key not in new}, **new}))
    return [*found, *(entry for _, entry in now.values())]


def _counted_by(entries: list[Any], name: str) -> dict[tuple[str, int], tuple[int, Any]]:
    """Give the entries that have a name, with their places, by it and by how many of that name came before."""
    found: dict[tuple[str, int], tuple[int, Any]] = {}
    counts: dict[str, int] = {}
    for place, entry in enumerate(entries):
        named = faber_state.name_of(entry, name)
        if named is not None:
            counts[named] = counts.get(named, -1) + 1
            found[named, counts[named]] = place, entry
    return found
