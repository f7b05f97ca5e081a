"""A new run that goes on from a stage of another: as that one was when the stage had ended (D31)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.changes import stage_changes
from loomctl.flow import rewind
from loomctl.flow.commands import command_steps
from loomctl.kit import clock, files, ids
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.runs import context_history, log_verdict, run_blobs, stages
from loomctl.runs.machine import run_notes
from loomctl.runs.model import driving, lease, sessions, standing, visits
from loomctl.runs.store import arrivals, event_log, events, keys, recovery
from loomctl.runs.store.blobs import FOLDER as BLOBS
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Run
from loomctl.runs.tools import recording, tool_log
from loomctl.runs.tools.reducer import READS
from loomctl.runs.tools.tool_log import FOLDER as OUTPUTS
from loomctl.workflows import refreeze

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Store

PLAN = "plan.json"
_BATCH = 1000  # tool steps that are written at once
# What of a run's folder is not copied as it stands: it is made anew, or chosen from.
_OWN = ("stages", "assets", OUTPUTS, BLOBS, events.FILE, tool_log.FILE, READS, recovery.SESSIONS_FILE)


class Forked(NamedTuple):
    """A run that was made of another.

    origin, stage: of what, and after which of its stages; stages: those that came along; tool_steps, copied: how many
    tool steps and files did. changed: the project's files that the origin's later stages touched, which stay as they
    are; patches: where the changes of those stages are kept, newest first.
    """

    run: Run
    origin: str
    stage: str
    stages: Sequence[str]
    tool_steps: int
    copied: int
    changed: Sequence[str]
    patches: Sequence[str]
    notes: Sequence[str]


class _Origin(NamedTuple):
    """What a fork is made of: the run, the visit that had ended, the stages that come along, and those after them."""

    run: Run
    entry: Mapping[str, Any]
    kept: Sequence[str]
    later: Sequence[str]

    @property
    def after(self) -> list[str]:
        """The stages after it, with those of branches, whose files no other stage names while their step is open."""
        every = [one for one in self.run.state["steps"] if one.get("stage") in self.later]
        return [visit["stage"] for one in every for visit in (one, *visits.within(one))]


def fork(space: Workspace, run_id: str, at: str) -> Forked:
    """Make a new run of the same plan that is as this one was when a stage had ended; this one is not changed.

    at: as `find_stage` takes it. The fork is `pending`: nothing finds it by itself (D1), `resume` takes it up.
    Raises NO_SUCH_STAGE, IN_PARALLEL, STAGE_OPEN for one that has not ended, and NOT_LOOMS for a run of FABER's (D5).
    """
    _refuse_fabers(space, run_id)
    notes = recording.noted(space)
    with arrivals.room(space.store, "fork-") as staging:
        folder = os.path.join(staging, "run")
        os.mkdir(folder, 0o755)
        with space.store.lock(run_id):  # nobody ends a stage meanwhile
            origin = _origin(space.store.read(run_id), at)
            state, left = _state(origin)
            told = _told(origin)
            count = arrivals.copy(origin.run.folder, folder, list(_names(origin)))
            steps, outputs = _tool_steps(origin, folder)
            count += arrivals.copy(origin.run.folder, folder, sorted(outputs))
            _bring_blobs(space, origin.run, folder)
        state = _placed(space, folder, state, told)
    run = _run(space.store, state, origin.run.plan)
    notes += [*left, *context_history.set_by_hand(run, str(origin.entry["completed_at"]))]
    notes += _known_here(space, origin.run, run)
    warned = log_verdict.warning(space.store, run_id)
    notes += [f"run {space.store.handle(run_id)}: {warned}"] if warned else []
    return Forked(
        run,
        run_id,
        str(origin.entry["stage"]),
        origin.kept,
        steps,
        count,
        rewind.touched(origin.run, origin.after),
        [path for name in reversed(origin.after) if os.path.isfile(path := rewind.patch_path(origin.run, name))],
        notes,
    )


def _refuse_fabers(space: Workspace, run_id: str) -> None:
    home = space.store.home(run_id)
    if home.faber:
        called = space.store.handle(run_id)
        what = f"{called} belongs to FABER, and Loom cannot fork it"
        why, hint = "FABER would not know the copy", f"loomctl show {called}"
        raise LoomError("NOT_LOOMS", what, where=home.state, why=why, hint=hint, exit_code=EXIT_USAGE)


def _origin(run: Run, named: str) -> _Origin:
    entry = rewind.meant(run, named, verb="fork")
    every = [one for one in run.state["steps"] if isinstance(one.get("stage"), str)]
    at = [one["stage"] for one in every].index(entry["stage"])
    if entry["status"] not in visits.OUTCOMES:
        before = [one["stage"] for one in every[:at] if one["status"] in visits.OUTCOMES]
        earlier = (
            f"loomctl fork {run.handle} --at {quoted(before[-1])}" if before else f"loomctl show --stages {run.handle}"
        )
        what = f"{entry['stage']} has not ended, and a fork starts after a finished step"
        why = "name an earlier one; to do this one again in the same run, use loomctl rewind"
        raise LoomError("STAGE_OPEN", what, where=run.state_path, why=why, hint=earlier, exit_code=EXIT_USAGE)
    kept = [visit["stage"] for one in every[: at + 1] for visit in (one, *visits.within(one))]
    return _Origin(run, entry, kept, [one["stage"] for one in every[at + 1 :]])


def _state(origin: _Origin) -> tuple[State, list[str]]:
    run, stage = origin.run, str(origin.entry["stage"])
    state: State = {**run.state, "status": "in_progress"}  # of a cancelled run, too
    backs: list[rewind.Back] = []
    if origin.later:
        state, backs = rewind.back_to(run, state, origin.later[0], None)
    state = rewind.as_it_ended(state, run.plan, stage)
    at = clock.now()
    state.pop(keys.KEY, None)  # by which the other one is found
    state.pop(driving.KEY, None)  # nobody has driven it, and what that cost is the other one's
    state = standing.unlimited(state)
    state = {
        **lease.without(state),
        "created_at": at,
        "forked_from": {"run_id": run.run_id, "stage": stage, "at": at},
        "sessions": {"current_session_id": None, "total_sessions": 0, "session_history": []},
        "context_metadata": {"last_artifact_reload": None, "reload_count": 0, "artifacts_in_context": []},
    }
    roots = sessions.roots(run.state)
    if roots:  # what paths of other places begin with (D9)
        state["sessions"]["earlier_roots"] = roots
    return state, rewind.left_as_is(backs)


def _told(origin: _Origin) -> list[Event]:
    state = origin.run.state
    made = next((one for one in event_log.entries(origin.run.folder)[0] if one["event"] == "run.created"), {})
    recipe = (made.get("properties") or {}).get("plan") or refreeze.recipe_for_the_log(origin.run.plan, None)
    recipe = {**recipe, "sha256": files.sha256_of_json(origin.run.plan)}  # it may have been made anew since
    created = {"workflow_id": state["workflow_id"], "work_id": state.get("work_id"), "goal": state.get("goal", "")}
    forked = {
        "from": origin.run.run_id,
        "at": origin.entry["stage"],
        "stages": list(origin.kept),
        "context": context_history.brought_along(origin.run, origin.kept),
    }
    return [Event("run.created", {**created, "plan": recipe}), Event("run.forked", forked)]


# ---- The files.


def _names(origin: _Origin) -> Iterator[str]:
    run = origin.run
    yield PLAN
    for stage in origin.kept:
        yield from (f"stages/{stage}/{name}" for name in stages.names(run.folder, stage) if ".undone-" not in name)
    yield from sorted(set(_assets(origin)))
    for name in sorted(os.listdir(run.folder)):
        if name not in _OWN and not (name.endswith(".json") and name.startswith(("state.", "plan."))):
            yield from _below(run.folder, name)


def _assets(origin: _Origin) -> Iterator[str]:
    kept = set(origin.kept)
    every = [visit for one in origin.run.state["steps"] for visit in (one, *visits.within(one))]
    for visit in every:
        if visit.get("stage") not in kept:
            continue
        try:
            told = stage_changes.of_visit(origin.run, visit)
        except (LoomError, OSError):  # who reads the stage is told
            continue
        yield from (asset.stored for asset in told.assets)


def _below(folder: str, name: str) -> Iterator[str]:
    path = os.path.join(folder, name)
    if os.path.islink(path) or name.endswith(".tmp"):
        return
    if os.path.isfile(path):
        yield name
    elif os.path.isdir(path):
        for inner in sorted(os.listdir(path)):
            yield from _below(folder, os.path.join(name, inner))


def _tool_steps(origin: _Origin, folder: str) -> tuple[int, set[str]]:
    """Write the tool steps that were recorded until the stage's end; gives how many, and the outputs that they name."""
    count = 0
    refs: set[str] = set()
    batch: list[ToolStep] = []
    later, ended = set(origin.later), str(origin.entry["completed_at"])
    for step in tool_log.read(origin.run.folder):
        if not _came_before(step, ended, later):
            continue
        batch.append(step)
        refs.update(ref for ref in (step.outcome_ref, step.rest_ref) if ref and _is_output(ref))
        if len(batch) >= _BATCH:
            tool_log.append(folder, batch)
            count += len(batch)
            batch = []
    if batch:
        tool_log.append(folder, batch)
    return count + len(batch), refs


def _came_before(step: ToolStep, ended: str, later: Collection[str]) -> bool:
    """Tell whether a tool step came before a stage's end. Times are of a second; within it the step's stage decides."""
    at, of_later = str(step.more.get("at") or "")[: len(ended) - 1], step.more.get("stage") in later
    if not at:
        return not of_later
    return at < ended[:-1] or (at == ended[:-1] and not of_later)


def _is_output(ref: str) -> bool:
    folder, slash, name = ref.partition("/")
    return folder == OUTPUTS and bool(slash) and ids.is_fit(name)


def _bring_blobs(space: Workspace, run: Run, folder: str) -> None:
    if os.path.isdir(os.path.join(run.folder, BLOBS)):
        store = Blobs(space.store.folder)
        for _, data in run_blobs.named(space, run.folder, run_blobs.named_below(folder)):
            store.put(data)


# ---- Its name and place.


def _placed(space: Workspace, folder: str, state: State, told: Sequence[Event]) -> State:
    while True:
        run_id = space.store.free_id(str(state["plan_id"]))
        made = arrivals.begin(folder, {**state, "run_id": run_id}, told)
        try:
            arrivals.into_place(space.store, folder, run_id)
        except LoomError as error:
            if error.code != "RUN_EXISTS":
                raise
            continue
        return made


def _run(store: Store, state: State, plan: dict[str, Any]) -> Run:
    folder = store.run_dir(state["run_id"])
    return Run(state["run_id"], folder, state, plan, os.path.join(folder, "state.json"), os.path.join(folder, PLAN))


def _known_here(space: Workspace, origin: Run, run: Run) -> list[str]:
    """Know and trust the fork here as its origin is: the plan is the same, and so are its commands (D23)."""
    if not run_notes.is_known(origin.run_id, space.store.folder):
        return []
    said = run_notes.note_taken_up(run.run_id, space.store.folder, shut_in=space.caller.shut_in)
    try:
        if not said and command_steps.is_trusted(space, origin):
            said = command_steps.trust(space, run, command_steps.listed(space, run))
    except LoomError:  # a command that cannot be filled in is said where it is come to
        pass
    return [said] if said else []
