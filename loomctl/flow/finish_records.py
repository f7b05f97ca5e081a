"""The end of a visit as its `status.json` and the run's log tell it (D39-D41, D45)."""

from __future__ import annotations

import os

from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.directives import WITHOUT_RESULT
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import stages
from loomctl.runs.model import visits
from loomctl.runs.store import blobs
from loomctl.runs.store.events import Event
from loomctl.workflows import routing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.changes.track import Tracked
    from loomctl.flow import route
    from loomctl.flow.outcomes.directives import Reading
    from loomctl.flow.outcomes.evidence import Checked
    from loomctl.runs.model import run_context
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run
    from loomctl.workflows.routing import Way


_LISTED = 200  # files of a stage that its event names; status.json has all
_MARK = blobs.REF_PREFIX.encode()
# Ways that no transition explains, and that are told all the same.
_TOLD = (visits.RETRY_TARGET, visits.MAX_VISITS)


class Given(NamedTuple):
    """What a step is ended with.

    source: where the response came from: `done`, `conversation`, `transcript`, `candidate`, `command`, `decision`
    or `none`.
    outcome: one that was given beside the response, which holds; None: the response decides. artifacts: what is
    registered, `{name: portable path}`. command, warnings: of a command step, what `status.json` tells of it;
    decided: of a human step, `{by, at, label, note}`; context: the engine's keys that either sets. updates,
    gone, branches: of a join, what it sets besides, the keys that it takes away, and the records of its branches.
    """

    response: str | None
    source: str
    outcome: str | None = None
    note: str = ""
    artifacts: Mapping[str, str] = {}
    command: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = {}
    warnings: Sequence[Mapping[str, str]] = ()
    decided: Mapping[str, Any] | None = None
    updates: Mapping[str, Any] = {}
    gone: Sequence[str] = ()
    branches: Sequence[Mapping[str, Any]] = ()
    joined_by: str = ""


def is_result(given: Given) -> bool:
    """Tell whether a step may end by this: a text, an outcome that needs none, or one that was stated with a note."""
    if given.outcome in WITHOUT_RESULT or (given.response or "").strip():
        return True
    return bool(given.outcome and given.note.strip())


def with_mark(entry: Mapping[str, Any], given: Given) -> Given:
    """Add to what a step is ended with what was given as it was marked as closing; what is given now comes first."""
    before = as_object(entry.get("closing"))
    return given._replace(
        outcome=given.outcome or before.get("outcome"),
        note=given.note or str(before.get("note") or ""),
        artifacts={**as_object(before.get("artifacts")), **given.artifacts},
    )


class Gathered(NamedTuple):
    """What was found out about a visit's end.

    for_stage: whose; reading: what its answer means; tracked: None of a visit that does not end by this answer;
    evidence: what was found of what the step has to show, None where that is nothing.
    """

    for_stage: str
    reading: Reading
    tracked: Tracked | None = None
    usage: Mapping[str, Any] | None = None
    evidence: Checked | None = None


class Ended(NamedTuple):
    """What came of an end: the visit as it ended, or (entry None) the message that asks for another answer.

    waits: nothing is asked of the assistant: the run waits for its user, as the message says.
    """

    state: State
    entry: Mapping[str, Any] | None
    reading: Reading
    repair: str = ""
    waits: bool = False


class End(NamedTuple):
    """How a visit ends, as its file, the state and the events are told.

    failure: why its answer is not taken (D36), "" where it is; reason: why it failed, by whomever.
    """

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    given: Given
    known: Gathered
    tracked: Tracked
    outcome: str
    reason: str
    failure: str
    changed: run_context.Changed
    warnings: Sequence[Mapping[str, str]]
    at: str

    @property
    def error(self) -> dict[str, Any] | None:
        """What kind of failure it is; None where it did not fail."""
        if self.outcome != "failed":
            return None
        return routing.error_of(self.reason, command=self.given.command, final=bool(self.failure or self.given.decided))

    @property
    def directive(self) -> dict[str, Any]:
        """What the visit keeps of its directive."""
        if self.failure:
            return {"failure_reason": self.reason}
        reading = self.known.reading
        found = {
            "outcome": reading.outcome,
            "preferred_next_label": reading.preferred_next_label,
            "suggested_next_ids": list(reading.suggested_next_ids),
            "failure_reason": self.reason if self.outcome == "failed" else None,
        }
        return {key: value for key, value in found.items() if value}


def status(run: Run, end: End, ended: Mapping[str, Any], way: Way, session_id: str | None) -> dict[str, Any]:
    """Give the document `status.json` of a stage."""
    entry, given, tracked, said = end.entry, end.given, end.tracked, end.known.reading.to_dict()
    routes = said["found"] and not answers.is_custom(end.step)
    return {
        "schema_version": 1,
        "run_id": run.run_id,
        "step_id": entry["step_id"],
        "stage": entry["stage"],
        "visit": entry["visit"],
        "rank": entry["rank"],
        "kind": end.step.get("kind", "agent"),
        "status": end.outcome,
        "attempt": ended.get("attempt", 1),
        "failure_reason": end.reason or None,
        "error": ended.get("error"),
        "next": ended.get("next"),
        "note": given.note,
        "response_source": given.source,
        "directive": {"source": said["source"], "file": end.known.reading.file, **end.directive} if routes else None,
        "context_updates": end.changed.applied,
        "context_before": end.changed.before,
        "output": end.changed.output,
        "files_touched": list(tracked.files),
        **({"files_unknown": tracked.unknown} if tracked.unknown else {}),
        "assets": list(tracked.assets),
        "usage": end.known.usage,
        "repairs": visits.repairs_of(entry),
        "repair_errors": stages.repair_errors(run.folder, entry["stage"], visits.repairs_of(entry)),
        "errors": said["errors"] if end.failure else [],
        "warnings": [
            *said["warnings"],
            *end.warnings,
            *_warnings("TRACKING", "files_touched", tracked.warnings),
            *_warnings("CONDITION", "transitions", way.warnings),
        ],
        "command": given.command,
        **({"evidence": end.known.evidence.to_dict()} if end.known.evidence else {}),
        **({"task": _task(end.entry)} if visits.task_of(end.entry) else {}),
        **({"decided": dict(given.decided)} if given.decided else {}),
        **({"branches": [dict(one) for one in given.branches], "joined_by": given.joined_by} if given.branches else {}),
        "artifacts": dict(given.artifacts),
        "started_at": entry["started_at"],
        "completed_at": end.at,
        "session_id": session_id,
    }


def events(
    end: End, ended: Mapping[str, Any], came: route.VisitEnd, session_id: str | None, written: Mapping[str, str]
) -> list[Event]:
    """Tell what happened with the end of a visit. written: the hashes of its files, by name."""
    stage, step_id, tracked, used = end.entry["stage"], end.entry["step_id"], end.tracked, end.known.usage
    properties = {
        "stage": stage,
        "status": end.outcome,
        "response_source": end.given.source,
        **({} if end.given.response is None else {"response_sha256": stages.sha256_of(end.given.response)}),
        "files_sha256": dict(written),
        "follows": came.follows,
        **({"next": ended["next"]} if "next" in ended else {}),
        "files_touched": list(tracked.files)[:_LISTED],
        **({"directive_file": end.known.reading.file} if end.known.reading.file else {}),
        **({"task": _task(end.entry)} if visits.task_of(end.entry) else {}),
        **({"failure_reason": end.reason} if end.reason else {}),
        **({"files_touched_count": tracked.total} if tracked.total > _LISTED else {}),
        **({"usage": dict(used)} if used else {}),
    }
    told = [Event("stage.completed", properties, session_id, step_id)]
    if end.known.evidence:
        told.insert(0, Event("evidence.checked", {"stage": stage, **end.known.evidence.to_dict()}, session_id, step_id))
    told += [Event("asset.captured", {"stage": stage, **one}, session_id, step_id) for one in tracked.assets]
    if end.changed.applied:
        keys = sorted(end.changed.applied)
        told.append(Event("context.updated", {"stage": stage, "keys": keys}, session_id, step_id))
    if came.way.weighed or came.way.next.get("reason") in _TOLD:
        told.append(Event("transition.chosen", _choice(stage, came.way), session_id, step_id))
    if came.follows == "stop" and not visits.is_branch(came.state):
        reason = end.reason or came.way.why
        if came.way.next.get("reason") == visits.MAX_VISITS:
            reason = came.way.why
        told.append(Event("run.failed", {"step_id": step_id, "failure_reason": reason}, session_id, step_id))
    return told


def _task(entry: Mapping[str, Any]) -> dict[str, Any]:
    held = visits.task_of(entry) or {}
    return {key: held[key] for key in ("text", "number", "of", "ticked") if key in held}


def _choice(stage: str, way: Way) -> dict[str, Any]:
    found = {"stage": stage, "step_id": way.next["step_id"], "reason": way.next["reason"]}
    found["by"] = way.next.get("by", way.next["reason"])
    if "to" in way.next:
        found["to"] = way.next["to"]
    return {**found, "weighed": [dict(one) for one in way.weighed]}


def _warnings(code: str, where: str, texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"code": code, "where": where, "message": text} for text in texts]


def by_file(reading: Reading | None) -> str:
    """Name the file that says how a visit ended; empty where its response does (D35)."""
    return f"by {masked_line(reading.file, 200)}" if reading is not None and reading.file else ""


def why(entry: Mapping[str, Any], reading: Reading | None, limit: int) -> str:
    """Say why a visit failed, empty for one that did not; of an answer that never fitted, the first errors too (D36).

    limit: characters of a reason that somebody gave.
    """
    reason = masked_line(visits.reason_of(entry), limit)
    exhausted = answers.exhausted(visits.repairs_of(entry))
    if reading is None or not reading.errors or entry.get("failure_reason") != exhausted:
        return reason
    return f"{reason}: {masked_line(answers.first_errors(reading), 600)}"


def offloaded(run_folder: str, state: Mapping[str, Any]) -> int:
    """Count the values that became blobs over the whole run: those of its context, and those that were replaced since.

    A stage whose `status.json` cannot be read counts nothing. It is asked once, as a run ends; a stage costs the
    reading of one small file, and no parsing where nothing was offloaded.
    """
    found = set(blobs.refs_of_state(state))
    for entry in visits.every({"steps": list(visits.readable(reversed(state["steps"])))}):
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
    return blobs.refs_of_status(status)
