"""The end of a step: what it answered, decided, touched and produced, in files, context and events (D27, D33-D41).

What takes time (git, the transcript, a walk for assets) is gathered before the run's lock is taken.
"""

from __future__ import annotations

import os

from loomctl.changes import track
from loomctl.flow import finish_records, route
from loomctl.flow.outcomes import answers
from loomctl.kit import clock
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import context_values, stages
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import places, run_context, sessions, visits
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.changes.track import Tracked
    from loomctl.flow.evidence import Checked
    from loomctl.flow.outcomes.directives import Reading
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run


UNCHECKED = (
    "What it answered could not be held against its schema here: {why}. `loomctl doctor` tells what is missing; then "
    "end it with `{done}` and its result, or without one by `{done} --outcome failed`."
)


def gather(
    space: Workspace,
    run: Run,
    entry: Mapping[str, Any],
    given: Given,
    reading: Reading | None = None,
    *,
    may_run: bool = True,
) -> Gathered:
    """Find out what a visit's end needs to know; takes no lock, changes no state, and raises nothing of its own.

    reading: what the answer means, where that was read already. Of an answer that will be asked for again nothing else
    is found out: its visit does not end. may_run: whether commands that are evidence may be run, which takes time.
    """
    step = _step_of(run, entry)
    reading = reading or answers.read(space, run, entry, step, given.response, alone=visits.is_branch(run.state))
    if _is_refused(step, entry, given, reading):
        return Gathered(entry["stage"], reading, None, None)
    shown = _shown(space, run, entry, given, reading, may_run=may_run)
    if _lacks(step, entry, shown):
        return Gathered(entry["stage"], reading, None, None, shown)
    return _tracked(space, run, entry, given, Gathered(entry["stage"], reading, None, None, shown))


def _tracked(space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, known: Gathered) -> Gathered:
    """Add what only an answer that ends its visit needs: what it touched, and what it cost."""
    # Who works on a branch has a conversation of its own, which nobody here can see.
    used = None if given.command or visits.is_branch(run.state) else of_visit(space, run, entry)
    return known._replace(tracked=track.ended(space, run, dict(entry)), usage=used)


def _shown(
    space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, reading: Reading, *, may_run: bool
) -> Checked | None:
    """Check the evidence for an end; None where the step needs none, or ends without (`failed`, `skipped`)."""
    step = _step_of(run, entry)
    if not step.get("evidence") or _breaks_schema(step, given, reading):
        return None
    from loomctl.flow import evidence  # most steps have nothing to show

    outcome = given.outcome or reading.outcome or "succeeded"
    updates = {**given.context, **given.updates, **reading.context_updates}
    claim = evidence.claim(outcome, given.response)
    return evidence.check(space, run, entry, step, outcome, updates, may_run=may_run, claim=claim)


def _corrections(step: Mapping[str, Any]) -> int:
    """Give how often a step may be asked for evidence; nobody can be asked to mend what a command left."""
    return 0 if step.get("kind") == "command" else answers.retries(step)


def _lacks(step: Mapping[str, Any], entry: Mapping[str, Any], shown: Checked | None) -> bool:
    """Tell whether an answer ends nothing because its evidence is missing, or cannot be judged here."""
    if shown is None or shown.passed:
        return False
    return shown.pending or visits.repairs_of(entry) < _corrections(step)


def asks_for_evidence(run: Run, state: Mapping[str, Any], known: Gathered) -> bool:
    """Tell whether an answer would be asked for anew because of what its step did not show."""
    entry = visits.open_visit(state)
    return entry is not None and _lacks(_step_of(run, entry), entry, known.evidence)


def _step_of(run: Run, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    place = places.place_of(run.plan, entry["step_id"])
    return place.step if place else {}


def _breaks_schema(step: Mapping[str, Any], given: Given, reading: Reading) -> bool:
    return bool(step.get("output_schema")) and given.outcome not in WITHOUT_RESULT and not answers.fits(step, reading)


def breaks_schema(run: Run, state: Mapping[str, Any], given: Given, known: Gathered) -> bool:
    """Tell whether an answer lacks what the open visit's step asks for; it would be asked for anew, or fail (D36)."""
    entry = visits.open_visit(state)
    return entry is not None and _breaks_schema(_step_of(run, entry), given, known.reading)


def _is_refused(step: Mapping[str, Any], entry: Mapping[str, Any], given: Given, reading: Reading) -> bool:
    """Tell whether an answer ends nothing: another is asked for, or nobody here can judge it (D36)."""
    if not _breaks_schema(step, given, reading):
        return False
    return _cannot_be_judged(reading) or visits.repairs_of(entry) < answers.retries(step)


def unchecked(reading: Reading, entry: Mapping[str, Any]) -> str:
    """Say why nobody here can judge an answer, and how its step is ended; empty where it was judged (D36)."""
    if not _cannot_be_judged(reading):
        return ""
    why = masked_line("; ".join(one.message for one in reading.errors), 300)
    return UNCHECKED.format(why=why, done=visits.done_command(entry))


def _cannot_be_judged(reading: Reading) -> bool:
    return reading.found and bool(reading.errors) and not answers.can_be_repaired(reading)


def end(space: Workspace, run: Run, state: State, happened: list[Event], given: Given, known: Gathered) -> Ended:
    """End the open visit: its files first, then the state; adds to `happened` what did.

    An answer that does not hold what the step's schema asks for is not taken while repairs are left (D36): it is kept
    beside, the visit stays open. known: gathered for this visit, else it is gathered now.
    """
    entry = visits.open_visit(state)
    assert entry is not None  # callers looked
    if known.for_stage != entry["stage"]:
        known = gather(space, run, entry, given, may_run=False)  # the run's lock is held
    step = _step_of(run, entry)
    if _is_refused(step, entry, given, known.reading):
        if _cannot_be_judged(known.reading):
            return Ended(state, None, known.reading, unchecked(known.reading, entry))
        return _repair(space, run, state, happened, given, known)
    known = _with_evidence(space, run, entry, given, known)
    if _lacks(step, entry, known.evidence):
        return _unshown(space, run, state, happened, given, known)
    if known.tracked is None:  # it was to be repaired when it was gathered
        known = _tracked(space, run, entry, given, known)
    failure = ""
    if _breaks_schema(step, given, known.reading):
        failure = answers.exhausted(visits.repairs_of(entry))
    elif known.evidence is not None and not known.evidence.passed:
        from loomctl.flow import evidence

        failure = evidence.exhausted(known.evidence, visits.repairs_of(entry))
    return _ended(space, run, state, happened, given, known, failure)


def _with_evidence(space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, known: Gathered) -> Gathered:
    """Let the evidence be that of this end: it may have been gathered for another outcome than is given now."""
    outcome = given.outcome or known.reading.outcome or "succeeded"
    if outcome in WITHOUT_RESULT:
        return known._replace(evidence=None)
    if known.evidence is not None:
        return known
    return known._replace(evidence=_shown(space, run, entry, given, known.reading, may_run=False))


def _unshown(space: Workspace, run: Run, state: State, happened: list[Event], given: Given, known: Gathered) -> Ended:
    """Keep an answer whose evidence is missing, and make the message that says so.

    What nobody could judge here is not counted as a correction.
    """
    from loomctl.flow import evidence

    entry, shown = visits.open_visit(state), known.evidence
    assert entry is not None  # the caller looked
    assert shown is not None  # it is missing
    step = _step_of(run, entry)
    if given.response is not None:
        stages.write_candidate(run.folder, entry["stage"], given.response)
    allowed, attempt = _corrections(step), 0
    told = {"stage": entry["stage"], **shown.to_dict()}
    happened.append(Event("evidence.checked", told, space.caller.session_id, entry["step_id"]))
    if not shown.pending:
        attempt = visits.repairs_of(entry) + 1
        lacking = [one for one in shown.items if not one.passed]
        errors = [{"code": "EVIDENCE_MISSING", "where": one.name, "message": one.why} for one in lacking]
        asked = evidence.message(step, entry, shown, attempt, allowed)
        _ask_again(space, run, entry, happened, given, Again(attempt, allowed, asked, errors))
        state = visits.repaired(state)
    again = evidence.again(run, entry, given.outcome) if given.response is not None and shown.pending else ""
    return Ended(state, None, known.reading, evidence.message(step, entry, shown, attempt, allowed, again), attempt)


def _repair(space: Workspace, run: Run, state: State, happened: list[Event], given: Given, known: Gathered) -> Ended:
    """Keep an answer that has to be repaired, and make the message that asks for it."""
    entry = visits.open_visit(state)
    assert entry is not None  # the caller looked
    step = _step_of(run, entry)
    allowed = answers.retries(step)
    attempt = visits.repairs_of(entry) + 1
    message = answers.repair_message(step, known.reading, attempt, allowed)
    again = Again(attempt, allowed, message, known.reading.to_dict()["errors"])
    _ask_again(space, run, entry, happened, given, again)
    return Ended(visits.repaired(state), None, known.reading, message, attempt)


class Again(NamedTuple):
    """What asks for another answer. attempt: from 1, of so many allowed; asked: the message; errors: what is wrong."""

    attempt: int
    allowed: int
    asked: str
    errors: Sequence[Mapping[str, Any]]


def _ask_again(
    space: Workspace, run: Run, entry: Mapping[str, Any], happened: list[Event], given: Given, again: Again
) -> None:
    """Keep an answer that is not taken beside what is asked for in its stead, and tell of it."""
    stage, attempt = entry["stage"], again.attempt
    kept = {"response": given.response or "", "asked": again.asked}
    stages.write_repaired(run.folder, stage, attempt, **kept, errors=again.errors)
    codes = sorted({finding["code"] for finding in again.errors})
    properties = {"stage": stage, "attempt": attempt, "of": again.allowed, "errors": codes}
    happened.append(Event("stage.repair_requested", properties, space.caller.session_id, entry["step_id"]))


def _ended(
    space: Workspace, run: Run, state: State, happened: list[Event], given: Given, known: Gathered, failure: str
) -> Ended:
    """End the visit: its files first, for what the state says is there is there."""
    entry = visits.open_visit(state)
    assert entry is not None  # callers looked
    assert known.tracked is not None  # `end` gathered it
    tracked, written = track.write(run, entry["stage"], known.tracked)
    known = known._replace(tracked=tracked)
    end = _decided(space, run, state, given, known, failure)
    if given.response is not None:  # a condition may ask for it
        stages.write_response(run.folder, end.entry["stage"], given.response)
    state = visits.without_closing({**state, "context": end.changed.context})
    came = route.end_visit(
        state,
        run.plan,
        outcome=end.outcome,
        at=end.at,
        note=given.note,
        artifacts=given.artifacts,
        directive=end.directive,
        error=end.error,
        judge=route.judge(space, run),
    )
    state = came.state
    ended = next(one for one in reversed(state["steps"]) if one["stage"] == end.entry["stage"])
    session_id = space.caller.session_id
    status = finish_records.status(run, end, ended, came.way, session_id)
    written |= stages.write_status(run.folder, end.entry["stage"], status)
    happened += finish_records.events(end, ended, came, session_id, written)
    if came.follows == "prompt":
        asked = dict(state["pending_approvals"][-1])
        happened.append(Event("approval.requested", asked, space.caller.session_id, end.entry["step_id"]))
    return Ended(state, ended, known.reading)


def _decided(
    space: Workspace, run: Run, state: State, given: Given, known: Gathered, failure: str
) -> finish_records.End:
    """Decide on the outcome, and store what the answer sets."""
    entry, reading = visits.open_visit(state), known.reading
    assert entry is not None  # callers looked
    assert known.tracked is not None  # `end` gathered it
    outcome = "failed" if failure else given.outcome or reading.outcome or "succeeded"
    own = reading.failure_reason if reading.outcome == "failed" else ""
    reason = (failure or own or given.note) if outcome == "failed" else ""
    changed, warnings = _context(space, state, entry, given, reading, failure=failure)
    step, at = _step_of(run, entry), clock.now()
    return finish_records.End(entry, step, given, known, known.tracked, outcome, reason, failure, changed, warnings, at)


def _context(
    space: Workspace,
    state: State,
    entry: Mapping[str, Any],
    given: Given,
    reading: Reading,
    *,
    failure: str,
) -> tuple[run_context.Changed, list[dict[str, str]]]:
    """Give the context after a visit: the engine's own keys, then what the step asked to be set (D37, D38)."""
    own: dict[str, Any] = {"last_stage": entry["step_id"], **given.context}
    warnings = [dict(one) for one in given.warnings]
    if given.response is not None and not failure:
        value, warned = context_values.response_value(space, entry["stage"], given.response)
        own["last_response"] = given.response[: run_context.LAST_RESPONSE]
        own[f"response.{entry['step_id']}"] = value
        warnings += warned
    if reading.output is not None and not failure:
        stored, warned = context_values.stored(space, {f"output.{entry['step_id']}": reading.output})
        own |= stored
        warnings += warned
    asked = {} if failure else {**given.updates, **reading.context_updates}
    updates, warned = context_values.stored(space, asked)
    key = f"output.{entry['step_id']}"
    dropped = (*given.gone, *(() if "last_response" in own else ("last_response",)))
    return run_context.changed(state["context"], own, updates, output=key, dropped=dropped), warnings + warned


def unregistered(run: Run, ended: Mapping[str, Any]) -> list[str]:
    """Say of a step that ended well which file it was asked to register and did not: later sessions will miss it."""
    place = places.place_of(run.plan, ended["step_id"])
    words = str(place.step.get("prompt") or "").split("--artifact ")[1:] if place else []
    given = [word.partition("=")[0] for word in words if "=" in word]
    names = {name for name in given if name.replace("-", "_").isidentifier() and not name.isupper()}
    if ended["status"] not in ("succeeded", "partially_succeeded"):
        return []
    return [
        f"{ended['step_id']} was asked to register {name}, and did not: give it with the next `loomctl done "
        f"--artifact {name}=PATH`, or `loomctl undo` and end the step again."
        for name in sorted(names - set(run.state["artifacts"]))
    ]


def of_visit(space: Workspace, run: Run, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Sum what was used since a visit began, each message once, also one that two transcripts hold; None: unknown.

    It is `partial` where a session that worked on the run since then cannot be seen here.
    """
    own, unseen = space.caller.conversation, False
    beside = []
    for record in sessions.history(run.state):
        session_id, last = record.get("session_id"), str(record.get("last_activity") or "")
        if not isinstance(session_id, str) or session_id == space.caller.session_id or last < entry["started_at"]:
            continue
        if record.get("host") == TERMINAL:  # nobody converses there
            continue
        binding = space.local.binding(session_id) or {}
        path = binding.get("transcript_path") if binding.get("run_id") == run.run_id else None
        if isinstance(path, str) and os.path.isfile(path):
            beside.append(own.another(path))
        else:
            unseen = True
    used = own.usage_since(clock.exact_stamp(track.began_at(space, run, entry)), beside)
    return {**used, "partial": True} if used and unseen else used


# Outcomes that a person or the assistant gives, and that need no result to be believed (D36).
WITHOUT_RESULT = ("failed", "skipped")


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


class Gathered(NamedTuple):
    """What was found out about a visit's end.

    for_stage: whose; reading: what its answer means; tracked: None of a visit that does not end by this answer;
    evidence: what was found of what the step has to show, None where that is nothing.
    """

    for_stage: str
    reading: Reading
    tracked: Tracked | None
    usage: Mapping[str, Any] | None
    evidence: Checked | None = None


class Ended(NamedTuple):
    """What came of an end: the visit as it ended, or (entry None) the corrective message that asks for another answer.

    attempt: which repair it is, from 1.
    """

    state: State
    entry: Mapping[str, Any] | None
    reading: Reading
    repair: str = ""
    attempt: int = 0
