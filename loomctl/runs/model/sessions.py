"""The history of a run's sessions: who worked on it, where, and how each conversation ended (D24, D25)."""

from __future__ import annotations

from loomctl.kit.quick_json import as_object, as_texts
from loomctl.kit.text.fences import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from loomctl.runs.model.state import State


# How many records a state holds; older ones go to a file beside it, so that a long run's state stays small.
KEPT = 20


def history(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the session records that the state holds, oldest first; earlier ones stand in `sessions.jsonl`."""
    found: list[dict[str, Any]] = state["sessions"].get("session_history", [])
    return found


def record_of(state: Mapping[str, Any], session_id: str) -> dict[str, Any] | None:
    """Give one session's record, or None."""
    return next((record for record in history(state) if record.get("session_id") == session_id), None)


def last(state: Mapping[str, Any]) -> dict[str, Any]:
    """Give the record of the session that came to the run last, new or again; the newest where it is not known."""
    records = history(state)
    found = record_of(state, str(state["sessions"].get("current_session_id")))
    return found or (records[-1] if records else {})


def entered(
    state: State,
    session_id: str,
    *,
    host: str,
    source: str,
    at: str,
    environment: Mapping[str, Any],
    alive: Collection[str] = (),
    compaction: str = "auto",
    earlier: Mapping[str, Any] | None = None,
) -> State:
    """Record that a session works on the run: a new record, or one more resume or compaction in its own (D24).

    source: startup, resume, clear, fork or compact (the host's word), or `bound` by run and resume.
    Records left open by sessions that are not among `alive` are closed as `lost` with their last activity.
    compaction: `manual` or `auto`, for source compact. earlier: the session's record, if it went out of the state.
    """
    total = count(state) + (0 if earlier or record_of(state, session_id) else 1)
    records = [dict(record) for record in (*history(state), *([earlier] if earlier else ()))]
    record = next((entry for entry in records if entry.get("session_id") == session_id), None)
    for other in records:
        if other is not record and not other.get("ended_at") and other.get("session_id") not in alive:
            last = other.get("last_activity") or other.get("started_at") or at
            other.update(ended_at=last, end_reason="lost")
    if record is None:
        record = {
            "session_id": session_id,
            "host": host,
            "started_at": at,
            "ended_at": None,
            "end_reason": None,
            "last_activity": at,
            "resumes": 0,
            "compactions": [],
            "phases_completed": [],
            "artifacts_loaded": [],
            "environment": dict(environment),
        }
        records.append(record)
    else:
        if source == "resume" or (source != "compact" and record.get("ended_at")):
            record["resumes"] = record.get("resumes", 0) + 1
        record.update(ended_at=None, end_reason=None, last_activity=at)
        state = _with_earlier_root(state, record, environment)
        record["environment"] = {**record.get("environment", {}), **environment}
    if source == "compact":
        record["compactions"] = [*record.get("compactions", []), {"at": at, "trigger": compaction}]
    return _with(state, records, current=session_id, total=total)


def _with_earlier_root(state: State, record: Mapping[str, Any], environment: Mapping[str, Any]) -> State:
    """Keep the project root that a session's record is about to forget, for it came to another place (D9)."""
    before, earlier = root_of(record), as_texts(state["sessions"].get("earlier_roots"))
    if before is None or before == environment.get("project_root", before) or before in earlier:
        return state
    return {**state, "sessions": {**state["sessions"], "earlier_roots": [*earlier, before]}}


def root_of(record: Mapping[str, Any]) -> str | None:
    """Give the project root in which a session worked, as far as its record tells."""
    environment = as_object(record.get("environment"))
    root = environment.get("project_root") or environment.get("cwd")
    return root if isinstance(root, str) else None


def was_elsewhere(state: Mapping[str, Any], environment: Mapping[str, Any]) -> bool:
    """Tell whether the session that came last worked on another machine, or in another folder, than this one."""
    record = last(state)
    before = record.get("environment")
    if not isinstance(before, dict):
        return False
    machines = (before.get("hostname"), environment.get("hostname"))
    return machines[0] != machines[1] or root_of(record) not in (None, environment.get("project_root"))


def roots(state: Mapping[str, Any]) -> list[str]:
    """Give every project root in which the run was worked on, each once: what paths of other places begin with (D9)."""
    found = [*(root_of(record) for record in history(state)), *as_texts(state["sessions"].get("earlier_roots"))]
    return list(dict.fromkeys(root for root in found if root is not None))


def left(state: State, session_id: str, *, at: str, reason: str, commit: str | None = None) -> State:
    """Close a session's record with the host's reason (`clear`, `logout`, …). commit: as for `active`."""
    known = {"last_commit": commit} if commit else {}
    return _changed(state, session_id, ended_at=at, end_reason=reason, last_activity=at, **known)


def active(state: State, session_id: str | None, *, at: str, commit: str | None = None) -> State:
    """Note the session's last sign of life; a record that another machine closed as `lost` is open again by it.

    commit: which was checked out then, kept beside the one that the session began at; None: not known.
    """
    record = record_of(state, session_id) if session_id else None
    if record is None or session_id is None:
        return state
    reopened = {"ended_at": None, "end_reason": None} if record.get("end_reason") == "lost" else {}
    known = {"last_commit": commit} if commit else {}
    return _changed(state, session_id, last_activity=at, **reopened, **known)


def with_compactions(state: State, session_id: str, compactions: list[Any]) -> State:
    """Give a session's record other compactions (`priming.receipts`)."""
    return _changed(state, session_id, compactions=compactions)


def completed_phase(state: State, session_id: str | None, phase: str) -> State:
    """Note that a phase was completed during this session."""
    return _grown(state, session_id, "phases_completed", [phase])


def uncompleted_phases(state: State, phases: Collection[str]) -> State:
    """Take back that phases were completed, in whatever session: their work was undone (D31)."""
    records = [
        {**record, "phases_completed": [name for name in record["phases_completed"] if name not in phases]}
        if record.get("phases_completed")
        else record
        for record in history(state)
    ]
    return _with(state, records, current=state["sessions"].get("current_session_id"))


def primed(state: State, session_id: str | None, loaded: Collection[Mapping[str, Any]], *, at: str) -> State:
    """Record which artifacts a priming put into the conversation; nothing loaded changes nothing (D15).

    loaded: `{artifact_id, loaded_at, load_trigger, form, sha256}` for each.
    """
    if not loaded:
        return state
    before = state["context_metadata"]
    there = {entry["artifact_id"]: entry for entry in before.get("artifacts_in_context", [])}
    fresh = {entry["artifact_id"]: {**there.get(entry["artifact_id"], {}), **entry} for entry in loaded}
    kept = [entry for name, entry in there.items() if name not in fresh]
    metadata = {
        **before,
        "last_artifact_reload": at,
        "reload_count": before.get("reload_count", 0) + 1,
        "artifacts_in_context": [*kept, *fresh.values()],
    }
    return _grown({**state, "context_metadata": metadata}, session_id, "artifacts_loaded", list(fresh))


def told_history(state: State, history: Mapping[str, Any] | None) -> State:
    """Record what a priming told of the run's tool steps; None changes nothing: the conversation has what it had."""
    if history is None:
        return state
    return {**state, "context_metadata": {**state["context_metadata"], "tool_history": dict(history)}}


def forgotten(state: State) -> State:
    """After a compaction or clear nothing is in context any more."""
    kept = {key: value for key, value in state["context_metadata"].items() if key != "tool_history"}
    return {**state, "context_metadata": {**kept, "artifacts_in_context": []}}


def last_writer(state: Mapping[str, Any]) -> str:
    """Give the version of Loom that the latest session worked with; empty if it is not recorded."""
    versions = (as_object(record.get("environment")).get("loom") for record in reversed(history(state)))
    return next((version for version in versions if isinstance(version, str) and version), "")


def summary(state: Mapping[str, Any]) -> str:
    """Say it in one line: `2 sessions (machine-a, machine-b)`; machines once each, in order."""
    names = (as_object(record.get("environment")).get("hostname") for record in history(state))
    machines = list(dict.fromkeys(one_line(name, 80) for name in names if isinstance(name, str)))
    total = count(state)
    return f"{total} session{'' if total == 1 else 's'}" + (f" ({', '.join(machines)})" if machines else "")


def count(state: Mapping[str, Any]) -> int:
    """Count the run's sessions, those included that the state holds no more."""
    total = state["sessions"].get("total_sessions")
    here = len(history(state))
    return max(total, here) if type(total) is int else here


def overflowing(state: State) -> tuple[State, list[dict[str, Any]]]:
    """Take the oldest records out of a state that holds more than `KEPT`; gives the state and what was taken.

    What is open stays, and so does the last record of each place that the run was worked on: it tells what a path of
    another machine began with (D9).
    """
    records = history(state)
    excess = len(records) - KEPT
    if excess <= 0:
        return state, []
    last_of = {_where(record): index for index, record in enumerate(records)}
    stays = {*last_of.values(), *range(excess, len(records))}
    moved = [record for index, record in enumerate(records) if index not in stays and record.get("ended_at")]
    if not moved:
        return state, []
    kept = [record for record in records if record not in moved]
    return _with(state, kept, current=state["sessions"].get("current_session_id"), total=count(state)), moved


def _where(record: Mapping[str, Any]) -> tuple[str, str]:
    environment = as_object(record.get("environment"))
    return str(environment.get("hostname")), str(environment.get("project_root") or environment.get("cwd"))


def _grown(state: State, session_id: str | None, key: str, more: list[str]) -> State:
    """Add to a list of a session's record what is not in it yet."""
    record = record_of(state, session_id) if session_id else None
    if record is None or session_id is None:
        return state
    kept = as_texts(record.get(key))
    return _changed(state, session_id, **{key: kept + [entry for entry in more if entry not in kept]})


def _changed(state: State, session_id: str, **changes: Any) -> State:
    records = [{**record, **changes} if record.get("session_id") == session_id else record for record in history(state)]
    return _with(state, records, current=state["sessions"].get("current_session_id"))


def _with(state: State, records: list[dict[str, Any]], *, current: str | None, total: int | None = None) -> State:
    sessions = {
        **state["sessions"],
        "current_session_id": current,
        "total_sessions": count(state) if total is None else total,
        "session_history": records,
    }
    return {**state, "sessions": sessions}
