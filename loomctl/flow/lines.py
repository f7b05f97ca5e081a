"""The line of a run that a caller works on: the run itself, or one branch of its parallel step, seen as a run (D43).

A branch is read, changed and put back under the run's lock, so that all of them may be worked on at the same time.
"""

from __future__ import annotations

from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.processes import PATIENCE
from loomctl.runs.model import standing, visits
from loomctl.runs.store.events import Event
from loomctl.workflows import branches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Change, Run

EVIDENCE = "evidence"  # the folder in `local/` with notes of the commands of evidence that this machine started


def read(space: Workspace, run_id: str, branch: str | None = None) -> Run:
    """Read a run, or one branch of its open parallel step as a run. Raises NOT_PARALLEL and NO_SUCH_BRANCH."""
    run = space.store.read(run_id)
    return run if branch is None else seen(run, branch)


def seen(run: Run, branch: str, stage: str | None = None) -> Run:
    """See a branch of a run. stage: of the parallel step's visit; None: of the open one."""
    view = branches.view(run.state, run.plan, branch, stage)
    return run._replace(state=view.state, plan=view.plan)


def every(run: Run) -> list[Run]:
    """Give a run and each branch of its open parallel step that has not ended."""
    entry = branches.fan(run.state)
    left = branches.open_records(entry) if entry is not None else ()
    return [run, *(seen(run, str(record["id"])) for record in left)]


def again(space: Workspace, line: Run) -> Run:
    """Read a line anew: the run, or the branch that was seen, also where its parallel step was joined since."""
    run = space.store.read(line.run_id)
    outside = visits.seen_from(line.state)
    return seen(run, outside.name, outside.stage) if outside.stage else run


def update(
    space: Workspace,
    line: Run,
    change: Change,
    *,
    patience: float = PATIENCE,
    then: Callable[[State, list[Event]], State] | None = None,
) -> Run:
    """Change a run, or the branch of it that is seen, as `store.update` does; gives the line as it is then.

    then: what follows for the whole run in the same change of a branch (a join). Raises BRANCH_OVER where the parallel
    step was joined meanwhile.
    """
    outside = visits.seen_from(line.state)
    if not outside.stage:
        return line._replace(state=space.store.update(line.run_id, change, patience=patience))
    whole = line._replace(plan=line.plan["whole"])

    def within(state: State) -> tuple[State, list[Event]]:
        entry = branches.fan(state)
        if entry is None or entry["stage"] != outside.stage:
            raise over(line.run_id, outside)
        happened: list[Event] = []
        state = branches.wait_or_go_on(answered(space, state, happened))  # a branch goes on, so somebody gave it (D27)
        view = branches.view(state, whole.plan, outside.name, outside.stage)
        after, own = change(view.state)
        if after == view.state and not own:
            return state, happened
        happened += [one._replace(properties={**one.properties, "branch": outside.name}) for one in own]
        state = branches.fold(state, after)
        ended = branches.view(state, whole.plan, outside.name, outside.stage).state
        if visits.seen_from(ended).outcome is not None and outside.outcome is None:
            happened.append(branch_ended(ended, space.caller.session_id))
        return (then(state, happened) if then is not None else state), happened

    state = space.store.update(line.run_id, within, patience=patience)
    return seen(whole._replace(state=state), outside.name, outside.stage)


def answered(space: Workspace, state: State, happened: list[Event]) -> State:
    """Put a run under way that waited for its user's answer and for nothing else; adds to `happened` that it came."""
    waited = state.get("feedback")
    if isinstance(waited, dict):
        happened.append(Event("run.feedback_given", {"stage": waited.get("stage")}, space.caller.session_id))
    return standing.answered(state)


def branch_ended(state: State, session_id: str | None) -> Event:
    """Tell of a branch, seen as a run, that it has ended, and of one that failed why."""
    outside = visits.seen_from(state)
    told: dict[str, Any] = {"branch": outside.name, "stage": outside.stage, "status": outside.outcome}
    if outside.outcome == "failed" and state["errors"]:
        told["failure_reason"] = str(state["errors"][-1]["message"])
    return Event("branch.ended", told, session_id, outside.step_id)


def over(handle: str, outside: visits.Outside) -> LoomError:
    """Say that a branch's parallel step went on: what was done for it since counts nowhere."""
    what = f"branch {outside.name} of {outside.step_id} is over, because its parallel step ended or was undone"
    why = "the run has moved on, and Loom does not record this result"
    return LoomError("BRANCH_OVER", what, why=why, hint=f"loomctl show {handle}", exit_code=EXIT_USAGE)
