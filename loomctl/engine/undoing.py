"""Taking a run back by one step: the last end is undone, with the context that it made (D31)."""

from __future__ import annotations

from loomctl.disk import clock, files
from loomctl.disk.events import Event
from loomctl.engine import closing, presence, recording, settling, stages
from loomctl.engine.driving import Driven
from loomctl.model import run_context, run_life, sessions, undoing, visits
from loomctl.model.errors import LoomError
from loomctl.model.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.model.state import State


class Back(NamedTuple):
    """A run one step further back. stage: which is open again; gone: the stages that had begun after it.

    unread: what it made of the context could not be taken back, for its `status.json` cannot be read.
    """

    state: State
    happened: Event
    stage: str
    gone: list[str]
    unread: bool


def undo(space: Workspace, run_id: str) -> Driven:
    """Take the last `done` back (D31): the step is open again, its response is kept aside.

    A command that runs by now is stopped: it followed from what is taken back.
    """
    notes = recording.noted(space)
    run = space.store.read(run_id)
    from loomctl.engine import command_ends

    notes += filter(None, [command_ends.stop_open(space, run)])

    def change(state: State) -> tuple[State, list[Event]]:
        session_id = space.caller.session_id
        back = one_back(run, state, session_id)
        notes.extend(left([back]))
        stages.set_aside(run.folder, back.stage)
        happened = [back.happened]
        state = settling.asking(space, run, back.state, happened, at=clock.now())
        return sessions.active(state, session_id, at=clock.now()), happened

    run = run._replace(state=space.store.update(run_id, change))
    notes += presence.noted_stage(space, run.state)
    return Driven(run, standing(run.state), notes=notes)


def standing(state: State) -> run_life.Move:
    """Say where a run stands that was taken back."""
    entry = visits.open_visit(state)
    kind = {"paused": "paused", "awaiting_feedback": "approval"}.get(state["status"], "step")
    return run_life.Move(kind, step=entry["step_id"] if entry else None)


def one_back(run: Run, state: State, session_id: str | None) -> Back:
    """Take the last end of a step back, in the state alone. Raises NOTHING_TO_UNDO."""
    context = _context_before(run, state)
    after, entry = undoing.undone(state, run.plan)
    if context is not None:
        after = {**after, "context": context}
    gone = _gone(state, after)
    properties = {"stage": entry["stage"], "gone": gone, "phases": _phases_set_back(state, after)}
    happened = Event("stage.undone", properties, session_id, entry["step_id"])
    return Back(after, happened, entry["stage"], gone, context is None)


def left(found: list[Back]) -> list[str]:
    """Say of each stage what could not be taken back."""
    return [_LEFT.format(stage=back.stage, file=stages.STATUS) for back in found if back.unread]


_LEFT = "the context stays as it is: what it was before {stage} is not to be read from the stage's {file}"


def _context_before(run: Run, state: State) -> dict[str, Any] | None:
    """Give the context as it was before the visit that is taken back, as its own status tells (D31); None: it does not.

    A visit that is closing has changed nothing yet.
    """
    entry = visits.last_ended(state)
    context: dict[str, Any] = state["context"]
    now = visits.open_visit(state)
    if entry is None or (now is not None and now["status"] == "closing"):
        return context
    beside = stages.aside(run.folder, entry["stage"], stages.STATUS)  # a kill may have come between
    for name in (stages.STATUS, *beside):
        try:
            text = stages.read_text(run.folder, entry["stage"], name)
            status = closing.as_object(files.parse_json((text or "{}").encode(), where=name))
        except LoomError:
            continue
        before = status.get("context_before", {})  # older ones changed no context
        if status.get("completed_at") == entry["completed_at"] and isinstance(before, dict):
            return run_context.taken_back(context, before)
    return None


def _gone(before: State, after: State) -> list[str]:
    """Name the stages that had begun after the one that is open again."""
    there = {one.get("stage") for one in after["steps"]}
    return [one["stage"] for one in before["steps"] if one.get("stage") and one["stage"] not in there]


def _phases_set_back(before: State, after: State) -> dict[str, str]:
    """Give what phases are by now that were something else."""
    changed = {name: phase for name, phase in after["phases"].items() if phase != before["phases"].get(name)}
    return {name: str(phase.get("status")) for name, phase in changed.items() if isinstance(phase, dict)}
