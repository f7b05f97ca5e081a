"""The join of a parallel step: its visit ends with what its branches came to, and the run goes on (D43)."""

from __future__ import annotations

from loomctl.changes import track
from loomctl.flow import settle
from loomctl.flow.end import end, results, usage
from loomctl.flow.outcomes.directives import Reading
from loomctl.flow.route import run_life
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import stages
from loomctl.runs.context import context_values
from loomctl.runs.model import places, standing, visits
from loomctl.runs.store.events import Event
from loomctl.workflows.model import branches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

_SAID = 100_000  # characters of a branch's last response that the parallel step's own holds


def foreseen(space: Workspace, run: Run, outside: visits.Outside) -> results.Gathered | None:
    """Find out what a join will need to know, before the lock is taken; None where this branch's end is none yet."""
    fresh = space.store.read(run.run_id)
    entry = branches.fan(fresh.state)
    if entry is None or entry["stage"] != outside.stage:
        return None
    others = [one for number, one in enumerate(entry["branches"]) if number != outside.place]
    place = places.place_of(run.plan, entry["step_id"])
    waits = place is not None and place.step["parallel"]["join"] == "wait_all"
    if waits and any(one["status"] not in branches.ENDED for one in others):
        return None
    return _gathered(space, fresh, entry)


def _gathered(space: Workspace, run: Run, entry: Mapping[str, Any]) -> results.Gathered:
    return results.Gathered(
        entry["stage"], Reading(), track.ended(space, run, dict(entry)), usage.of_visit(space, run, entry)
    )


def caught_up(run: Run, state: State, happened: list[Event], session_id: str | None, *, at: str) -> State:
    """End the branches whose last step ended while the run stood still; adds to `happened` that they did."""
    entry = branches.fan(state)
    for record in branches.still_open(entry) if entry is not None else ():
        view = branches.view(state, run.plan, str(record["id"]))
        if not record["steps"] or visits.open_visit(view.state) is not None or not standing.goes_on(view.state):
            continue
        after, move = run_life.advance(view.state, view.plan, at=at)
        if move.kind == "completed":
            state = branches.folded(state, after)
            ended = branches.view(state, run.plan, str(record["id"])).state
            happened.append(ended_now(ended, session_id))
    return state


def ended_now(state: State, session_id: str | None) -> Event:
    """Tell of a branch, seen as a run, that it has ended, and of one that failed why."""
    outside = visits.seen_from(state)
    told: dict[str, Any] = {"branch": outside.name, "stage": outside.stage, "status": outside.outcome}
    if outside.outcome == "failed" and state["errors"]:
        told["failure_reason"] = str(state["errors"][-1]["message"])
    return Event("branch.ended", told, session_id, outside.step_id)


def joined(
    space: Workspace, run: Run, state: State, happened: list[Event], by: str, known: results.Gathered | None
) -> settle.Settled | None:
    """End the open parallel step if its join is met, and go on; adds to `happened` what did. None: it waits.

    For who holds the run's lock. by: the branch whose end it is; known: as it was foreseen, else it is found out now.
    """
    entry = branches.fan(state)
    place = places.place_of(run.plan, entry["step_id"]) if entry is not None else None
    made = branches.fan_in(state, place.step) if place is not None else None
    if entry is None or place is None or made is None or state["status"] not in ("in_progress", "awaiting_feedback"):
        return None
    run = run._replace(state=state)
    left = [_seen(run, entry, name) for name in made.left]
    records = entry["branches"]
    state = branches.left_behind(state)
    for name in made.left:
        cancelled = {"branch": name, "stage": entry["stage"], "status": branches.CANCELLED}
        happened.append(Event("branch.ended", cancelled, space.caller.session_id, entry["step_id"]))
    context, warnings = _context(space, made)
    given = results.Given(
        _said(run, entry),
        "branches",
        made.outcome,
        made.note,
        context=context,
        gone=made.changes.gone,
        updates=made.updates,
        warnings=warnings,
        branches=records,
        joined_by=by,
    )
    told = {"stage": entry["stage"], "status": made.outcome, "results": [branches.short(one) for one in made.results]}
    happened.append(Event("branches.joined", {**told, "conflicts": made.conflicts}, space.caller.session_id, place.key))
    state = {**state, "status": "in_progress"}
    if known is None or known.for_stage != entry["stage"]:
        known = _gathered(space, run, entry)
    ended = end.end(space, run, state, happened, given, known)
    assert ended.entry is not None  # nothing asks a parallel step for another answer
    state = visits.replaced(ended.state, branches.without_contexts(ended.entry))
    settled = settle.rest_here(space, run, state)
    happened += settled.happened
    return settled._replace(left=left)


def _seen(run: Run, entry: Mapping[str, Any], name: str) -> Run:
    view = branches.view(run.state, run.plan, name, entry["stage"])
    return run._replace(state=view.state, plan=view.plan)


def _context(space: Workspace, made: branches.FanIn) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Give the engine's keys of a join; what its branches' steps answered comes along."""
    stored, warnings = context_values.stored(space, made.told)
    return {**made.own, **stored}, warnings


def _said(run: Run, entry: Mapping[str, Any]) -> str:
    """Give the parallel step's response: what each branch said last."""
    parts = []
    for record in entry["branches"]:
        status = record["status"] if record["status"] in branches.ENDED else branches.CANCELLED
        last = next((one for one in reversed(record["steps"]) if one["status"] not in visits.OPEN), None)
        text = stages.read_text(run.folder, last["stage"], stages.RESPONSE) if last and last.get("stage") else None
        head = f"## Branch {record['id']}: {status}"
        if last is not None and status == "failed":
            head += f" ({masked_line(visits.reason_of(last), 200)})" if visits.reason_of(last) else ""
        parts.append(f"{head}\n\n{(text or '(no response)').strip()[:_SAID]}")
    return "\n\n".join(parts) + "\n"
