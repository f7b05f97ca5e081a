"""FABER's runs in place: their states read and written where they stand, their plans frozen once (D5)."""

from __future__ import annotations

import json
import os

from loomctl.kit import digests, files
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.kit.processes import Lock
from loomctl.kit.quick_json import as_list, as_object
from loomctl.kit.records import NamedTuple
from loomctl.runs import faber_state
from loomctl.runs.faber_state import asked
from loomctl.runs.model import frozen_plan
from loomctl.runs.model.state import accepted
from loomctl.runs.model.visits import OPEN, is_last_word
from loomctl.runs.store import layouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeAlias

    from loomctl.runs.faber_state import View
    from loomctl.runs.model.state import State
    from loomctl.runs.store.layouts import Home

    Freeze: TypeAlias = Callable[[Home, State, "PlanFile | None", dict[str, Any] | None, bool], dict[str, Any]]
    from collections.abc import Mapping
    from typing import Any


class PlanFile(NamedTuple):
    """A plan of FABER's. name: below the project's root; path: absolute; data: its bytes."""

    name: str
    path: str
    data: bytes

    @property
    def stamp(self) -> dict[str, str]:
        """Say which file and content a frozen plan was made from."""
        return {"path": "{project_root}/" + self.name, "sha256": digests.of_bytes(self.data)}


NO_PLAN = {"path": "", "sha256": ""}


class FaberRuns:
    """FABER's half of a `Store`, which holds the lock of what it writes.

    freeze: as `Store` takes it. own_plan: reads the plan that Loom keeps of a run; raises LoomError without one.
    """

    def __init__(self, freeze: Freeze | None, own_plan: Callable[[Home], dict[str, Any]]) -> None:
        self._freeze, self._own_plan = freeze, own_plan
        self._fresh_plans: dict[str, dict[str, Any]] = {}
        self._frozen: dict[str, tuple[Any, dict[str, Any]]] = {}  # by run: what it was frozen for, and the plan

    def view(self, home: Home, plan: dict[str, Any] | None) -> View:
        """Read a state of FABER's in place (D5)."""
        try:
            view = faber_state.view(_read_state(home), home.run_id, plan)
            accepted(view.state, where=home.state)
        except (LoomError, OSError) as error:
            from loomctl.runs.store import recovery

            raise recovery.unreadable(home, error) from None
        return view

    def plan(
        self, home: Home, stands: Home | None = None, *, to_show: bool = False
    ) -> tuple[dict[str, Any], PlanFile | None]:
        """Give the plan that was frozen for a FABER run, or freeze one; the next update keeps it (D5).

        stands: the home with the file in it that the state is read from, where that is another.
        """
        try:
            held: dict[str, Any] | None = self._own_plan(home)
        except LoomError:
            held = None
        if self._freeze is None:
            if held is not None:
                return held, None
            from loomctl.runs.store import recovery

            handle = recovery.handle(home)
            what, hint = f"Loom has not resumed the FABER run {handle} yet", f"loomctl resume {handle}"
            raise LoomError("NOT_TAKEN_UP", what, where=home.state, hint=hint, exit_code=EXIT_NO_RUN)
        state = self.view(stands or home, None).state
        try:
            source = find_plan(home, state["plan_id"])
        except OSError as error:
            what, hint = "the run's plan cannot be read", f"ls -l {quoted(home.top)}"
            raise LoomError("BAD_PLAN", what, where=home.top, why=str(error), hint=hint) from None
        made_for = (source.stamp if source else None, state["workflow_id"])
        last = self._frozen.get(home.run_id)
        if last is not None and last[0] == made_for:
            return last[1], source
        plan = self._freeze(home, state, source, held, to_show)
        place = os.path.relpath(home.state, home.top)
        if plan["faber"].get("state") != place:  # where it is to be put back, should it be gone
            plan = {**plan, "faber": {**plan["faber"], "state": place}}
        if frozen_plan.steps_unknown(plan):
            return plan, source
        self._frozen[home.run_id] = (made_for, plan)
        if plan is not held:
            self._fresh_plans[home.run_id] = plan
        return plan, source

    def before(self, home: Home, source: str = "") -> tuple[State, Callable[[State], bytes]]:
        """Give a state, and how a change of it is written into its file.

        source: another file that it is taken from. Without one, what another program wrote into the state since it was
        read stays: the change is made to that.
        """
        stands = home._replace(state=source) if source else home
        plan = self.plan(home, stands)[0]
        view = self.view(stands, plan)

        def render(after: State) -> bytes:
            now = view if source else self.view(home, plan)
            raw = written(now._replace(state=view.state), after)
            # As FABER does: indented by two, so that a commit of it shows what changed.
            text = json.dumps(raw, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
            return text.encode("utf-8", "backslashreplace")

        return view.state, render

    def fresh_plan(self, run_id: str) -> dict[str, Any] | None:
        """Give the plan that was frozen anew and is to be kept with the next write; once."""
        return self._fresh_plans.pop(run_id, None)


def write_state(home: Home, data: bytes, *, durable: bool) -> None:
    """Replace a FABER state, with the file mode that it has; the name beside it is Loom's own, for FABER has others.

    The caller holds the run's lock.
    """
    folder, name = os.path.split(home.state)
    files.make_folder(folder, mode=0o755)
    mode = 0o644
    for path in (home.backup, home.state):
        if os.path.lexists(path):
            mode = os.lstat(path).st_mode & 0o777
    beside = os.path.join(folder, f".{name}.loom.tmp")
    files.write_atomically(home.state, data, mode=mode, durable=durable, locked=True, beside=beside)


class StateLock:
    """`with StateLock(home):` holds the lock that FABER's own writer takes, beside the state; patience: seconds.

    Raises HELD and UNSAFE_LINK. Where it cannot be made nobody else can write either, or the write itself will say so.
    One that was not there is removed again.
    """

    def __init__(self, home: Home, *, patience: float) -> None:
        self._path = f"{home.state}.lock"
        self._lock = Lock(self._path, patience=patience, signed=False)
        self._was_there = self._held = False

    def __enter__(self) -> StateLock:
        if os.path.isdir(os.path.dirname(self._path)):
            self._was_there = os.path.lexists(self._path)
            try:
                self._lock.__enter__()
                self._held = True
            except OSError:
                pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:
            if not self._was_there:
                self._lock.remove()
            self._lock.__exit__(kind, error, trace)


def _read_state(home: Home) -> dict[str, Any]:
    files.refuse_links(home.top, home.state)
    raw = files.read_json(home.state)
    if not isinstance(raw, dict):
        why, hint = "it is not a JSON object", f"loomctl check {quoted(home.state)}"
        raise LoomError("BAD_STATE", "this state cannot be used", where=f"{home.state} $", why=why, hint=hint)
    if not faber_state.belongs(raw, home.run_id):
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the file belongs to the run {str(raw['run_id'])[:200]!r}, not {home.run_id!r}",
            where=home.state,
            why="the file's place and the id in it must agree; move the file back, or remove the copy",
            hint="loomctl runs",
        )
    return raw


def plan_in(source: PlanFile) -> dict[str, Any]:
    """Read what stands in a plan of FABER's. Raises LoomError: BAD_JSON, GIT_CONFLICT, BAD_PLAN."""
    raw = files.parse_json(source.data, where=source.path)
    if not isinstance(raw, dict) or not faber_state.is_plan(raw):
        what, hint = "this is not a FABER plan", f"loomctl check {quoted(source.path)}"
        raise LoomError("BAD_PLAN", what, where=source.path, why="it holds no workflow", hint=hint)
    return raw


def plan_places(home: Home, plan_id: str) -> list[str]:
    """List the names, below the project's root, at which a run's plan may stand; the last is beside its state."""
    beside = os.path.join(os.path.dirname(os.path.relpath(home.state, home.top)), "plan.json")
    return list(dict.fromkeys([*layouts.plan_names(home.run_id, plan_id), beside]))


def find_plan(home: Home, plan_id: str) -> PlanFile | None:
    """Find and read the plan that a run was made from; None if no file is there.

    Raises UNSAFE_LINK, TOO_LARGE and OSError for one that is there and cannot be read.
    """
    for name in plan_places(home, plan_id):
        path = os.path.join(home.top, name)
        if os.path.isfile(path):
            files.refuse_links(home.top, path)
            return PlanFile(name, path, files.read_bytes(path))
    return None


def pointed_at(root: str) -> str | None:
    """Give the run id in FABER's pointer file, trimmed: a hint, never proof (D4, D5)."""
    for name in layouts.POINTERS:
        try:
            files.refuse_links(root, os.path.join(root, name))
            text = files.read_bytes(os.path.join(root, name), limit=4096).decode("utf-8", "replace").strip()
        except (OSError, LoomError):
            continue
        if text:
            return layouts.last_part(text)
    return None


# ---- A change, written in the file's own words.


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
