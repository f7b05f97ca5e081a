"""`loomctl stop`: a driver of the same user, in this project on this machine, ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import json_option, run_argument
from loomctl.kit.errors import EXIT_HELD, EXIT_OK, LoomError
from loomctl.runs.machine import drivers
from loomctl.runs.model import lease
from loomctl.runs.model.state import TERMINAL as OVER

if TYPE_CHECKING:
    from loomctl.runs.model.lease import Holder
    from loomctl.runs.project import Workspace

_PATIENCE = 25.0  # seconds: more than a driver gives its assistant
_SILENT = 1.0  # seconds before it says what is waited for


class _Stopped(NamedTuple):
    """how: `ended`, `asked`, `gone`: its process was, `nobody`."""

    how: str
    line: str


@click.command("stop")
@run_argument
@click.option("--after-step", is_flag=True, help="Let the assistant end its step first, and do not wait for it.")
@json_option
def stop_command(run: str | None, after_step: bool, as_json: bool) -> int:
    """End the `loomctl drive` that works on a run.

    It ends its assistant and all that this started, which takes up to ten seconds. The open step stays open, and the
    run can go on. This reaches a driver that you started in this project, from any terminal of this machine.

    \b
    Examples:
      loomctl stop shop-258
      loomctl stop shop-258 --after-step
    """
    space = command_line.space()
    run_id = command_line.run_id(space, run)
    handle = space.store.handle(run_id)
    person.refuse_driven(space, "stop", handle)
    stopped = _stop(space, run_id, after_step=after_step, talks=not as_json)
    told: dict[str, Any] = {"run_id": run_id, "handle": handle, "how": stopped.how}
    output.answer(told, [f"Loom: {stopped.line}"], as_json=as_json)
    return EXIT_OK


def _stop(space: Workspace, run_id: str, *, after_step: bool, talks: bool) -> _Stopped:
    state, handle, local = space.store.read_state(run_id), space.store.handle(run_id), space.local.folder
    found = lease.holder(state)
    goes_on = f"To let it go on: loomctl drive {handle}"
    if found is None or state.get("status") in OVER:
        return _Stopped("nobody", f"nobody drives {handle}")
    if not drivers.lives(local, run_id, found):
        return _Stopped("gone", f"the driver of {handle} is gone already. {goes_on}")
    if not drivers.may_ask(local, run_id, found):
        raise _not_here(space, run_id, handle, found)
    drivers.ask_to_end(local, run_id, found, drivers.AFTER_STEP if after_step else drivers.NOW)
    if after_step:
        return _Stopped("asked", f"the driver of {handle} ends after this step")
    _wait(space, run_id, found, handle, talks=talks)
    return _Stopped("ended", f"the driver of {handle} has ended. {goes_on}")


def _not_here(space: Workspace, run_id: str, handle: str, found: Holder) -> LoomError:
    """Say why a driver cannot be stopped from here, and what can be done."""
    what = f"{handle} is driven by {drivers.told(found)}"
    if found.host != drivers.HOST:
        why, hint = "that is no loomctl drive; the run pauses when you say so", f"loomctl pause {handle}"
    elif drivers.is_here(space.local.folder, run_id, found):
        why, hint = "another user of this machine started it", f"loomctl show {handle}"
    else:
        why, hint = "it was started elsewhere: stop it there, in its project", f"loomctl show {handle}"
    return LoomError("NOT_STOPPED", what, why=why, hint=hint, exit_code=EXIT_HELD)


def _wait(space: Workspace, run_id: str, driver: Holder, handle: str, *, talks: bool) -> None:
    """Wait until a driver has let the run go. Raises NOT_STOPPED where that takes too long."""
    began, said = time.monotonic(), not talks
    while _drives(space, run_id, driver):
        took = time.monotonic() - began
        if took > _PATIENCE:
            what = f"the driver of {handle} was asked to end, and has not ended after {_PATIENCE:.0f} s"
            why = "it ends when it looks at the run again; if it hangs, take the run from it"
            hint = f"loomctl resume {handle} --take-over"
            raise LoomError("NOT_STOPPED", what, why=why, hint=hint, exit_code=EXIT_HELD)
        if took > _SILENT and not said:
            said = True
            output.note("loomctl: the driver was asked to end; it ends its assistant first, within 10 s")
        time.sleep(0.1)


def _drives(space: Workspace, run_id: str, driver: Holder) -> bool:
    now = lease.holder(space.store.read_state(run_id))
    same = now is not None and (now.epoch, now.session_id) == (driver.epoch, driver.session_id)
    return same and drivers.lives(space.local.folder, run_id, driver)
