"""The end of a step: what it answered, decided, touched and produced, in files, context and events (D27, D33-D41).

What takes time (git, the transcript, a walk for assets) is gathered before the run's lock is taken.
"""

from __future__ import annotations

import functools
import os

from loomctl.changes import track
from loomctl.expressions import placeholders
from loomctl.flow import finish_records, route
from loomctl.flow.finish_records import Ended, Gathered, Given, with_mark
from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.directives import WITHOUT_RESULT
from loomctl.kit import clock, trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, context_values, stages
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, run_context, sessions, standing, visits
from loomctl.runs.store import write_rules
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow.outcomes.directives import Reading
    from loomctl.flow.outcomes.evidence import Checked
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

UNCHECKED = (
    "{why}. `loomctl doctor` says how to fix that. Then end the step with `{done}` and its result, or give it up with "
    "`{done} --outcome failed`."
)


_SHOWN_REFUSED = 5  # calls that a host refused, in a line


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
    known = Gathered(entry["stage"], reading)
    if _is_refused(step, entry, given, reading):
        return known
    given = _registering(space, run, entry, given, reading)
    known = known._replace(evidence=_shown(space, run, entry, given, reading, may_run=may_run))
    return known if _lacks(step, entry, known.evidence) else _tracked(space, run, entry, given, known)


def _registering(space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, reading: Reading) -> Given:
    """Add the artifacts that an answer names; those given beside it come first. What cannot be registered is warned of.

    What was given with an answer that did not end the step is registered, too. Raises nothing.
    """
    before = {name: path for name, path in as_object(entry.get("given")).items() if name not in reading.artifacts}
    artifacts, warnings = {**before, **given.artifacts}, list(given.warnings)
    for name, path in reading.artifacts.items():
        if name in artifacts:
            continue
        try:
            artifacts[name] = portable(space, run.run_id, path)
        except (LoomError, OSError, ValueError) as error:
            why = masked_line(error.what if isinstance(error, LoomError) else str(error), 300)
            warnings.append({"code": "NOT_REGISTERED", "where": f"artifacts/{name}", "message": why})
    return given._replace(artifacts=artifacts, warnings=warnings)


def _with_left(space: Workspace, run: Run, step: Mapping[str, Any], given: Given, reading: Reading) -> Given:
    """Add what lies where a step that ends well says that it leaves it; what was named with its answer comes first."""
    known, artifacts = artifact_paths.placeholder_values(space.project, run), dict(given.artifacts)
    for name, path in frozen_plan.leaves(step).items():
        if not path or name in artifacts or name in reading.artifacts:
            continue
        try:
            place = os.path.join(space.project.root, artifact_paths.expanded(path, known))
            artifacts[name] = portable(space, run.run_id, place)
        except (LoomError, OSError, ValueError):
            pass  # its check says why
    return given._replace(artifacts=artifacts)


def _tracked(space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, known: Gathered) -> Gathered:
    # Who works on a branch has a conversation of its own, which nobody here can see.
    used = None if given.command or visits.is_branch(run.state) else usage_of(space, run, entry)
    return known._replace(tracked=track.ended(space, run, dict(entry)), usage=used)


def usage_of(space: Workspace, run: Run, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Sum what a visit used of models and tokens, in every conversation here that worked on it (D41); None: unknown.

    Each message counts once, also one that two transcripts hold. It is `partial` where a session that worked on the run
    since the visit began cannot be seen here.
    """
    own, unseen, beside = space.caller.conversation, False, []
    for record in sessions.history(run.state):
        session_id, last = record.get("session_id"), str(record.get("last_activity") or "")
        if not isinstance(session_id, str) or session_id == space.caller.session_id or last < entry["started_at"]:
            continue
        if record.get("host") == TERMINAL:  # nobody converses there
            continue
        binding = space.local.binding(session_id) or {}
        path = binding.get("transcript_path") if binding.get("run_id") == run.run_id else None
        if isinstance(path, str) and os.path.isfile(path) and record.get("host") == space.caller.host:
            beside.append(own.another(path))
        else:
            unseen = True
    used = own.usage_since(clock.exact_stamp(track.began_at(space, run, entry)), beside)
    return {**used, "partial": True} if used and unseen else used


def _step_of(run: Run, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    place = frozen_plan.place_of(run.plan, entry["step_id"])
    return place.step if place else {}


# ---- Whether an answer ends its visit.


def _breaks_schema(step: Mapping[str, Any], given: Given, reading: Reading) -> bool:
    return bool(step.get("output_schema")) and given.outcome not in WITHOUT_RESULT and not answers.fits(step, reading)


def _cannot_be_judged(reading: Reading) -> bool:
    return reading.found and bool(reading.errors) and not answers.can_be_repaired(reading)


def _is_refused(step: Mapping[str, Any], entry: Mapping[str, Any], given: Given, reading: Reading) -> bool:
    """Tell whether an answer ends nothing: another is asked for, or nobody here can judge it (D36)."""
    if not _breaks_schema(step, given, reading):
        return False
    return _cannot_be_judged(reading) or visits.repairs_of(entry) < answers.retries(step)


def _corrections(step: Mapping[str, Any]) -> int:
    return 0 if step.get("kind") == "command" else answers.retries(step)


def _lacks(step: Mapping[str, Any], entry: Mapping[str, Any], shown: Checked | None) -> bool:
    if shown is None or shown.passed:
        return False
    return shown.pending or visits.repairs_of(entry) < _corrections(step)


def _shown(
    space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, reading: Reading, *, may_run: bool
) -> Checked | None:
    step = _step_of(run, entry)
    outcome = given.outcome or reading.outcome or "succeeded"
    if not frozen_plan.has_to_show(step) or _breaks_schema(step, given, reading):
        return None
    from loomctl.flow.outcomes import evidence  # most steps have nothing to show

    updates = {**given.context, **given.updates, **reading.context_updates}
    claim = evidence.claim(outcome, given.response)
    by = None
    if may_run and not space.caller.on_hook_path:  # hooks never execute (D23)
        from loomctl.flow.commands import evidence_commands

        by = functools.partial(evidence_commands.run, space, run)
    refused = {one["where"]: one["message"] for one in given.warnings}
    return evidence.check(
        space,
        run,
        entry,
        step,
        outcome,
        updates,
        run_command=by,
        claim=claim,
        registers=_with_left(space, run, step, given, reading).artifacts,
        refused=refused,
    )


def asks_for_evidence(run: Run, state: Mapping[str, Any], known: Gathered) -> bool:
    """Tell whether an answer would be asked for anew because of what its step did not show."""
    entry = visits.open_visit(state)
    return entry is not None and _lacks(_step_of(run, entry), entry, known.evidence)


def would_ask(run: Run, state: Mapping[str, Any], given: Given, known: Gathered) -> bool:
    """Tell the same, or whether it lacks what its step's schema asks for: it would be asked for anew, or fail (D36)."""
    entry = visits.open_visit(state)
    is_broken = entry is not None and _breaks_schema(_step_of(run, entry), with_mark(entry, given), known.reading)
    return is_broken or asks_for_evidence(run, state, known)


def unchecked(reading: Reading, entry: Mapping[str, Any]) -> str:
    """Say why nobody here can judge an answer, and how its step is ended; empty where it was judged (D36)."""
    if not _cannot_be_judged(reading):
        return ""
    why = masked_line("; ".join(one.message for one in reading.errors), 300)
    return UNCHECKED.format(why=why, done=visits.done_command(entry))


# ---- The end.


def end(space: Workspace, run: Run, state: State, happened: list[Event], given: Given, known: Gathered) -> Ended:
    """End the open visit: its files first, then the state; adds to `happened` what did.

    An answer that does not hold what the step's schema asks for is not taken while repairs are left (D36): it is kept
    beside, the visit stays open. known: gathered for this visit, else it is gathered now.
    """
    entry = visits.open_visit(state)
    assert entry is not None  # callers looked
    if known.for_stage != entry["stage"]:
        known = gather(space, run, entry, given, may_run=False)  # the run's lock is held
    step, reading, repairs = _step_of(run, entry), known.reading, visits.repairs_of(entry)
    if _is_refused(step, entry, given, reading):
        if _cannot_be_judged(reading):
            return Ended(_with_given(state, given), None, reading, unchecked(reading, entry))
        allowed = answers.retries(step)
        asked = answers.repair_message(step, reading, repairs + 1, allowed)
        errors = reading.to_dict()["errors"]
        return _ask_again(space, run, _with_given(state, given), happened, given, reading, asked, allowed, errors)
    given = _registering(space, run, entry, given, reading)
    # The evidence may have been gathered for another outcome than is given now.
    if (given.outcome or reading.outcome) in WITHOUT_RESULT:
        known = known._replace(evidence=None)
    elif known.evidence is None:
        known = known._replace(evidence=_shown(space, run, entry, given, reading, may_run=False))
    shown = known.evidence
    if shown is not None and _lacks(step, entry, shown):
        return _ask_for_evidence(space, run, state, happened, given, reading, shown)
    refused = _refused_permissions(space, run, entry, given, reading, shown)
    if refused:
        return _wait_for_permission(space, run, state, happened, given, reading, refused)
    if known.tracked is None:  # it was to be repaired when it was gathered
        known = _tracked(space, run, entry, given, known)
    failure = answers.exhausted(repairs) if _breaks_schema(step, given, reading) else ""
    if not failure and shown is not None and not shown.passed:
        from loomctl.flow.outcomes import evidence

        failure = evidence.exhausted(shown, repairs)
    return _ended(space, run, state, happened, given, known, failure)


def _refused_permissions(
    space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, reading: Reading, shown: Checked | None
) -> list[str]:
    """Give what its host refused an unattended assistant in a visit that would succeed without evidence (D75).

    The driver notes what it sees of that, and the host writes it down; who ends the step by hand knows.
    """
    outcome = given.outcome or reading.outcome or "succeeded"
    proven = shown is not None and shown.passed and bool(shown.items)
    if write_rules.started_for()[0] != run.run_id or proven or outcome not in route.WELL:
        return []
    noted = entry.get("denied")
    found = [str(one.get("what")) for one in noted if isinstance(one, dict)] if isinstance(noted, list) else []
    return found or list(space.caller.conversation.refused())


def _wait_for_permission(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    given: Given,
    reading: Reading,
    refused: Sequence[str],
) -> Ended:
    entry = visits.open_visit(state)
    assert entry is not None  # the caller looked
    if given.response is not None:
        stages.write_candidate(run.folder, entry["stage"], given.response)
    named = masked_line(", ".join(refused[:_SHOWN_REFUSED]), 300)
    why = f"its host refused {named}, and no evidence shows that the step succeeded"
    waits = {"stage": entry["stage"], "reason": "denied"}
    happened.append(Event("run.awaiting_feedback", waits, space.caller.session_id, entry["step_id"]))
    said = f"{entry['step_id']} is not done: {why}. The run waits for its user."
    return Ended(standing.await_permission(state, entry, why, at=clock.now()), None, reading, said, waits=True)


def _ask_for_evidence(
    space: Workspace, run: Run, state: State, happened: list[Event], given: Given, reading: Reading, shown: Checked
) -> Ended:
    """Keep an answer whose evidence is missing; what nobody could judge here is not counted as a correction."""
    from loomctl.flow.outcomes import evidence

    entry = visits.open_visit(state)
    assert entry is not None  # the caller looked
    step, attempt = _step_of(run, entry), visits.repairs_of(entry) + 1
    allowed = _corrections(step)
    if given.response is not None:
        stages.write_candidate(run.folder, entry["stage"], given.response)
    lacks = [name for name in shown.not_produced if name not in given.artifacts]
    not_kept = {*reading.artifacts, *(evidence.misspelt(name, step, given.artifacts) for name in lacks)}
    held = {name: path for name, path in given.artifacts.items() if name not in not_kept}
    state = _with_given(state, given._replace(artifacts=held))
    told = {"stage": entry["stage"], **shown.to_dict()}
    happened.append(Event("evidence.checked", told, space.caller.session_id, entry["step_id"]))
    if shown.pending:
        again = evidence.again(run, entry, given.outcome) if given.response is not None else ""
        return Ended(state, None, reading, evidence.message(step, entry, shown, 0, allowed, again))
    lacking = [one for one in shown.items if not one.passed]
    errors = [{"code": one.code, "where": one.name, "message": one.why} for one in lacking]
    again = _command_to_register(space, run, entry, given, shown) if shown.not_produced else ""
    asked = evidence.message(step, entry, shown, attempt, allowed, again)
    return _ask_again(space, run, state, happened, given, reading, asked, allowed, errors)


def _command_to_register(space: Workspace, run: Run, entry: Mapping[str, Any], given: Given, shown: Checked) -> str:
    """Give the command that ends a step again with the artifacts that it was given, and those that it lacks."""
    from loomctl.flow.outcomes import evidence

    known, step = artifact_paths.placeholder_values(space.project, run), _step_of(run, entry)
    paths, places = dict(given.artifacts), frozen_plan.leaves(step)
    for name in shown.not_produced:
        meant = "" if name in paths else evidence.misspelt(name, step, given.artifacts)
        if meant or name in paths or not places[name]:
            paths[name] = paths.pop(meant, "PATH")
    artifacts = {name: placeholders.expand(path, known).text for name, path in paths.items()}
    if given.response is not None:
        return evidence.again(run, entry, given.outcome, artifacts)
    options = [f"--artifact {quoted(f'{name}={path}')}" for name, path in artifacts.items()]
    return " ".join([visits.done_command(entry), *options])


def _ask_again(
    space: Workspace,
    run: Run,
    state: State,
    happened: list[Event],
    given: Given,
    reading: Reading,
    asked: str,
    allowed: int,
    errors: Sequence[Mapping[str, Any]],
) -> Ended:
    """Keep an answer that is not taken beside what is asked for in its stead."""
    entry = visits.open_visit(state)
    assert entry is not None  # the caller looked
    stage, attempt = entry["stage"], visits.repairs_of(entry) + 1
    stages.write_repaired(run.folder, stage, attempt, response=given.response or "", asked=asked, errors=errors)
    codes = sorted({finding["code"] for finding in errors})
    properties = {"stage": stage, "attempt": attempt, "of": allowed, "errors": codes}
    happened.append(Event("stage.repair_requested", properties, space.caller.session_id, entry["step_id"]))
    return Ended(visits.repaired(state), None, reading, asked)


def _with_given(state: State, given: Given) -> State:
    """Keep the artifacts that were given with an answer that ends nothing: nobody gives them twice."""
    entry = visits.open_visit(state)
    if entry is None or not given.artifacts:
        return state
    return visits.replaced(state, {**entry, "given": {**as_object(entry.get("given")), **given.artifacts}})


def _ended(
    space: Workspace, run: Run, state: State, happened: list[Event], given: Given, known: Gathered, failure: str
) -> Ended:
    """End the visit: its files first, for what the state says is there is there."""
    entry, reading, session_id = visits.open_visit(state), known.reading, space.caller.session_id
    assert entry is not None  # callers looked
    assert known.tracked is not None  # `end` gathered it
    tracked, written = track.write(run, entry["stage"], known.tracked)
    outcome = "failed" if failure else given.outcome or reading.outcome or "succeeded"
    own = reading.failure_reason if reading.outcome == "failed" else ""
    reason = (failure or own or given.note) if outcome == "failed" else ""
    changed, warnings = _context(space, state, entry, given, reading, failure=failure)
    if outcome in route.WELL:
        given = _with_left(space, run, _step_of(run, entry), given, reading)
    has_next_task = False
    if outcome in route.WELL and visits.task_of(entry):
        state, reading, has_next_task = _ticked(space, run, state, given, reading, changed.context)
        entry = visits.open_visit(state) or entry
    known = known._replace(tracked=tracked, reading=reading)
    end = finish_records.End(
        entry, _step_of(run, entry), given, known, tracked, outcome, reason, failure, changed, warnings, clock.now()
    )
    if given.response is not None:  # a condition may ask for it
        stages.write_response(run.folder, entry["stage"], given.response)
    came = route.end_visit(
        visits.without_closing({**state, "context": changed.context}),
        run.plan,
        outcome=outcome,
        at=end.at,
        note=given.note,
        artifacts=given.artifacts,
        directive=end.directive,
        error=end.error,
        judge=route.judge(space, run),
        has_next_task=has_next_task,
    )
    ended = next(one for one in reversed(came.state["steps"]) if one["stage"] == entry["stage"])
    status = finish_records.status(run, end, ended, came.way, session_id)
    written |= stages.write_status(run.folder, entry["stage"], status)
    happened += finish_records.events(end, ended, came, session_id, written)
    if came.follows == "prompt":
        asked = dict(came.state["pending_approvals"][-1])
        happened.append(Event("approval.requested", asked, session_id, entry["step_id"]))
    return Ended(came.state, ended, reading)


def _ticked(
    space: Workspace, run: Run, state: State, given: Given, reading: Reading, context: Mapping[str, Any]
) -> tuple[State, Reading, bool]:
    """Tick the box of the open visit's task, before the state says it is done; whether a next one is left (D65)."""
    from loomctl.flow import tasks  # most steps go through no list
    from loomctl.flow.outcomes.directives import Fault

    entry = visits.open_visit(state)
    assert entry is not None  # callers looked
    asked = _step_of(run, entry).get("for_each")
    if not asked:
        return state, reading, False
    then = {**state, "artifacts": {**state["artifacts"], **given.artifacts}, "context": context}
    tick = tasks.tick(space, run, then, entry, asked)
    if tick.note:
        reading = reading._replace(warnings=(*reading.warnings, Fault("NOT_TICKED", "", tick.note)))
    return visits.replaced(state, {**entry, "task": tick.task}), reading, tick.is_left


def _context(
    space: Workspace, state: State, entry: Mapping[str, Any], given: Given, reading: Reading, *, failure: str
) -> tuple[run_context.Changed, list[dict[str, str]]]:
    """Give the context after a visit: the engine's own keys, then what the step asked to be set (D37, D38)."""
    own: dict[str, Any] = {"last_stage": entry["step_id"], **given.context}
    warnings = [dict(one) for one in given.warnings]
    key = f"output.{entry['step_id']}"
    if given.response is not None and not failure:
        value, warned = context_values.response_value(space, entry["stage"], given.response)
        own["last_response"] = given.response[: run_context.LAST_RESPONSE]
        own[f"response.{entry['step_id']}"] = value
        warnings += warned
    if reading.output is not None and not failure:
        stored, warned = context_values.stored(space, {key: reading.output})
        own |= stored
        warnings += warned
    asked = {} if failure else {**given.updates, **reading.context_updates}
    updates, warned = context_values.stored(space, asked)
    dropped = (*given.gone, *(() if "last_response" in own else ("last_response",)))
    return run_context.changed(state["context"], own, updates, output=key, dropped=dropped), warnings + warned


def portable(space: Workspace, run_id: str, path: str) -> str:
    """Give the portable name of a file, for `state.artifacts`.

    path: absolute, or relative to the caller's folder, else to the project's root. Raises MISSING, and PATH_ESCAPE for
    what no priming would read.
    """
    root, run_dir = space.project.root, space.store.run_dir(run_id)
    found = os.path.normpath(os.path.join(space.caller.cwd, path))
    if not os.path.exists(found):
        found = os.path.normpath(os.path.join(root, path))
    if not os.path.exists(found):
        where = os.path.normpath(os.path.join(space.caller.cwd, path))
        why = "write the file first; a relative path starts here or at the project's root"
        hint = trouble.look(os.path.normpath(os.path.join(space.caller.cwd, path)))
        raise LoomError("MISSING", f"there is no {path}", where=where, why=why, hint=hint, exit_code=EXIT_USAGE)
    allowed = (root, run_dir, space.project.plugin_root, *space.settings.extra_roots)
    if not any(is_inside(os.path.realpath(found), os.path.realpath(folder)) for folder in allowed):
        what = f"{path} is outside of the project, so Loom cannot give it to a session"
        why = "copy it into the project; a symbolic link to it does not help"
        hint = f"cp -r {quoted(found)} {quoted(root)}"
        raise LoomError("PATH_ESCAPE", what, where=found, why=why, hint=hint, exit_code=EXIT_USAGE)
    found = os.path.join(os.path.realpath(os.path.dirname(found)), os.path.basename(found))
    return placeholders.to_portable(found, root, run_dir=run_dir)
