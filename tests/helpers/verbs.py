"""What tests of a run's way do again and again: end a step, let a turn end, read a stage."""

from __future__ import annotations

import json
from typing import Any

from loomctl.flow import advance, rewind, route
from loomctl.flow import stop as stopping
from loomctl.flow.advance import Driven
from loomctl.runs.model import visits
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.project import Conversation
from loomctl.runs.store import recovery
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Store
from tests.helpers.runs import AT
from tests.helpers.scenes import SESSION, Json, Scene

DONE = "It is done."


def begin(scene: Scene, *steps: str | Json, **more: Any) -> Scene:
    """Start a run of these steps in one phase. more: other keys of the workflow."""
    listed = [{"prompt": "Do it.", **({"id": step} if isinstance(step, str) else step)} for step in steps]
    scene.workflow(phases={"build": {"steps": listed}}, **more)
    scene.begin()
    return scene


def done(
    scene: Scene,
    response: str | None = DONE,
    *,
    session: str | None = SESSION,
    conversation: Conversation | None = None,
    **more: Any,
) -> Driven:
    """End the current step of the only run."""
    return advance.done(scene.space(session, conversation=conversation), scene.run_dir.name, response=response, **more)


def end(scene: Scene, response: str | None = DONE, **more: Any) -> str:
    """End the current step, which must end; gives its outcome."""
    ended = done(scene, response, **more).ended
    assert ended is not None
    return str(ended["status"])


def go_on(scene: Scene, conversation: Conversation | None = None, **more: Any) -> Driven:
    """Ask for the next step."""
    return advance.next_step(scene.space(conversation=conversation), scene.run_dir.name, **more)


def take_back(scene: Scene, session: str | None = SESSION) -> Driven:
    """Undo the last end."""
    return rewind.undo(scene.space(session), scene.run_dir.name)


def stop(scene: Scene, message: str, *, on_hook_path: bool = False, **more: Any) -> stopping.Stopped:
    """Let the session stop in a turn that Loom drives, unless said otherwise. more: fields of the turn."""
    space = scene.space(on_hook_path=on_hook_path)
    run = space.store.read(scene.run_dir.name)
    entry = visits.open_visit(run.state)
    turn = {"told": entry["stage"] if entry else None, "driven": True, "blocks_left": 8, **more}
    return stopping.stopped(space, run, stopping.Turn(**turn), message)


def stand(scene: Scene, status: str) -> None:
    """Pause or cancel the only run."""
    stopping.set_standing(scene.space(), scene.run_dir.name, status, f"run.{status}", allowed=ACTIVE)


def read(scene: Scene, stage: str, name: str) -> str:
    """Read a file of a stage."""
    return (scene.run_dir / "stages" / stage / name).read_text(encoding="utf-8")


def status_of(scene: Scene, stage: str) -> Json:
    """Read how a stage ended."""
    status: Json = json.loads(read(scene, stage, "status.json"))
    return status


def statuses(scene: Scene) -> list[str]:
    """Say how each visit of the only run stands."""
    return [visit["status"] for visit in scene.state["steps"]]


def events(scene: Scene, name: str) -> list[Json]:
    """Give the properties of each event of a name."""
    return [one["properties"] for one in scene.events() if one["event"] == name]


def lengthen(store: Store, run_id: str, key: str, ended: int) -> None:
    """End visits of a step, without files, until the state holds so many that have ended; then it is open again."""

    def change(state: Json) -> tuple[Json, list[Event]]:
        plan = store.read(run_id).plan
        while len(visits.recent(state)) < ended + 1:
            if visits.open_visit(state) is not None:
                state = route.end_visit(state, plan, outcome="succeeded", at=AT).state
            state = {**state, "status": "in_progress", "current_step": key}
            state, _ = visits.start_visit(state, key, key.partition("/")[0], at=AT)
        return state, [Event("state.changed", {})]

    store.update(run_id, change)


def kept_visits(store: Store, run_id: str) -> dict[str, list[Json]]:
    """Read all visits of a run's state and of each that is kept beside it."""
    home = store.home(run_id)
    names = ["state.json", *recovery.kept_states(home)]
    return {name: list(store.read_home(recovery.kept_home(home, name))["steps"]) for name in names}
