"""Starting a run: workflow → plan → state, bound to the session, primed, at its first step."""

from __future__ import annotations

import os

from loomctl.expressions import placeholders
from loomctl.flow import route, settle, suites
from loomctl.flow.commands import command_steps
from loomctl.kit import clock, git, ids, machine
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import mask
from loomctl.priming import memory_of_session, prime_run, prove
from loomctl.runs import artifact_paths, find, leases
from loomctl.runs.machine import run_notes
from loomctl.runs.model import frozen_plan
from loomctl.runs.model.state import new_state
from loomctl.runs.store import keys
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Run
from loomctl.runs.tools import recording
from loomctl.workflows import refreeze, triggers
from loomctl.workflows.resolve import resolve
from loomctl.workflows.survival import KEY
from loomctl.workflows.workflow import build_plan
from loomctl.workflows.workflow_files import places_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.kit.problems import Problem
    from loomctl.priming.slip import Slip
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace

LONGEST_BELOW = 80
"""Bytes that a run's path grows by beside its longest stage: `stages/`, a file's name, what is written beside it."""


class Started(NamedTuple):
    """A run that has begun.

    slip: what the session was given; notes: what its user must know; warnings: of the workflow's files. A dry run has
    no slip, and nothing of it is on disk. created: False for the open run of a key, which stays as it is.
    """

    run: Run
    move: route.Move
    slip: Slip | None
    notes: list[str]
    warnings: list[Problem]
    created: bool = True


def start(
    space: Workspace,
    work: str,
    *,
    workflow: str | None = None,
    autonomy: str | None = None,
    dry_run: bool = False,
    must_survive: Sequence[str] = (),
    later: bool = False,
    key: str | None = None,
    more: Mapping[str, Any] = {},
) -> Started:
    """Start a run on a piece of work: a tracker's id (`258`, `#258`, `ABC-12`) or a goal in words.

    key: under which the run is found again: while one of this key is open that one is given, whoever asks at once.

    autonomy: overrides the workflow's. must_survive: items beside the workflow's (`workflows.survival`).
    later: what is due is owed to the session until `next` gives it. more: what its state says besides.
    dry_run (or the autonomy `dry-run`): resolve and check, write nothing.
    Raises LoomError for a workflow that cannot be used, UNRESOLVED_PLACEHOLDER for a prompt that cannot be filled, and
    BAD_KEY.
    """
    work = _said(work)
    known = keys.open_run(space.store, keys.checked(key)) if key is not None else None
    if known is not None:
        return _found(space, known)
    first = {**more} if key is None else {**more, keys.KEY: key}
    run, warnings, sources = _made(space, work, workflow, autonomy, must_survive, first)
    if dry_run or run.plan["autonomy"].get("level") == "dry-run":
        notes = [*suites.lacking(space, run.plan), "Nothing was written: this is a dry run."]
        return Started(run, route.Move("dry-run"), None, notes, warnings)
    made_here = new_store(space)
    space.store.prepare(commit_runs=space.settings.commit_runs)
    noted = recording.noted(space)
    if key is None:
        run = _created(space, run, autonomy)
    else:
        with keys.lock(space.store):  # several may ask at once
            known = keys.open_run(space.store, key)
            run = _created(space, run, autonomy) if known is None else run
        if known is not None:
            return _found(space, known)
    trouble = run_notes.note_taken_up(run.run_id, space.store.folder, shut_in=space.caller.shut_in)
    trouble = trouble or command_steps.trust_what_is_allowed(space, run, sources)
    notes = [
        *made_here,
        *suites.lacking(space, run.plan),
        *noted,
        *others_under_way(space, run),
        *leases.without_git(space),
        *([trouble] if trouble else []),
    ]
    return _begin(space, run, notes, warnings, later=later)


class _Made(NamedTuple):
    """A run that is not written yet; warnings: of its workflow; sources: as `resolve` gives them."""

    run: Run
    warnings: list[Problem]
    sources: Sequence[dict[str, str]]


def _made(
    space: Workspace,
    work: str,
    workflow: str | None,
    autonomy: str | None,
    must_survive: Sequence[str],
    more: Mapping[str, Any],
) -> _Made:
    """Resolve a workflow, and make of it and the work a run's plan and first state, checked. Raises as `start`.

    more: what the state says besides.
    """
    project = space.project
    named = workflow or space.settings.default_workflow
    resolved = resolve(named, places_of(project), base=space.caller.cwd, by_user=workflow is not None)
    merged = resolved.checked()
    warnings = [problem for problem in resolved.problems if problem.severity == "warning"]
    work_id = work.lstrip("#") if ids.is_work_id(work) else None
    plan_id = ids.make_plan_id(project.name, mask(work)[0])  # the id is shown everywhere
    if autonomy is not None:
        said = merged.get("autonomy")
        merged = {**merged, "autonomy": {**(said if isinstance(said, dict) else {}), "level": autonomy}}
    tests = suites.of(space).command
    plan = build_plan(merged, plan_id=plan_id, created_at=clock.now(), sources=resolved.sources, test_command=tests)
    run_id = space.store.free_id(plan_id)
    state = new_state(plan, run_id=run_id, work_id=work_id, goal="" if work_id else work, at=clock.now())
    state |= more
    if must_survive:
        state[KEY] = prove.checked(must_survive)
        warnings += prove.warnings(plan, state, must_survive, prove.BEGUN_WITH)
    run = _new_run(space, run_id, state, plan)
    _check_placeholders(space, run)
    command_steps.listed(space, run)  # what cannot be filled in is said before anything is written
    _check_lengths(run)
    return _Made(run, warnings, resolved.sources)


def _found(space: Workspace, run_id: str) -> Started:
    """Give the open run of a key, which nothing is done to."""
    run = space.store.read(run_id, to_show=True)
    return Started(run, settle.rest(run.state).move, None, [], [], created=False)


def _said(work: str) -> str:
    """Give what is to be done. Raises NO_WORK."""
    if work.strip():
        return work.strip()
    why = 'give it in words or as an issue\'s id: loomctl run "add dark mode"'
    raise LoomError("NO_WORK", "a run needs a goal", why=why, hint="loomctl run --help", exit_code=EXIT_USAGE)


def new_store(space: Workspace) -> list[str]:
    """Say where a project's first run puts its store. Raises NO_PROJECT where every folder below would share it."""
    if os.path.isdir(space.store.folder):
        return []
    root = space.project.root
    if root in (os.path.sep, os.path.realpath(machine.home() or os.path.sep)):
        why = "every folder below would share its runs; go to a project's folder first"
        hint = f"ls -d {quoted(root).rstrip(os.sep)}/*/.git"
        raise LoomError("NO_PROJECT", f"{root} is not a project", why=why, hint=hint, exit_code=EXIT_USAGE)
    ignored = " (git ignores them)" if git.top_of(root) is not None else ""
    return [f"Loom keeps this project's runs in {space.store.folder}{ignored}."]


def _new_run(space: Workspace, run_id: str, state: State, plan: dict[str, Any]) -> Run:
    folder = space.store.run_dir(run_id)
    return Run(run_id, folder, state, plan, os.path.join(folder, "state.json"), os.path.join(folder, "plan.json"))


def _created(space: Workspace, run: Run, autonomy: str | None) -> Run:
    state = run.state
    created = {"workflow_id": state["workflow_id"], "work_id": state["work_id"], "goal": state["goal"]}
    created["plan"] = refreeze.recipe_for_the_log(run.plan, autonomy)
    try:
        return space.store.create(state, run.plan, [Event("run.created", created, space.caller.session_id)])
    except LoomError as error:
        if error.code != "RUN_EXISTS":
            raise
    run_id = space.store.free_id(state["plan_id"])
    return _created(space, _new_run(space, run_id, {**state, "run_id": run_id}, run.plan), autonomy)


def _begin(space: Workspace, run: Run, notes: list[str], warnings: list[Problem], *, later: bool) -> Started:
    bind(space, run.run_id)
    environment = leases.surroundings(space)
    held: list[settle.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        state, came = leases.enter(space, state, "bound", environment)
        settled = settle.settle(space, run, state)
        held[:] = [settled]
        return settled.state, [*came, *settled.happened]

    run = run._replace(state=space.store.update(run.run_id, change))
    settle.begun(space, run, held[0])
    event = triggers.run_start(run.state.get("current_phase"))
    if triggers.MANUAL in held[0].facts:
        event = event._replace(facts=(*event.facts, triggers.MANUAL))
    if later:
        made = prime_run.owe(space, run, event, "run")
    else:
        made = prime_run.prime(space, run, event, prime_run.command_budget(space), may_write=True)
        made = memory_of_session.record(space, run.run_id, made, begun="run")
    notes = [*notes, *leases.noted_stage(space, run.state)]
    return Started(run, held[0].move, made, notes, warnings)


def others_under_way(space: Workspace, run: Run) -> list[str]:
    """Name what a person may have forgotten: the run that this session leaves, and another on the same work."""
    said = []
    left = (space.local.binding(space.caller.session_id) or {}).get("run_id")
    for run_id in find.active_runs(space):
        if run_id == run.run_id:
            continue
        if run_id == left:
            drove = space.store.handle(run_id)
            said.append(f"This session has left {drove}. To go back to it: {find.way_in(space, run_id)}")
        elif ids.split_run_id(run_id)[0] == run.state["plan_id"]:
            said.append(f"Another run on the same work is open. To continue it: {find.way_in(space, run_id)}")
    return said


def bind(space: Workspace, run_id: str) -> None:
    """Bind the caller's session to a run (D1); the one that it drove until now is free. Without a session: nothing."""
    session_id = space.caller.session_id
    if session_id is None:
        return
    before = space.local.binding(session_id) or {}
    left = before.get("run_id")
    if left is not None and left != run_id and space.store.has(left):
        leases.give_up(space, left)
    kept = {"transcript_path": before["transcript_path"]} if before.get("transcript_path") else {}
    kept["root"] = space.project.root
    if space.caller.shared:
        kept["shared"] = True
    space.local.bind(session_id, run_id, host=space.caller.host, pid=space.caller.pid, **kept)


def _check_placeholders(space: Workspace, run: Run) -> None:
    """Refuse a plan whose prompts need what this run does not have, before anything is written (D8)."""
    state = run.state
    values = artifact_paths.placeholder_values(space.project, run)
    lacking: list[str] = []
    for place in frozen_plan.with_branches(run.plan):
        known = {**values, placeholders.TASK: "."} if place.step.get("for_each") else values  # it has one when begun
        for field in ("prompt", "command", "skill"):
            text: Any = place.step.get(field)
            if isinstance(text, str):
                lacking.extend(f"{place.key} needs {{{name}}}" for name in placeholders.expand(text, known).missing)
    if lacking:
        raise LoomError(
            "UNRESOLVED_PLACEHOLDER",
            "; ".join(lacking),
            where=run.plan["workflow_id"],
            why="this run has no work id; start it with an issue's id"
            if state["work_id"] is None
            else "these have no value",
            hint="loomctl run --help",
            exit_code=EXIT_USAGE,
        )


def _check_lengths(run: Run) -> None:
    """Refuse a place whose path leaves no room for the files of a stage, before anything is written."""
    stages = (len(ids.stage_name(999, place.key, 99)) for place in frozen_plan.with_branches(run.plan))
    needed = len(os.fsencode(run.folder)) + max(stages, default=0) + LONGEST_BELOW
    most = os.pathconf(os.path.sep, "PC_PATH_MAX")
    if needed > most:
        what = "the path of this project is too long for the files of a run"
        why = f"a path may have {most} bytes here, and these would have up to {needed}"
        hint = f"ls -ld {quoted(run.folder.partition('/.loom/')[0])}"
        raise LoomError("PATH_TOO_LONG", what, where=run.folder, why=why, hint=hint, exit_code=EXIT_USAGE)
