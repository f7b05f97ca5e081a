"""The branches of a parallel step: each is seen as a run of its own, worked on, put back, and joined (D43).

While a parallel step is open its visit holds a record of each branch under `branches`: its visits, and what it changed
of the context that the step began with. The run's own context stands still meanwhile. Pure, as `route` is: a branch
that is seen as a run takes every step that a run takes.
"""

from __future__ import annotations

from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import run_context, visits
from loomctl.runs.model.frozen_plan import Place, place_of
from loomctl.runs.model.run_context import is_reserved
from loomctl.runs.model.state import handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

KEY = "branches"
PENDING, CANCELLED, ENDED = visits.PENDING, visits.CANCELLED, visits.BRANCH_ENDS
RESULTS, CONFLICTS = "parallel.results", "parallel.conflicts"  # of the context
# What a branch has of its own; all else of a state is the run's, and a branch changes it there.
_OWN = ("steps", "context", "status", "current_phase", "current_step", "phases", "pending_approvals", "approvals")
_ALSO_OWN = ("feedback", "completed_at", visits.AS_BRANCH)
# A run in one of these goes no further, and neither do its branches.
_STANDING = ("paused", "failed", "completed", "cancelled")


class View(NamedTuple):
    """A branch seen as a run: a state and a plan of its own; `visits.seen_from(state)` says which it is."""

    state: State
    plan: dict[str, Any]


def is_parallel(step: Mapping[str, Any]) -> bool:
    """Tell whether a step of a plan is a parallel one."""
    return isinstance(step.get("parallel"), dict)


# ---- The records at the visit.


def fan_out(state: State, step: Mapping[str, Any]) -> State:
    """Begin the branches of the open visit, which is the step's, unless they have begun."""
    entry = visits.open_visit(state)
    if entry is None or KEY in entry:
        return state
    declared = enumerate(step["parallel"][KEY])
    records = [{"id": one["id"], "index": index, "status": PENDING, "steps": []} for index, one in declared]
    return visits.replaced(state, {**entry, KEY: records})


def fan(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the open visit of a parallel step; None where none is open."""
    entry = visits.open_visit(state)
    return entry if entry is not None and KEY in entry else None


def outcomes(entry: Mapping[str, Any]) -> list[str | None]:
    """Give how each branch of a visit ended, as declared; None of one that has not."""
    return [record["status"] if record["status"] in ENDED else None for record in entry[KEY]]


def open_records(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the records of a visit's branches that have not ended."""
    return [record for record in entry[KEY] if record["status"] not in ENDED]


# ---- A branch seen as a run.


def plans(plan: Mapping[str, Any], place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give each branch of a parallel step as a plan: of one phase, with the branch's steps, and ways among them."""
    for branch in place.step["parallel"][KEY]:
        yield str(branch["id"]), _plan_of(plan, place, branch)


def _plan_of(plan: Mapping[str, Any], place: Place, branch: Mapping[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in plan.items() if key != "retry_target"}  # that leads out of the branch
    return {**bare, "phases": [{**place.phase, "steps": branch["steps"]}], "whole": plan}


def view(state: State, plan: Mapping[str, Any], name: str, stage: str | None = None) -> View:
    """See a branch as a run. stage: of the parallel step's visit; None: the open one.

    Raises NOT_PARALLEL where no parallel step is open, and NO_SUCH_BRANCH.
    """
    entry = fan(state) if stage is None else _visit_of(state, stage)
    place = place_of(plan, entry["step_id"]) if entry is not None else None
    if entry is None or place is None or not is_parallel(place.step):
        what = f"there is no branch {name!r:.60}, because no parallel step is open"
        why = "the step has ended, or the run has not come to it yet"
        hint = f"loomctl show {handle(state)}"
        raise LoomError("NOT_PARALLEL", what, why=why, hint=hint, exit_code=EXIT_USAGE)
    index, record = next(((at, one) for at, one in enumerate(entry[KEY]) if one["id"] == name), (0, None))
    declared = next((one for one in place.step["parallel"][KEY] if one["id"] == name), None)
    if record is None or declared is None:
        why = f"its branches are: {', '.join(str(record['id']) for record in entry[KEY])}"
        what = f"{entry['step_id']} has no branch {name!r:.60}"
        raise LoomError("NO_SUCH_BRANCH", what, why=why, hint="loomctl next", exit_code=EXIT_NO_RUN)
    seen = {key: value for key, value in state.items() if key not in _ALSO_OWN}
    seen |= {key: record[key] for key in ("feedback",) if key in record}
    seen |= {
        "steps": record["steps"],
        "context": context_of(state["context"], record),
        "status": _status_in(state, record),
        "current_phase": entry["phase"],
        "current_step": record.get("current_step"),
        "phases": {entry["phase"]: state["phases"].get(entry["phase"], {})},
        "pending_approvals": [_without_branch(one) for one in state["pending_approvals"] if one.get("branch") == name],
        "approvals": record.get("approvals", []),
        visits.AS_BRANCH: _outside(state, entry, index),
    }
    return View(seen, _plan_of(plan, place, declared))


def _visit_of(state: Mapping[str, Any], stage: str) -> dict[str, Any] | None:
    return next((one for one in reversed(state["steps"]) if one.get("stage") == stage and KEY in one), None)


def _status_in(state: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Give a branch's status in a run's words: what stands still with its run does so, too."""
    if record["status"] in ENDED:
        return "failed" if record["status"] == visits.FAILED else "completed"
    return str(state["status"] if state["status"] in _STANDING else record["status"])


def _outside(state: Mapping[str, Any], entry: Mapping[str, Any], index: int) -> visits.Outside:
    record = entry[KEY][index]
    behind = next(
        number for number, one in enumerate(reversed(state["steps"]), 1) if one.get("stage") == entry["stage"]
    )
    before = state["steps"][:-behind]
    open_now = visits.every({"steps": visits.recent(state)})
    return visits.Outside(
        stage=entry["stage"],
        step_id=entry["step_id"],
        name=record["id"],
        place=index,
        outcome=record["status"] if record["status"] in ENDED else None,
        rank=visits.highest_rank(state),
        visits=visits.counts({"steps": before}),
        before=before,
        open=tuple(one["stage"] for one in open_now if one["status"] in visits.OPEN and one["stage"]),
        left=_left(state, entry),
    )


def _left(state: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    others = open_records(entry) if entry["status"] in visits.OPEN else ()
    if others:
        return f"Still open: {', '.join(str(record['id']) for record in others)}."
    if state["status"] in ("completed", "failed", "cancelled"):
        return f"All have ended: {entry['step_id']} {entry['status']}. The run is {state['status']}."
    return f"All have ended: {entry['step_id']} {entry['status']}. The run's own session continues: loomctl next"


def context_of(context: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Give a branch's context: what the run's was as the step began, with what the branch changed of it."""
    values, gone = record.get("set", {}), record.get("gone", ())
    kept = {key: value for key, value in context.items() if key not in values and key not in gone}
    return {**kept, **values}


def fold(state: State, seen: State) -> State:
    """Put a branch back into its run. seen: as `view` gave it, changed; state: the run, as it was seen.

    A branch that is completed or failed by now has ended; the run waits for its user where all that are open do.
    """
    outside = visits.seen_from(seen)
    entry = _visit_of(state, outside.stage)
    assert entry is not None  # it was seen
    before = entry[KEY][outside.place]
    record = {**before, "steps": seen["steps"], "status": _status_out(state, before, seen)}
    record |= _changes(state["context"], seen["context"])
    for key, value in (("current_step", seen["current_step"]), ("approvals", seen.get("approvals"))):
        record.pop(key, None)
        if value:
            record[key] = value
    record.pop("feedback", None)
    if "feedback" in seen and record["status"] not in ENDED:
        record["feedback"] = seen["feedback"]
    records = [record if number == outside.place else one for number, one in enumerate(entry[KEY])]
    shared = {key: value for key, value in seen.items() if key not in (*_OWN, *_ALSO_OWN)}
    own = {key: state[key] for key in (*_OWN, "feedback", "completed_at") if key in state}
    others = [one for one in state["pending_approvals"] if one.get("branch") != outside.name]
    asked = [{**one, "branch": outside.name} for one in seen["pending_approvals"] if record["status"] not in ENDED]
    run = {**shared, **own, "pending_approvals": [*others, *asked]}
    if seen["status"] == "paused" and state["status"] in ("in_progress", "awaiting_feedback"):
        run["status"] = "paused"  # somebody refused what the branch asked for
    return wait_or_go_on(visits.replaced(run, {**entry, KEY: records}))


def _status_out(state: Mapping[str, Any], before: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    status = seen["status"]
    if status in ("completed", "failed") and before["status"] not in ENDED and state["status"] not in _STANDING:
        return _outcome(seen)
    if status in ("completed", "failed", "paused", "cancelled"):
        stopped = status == "failed" and state["status"] != "failed"
        return visits.FAILED if stopped else str(before["status"])
    return str(status)


def _outcome(seen: Mapping[str, Any]) -> str:
    """Say how a branch ended: as its last step did; one that went on from a failure to its end did some of its work."""
    if seen["status"] == "failed":
        return visits.FAILED
    last = seen["steps"][-1]["status"] if seen["steps"] else visits.SKIPPED
    return visits.PARTIAL if last == visits.FAILED else str(last)


def ended_last(entry: Mapping[str, Any]) -> str:
    """Give the branch of a visit that ended last, as far as its times tell; empty where none has."""
    ended = [
        (str(last.get("completed_at") or ""), last["rank"], str(record["id"]))
        for record in entry[KEY]
        if record["status"] in visits.OUTCOMES
        and (last := next((one for one in reversed(record["steps"]) if one["status"] in visits.OUTCOMES), None))
    ]
    return max(ended, default=("", 0, ""))[2]


def _changes(base: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    changed = {
        key: value for key, value in context.items() if key not in base or not run_context.same(base[key], value)
    }
    return {"set": changed, "gone": sorted(key for key in base if key not in context)}


def wait_or_go_on(state: State) -> State:
    """Let a run wait for its user where every branch that is open does, and be under way where one is not."""
    entry = fan(state)
    if entry is None or "feedback" in state or state["status"] not in ("in_progress", "awaiting_feedback"):
        return state
    left = open_records(entry)
    waits = bool(left) and all(record["status"] == "awaiting_feedback" for record in left)
    return {**state, "status": "awaiting_feedback" if waits else "in_progress"}


def _without_branch(approval: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in approval.items() if key != "branch"}


# ---- The join.


class FanIn(NamedTuple):
    """What a parallel step comes to.

    outcome: D32's word; changes: what it changes of the run's context; results: `{id, index, status, context_updates}`
    of each branch as declared; conflicts: `{key, branches}`; left: the ids of branches that it goes on without.
    """

    outcome: str
    changes: run_context.Changes
    results: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    left: Sequence[str]

    @property
    def told(self) -> dict[str, Any]:
        """The keys of the context in which a join tells of itself."""
        return {RESULTS: self.results, CONFLICTS: self.conflicts}

    @property
    def own(self) -> dict[str, Any]:
        """The engine's keys that come along from the branches' steps; the join says itself what was last."""
        last = ("last_stage", "last_response")
        return {key: value for key, value in self.changes.set.items() if is_reserved(key) and key not in last}

    @property
    def updates(self) -> dict[str, Any]:
        """What the branches' steps asked to be set."""
        return {key: value for key, value in self.changes.set.items() if not is_reserved(key)}

    @property
    def note(self) -> str:
        """How the branches ended, in a line, where not all did well."""
        if self.outcome in (visits.SUCCEEDED, visits.SKIPPED):
            return ""
        return ", ".join(f"{one['id']}: {one['status']}" for one in self.results)


def fan_in(state: Mapping[str, Any], step: Mapping[str, Any]) -> FanIn | None:
    """Say what the open visit of a parallel step comes to, None where its join waits. step: of the plan."""
    entry = fan(state)
    found = visits.joined(str(step["parallel"]["join"]), outcomes(entry)) if entry is not None else None
    if entry is None or found is None:
        return None
    taken = [entry[KEY][index] for index in found.merged]
    changed = [(record["id"], run_context.Changes(record.get("set", {}), record.get("gone", ()))) for record in taken]
    merged = run_context.merged(state["context"], changed)
    made = _changes(state["context"], merged.context)
    left = [str(record["id"]) for record in open_records(entry)]
    results = [_result(index, record) for index, record in enumerate(entry[KEY])]
    return FanIn(found.outcome, run_context.Changes(made["set"], made["gone"]), results, merged.conflicts, left)


def _result(index: int, record: Mapping[str, Any]) -> dict[str, Any]:
    status = record["status"] if record["status"] in ENDED else CANCELLED
    updates = {key: value for key, value in record.get("set", {}).items() if not is_reserved(key)}
    return {"id": record["id"], "index": index, "status": status, "context_updates": updates}


def short(result: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a result of a join says of its branch without what that changed."""
    return {key: result[key] for key in ("id", "index", "status")}


def cancel_open(state: State) -> State:
    """Cancel the branches of the open visit that have not ended: its join went on without them."""
    entry = fan(state)
    if entry is None:
        return state
    cancelled = [
        record if record["status"] in ENDED else {**record, "status": CANCELLED, "steps": _closed(record["steps"])}
        for record in entry[KEY]
    ]
    asked = [one for one in state["pending_approvals"] if not one.get("branch")]
    return visits.replaced({**state, "pending_approvals": asked}, {**entry, KEY: cancelled})


def _closed(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "status": visits.SKIPPED} if one["status"] in visits.OPEN else dict(one) for one in steps]


def without_contexts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Give a visit that is joined without what its branches changed: the stage's `status.json` keeps that."""
    bare = ("set", "gone", "feedback", "current_step")
    records = [{key: value for key, value in record.items() if key not in bare} for record in entry[KEY]]
    return {**entry, KEY: records}


def refuse_ended(seen: Mapping[str, Any]) -> None:
    """Refuse what is to be done in a branch, seen as a run, that has ended; a run passes. Raises BRANCH_ENDED."""
    outside = visits.seen_from(seen)
    if outside.outcome is not None:
        what = f"branch {outside.name} of {outside.step_id} has ended: {outside.outcome}"
        why = "its work is done; the run's own session continues once all branches have ended"
        hint = f"loomctl next --branch {outside.name}"
        raise LoomError("BRANCH_ENDED", what, why=why, hint=hint, exit_code=EXIT_USAGE)
