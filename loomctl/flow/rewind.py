"""Taking a run back to a stage: every end after its beginning is undone, in one change of the state (D31)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.changes import stage_changes, working_tree
from loomctl.flow import settle, undo
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import memory_of_session
from loomctl.runs import context_history, leases, stages
from loomctl.runs.model import frozen_plan, sessions, visits
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow import route
    from loomctl.flow.undo import Back
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


class Rewound(NamedTuple):
    """A run that was taken back.

    stage: which is open again; changed: False where it was open already. undone: the stages whose ends were taken back,
    newest first, the open one's own last if it had ended; gone: the stages that the run no longer has. files: what the
    undone stages had touched in the project, which stays as it is; patches: where the changes they made are kept.
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
    """Take a run back to where a stage was open; nothing on disk goes, and no file of the project is touched.

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
    from loomctl.flow.commands import command_events

    notes += command_events.stop_all(space, run)
    memory_of_session.forget_run(space, run_id)
    every = [str(one["stage"]) for one in stages.entries(run)]
    from_here = every[every.index(stage) :]
    changed = touched(run, from_here)
    had_patch = {name for name in from_here if os.path.isfile(patch_path(run, name))}
    held: list[tuple[list[Back], list[str], settle.Settled | None]] = []

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
        held.append((backs, gone, opened))
        happened += opened.happened if opened is not None else []
        state = settle.asking(space, run, state, happened, at=clock.now())
        return sessions.active(sessions.forgotten(state), session_id, at=clock.now()), happened

    run = run._replace(state=space.store.update(run_id, change))
    if not held:
        return _open_already(space, run, stage, notes)
    backs, gone, opened = held[0]
    notes += undo.left(backs)
    notes += set_by_hand(run, since)
    if opened is not None:
        settle.begun(space, run, opened)
    else:
        _note_beginning(space, run, stage)
    notes += leases.noted_stage(space, run.state)
    undone = [back.stage for back in backs]
    patches = [path for name in undone if name in had_patch and (path := _patch_aside(run, name))]
    return Rewound(run, undo.standing(run.state), stage, True, undone, gone, changed, patches, notes)


def _open_already(space: Workspace, run: Run, stage: str, notes: list[str]) -> Rewound:
    notes += leases.noted_stage(space, run.state)
    return Rewound(run, undo.standing(run.state), stage, changed=False, notes=notes)


def set_by_hand(run: Run, since: str) -> list[str]:
    """Say which values of the context somebody set by hand since a time.

    They are no stage's, and stay; those of a branch are its own, and are gone with it.
    """
    look = f"(loomctl context history {run.run_id})"
    kept = _named(context_history.by_hand_since(run, since))
    gone = _named(context_history.by_hand_in_branches(run, since))
    return [
        *([f"set by hand since then, and left as it is: {kept} {look}"] if kept else []),
        *([f"set by hand in branches since then, and gone with them: {gone}"] if gone else []),
    ]


def _named(keys: Sequence[str]) -> str:
    return ", ".join(masked_line(key, 80) for key in keys[:10]) + (f", and {len(keys) - 10} more" if keys[10:] else "")


def meant(run: Run, named: str, *, verb: str) -> Mapping[str, Any]:
    """Give the visit that is meant. Raises NO_SUCH_STAGE, and IN_PARALLEL for one of a branch."""
    found = stages.find_stage(run, named)
    outer = next((one for one in run.state["steps"] if any(v is found for v in visits.within(one))), None)
    if outer is not None:
        option = "--to" if verb == "rewind" else "--at"
        raise LoomError(
            "IN_PARALLEL",
            f"{found['stage']} belongs to a branch of the parallel step {outer['step_id']}",
            where=run.state_path,
            why="branches are worked on side by side; the step is taken as a whole, with all of them",
            hint=f"loomctl {verb} {run.run_id} {option} {quoted(str(outer['stage']))}",
            exit_code=EXIT_USAGE,
        )
    return found


def back_to(run: Run, state: State, stage: str, session_id: str | None) -> tuple[State, list[Back]]:
    """Take back, in the state alone, each end until a stage is open; gives what was done, newest first.

    The context goes back through each stage's own `status.json`. Raises NOTHING_TO_UNDO where the stage cannot be come
    to: it neither is open nor has ended.
    """
    backs: list[Back] = []
    while not _is_there(state, stage):
        backs.append(undo.one_back(run, state, session_id))
        state = backs[-1].state
    return state, backs


def _is_there(state: Mapping[str, Any], stage: str) -> bool:
    entry = visits.open_visit(state)
    return entry is not None and (entry.get("stage"), entry["status"]) == (stage, "in_progress")


def _is_untouched(state: Mapping[str, Any], stage: str) -> bool:
    return _is_there(state, stage) and not (visits.open_visit(state) or {}).get("branches")


def _refuse(run: Run, state: Mapping[str, Any], stage: str) -> None:
    if state["status"] == "cancelled":
        raise LoomError(
            "BAD_STATUS",
            "the run is cancelled",
            where=run.state_path,
            why="it is taken up again first",
            hint=f"loomctl resume {run.run_id} --reopen",
            exit_code=EXIT_USAGE,
        )
    at = [entry.get("stage") for entry in state["steps"]].index(stage)
    fabers = [str(entry["step_id"]) for entry in state["steps"][at:] if entry.get("by") == "faber"]
    if fabers:
        raise LoomError(
            "NOT_LOOMS",
            f"FABER did {masked_line(fabers[0], 120)} since, and nothing of FABER's is taken back",
            where=run.state_path,
            hint=f"loomctl show {run.run_id}",
            exit_code=EXIT_USAGE,
        )


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
    settled = settle.rest_here(space, run, undo.cut(state, stage, with_it=True))
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
