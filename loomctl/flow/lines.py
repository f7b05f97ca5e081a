"""The line of a run that a caller works on: the run itself, or one branch of its parallel step, seen as a run (D43).

A branch is read, changed and put back under the run's lock, so that all of them may be worked on at the same time. What
ends the last of them, or the one that the join waits for, joins them in the same change.
"""

from __future__ import annotations

from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.lock import PATIENCE
from loomctl.runs.model import visits
from loomctl.workflows.model import branches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Change, Run


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
    left = branches.still_open(entry) if entry is not None else ()
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
    may_end: bool = False,
    durable: bool = True,
    patience: float = PATIENCE,
) -> Run:
    """Change a run, or the branch of it that is seen, as `store.update` does; gives the line as it is then.

    may_end: the change may end a branch, so that what a join needs to know is found out before the lock is taken.
    A change of a branch that ends it may join the parallel step: then the run goes on in the same change, and what is
    noted of the step that it comes to is noted here. Raises BRANCH_OVER where the step was joined meanwhile.
    """
    outside = visits.seen_from(line.state)
    if not outside.stage:
        return line._replace(state=space.store.update(line.run_id, change, durable=durable, patience=patience))
    from loomctl.flow import join, settle  # most runs have no branches

    whole = line._replace(plan=line.plan["whole"])
    known = join.foreseen(space, whole, outside) if may_end else None
    joined: list[settle.Settled] = []

    def within(state: State) -> tuple[State, list[Event]]:
        joined.clear()
        if _over(state, outside):
            raise over(line.run_id, outside)
        state, happened = _answered(space, state)
        view = branches.view(state, whole.plan, outside.name, outside.stage)
        after, own = change(view.state)
        if after == view.state and not own:
            return state, happened
        happened += [_of_branch(one, outside.name) for one in own]
        state = branches.folded(state, after)
        ended = branches.view(state, whole.plan, outside.name, outside.stage).state
        if visits.seen_from(ended).outcome is not None and outside.outcome is None:
            happened.append(join.ended_now(ended, space.caller.session_id))
        found = join.joined(space, whole, state, happened, outside.name, known)
        if found is not None:
            joined.append(found)
            state = found.state
        return state, happened

    state = space.store.update(line.run_id, within, durable=durable, patience=patience)
    whole = whole._replace(state=state)
    if joined:
        settle.begun(space, whole, joined[0])
    return seen(whole, outside.name, outside.stage)


def _answered(space: Workspace, state: State) -> tuple[State, list[Event]]:
    """Put a run under way that waited for an answer: a branch goes on, so somebody gave it (D27)."""
    from loomctl.flow.end import end

    happened: list[Event] = []
    return branches.waiting(end.answered(space, state, happened)), happened


def _over(state: State, outside: visits.Outside) -> bool:
    entry = branches.fan(state)
    return entry is None or entry["stage"] != outside.stage


def over(run_id: str, outside: visits.Outside) -> LoomError:
    """Say that a branch's parallel step went on: what was done for it since counts nowhere."""
    return LoomError(
        "BRANCH_OVER",
        f"the branch {outside.name} of {outside.step_id} is over: the parallel step was joined, or taken back",
        why="what was done since is not recorded; the run has gone on",
        hint=f"loomctl show {run_id}",
        exit_code=EXIT_USAGE,
    )


def _of_branch(happened: Event, branch: str) -> Event:
    return happened._replace(properties={**happened.properties, "branch": branch})
