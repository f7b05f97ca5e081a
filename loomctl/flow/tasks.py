"""The tasks of a step that goes through a list: the next one as a visit begins, its tick as that ends well (D65).

A list is a file's check boxes, of which the file alone says which are open, or a JSON list in the state, through which
the visits themselves keep their place.
"""

from __future__ import annotations

import os

from loomctl.expressions import placeholders, state_paths
from loomctl.flow import route
from loomctl.kit import files, processes, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths
from loomctl.runs.model import frozen_plan, run_context, sessions, visits
from loomctl.workflows import task_lists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.kit.processes import Lock
    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.workflows.task_lists import Task, TaskList

NO_TASKS = "NO_TASKS"
_WRITE = "write a line `- [ ] …`"
_BESIDE = ".loom-tick.tmp"  # where a list is written anew: no name of anybody else's
_LARGEST = 1 << 20  # bytes of a file with a task list, as of an artifact (D17)


class Next(NamedTuple):
    """What a step comes to. task: of the visit to open; None: it ends without one, with this outcome and why."""

    task: dict[str, Any] | None
    outcome: str = ""
    why: str = ""


class Tick(NamedTuple):
    """task: as the ended visit keeps it; is_left: there is a next one; note: why no box was ticked, else empty."""

    task: dict[str, Any]
    is_left: bool
    note: str = ""


class _List(NamedTuple):
    """A list as it stands. items: of the state; boxes, path: of a file; shown: its name; missing: why neither.

    mend: what makes one where there is none; is_refused: something stands there that cannot be read.
    """

    shown: str
    items: Sequence[Any] | None = None
    boxes: TaskList | None = None
    path: str = ""
    missing: str = ""
    mend: str = ""
    is_refused: bool = False


# ---- As a visit begins.


def next_task(space: Workspace, run: Run, state: State, place: Place) -> Next:
    """Give the task of the visit that a step comes to: the one to be tried again, else the first that is open."""
    asked = place.step["for_each"]
    last = _last(state, place.key)
    goes_on = last is not None and visits.has_next_task(last)
    again = visits.task_of(last) if last is not None and _is_tried_again(last) else None
    found = _read(space, run, state, asked)
    if found.items is not None:
        task = _item(found.items, last if goes_on else None, again)
    elif found.boxes is not None:
        task = _box(found.boxes, again, reopened=last is not None and bool(last.get("reopened")))
    else:
        task = None
    if task is not None:
        where = {"file": placeholders.to_portable(found.path, space.project.root, run_dir=run.folder)}
        return Next({**task, **(where if found.path else {})})
    if goes_on and last is not None and not found.missing:  # what was left was done by hand, or taken out
        return Next(None, str(last["status"]), "no task is left")
    why = found.missing or f"there is no open check box in {found.shown}"
    if found.items is not None:
        why = f"the list at {found.shown} is empty"
    if asked.get("allow_empty") and not goes_on and not found.is_refused:
        return Next(None, visits.SKIPPED, f"{why}; the step allows that")
    mend = "fill that list" if found.items is not None else found.mend or f"{_WRITE} there for each task"
    return Next(None, visits.FAILED, f"{NO_TASKS}: {why}; {mend}")


def _last(state: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """Give a step's last visit that somebody worked on; the engine's own word that there was no list is passed over."""
    own = visits.newest_of(state, key)
    return next((one for one in own if not (one.get("by") == "engine" and one["status"] == visits.FAILED)), None)


def _is_tried_again(last: Mapping[str, Any]) -> bool:
    return bool(last.get("reopened")) or visits.is_failed_try(last)


def _item(
    items: Sequence[Any], before: Mapping[str, Any] | None, again: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    task = again or visits.task_of(before)
    index = int((task or {}).get("index", -1)) + (0 if again else 1)
    if not 0 <= index < len(items):
        return None
    text = _text_of(items[index])
    return {"text": text[: task_lists.LONGEST], "number": index + 1, "of": len(items), "index": index}


def _text_of(item: Any) -> str:
    return item if isinstance(item, str) and item.strip() else files.to_json_line(item).decode().strip()


def _box(boxes: TaskList, again: Mapping[str, Any] | None, *, reopened: bool) -> dict[str, Any] | None:
    own = boxes.again(again) if again is not None and "line" in again else None
    task = own if own is not None and (reopened or not own.done) else boxes.next()
    return boxes.noted(task) if task is not None else None


def lacking(space: Workspace, run: Run, key: str, name: str, registered: Mapping[str, Any]) -> str:
    """Say what an artifact lacks that a step leaves: open boxes for a later step that goes through it; else empty.

    key: of the step; registered: the artifacts as they are then.
    """
    every = frozen_plan.with_branches(run.plan)
    own = next((at for at, place in enumerate(every) if place.key == key), len(every))
    for place in every[own + 1 :]:
        asked = place.step.get("for_each") or {}
        if asked.get("path_steps") != ["artifacts", name] or asked.get("allow_empty"):
            continue
        found = _read(space, run, {**run.state, "artifacts": dict(registered)}, asked)
        if found.boxes is None or found.boxes.next() is None:
            why = found.missing or f"there is no open check box in {found.shown}"
            return f"{why}; {place.key} needs them: {_WRITE} there for each task"
    return ""


# ---- As it ends well.


def tick(space: Workspace, run: Run, state: State, entry: Mapping[str, Any], asked: Mapping[str, Any]) -> Tick:
    """Tick the box of a visit's task, unless it is ticked by now; for who holds the run's lock. Raises OSError, HELD.

    state: with what the visit registers and sets. A task that cannot be found again is none of Loom's any more: no box
    is ticked for it.
    """
    task = dict(visits.task_of(entry) or {})
    items = _value(space, run, state, asked["path_steps"])
    if isinstance(items, list):
        return Tick(task, int(task.get("index", -1)) + 1 < len(items))
    with _lock(space):  # another run may tick the same file, or one beside it
        return _tick_in_file(space, run, state, task, asked)


def _lock(space: Workspace) -> Lock:
    path = os.path.join(space.store.local, "tasks.lock")
    files.refuse_links(space.store.folder, path)
    patience = processes.HOOK_PATIENCE if space.caller.on_hook_path else processes.PATIENCE
    return processes.Lock(path, patience=patience, what="the lock of the task lists")


def _tick_in_file(space: Workspace, run: Run, state: State, task: dict[str, Any], asked: Mapping[str, Any]) -> Tick:
    found = _read(space, run, state, asked)
    if found.boxes is None:  # the next visit says so, too
        return Tick(task, is_left=True, note=f"Loom ticked no box: {found.missing}")
    own = found.boxes.again(task) if "line" in task else None
    is_left = any(not other.done for other in found.boxes.tasks if other is not own)
    if own is None:
        name = masked_line(str(task.get("text")).partition("\n")[0], 80)
        return Tick(task, is_left, f"Loom ticked no box: {found.shown} no longer has “{name}”")
    if not own.done:
        _write(found.path, found.boxes.ticked(own))
    return Tick({**task, "ticked": True}, is_left)


def _write(path: str, data: bytes) -> None:
    mode = os.stat(path).st_mode & 0o7777
    beside = os.path.join(os.path.dirname(path), _BESIDE)
    files.write_atomically(path, data, mode=mode, locked=True, beside=beside)


# ---- As its end is taken back.


def untick(space: Workspace, run: Run, before: State, after: State) -> list[str]:
    """Open the boxes of visits that have no longer ended, before the state says so; for who holds the run's lock.

    A kill in between leaves an open box, which comes again, never a ticked one that nobody works on. Gives what to tell
    people; a box that cannot be opened is named. Raises HELD.
    """
    ended = {one.get("stage") for one in visits.every(after) if visits.has_ended(one)}
    ticked = [one for one in visits.every(before) if (visits.task_of(one) or {}).get("ticked")]
    ticked = [one for one in ticked if one.get("stage") not in ended]
    if not ticked:
        return []
    steps = {place.key: place.step for place in frozen_plan.with_branches(run.plan)}
    with _lock(space):
        return [_untick(space, run, before, one, steps[one["step_id"]]["for_each"]) for one in ticked]


def _opened(path: str, boxes: TaskList, own: Task) -> str:
    """Open a box; gives why it could not be, else nothing."""
    try:
        if own.done:
            _write(path, boxes.ticked(own, " "))
    except (OSError, LoomError) as error:
        return masked_line(trouble.said(error), 200)
    return ""


def _untick(space: Workspace, run: Run, state: State, entry: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    task = visits.task_of(entry) or {}
    name = masked_line(str(task.get("text")).partition("\n")[0], 80)
    found = _in_file(space, run, state, task.get("file"), asked)
    own = found.boxes.again(task) if found.boxes is not None else None
    why = found.missing or f"{found.shown} no longer has it"
    if found.boxes is not None and own is not None:
        why = _opened(found.path, found.boxes, own)
    return (
        f"Loom could not open the box “{name}”: {why}" if why else f"The box “{name}” in {found.shown} is open again."
    )


# ---- The list.

DONE, NOW, OPEN = "done", "now", "open"


class Listed(NamedTuple):
    """A list as it stands. source: its file, or its place in the state; tasks: text and DONE, NOW or OPEN of each.

    missing: why it cannot be read, else empty.
    """

    step_id: str
    source: str
    tasks: Sequence[tuple[str, str]]
    missing: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as documents tell it."""
        told = [{"text": text, "state": state} for text, state in self.tasks]
        return {"step_id": self.step_id, "source": self.source, "tasks": told, "missing": self.missing}


def listed(space: Workspace, line: Run) -> Listed | None:
    """Give the list that a line's open visit goes through; None where it goes through none."""
    entry = visits.open_visit(line.state)
    task = visits.task_of(entry)
    place = frozen_plan.place_of(line.plan, str(entry["step_id"])) if entry is not None and task is not None else None
    asked = place.step.get("for_each") if place is not None else None
    if place is None or task is None or not asked:
        return None
    found = _read(space, line, line.state, asked)
    told: list[tuple[str, str]] = []
    if found.boxes is not None:
        now = found.boxes.again(task)
        told = [(one.text, NOW if one is now else DONE if one.done else OPEN) for one in found.boxes.tasks]
    elif found.items is not None:
        at = int(task.get("index", 0))
        states = [DONE if index < at else NOW if index == at else OPEN for index in range(len(found.items))]
        told = list(zip(map(_text_of, found.items), states, strict=True))
    return Listed(place.key, found.shown, told, found.missing)


def _read(space: Workspace, run: Run, state: State, asked: Mapping[str, Any]) -> _List:
    source = str(asked["list"])
    value = _value(space, run, state, asked["path_steps"])
    return _List(source, items=value) if isinstance(value, list) else _in_file(space, run, state, value, asked)


def _in_file(space: Workspace, run: Run, state: State, value: object, asked: Mapping[str, Any]) -> _List:
    """Read the list of a file. value: its path, as an artifact or a visit has it."""
    source = str(asked["list"])
    if not isinstance(value, str) or not value:
        said = f"the run has neither a list nor a file with one at {masked_line(source, 120)}"
        return _List(source, missing=said, mend=_way_back(asked))
    run = run._replace(state=state)
    roots = artifact_paths.Roots(
        space.project.root, run.folder, space.project.root, recorded=tuple(sessions.roots(state))
    )
    try:
        place = artifact_paths.locate(value, artifact_paths.placeholder_values(space.project, run), roots)
        if ".git" in os.path.relpath(place.path, artifact_paths.real(space.project.root)).split(os.sep):
            return _List(source, missing=f"{masked_line(place.shown, 200)} is one of git's own files", is_refused=True)
        boxes = task_lists.read(files.read_bytes(place.path, limit=_LARGEST), asked.get("section"))
    except FileNotFoundError:
        name = masked_line(value, 200).replace("{project_root}/", "")
        mend = f"{_WRITE} into it for each task; or {_way_back(asked)}"
        return _List(source, missing=f"there is no file {name} ({masked_line(source, 120)})", mend=mend)
    except (OSError, LoomError) as error:
        return _List(source, missing=masked_line(trouble.said(error), 300), is_refused=True)
    shown = masked_line(place.shown, 200)
    if asked.get("section") is None:
        return _List(shown, boxes=boxes, path=place.path)
    heading = masked_line(str(asked["section"]), 80)
    if boxes is None:
        return _List(shown, missing=f"{shown} has no heading “{heading}”")
    return _List(f"{shown} under “{heading}”", boxes=boxes, path=place.path)


def _way_back(asked: Mapping[str, Any]) -> str:
    root, name = asked["path_steps"][0], asked["path_steps"][-1]
    way = f"with `--artifact {name}=PATH`" if root == "artifacts" else f"with {name} in its context"
    return f"`loomctl undo` reopens the step before: end it {way}"


def _value(space: Workspace, run: Run, state: State, steps: Sequence[Any]) -> object:
    if steps[:1] != ["context"]:
        return state_paths.read(list(steps), state)
    value = state_paths.read(list(steps[1:]), route.nested(run_context.scope(state)))
    if isinstance(value, list):
        return value
    from loomctl.runs import context_values  # a long list is kept apart

    try:
        return context_values.value_of(space, run, value)
    except (OSError, LoomError):
        return None
