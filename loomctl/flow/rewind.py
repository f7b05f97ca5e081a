"""Taking a run back, by one step or to a stage: ends are undone, with the context that they made (D31)."""

from __future__ import annotations

import os

from loomctl.changes import stage_changes, working_tree
from loomctl.flow import lines, route, settle
from loomctl.flow.advance import Driven
from loomctl.kit import clock, files
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import memory_of_session
from loomctl.runs import context_history, leases, stages
from loomctl.runs.model import frozen_plan, run_context, sessions, visits
from loomctl.runs.model.standing import PAUSE_AFTER, WAITS_FOR
from loomctl.runs.model.state import accepted
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording
from loomctl.workflows import gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_LEFT = "the context stays as it is, because Loom cannot read from {file} what it was before stage {stage}"
# Marks of a visit's end, which an undo takes off.
_OF_ITS_END = ("passed", "stopped", "reopened", "note", "repairs", "given", "next", "error", *route.SAID)


class Back(NamedTuple):
    """A run one step further back. stage: which is open again; gone: the stages that had begun after it.

    unread: what it made of the context could not be taken back, for its `status.json` cannot be read. inner: of a
    parallel step, the same of the branch whose end had joined it.
    """

    state: State
    happened: Event
    stage: str
    gone: list[str]
    unread: bool
    inner: tuple[Back, ...] = ()

    @property
    def each(self) -> list[Back]:
        """Give this step back, and the one within it."""
        return [self, *self.inner]


def undo(space: Workspace, run_id: str, branch: str | None = None) -> Driven:
    """Take the last `done` back (D31): the step is open again, its response is kept aside.

    A command that runs by now is stopped: it followed from what is taken back. branch: of the open parallel step. A
    parallel step that was joined is taken back by the end that joined it (D43). Raises IN_PARALLEL where a branch was
    begun and none is named.
    """
    notes = recording.noted(space)
    run = lines.read(space, run_id, branch)
    from loomctl.flow import tasks
    from loomctl.flow.commands import command_steps, evidence_commands

    if visits.open_visit(run.state) is not None:
        _refuse_begun(run.state)
        one_back(run, run.state, None)  # what is refused stops no command
    notes += filter(None, [command_steps.stop_open(space, run), *evidence_commands.stop_evidence(space, run)])

    def change(state: State) -> tuple[State, list[Event]]:
        session_id = space.caller.session_id
        _refuse_begun(state)
        back = one_back(run, state, session_id)
        notes.append(f"Undone: {back.stage}. The project's files stay as they are.")
        notes.extend(_unapproved(state, back))
        notes.extend(left_as_is(back.each))
        notes.extend(tasks.untick(space, run, state, back.state))
        for one in back.each:
            stages.set_aside(run.folder, one.stage)
        happened = [one.happened for one in back.each]
        state = settle.asking(space, run, back.state, happened, at=clock.now())
        return sessions.active(state, session_id, at=clock.now()), happened

    run = lines.update(space, run, change)
    notes += leases.noted_stage(space, run.state)
    return Driven(run, standing(run.state), notes=notes)


def _unapproved(before: State, back: Back) -> list[str]:
    """Say that an approval between two steps goes with the step before it."""
    held = {str(item["id"]) for item in back.state.get("approvals", [])}
    lost = [str(item["id"]) for item in before.get("approvals", []) if "granted_at" in item and "lapsed" not in item]
    if all(name in held or name == gates.PREFIX + back.stage for name in lost):
        return []
    ended = str(back.happened.step_id)
    are = "are" if back.gone[1:] else "is"
    closed = f" {', '.join(back.gone)} had begun after it and {are} closed." if back.gone else ""
    return [f"The approval after {back.stage} is undone with it.{closed} Loom asks again when {ended} ends."]


def standing(state: State) -> route.Move:
    """Say where a run stands that was taken back."""
    entry = visits.open_visit(state)
    kind = {"paused": "paused", "awaiting_feedback": "approval"}.get(state["status"], "step")
    return route.Move(kind, step=entry["step_id"] if entry else None)


def one_back(run: Run, state: State, session_id: str | None) -> Back:
    """Take the last end of a step back, in the state alone. Raises NOTHING_TO_UNDO."""
    status = _status_of(run, state)
    after, entry = undone(state, run.plan)
    if status is not None:
        after = {**after, "context": run_context.taken_back(state["context"], status.get("context_before", {}))}
    there = {one.get("stage") for one in after["steps"]}
    gone = [one["stage"] for one in state["steps"] if one.get("stage") and one["stage"] not in there]
    set_back = {name: phase for name, phase in after["phases"].items() if phase != state["phases"].get(name)}
    phases = {name: str(phase.get("status")) for name, phase in set_back.items() if isinstance(phase, dict)}
    properties = {"stage": entry["stage"], "gone": gone, "phases": phases}
    happened = Event("stage.undone", properties, session_id, entry["step_id"])
    back = Back(after, happened, entry["stage"], gone, status is None)
    return _within(run, back, status or {}, session_id) if "branches" in entry else back


def _within(run: Run, back: Back, status: Mapping[str, Any], session_id: str | None) -> Back:
    """Take the branches of a parallel step up again as they were, and back the end by which it was joined.

    Where its file does not tell them they begin anew: what they had done cannot be told from what they left.
    """
    from loomctl.workflows import branches

    entry = visits.open_visit(back.state)
    assert entry is not None  # it was taken back
    records, name = status.get("branches"), str(status.get("joined_by"))
    state = visits.replaced(back.state, {**entry, branches.KEY: records})
    try:
        accepted({**state, "steps": visits.recent(state)}, where=stages.STATUS)
        return _until_it_waits(run._replace(state=state), back, name, session_id)
    except LoomError:  # the file does not tell, or somebody edited it
        bare = {key: value for key, value in entry.items() if key != branches.KEY}
        place = frozen_plan.place_of(run.plan, entry["step_id"])
        state = visits.replaced(back.state, bare)
        return back._replace(state=branches.fan_out(state, place.step) if place else state, unread=True)


def _until_it_waits(run: Run, back: Back, name: str, session_id: str | None) -> Back:
    from loomctl.workflows import branches

    state, inner = run.state, list(back.inner)
    place = frozen_plan.place_of(run.plan, (visits.open_visit(state) or {})["step_id"])
    while name:
        line = lines.seen(run._replace(state=state), name)
        one = one_back(line, line.state, session_id)
        told = one.happened._replace(properties={**one.happened.properties, "branch": name})
        state = branches.fold(state, one.state)
        inner.append(one._replace(happened=told))
        met = place is not None and branches.fan_in(state, place.step) is not None
        name = branches.ended_last(branches.fan(state) or {branches.KEY: []}) if met else ""
    return back._replace(state=state, inner=tuple(inner))


def _refuse_begun(state: State) -> None:
    from loomctl.workflows import branches

    entry = branches.fan(state)
    begun = [str(record["id"]) for record in entry[branches.KEY] if record["steps"]] if entry is not None else []
    if entry is not None and begun:
        what = f"the last `done` ended a step of a branch of {entry['step_id']}; name the branch"
        why = f"begun branches: {', '.join(begun)}. To undo all of them: loomctl rewind --to {entry['stage']}"
        raise LoomError("IN_PARALLEL", what, why=why, hint=f"loomctl undo --branch {begun[0]}", exit_code=EXIT_USAGE)


def left_as_is(found: list[Back]) -> list[str]:
    """Say of each stage what could not be taken back."""
    return [_LEFT.format(stage=back.stage, file=stages.STATUS) for back in found if back.unread]


def _status_of(run: Run, state: State) -> dict[str, Any] | None:
    """Give how the visit ended that is taken back, as its own `status.json` tells; None: it does not tell.

    A visit that is closing has changed nothing yet.
    """
    entry = visits.last_ended(state)
    now = visits.open_visit(state)
    if entry is None or (now is not None and now["status"] == "closing"):
        return {}
    beside = stages.aside(run.folder, entry["stage"], stages.STATUS)  # a kill may have come between
    for name in (stages.STATUS, *beside):
        try:
            text = stages.read_text(run.folder, entry["stage"], name)
            status = as_object(files.parse_json((text or "{}").encode(), where=name))
        except LoomError:
            continue
        changed = status.get("context_before", {})  # older ones changed no context
        if status.get("completed_at") == entry["completed_at"] and isinstance(changed, dict):
            return status
    return None


def undone(state: State, plan: Mapping[str, Any]) -> tuple[State, dict[str, Any]]:
    """Take the last `done` back (D31): its visit is open again, what it registered is as before.

    Gives the state and the visit that is open again. Visits that were opened after it, and nothing was done in, go.
    Raises NOTHING_TO_UNDO.
    """
    closing = visits.open_visit(state)
    if closing is not None and closing["status"] == "closing":
        state = visits.without_closing(state)
        return state, visits.open_visit(state) or closing
    last = visits.last_ended(state)
    if last is None or state["status"] == "cancelled":
        what = "no step of this run has ended yet" if last is None else "the run is cancelled"
        raise LoomError("NOTHING_TO_UNDO", what, hint="loomctl show", exit_code=EXIT_USAGE)
    entry = dict(last)
    first = state["steps"].index(last)
    inside = [one for after in state["steps"][first + 1 :] for one in visits.within(after)]
    artifacts = _unregistered(state["artifacts"], [*reversed(inside), entry])
    entry.pop("artifacts", None)
    for mark in _OF_ITS_END:
        entry.pop(mark, None)
    entry.update(status="in_progress", completed_at=None)
    entry = gates.with_refusal(entry, gates.refusal(state))
    left, gone = state["steps"][:first], {_visit_of(one) for one in (*state["steps"][first:], *inside)}
    phases, taken_back = gates.undo_phases(state, plan, entry["phase"], left)
    state = {
        **sessions.uncompleted_phases(state, taken_back),
        "status": "paused" if state["status"] == "paused" else "in_progress",
        "current_phase": entry["phase"],
        "current_step": entry["step_id"],
        "phases": phases,
        "steps": left + [entry],  # noqa: RUF005 - the earlier ones are not looked at
        "artifacts": artifacts,
        "errors": [error for error in state["errors"] if _visit_of(error) not in gone],
        "pending_approvals": [],
        # What was approved on the strength of the undone work is asked again.
        "approvals": gates.restore_approvals(state, entry["rank"]),
    }
    for past in ("completed_at", "feedback", PAUSE_AFTER, WAITS_FOR):
        state.pop(past, None)
    return state, entry


def cut(state: State, stage: str, *, with_it: bool) -> State:
    """Give a state without the visits that came after a stage, and without the errors of those; with_it: its own, too.

    Nothing else is taken back: the stages among them were undone before, the engine's own steps leave nothing.
    """
    at = next(index for index, entry in enumerate(state["steps"]) if entry.get("stage") == stage)
    first = at if with_it else at + 1
    inside = [one for after in state["steps"][first:] for one in visits.within(after)]
    ends = {_visit_of(one) for one in (*state["steps"][first:], *inside)}
    gone = ends - {_visit_of(one) for one in state["steps"][:first]}
    errors = [error for error in state["errors"] if _visit_of(error) not in gone]
    artifacts = _unregistered(state["artifacts"], inside[::-1])
    return {**state, "steps": state["steps"][:first], "errors": errors, "artifacts": artifacts}


def _unregistered(artifacts: Mapping[str, Any], taken_back: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the artifacts as they were before visits registered some. taken_back: the newest first."""
    kept = dict(artifacts)
    for entry in taken_back:
        for name, value in (entry.get("artifacts") or {}).get("before", {}).items():
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = value
    return kept


def as_it_ended(state: State, plan: Mapping[str, Any], stage: str) -> State:
    """Give a run as it was when a stage had ended, and nothing after it had begun; it is `pending`.

    state: one whose later stages were undone, the first of them open at most. What asked for approval by the stage's
    own end is asked again; a mark that it is to be done again came later, and goes.
    """
    state = {**cut(state, stage, with_it=False), "status": "in_progress"}
    opened, _ = undone(state, plan)
    last = {key: value for key, value in state["steps"][-1].items() if key != "reopened"}
    gate = f"result:{stage}"
    asked = [item for item in (*state["pending_approvals"], *state.get("approvals", [])) if item["id"] == gate]
    reason = f"{last['step_id']} ended {last['status']}"
    again = [{"id": gate, "reason": reason, "requested_at": last["completed_at"]}] if asked else []
    kept = {"artifacts": state["artifacts"], "errors": state["errors"], "steps": visits.replaced(state, last)["steps"]}
    state = {**opened, **kept, "status": "pending", "pending_approvals": again}
    state.pop("pending_triggers", None)
    return state


def _visit_of(of: object) -> tuple[str, str] | None:
    return (str(of.get("step_id")), str(of.get("stage"))) if isinstance(of, dict) else None


# ---- Back to a stage: every end after its beginning is undone, in one change of the state.


class Rewound(NamedTuple):
    """A run that was taken back.

    stage: which is open again; changed: False where it was open already. undone: the stages whose ends were taken back,
    newest first, the open one's own last if it had ended; gone: the stages that the run no longer has. files: what the
    undone stages had touched in the project; patches: where the changes they made are kept.
    """

    run: Run
    move: route.Move
    stage: str
    changed: bool
    undone: Sequence[str] = ()
    gone: Sequence[str] = ()
    files: Sequence[str] = ()
    patches: Sequence[str] = ()
    notes: Sequence[str] = ()


def rewind(space: Workspace, run_id: str, to: str) -> Rewound:
    """Take a run back to where a stage was open; nothing on disk goes, and of the project only boxes change.

    to: as `find_stage` takes it. A command that runs by now is stopped. Whatever sessions were given of the run
    counts as not given, so that what is due is given whole (D15). Raises NO_SUCH_STAGE, IN_PARALLEL for a stage of a
    parallel step's branch, BAD_STATUS for a run that is cancelled, and NOT_LOOMS where FABER did a step since (D5).
    """
    notes = recording.noted(space)
    run = space.store.read(run_id)
    entry = meant(run, to, verb="rewind")
    stage, since = str(entry["stage"]), str(entry["started_at"])
    _refuse(run, run.state, stage)
    if _is_untouched(run.state, stage):
        return _open_already(space, run, stage, notes)
    from loomctl.flow import tasks
    from loomctl.flow.commands import evidence_commands

    notes += evidence_commands.stop_all(space, run)
    memory_of_session.forget_run(space, run_id)
    every = [str(one["stage"]) for one in stages.entries(run)]
    from_here = every[every.index(stage) :]
    changed = touched(run, from_here)
    had_patch = {name for name in from_here if os.path.isfile(patch_path(run, name))}
    held: list[tuple[list[Back], list[str], list[str], settle.Settled | None]] = []

    def change(state: State) -> tuple[State, list[Event]]:
        held.clear()
        meant(run._replace(state=state), stage, verb="rewind")
        _refuse(run, state, stage)
        if _is_untouched(state, stage):  # somebody else came first
            return state, []
        before, session_id = state, space.caller.session_id
        state, backs = back_to(run, state, stage, session_id)
        gone = _gone(before, state)
        left = [back.stage for back in backs if back.unread]
        told: dict[str, Any] = {"to": stage, "undone": [back.stage for back in backs], "gone": gone}
        told |= {"context_left": left} if left else {}
        happened = [*(one.happened for back in backs for one in back.each), Event("run.rewound", told, session_id)]
        for name in dict.fromkeys([*_of_branches(before, state), *gone, stage]):
            stages.set_aside(run.folder, name)
        state, opened = _branches_anew(space, run, state, stage)
        held.append((backs, gone, tasks.untick(space, run, before, state), opened))
        happened += opened.happened if opened is not None else []
        state = settle.asking(space, run, state, happened, at=clock.now())
        return sessions.active(sessions.forgotten(state), session_id, at=clock.now()), happened

    run = run._replace(state=space.store.update(run_id, change))
    if not held:
        return _open_already(space, run, stage, notes)
    backs, gone, boxes, opened = held[0]
    notes += [*left_as_is(backs), *boxes]
    notes += context_history.set_by_hand(run, since)
    if opened is not None:
        settle.begun(space, run, opened)
    else:
        _note_beginning(space, run, stage)
    notes += leases.noted_stage(space, run.state)
    undone = [back.stage for back in backs]
    patches = [path for name in undone if name in had_patch and (path := _patch_aside(run, name))]
    return Rewound(run, standing(run.state), stage, True, undone, gone, changed, patches, notes)


def _open_already(space: Workspace, run: Run, stage: str, notes: list[str]) -> Rewound:
    notes += leases.noted_stage(space, run.state)
    return Rewound(run, standing(run.state), stage, changed=False, notes=notes)


def meant(run: Run, named: str, *, verb: str) -> Mapping[str, Any]:
    """Give the visit that is meant. Raises NO_SUCH_STAGE, and IN_PARALLEL for one of a branch."""
    found = stages.find_stage(run, named)
    outer = next((one for one in run.state["steps"] if any(v is found for v in visits.within(one))), None)
    if outer is not None:
        option = "--to" if verb == "rewind" else "--at"
        what = f"{found['stage']} belongs to a branch of the parallel step {outer['step_id']}"
        why = "branches run side by side, so you can only take the whole parallel step"
        hint = f"loomctl {verb} {run.handle} {option} {quoted(str(outer['stage']))}"
        raise LoomError("IN_PARALLEL", what, where=run.state_path, why=why, hint=hint, exit_code=EXIT_USAGE)
    return found


def back_to(run: Run, state: State, stage: str, session_id: str | None) -> tuple[State, list[Back]]:
    """Take back, in the state alone, each end until a stage is open; gives what was done, newest first.

    The context goes back through each stage's own `status.json`. Raises NOTHING_TO_UNDO where the stage cannot be come
    to: it neither is open nor has ended.
    """
    backs: list[Back] = []
    refused = gates.refusal(state)
    while not _is_there(state, stage):
        backs.append(one_back(run, state, session_id))
        state = backs[-1].state
    entry = visits.open_visit(state)
    return (visits.replaced(state, gates.with_refusal(entry, refused)) if entry and refused else state), backs


def _is_there(state: Mapping[str, Any], stage: str) -> bool:
    entry = visits.open_visit(state)
    return entry is not None and (entry.get("stage"), entry["status"]) == (stage, "in_progress")


def _is_untouched(state: Mapping[str, Any], stage: str) -> bool:
    return _is_there(state, stage) and not (visits.open_visit(state) or {}).get("branches")


def _refuse(run: Run, state: Mapping[str, Any], stage: str) -> None:
    if state["status"] == "cancelled":
        what, why = "the run is cancelled", "resume it first"
        hint = f"loomctl resume {run.handle} --reopen"
        raise LoomError("BAD_STATUS", what, where=run.state_path, why=why, hint=hint, exit_code=EXIT_USAGE)
    at = [entry.get("stage") for entry in state["steps"]].index(stage)
    fabers = [str(entry["step_id"]) for entry in state["steps"][at:] if entry.get("by") == "faber"]
    if fabers:
        what = f"FABER has done {masked_line(fabers[0], 120)} since, and Loom cannot undo FABER's steps"
        hint = f"loomctl show {run.handle}"
        raise LoomError("NOT_LOOMS", what, where=run.state_path, hint=hint, exit_code=EXIT_USAGE)


def _gone(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    there = {entry.get("stage") for entry in (*visits.every({"steps": after["steps"][:-1]}), *after["steps"][-1:])}
    return [entry["stage"] for entry in visits.every(before) if entry.get("stage") and entry["stage"] not in there]


def _of_branches(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    kept = len(after["steps"]) - 1
    return [one["stage"] for entry in before["steps"][kept:] for one in visits.within(entry)]


def _branches_anew(space: Workspace, run: Run, state: State, stage: str) -> tuple[State, settle.Settled | None]:
    """Begin the visit of a parallel step once more, so that its branches are as at its beginning; else change nothing.

    In a run that stands still the visit goes, and comes back with the branches once the run goes on.
    """
    entry = visits.open_visit(state)
    if entry is None or not entry.get("branches"):
        return state, None
    settled = settle.rest_here(space, run, cut(state, stage, with_it=True))
    return settled.state, settled


def touched(run: Run, names: Sequence[str]) -> list[str]:
    """Give the files that these stages touched, as far as their records can be read."""
    found: set[str] = set()
    for name in names:
        try:
            (one,) = stage_changes.of_run(run, name)
        except (LoomError, OSError):
            continue
        found.update(str(file["path"]) for file in one.files)
    return sorted(found)


def patch_path(run: Run, stage: str) -> str:
    """Give where the changes of a stage stand, if it made any. Raises BAD_ID and UNSAFE_LINK."""
    return os.path.join(stages.folder(run.folder, stage), stages.CHANGED[1])


def _patch_aside(run: Run, stage: str) -> str:
    names = stages.aside(run.folder, stage, stages.CHANGED[1])
    return os.path.join(stages.folder(run.folder, stage), names[0]) if names else ""


def _note_beginning(space: Workspace, run: Run, stage: str) -> None:
    """Note what the checkout is now where nothing is known any more of what it was as the stage began (D39)."""
    entry = visits.open_visit(run.state)
    if entry is None or entry.get("stage") != stage or working_tree.read_baseline(space.store.local, run.run_id, stage):
        return
    place = frozen_plan.place_of(run.plan, entry["step_id"])
    if place is not None and place.step.get("kind") != "command":  # a command's is noted as it starts
        settle.note_visit(space, run, entry)
