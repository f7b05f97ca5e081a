"""`loomctl approve`, `reject`, `choose`, `pause`, `cancel` and `trust`: what a run's user decides."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import answer, command_line, output, person, step
from loomctl.cli.carried import carried
from loomctl.cli.command_line import branch_option, json_option, run_argument
from loomctl.flow import decide, stop
from loomctl.flow.commands import command_steps, evidence_commands
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_OK, EXIT_SETUP, EXIT_USAGE, LoomError
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.runs import find
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import driving, frozen_plan, lease, standing
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.store import run_index
from loomctl.runs.store.match import AmbiguousRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loomctl.cli.command_line import Command
    from loomctl.flow.advance import Driven
    from loomctl.runs.project import Workspace

_PAUSABLE = ("in_progress", "awaiting_feedback")


def _by_option(command: Command) -> Command:
    help_text = "Who decides.  [default: git's user.name, else the login name]"
    return click.option("--by", default="", metavar="NAME", help=help_text)(command)


def _note_option(*names: str) -> Callable[[Command], Command]:
    def added(command: Command) -> Command:
        return click.option(*names, "note", default="", metavar="TEXT", help="Why; later steps get to read it.")(
            command
        )

    return added


@click.command()
@run_argument
@_by_option
@_note_option("--note")
@branch_option
@json_option
def approve(run: str | None, by: str, note: str, branch: str | None, as_json: bool) -> int:
    """Say yes to what the run waits for.

    You decide this, not the assistant. If the step offers choices, this takes the one that means yes: approve, yes,
    accept or ok, or the only one.

    \b
    Examples:
      loomctl approve shop-258
      loomctl approve --by Ada --note "the figures are right"
    """
    space = command_line.space()
    later = command_line.in_a_body() and not as_json
    with carried(space, run) as is_shared:
        run_id = _meant(space, run, "approve", stranger=is_shared)
        person.must_decide(space, "approve", space.store.handle(run_id))
        driven = decide.approve(space, run_id, by=by, note=note, branch=branch, later=later)
    if later:  # a body stays in the conversation, so that it says what stays true (D79)
        output.prose(
            f"Loom: the user decided: {_decided(driven.ended, 'approved')}. `loomctl next` shows what is next."
        )
        return EXIT_OK
    return _told(space, driven, "approved", as_json=as_json)


@click.command()
@run_argument
@_by_option
@_note_option("--note", "--reason")
@branch_option
@json_option
def reject(run: str | None, by: str, note: str, branch: str | None, as_json: bool) -> int:
    """Say no to what the run waits for.

    You decide this, not the assistant. If the step offers choices, this takes the one that means no: reject, no or
    decline. Without such a choice the step fails, and the workflow's way for a failure follows. Where the run only
    asked for approval, it pauses; `loomctl resume` asks again.

    \b
    Examples:
      loomctl reject shop-258
      loomctl reject --reason "the migration cannot be undone"
    """
    space = command_line.space()
    with carried(space, run) as is_shared:
        run_id = _meant(space, run, "reject", stranger=is_shared)
        person.must_decide(space, "reject", space.store.handle(run_id))
        driven = decide.reject(space, run_id, by=by, note=note, branch=branch)
    return _told(space, driven, "rejected", as_json=as_json)


@click.command()
@click.argument("label", metavar="LABEL")
@run_argument
@_by_option
@_note_option("--note")
@branch_option
@json_option
def choose(label: str, run: str | None, by: str, note: str, branch: str | None, as_json: bool) -> int:
    """Choose one of the ways that a step offers you.

    You decide this, not the assistant. LABEL is the words of a choice or its letter alone: `fix`, `f` and `[F] Fix`
    mean the same.

    \b
    Examples:
      loomctl choose fix
      loomctl choose "[A] Approve" shop-258 --note "ship it on Monday"
    """
    space = command_line.space()
    with carried(space, run) as is_shared:
        run_id = _meant(space, run, "choose LABEL", stranger=is_shared)
        person.must_decide(space, "choose", label, space.store.handle(run_id))
        driven = decide.choose(space, run_id, label, by=by, note=note, branch=branch)
    return _told(space, driven, "", as_json=as_json)


def _meant(space: Workspace, named: str | None, verb: str, *, stranger: bool) -> str:
    """Find the run that is decided of. Of several none is guessed; the one that waits stands in the error's hint."""
    try:
        return find.to_drive(space, named, verb=verb, stranger=stranger)
    except AmbiguousRunError as error:
        waiting = _waiting(space, error.found)
        if len(waiting) == 1:
            called = space.store.handle(waiting[0])
            error.why += f"\n{called} alone waits for a decision"
            error.hint = command_line.again(run=called) or f"loomctl status {called}"
        raise


def _waiting(space: Workspace, found: Sequence[str]) -> list[str]:
    """Give the runs that wait for a decision; none where the state of one cannot be read, for it may be meant."""
    every = run_index.summaries(space.store, keep=False)
    waiting = [one["run_id"] for one in every if one["run_id"] in found and one["status"] == "awaiting_feedback"]
    try:
        return [run_id for run_id in waiting if standing.asked(space.store.read_state(run_id))]
    except (LoomError, OSError):
        return []


def _told(space: Workspace, driven: Driven, what: str, *, as_json: bool) -> int:
    """Print what became of a decision; to a person in a terminal without the next step, which is the assistant's."""
    if as_json or space.caller.host != TERMINAL:
        return step.told(space, driven, as_json=as_json)
    lines = [f"Loom: {_decided(driven.ended, what)}. {driven.line}", *driven.notes]
    if driven.move.kind == "step":
        holder = lease.holder(driven.run.state)
        is_own = holder is not None and holder.host == TERMINAL
        onward = _onward(driven.run.state, "Tell the assistant: go on")
        lines.append("To go on: loomctl next" if is_own else onward)
    output.prose("\n".join(lines))
    return EXIT_OK


def _onward(state: Mapping[str, Any], otherwise: str) -> str:
    """Say who goes on with a run after a decision."""
    return "A worker of the fleet goes on with it: loomctl fleet" if state.get(driving.FLEET) else otherwise


def _decided(ended: Any, what: str) -> str:
    if ended is None:
        return what
    return f"{masked_line(str(ended['step_id']), 120)}: {masked_line(str(ended.get('note') or what), 300)}"


@click.command()
@run_argument
@click.option(
    "--after-step/--no-after-step",
    "after_step",
    default=None,
    help="Pause when the open step has ended; or withdraw that.",
)
@json_option
def pause(run: str | None, after_step: bool | None, as_json: bool) -> int:
    """Pause a run until you resume it.

    A command that is running finishes first. A result that comes now ends its step, and the run goes no further. With
    --after-step the open step is worked on to its end first.

    \b
    Examples:
      loomctl pause
      loomctl pause shop-258
      loomctl pause shop-258 --after-step
    """
    if after_step is None:
        return _set(run, "paused", "run.paused", _PAUSABLE, as_json=as_json)
    space = command_line.space()
    run_id = find.to_drive(space, run, verb="pause")
    changed = stop.pause_after_step(space, run_id, allowed=_PAUSABLE, wanted=after_step)
    state, name = changed.state, changed.handle
    step_id = standing.pauses_after(state)
    if step_id:
        line = f"Loom: {name} pauses when {masked_line(step_id, 120)} has ended. To withdraw that: "
        line += f"loomctl pause --no-after-step {name}"
    elif after_step:
        line = f"Loom: {name} is paused, because no step was open. To continue: loomctl resume {name}"
    else:
        line = f"Loom: {name} does not pause after a step"
    told = {"run_id": run_id, "handle": name, "status": state["status"], "pauses_after": step_id or None, "notes": []}
    output.answer(told, [line], as_json=as_json)
    return EXIT_OK


@click.command()
@run_argument
@json_option
def cancel(run: str | None, as_json: bool) -> int:
    """Cancel a run; its files stay.

    Loom stops a command that is running, and everything that it started. `loomctl resume RUN --reopen` continues the
    run all the same. If something interrupted a cancel, run it again.

    \b
    Examples:
      loomctl cancel
      loomctl cancel shop-258
    """
    return _set(run, "cancelled", "run.cancelled", (*ACTIVE, "pending", "failed"), as_json=as_json)


def _set(named: str | None, status: str, event: str, allowed: tuple[str, ...], *, as_json: bool) -> int:
    verb = "pause" if status == "paused" else "cancel"
    space = command_line.space()
    run_id = find.to_drive(space, named, verb=verb)
    if verb == "cancel":
        person.must_decide(space, verb, space.store.handle(run_id))
    changed = stop.set_standing(space, run_id, status, event, allowed=allowed)
    said = evidence_commands.stop_all(space, changed) if status == "cancelled" else []
    again = " --reopen" if status == "cancelled" else ""
    line = f"Loom: {changed.handle} is {status}. To continue: loomctl resume {changed.handle}{again}"
    output.answer(
        {"run_id": changed.run_id, "handle": changed.handle, "status": status, "notes": said},
        [line, *said],
        as_json=as_json,
    )
    return EXIT_OK


@click.command()
@run_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def trust(run: str | None, yes: bool, as_json: bool) -> int:
    """Allow a run to load its files and run its commands here.

    It shows what the run loads, which commands it runs and what it lets the assistant use, then asks you. Without a
    terminal, --yes agrees. You allow exactly what is shown: if it changes, Loom asks again. A run that you started or
    resumed here loads its files without this.

    \b
    Examples:
      loomctl trust shop-258
      loomctl trust shop-258 --yes
    """
    space = command_line.space()
    run_id = find.run_to_read(space, run)
    called = space.store.handle(run_id)
    if space.caller.host != TERMINAL and not find.is_bound(space, run_id):
        what = "only a person, or the session that drives the run, can allow this"
        why = f"type loomctl trust {called} in a terminal"
        raise LoomError("NOT_BOUND", what, why=why, hint=find.way_in(space, run_id), exit_code=EXIT_NO_RUN)
    the_run = space.store.read(run_id)
    commands = command_steps.listed(space, the_run)
    allowed = frozen_plan.allowed(the_run.plan)
    digest = command_steps.digest_of(commands, allowed)
    loads = {
        artifact["id"]: str(artifact.get("path") or artifact.get("path_from_state") or artifact.get("command") or "")
        for artifact in the_run.plan["artifacts"]
    }
    shown = "\n".join([f"Run {called}", *_to_be_trusted(loads, commands, allowed)])
    if as_json or space.caller.host != TERMINAL:
        _refuse_hidden(shown, called)
    if not as_json:
        output.unmasked(shown)
    if not yes and not (
        output.is_agreed("Allow this on this machine?") if sys.stdin.isatty() else not (commands or allowed)
    ):
        raise LoomError(
            "NOT_CONFIRMED",
            "nobody agreed; Loom allows nothing",
            hint=f"loomctl trust {called} --yes",
            exit_code=EXIT_USAGE,
        )
    person.must_decide(space, "trust", called)
    trouble = command_steps.trust(space, the_run, commands)
    if trouble:
        raise LoomError(
            "NOT_REMEMBERED", trouble, exit_code=EXIT_SETUP, hint='export LOOM_STATE_HOME="$HOME/.loom-state"'
        )
    waited = command_steps.answer(space, the_run)
    told = {"run_id": run_id, "handle": called, "trusted": digest, "commands": commands, "artifacts": loads}
    told["allow"] = allowed
    onward = _onward(the_run.state, f"To go on: loomctl next {called}")
    again = f" The run waited for this. {onward}" if waited else ""
    output.answer(told, [f"Loom: allowed on this machine.{again}"], as_json=as_json)
    return EXIT_OK


def _to_be_trusted(
    loads: Mapping[str, str], commands: Sequence[Mapping[str, str]], allowed: Sequence[Mapping[str, str]]
) -> Iterator[str]:
    yield "It loads:" if loads else "It loads nothing."
    yield from (f"  {name}: {path}" for name, path in loads.items())
    yield "It runs these commands in a shell:" if commands else "It runs no commands."
    yield from answer.command_lines(commands)
    if allowed:
        yield "It lets the assistant use this without asking, as you drive it:"
        yield from answer.allowed_lines(allowed)


def _refuse_hidden(shown: str, handle: str) -> None:
    """Refuse trust where a part of what is to be trusted would be masked: it is judged where all of it can be seen."""
    if mask(shown)[0] != shown:
        what = "the run's files or commands contain what looks like a secret"
        why = "Loom masks it here, so nobody could see what they allow; a terminal shows all of it"
        raise LoomError("NOT_CONFIRMED", what, why=why, hint=f"loomctl trust {handle}", exit_code=EXIT_USAGE)
