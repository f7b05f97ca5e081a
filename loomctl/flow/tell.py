"""Telling a run's assistant something while it works (D76): what is kept, until a hook or a command gives it."""

from __future__ import annotations

from loomctl.flow import advance
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError
from loomctl.kit.processes import PATIENCE
from loomctl.kit.text.fences import utf16_units, visible
from loomctl.runs.machine import drivers, tells
from loomctl.runs.machine.tells import LONGEST, MOST, WAITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.machine.tells import Tell
    from loomctl.runs.project import Workspace

_LARGEST = 2 * LONGEST
"""UTF-16 units of what is given, of which each output has but so many."""


def tell(space: Workspace, run_id: str, text: str, by: str = "") -> Tell:
    """Keep a message for the assistant that works on a run, or will. by: empty for the user, `loom` for Loom itself.

    Raises BAD_STATUS for a run that is over, HELD_BY_ANOTHER for one that another machine drives, USAGE,
    TOO_LARGE and TOO_MANY.
    """
    state = space.store.read_state(run_id)
    advance.refuse_over(state)
    _refuse_elsewhere(space, run_id)
    _refuse_length(text)
    with tells.lock(space.store.local, run_id, PATIENCE) as held:
        waiting = [one for one in tells.read(space.store.local, run_id) if one.ending == WAITS]
        if len(waiting) >= MOST:
            called = space.store.handle(run_id)
            why = f"the assistant has read none of the last {MOST}"
            hint = f"loomctl tell {called} --take-back"
            raise LoomError("TOO_MANY", f"{MOST} messages wait for {called}", why=why, hint=hint, exit_code=EXIT_USAGE)
        try:
            return tells.add(space.store.local, run_id, clock.now(), text, by)
        except BaseException:
            tells.tidy(space.store.local, run_id, held)
            raise


def take_back(space: Workspace, run_id: str) -> list[Tell]:
    """Forget the messages of a run that nobody has read yet; gives them."""
    if not tells.are_there(space.store.local, run_id):
        return []
    with tells.lock(space.store.local, run_id, PATIENCE) as held:
        waiting = [one for one in tells.read(space.store.local, run_id) if one.ending == WAITS]
        for one in waiting:
            tells.drop(space.store.local, run_id, one)
        tells.tidy(space.store.local, run_id, held)
    return waiting


def waiting(space: Workspace, run_id: str) -> list[Tell]:
    """Give the messages of a run that nobody has read yet."""
    return [one for one in tells.read(space.store.local, run_id) if one.ending == WAITS]


def is_heard(space: Workspace, run_id: str) -> bool:
    """Tell whether an assistant works on a run here, or a driver that starts one."""
    found = space.store.held(run_id, space.store.read_state(run_id))
    return found is not None or bool(space.local.live_sessions(run_id, conversing=True))


def _refuse_elsewhere(space: Workspace, run_id: str) -> None:
    """Refuse what would wait here for a run that goes on elsewhere: its user would believe that it is heard."""
    found = space.store.held(run_id, space.store.read_state(run_id))
    if found is None or drivers.is_here(space.local.folder, run_id, found):
        return
    called = space.store.handle(run_id)
    raise LoomError(
        "HELD_BY_ANOTHER",
        f"the run {called} is driven elsewhere, by {drivers.told(found)}",
        why="a message stays on the machine on which you type it; type it there, or take the run over",
        hint=f"loomctl resume {called} --take-over",
        exit_code=EXIT_HELD,
    )


def _refuse_length(text: str) -> None:
    if not text.strip():
        what = "the message is empty"
        raise LoomError("USAGE", what, hint="loomctl tell --help", exit_code=EXIT_USAGE)
    if len(text) > LONGEST or utf16_units(visible(text)) > _LARGEST:
        what = f"the message has more than {LONGEST:,} characters"
        why = "write it into a file, and tell the assistant to read that"
        raise LoomError("TOO_LARGE", what, why=why, hint="loomctl tell --help", exit_code=EXIT_USAGE)
