"""What a person decides of a run, in a terminal or through a session that drives it."""

from __future__ import annotations

from loomctl.disk import clock
from loomctl.disk.events import Event
from loomctl.disk.local import TERMINAL
from loomctl.engine import driving, recording, settling
from loomctl.model import gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.engine.caller import Workspace
    from loomctl.model.state import State


def approve(space: Workspace, run_id: str) -> driving.Driven:
    """Grant what the run asks for and go on."""
    notes = recording.noted(space)
    run = space.store.read(run_id)
    settled: list[settling.Settled] = []

    def change(state: State) -> tuple[State, list[Event]]:
        driving.refuse_over(state, run_id)
        state, granted = gates.approved(state, at=clock.now())
        happened = [Event("approval.granted", {"id": name}, space.caller.session_id) for name in granted]
        result = settling.rest_here(space, run, state)
        settled.append(result)
        return result.state, happened + result.happened

    run = run._replace(state=space.store.update(run_id, change))
    # An approval from a terminal is not read by the assistant: what the phase loads is owed to its next `next`.
    if space.caller.host == TERMINAL:
        settling.begun(space, run, settled[0])
        return driving.Driven(run, settled[0].move, notes=notes)
    made = settling.tell(space, run, settled[0])
    return driving.Driven(run, settled[0].move, slip=made, notes=notes)
