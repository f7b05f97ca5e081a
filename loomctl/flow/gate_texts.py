"""What is told of a run that waits for a person, of its branches, and of where it stands after a verb."""

from __future__ import annotations

import os

from loomctl.flow import route
from loomctl.kit import clock
from loomctl.kit.text.secrets import masked_line
from loomctl.priming.slip import NEXT_SHARE, cut_lines
from loomctl.runs import stages
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.standing import command
from loomctl.workflows import branches, gates, routing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow.route import Move
    from loomctl.priming.slip import Budget
    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.store.store import Run

_MOST = 12  # choices that stand in a line
_NOT_YOURS = "Only the user decides, with one of these commands. An assistant shows them and does not run them:"
_STEPS_NAMED = 6
_JOINS = {
    "wait_all": "when all of them have ended",
    "first_success": "with the first that succeeds, without the others",
    "any": "with the first that ends, without the others",
}
_TOLD = """This step has {count} branches for subagents that work at the same time. Start one subagent per branch, all \
in one message. Give each this task with the name of its branch:

    {task}

{named}

Without subagents, work on one branch after the other in the same way. The run goes on {join}. To give a branch up, \
run `loomctl done --branch BRANCH --outcome failed`."""
STANDING = "This is where the branches are. Start a subagent only for an open one that nobody works on:"
ENDING = "`loomctl next` shows where the branches are, and the next step once they have ended."


def line(run: Run, *, to_user: bool = False) -> str:
    """Say in one line what a run waits for, and by which command its user answers."""
    found = gates.open_human(run.state, run.plan)
    whom, who = ("you", "You decide") if to_user else ("the user", "The user decides")
    if found is None:
        return f"The run waits for {whom}: {question(run)}. {who}: {_by(run)}"
    verb = "choose LABEL" if gates.choices(found[1].step) else "approve"
    at = masked_line(found[1].key, 120)
    return f"The run waits for {whom} at {at}: {question(run)}. {who}: loomctl {verb} {run.handle}"


def question(run: Run) -> str:
    """Give what a run asks its user, with the choices if there are some."""
    found = gates.open_human(run.state, run.plan)
    asked = "; ".join(_asked(item) for item in run.state["pending_approvals"])
    if found is None:
        return asked + _refused(run.state)
    offered = gates.choices(found[1].step)
    return asked + (f" ({' · '.join(masked_line(label, 60) for label in offered[:_MOST])})" if offered else "")


def upcoming(run: Run) -> str:
    """Say the same for a text that ends with the one next thing to do, of a gate that is no step."""
    return f"## Next\n\nThe run waits for the user: {question(run)}. Ask the user to run `{_by(run)}`."


def at_a_step(run: Run, place: Place, prompt: str, budget: Budget | None = None) -> str:
    """Give a human step for whoever reads: the question as its prompt says it, then the choices with their commands.

    prompt: the step as it is shown. budget: None for all of it; else the question is cut within the share of the next
    thing to do, and its file named.
    """
    entry = visits.open_visit(run.state) or {}
    head = f"## Next\n\nThe run waits for the user.\n\n{prompt.replace('## Step ', 'The step ', 1)}"
    ending = ways(run, place)
    if budget is None:
        return f"{head}\n\n{ending}"
    room = budget.share(NEXT_SHARE)
    if budget.measure(f"{head}\n\n{ending}") <= room:
        return f"{head}\n\n{ending}"
    ending = cut_lines(ending, room * 2 // 3, budget.measure)
    path = os.path.join(stages.folder(run.folder, str(entry["stage"])), stages.PROMPT)
    rest = f"(the whole question is in {path}; `loomctl next` prints it)"
    left = room - budget.measure(ending) - budget.measure(rest) - 4
    return f"{cut_lines(head, max(0, left), budget.measure)}\n\n{rest}\n\n{ending}"


def ways(run: Run, place: Place) -> str:
    """Give the commands that answer a human step, a line each."""
    offered = gates.choices(place.step)
    branch = visits.seen_from(run.state).name
    lines = [f"    {command(gates.CHOOSE, run.handle, label, branch)}" for label in offered]
    if not offered:
        lines = [f"    {command(verb, run.handle, '', branch)}" for verb in (gates.APPROVE, gates.REJECT)]
    return "\n".join([_NOT_YOURS, "", *lines])


def paused(run: Run) -> str:
    """Say why a run is paused whose gate was refused; empty for every other."""
    refused = gates.refusal(run.state)
    if refused is None:
        return ""
    by, note = (masked_line(str(refused.get(key) or ""), 300) for key in ("by", "note"))
    why = f": {note}" if note else ""
    return (
        f"The run is paused: {by or 'somebody'} rejected {masked_line(str(refused['id']), 120)}{why}. "
        f"In the session that drives it, `loomctl undo` opens the last step again, "
        f"and `loomctl resume {run.handle}` asks again."
    )


def _by(run: Run) -> str:
    first = run.state["pending_approvals"][0] if run.state["pending_approvals"] else {}
    branch = masked_line(str(first.get("branch") or visits.seen_from(run.state).name), 80)
    verb = f"{gates.CHOOSE} LABEL" if first.get("choices") else gates.APPROVE
    return command(verb, run.handle, "", branch)


def _asked(item: Mapping[str, Any]) -> str:
    of = f"{masked_line(str(item['branch']), 80)}: " if item.get("branch") else ""
    listed = item.get("choices") if of else None
    named = f" ({' · '.join(masked_line(str(one), 60) for one in listed[:_MOST])})" if isinstance(listed, list) else ""
    return of + masked_line(str(item.get("reason") or item.get("id")), gates.LONGEST_REASON) + (named if listed else "")


def _refused(state: Mapping[str, Any]) -> str:
    refused = gates.refusal(state)
    if refused is None:
        return ""
    by, note = (masked_line(str(refused.get(key) or ""), 200) for key in ("by", "note"))
    return f" (rejected before{f' by {by}' if by else ''}{f': {note}' if note else ''})"


def instruction(step: Mapping[str, Any]) -> str:
    """Say how a parallel step of a plan is worked on: its branches, with the task of each."""
    parallel = step["parallel"]
    listed = parallel["branches"]
    named = "\n".join(f"- `{masked_line(str(branch['id']), 80)}`: {_steps(branch)}" for branch in listed)
    return _TOLD.format(count=len(listed), task=task("BRANCH"), named=named, join=_JOINS[parallel["join"]])


def task(branch: str) -> str:
    """Give the task of who works on a branch, in one line."""
    return (
        f"Work on branch {branch} of this Loom run: run `loomctl next --branch {branch}` and do what it says. End each "
        "step with its result and the `loomctl done --for …` that it names; that shows the next step. "
        "Go on until Loom says that the branch has ended. Then report the outcome in a few lines."
    )


def _steps(branch: Mapping[str, Any]) -> str:
    names = [masked_line(str(step.get("name") or step["id"]), 60) for step in branch["steps"]]
    more = len(names) - _STEPS_NAMED
    return " → ".join(names[:_STEPS_NAMED]) + (f" and {more} more" if more > 0 else "")


def standing(entry: Mapping[str, Any]) -> list[str]:
    """Say how each branch of a visit stands, a line each."""
    return [f"- `{masked_line(str(record['id']), 80)}`: {how(record)}" for record in entry[branches.KEY]]


def how(record: Mapping[str, Any]) -> str:
    """Say in a few words how a branch stands."""
    status, at = record["status"], masked_line(str(record.get("current_step") or ""), 120)
    if status == branches.PENDING:
        return "not begun"
    if status == "in_progress":
        return f"at {at}" if at else "under way"
    if status == "awaiting_feedback":
        return f"waits for the user at {at}"
    return f"ended, {status}"


# ---- Where a run stands after a verb.


def say_move(run: Run, move: Move, *, is_new: bool, to_user: bool = False) -> str:
    """Say in one line where a run stands after a verb, and by which way it came there where that is new."""
    state = run.state
    if visits.is_branch(state):
        return _say_branch(run, move)
    if move.kind == "approval":
        return line(run, to_user=to_user)
    if move.kind == "completed":
        return "The run is completed."
    if move.kind == "cancelled":
        return f"The run is cancelled. To continue it: loomctl resume {run.handle} --reopen"
    if move.kind == "failed":
        return _say_failed(run)
    if move.kind == "paused" and state["pending_approvals"]:
        refused = paused(run)
        if refused:
            return refused
    if move.kind == "paused":
        return f"The run is paused. To continue: loomctl resume {run.handle}"
    way = route.way_to(state, move.step)
    how = ""
    if is_new or way.get("not_before"):
        how = routing.how(way, _transitions(run, way), at=lambda stamped: clock.day_and_time(stamped)[1])
    if (task := visits.task(state)) and not way.get("not_before"):
        how = visits.task_line(task) + (f" ({how})" if way.get("reason") == visits.RETRY and how else "")
    return f"Next: {move.step}" + (f", {masked_line(how, 120)}" if how else "")


def _transitions(run: Run, way: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Give the transitions of the step that was left by a way; none where it took none, so that no visit is read."""
    if not isinstance(way.get("transition"), int):
        return ()
    last = next((one for one in reversed(run.state["steps"]) if one.get("next") == way), None)
    place = frozen_plan.place_of(run.plan, last["step_id"]) if last is not None else None
    return (place.step.get("transitions") or ()) if place is not None else ()


def _say_branch(run: Run, move: Move) -> str:
    outside = visits.seen_from(run.state)
    name = masked_line(outside.name, 80)
    if outside.outcome is None:
        if move.kind == "approval":
            waits = "; ".join(masked_line(str(one.get("reason")), 200) for one in run.state["pending_approvals"])
            return f"Branch {name} waits for the user: {waits}."
        told = visits.task_line(visits.task(run.state))
        at = f"{move.step}, {masked_line(told, 120)}" if told else move.step
        return f"Next: {at}" if move.step else f"Branch {name} waits, because its run does."
    return f"Branch {name} has ended: {outside.outcome}. {outside.left}"


def _say_failed(run: Run) -> str:
    """Say that a run failed, and what resuming it does: the step is tried again, or one too often visited once more."""
    way = route.way_to(run.state, None)
    again = f"loomctl resume {run.handle}"
    if way.get("reason") == visits.MAX_VISITS:
        why = masked_line(str(run.state["errors"][-1]["message"]), 200) if run.state["errors"] else ""
        return f"The run failed: {why}. To try once more: {again}"
    why = ""
    last = run.state["steps"][-1]
    is_untold = last["status"] != "failed" or last.get("by") == "engine"
    if way.get("reason") == visits.NOWHERE and is_untold and run.state["errors"]:
        why = ": " + masked_line(str(run.state["errors"][-1]["message"]), 200)
    return f"The run failed{why}. To try the step again: {again}"
