"""`loomctl drive`: a run goes on while nobody is there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from loomctl.cli import command_line, output, person
from loomctl.cli.asking_trust import ask_trust
from loomctl.cli.command_line import complete_runs, complete_workflows
from loomctl.cli.unattended import screen
from loomctl.cli.unattended.notice import Notice
from loomctl.drive import drive, process
from loomctl.drive.dialect import BY_HAND
from loomctl.drive.watch import Limits
from loomctl.flow.commands import command_steps
from loomctl.flow.open_project import workspace
from loomctl.handoff import worktrees
from loomctl.hosts import headless, table
from loomctl.kit import ids
from loomctl.kit.errors import EXIT_FINDINGS, LoomError, quoted
from loomctl.kit.text.fences import one_line
from loomctl.runs import find, leases
from loomctl.runs.machine import run_notes
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.project import Caller, Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomctl.drive.drive import Driver
    from loomctl.drive.leash import Leash
    from loomctl.drive.seen import Ended, Seen
    from loomctl.drive.sharing import Sharing
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_COMMAND = "loomctl.drive.command"
_LONGEST = 1e8  # seconds: three years
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_SPAN = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Span(click.ParamType[float]):
    """A length of time: `90s`, `20m`, `4h`, `1h30m`."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        found = _SPAN.fullmatch(str(value)[:40].strip())
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(found[0])) if found else 0.0
        if not 0 < seconds < _LONGEST:
            self.fail(f"{one_line(str(value), 40)!r} is no length of time such as 90s, 20m, 4h or 1h30m", param, ctx)
        return seconds


class _WithACommand(click.Command):
    """Takes what stands behind `--` as a command, and not as words of the work."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :] if at < len(args) else None
        return super().parse_args(ctx, args[:at])


def _command(context: click.Context) -> list[str] | None:
    """Give the command that is to do the steps, None where an assistant does them. Raises a usage error."""
    words: list[str] | None = context.meta[_COMMAND]
    if words is None:
        return None
    if not words:
        raise click.UsageError("there is no command behind --", context)
    if context.get_parameter_source("host") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--host names an assistant, and -- a command: give one of them", context)
    return words


def _leash(context: click.Context, seconds: float | None) -> Leash | None:
    """Hold the driver by its standard input from here on, if that is wanted. Raises a usage error."""
    if seconds is None:
        return None
    if sys.stdin.isatty():
        held = "--leash is held by a pipe on standard input: start this from a program that writes to it"
        raise click.UsageError(held, context)
    from loomctl.drive.leash import Leash  # a person holds none

    return context.with_resource(Leash(seconds))


@click.command(cls=_WithACommand, options_metavar="[OPTIONS]")
@click.argument("work", nargs=-1, shell_complete=complete_runs)
@click.option("--workflow", "-w", metavar="ID|PATH", shell_complete=complete_workflows, help="Start a run of this one.")
@click.option("--key", metavar="KEY", help="Drive the open run of this key; start one if there is none.")
@click.option("--worktree", is_flag=True, help="Work in a git worktree of the run's own, beside the project.")
@click.option("--host", metavar="HOST", default=table.CLAUDE.name, show_default=True, help="The assistant that works.")
@click.option("--max-time", "time", type=_Span(), help="End after so long, such as 4h.")
@click.option(
    "--max-cost",
    "cost",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="End at this cost of the run.",
)
@click.option(
    "--max-turns", "turns", type=click.IntRange(min=1), metavar="N", help="End after N turns of the assistant."
)
@click.option("--max-wait", "wait", type=_Span(), help="End where it would wait for a time longer than this.")
@click.option(
    "--silence", type=_Span(), default="20m", show_default=True, help="End a turn without a sign for so long."
)
@click.option(
    "--turn-time", "turn", type=_Span(), default="60m", show_default=True, help="End a turn that takes longer."
)
@click.option(
    "--allow", metavar="RULE", multiple=True, help="Let the assistant do this too, such as 'Bash(npm test:*)'."
)
@click.option("--leash", type=_Span(), help="End now when standard input is closed, or silent for so long.")
@click.option("--share", is_flag=True, help="Pull the run from its git remote first; push it after each step.")
@click.option("--take-over", is_flag=True, help="Take the run from a driver on another machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line instead of text.")
@click.pass_context
def drive_command(
    context: click.Context,
    /,
    work: tuple[str, ...],
    workflow: str | None,
    key: str | None,
    worktree: bool,
    host: str,
    allow: tuple[str, ...],
    leash: float | None,
    share: bool,
    take_over: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Let an assistant work on a run until it needs you.

    Give a RUN, or new WORK in words. Behind -- stands a command in place of an assistant: it gets each step on standard
    input, and what it prints is the step's result.

    It starts an assistant for one turn after the other, watches it, and goes by what the run's state says. It ends when
    the run is done, fails, or needs you. Ctrl-C ends it after this step, a second one now; so does a closed terminal,
    but not under nohup.

    Exit codes: 0 completed, 1 failed, 6 another drives it. 9 it waits for you or for a time, 10 a limit was reached,
    130 after a second Ctrl-C.

    \b
    Examples:
      loomctl drive shop-258 --max-time 4h --max-cost 5
      loomctl drive "add dark mode" --workflow core --worktree
      loomctl drive shop-258 -- gemini --approval-mode auto_edit
    """
    held = _leash(context, leash)
    space = command_line.space(make=True)
    person.must_decide(space, "drive", *work)  # what it starts may do what this caller may not
    limits, words = Limits(**given), _command(context)
    assistant = host if words is None else None
    headless.refuse_unheld(assistant, cost=limits.cost, allow=allow)
    for note in _brought(space, " ".join(work)) if share else ():
        _note(note, as_json=as_json)
    may_begin = partial(_refuse_to_begin, space, assistant, words or (), worktree=worktree)
    run_id = _meant(space, work, workflow, key, may_begin, take_over=take_over)
    if (ended := drive.over(space, run_id)) is not None:
        if share:
            _send_end(space, run_id)
        _shown(space, assistant, as_json=as_json).ended(ended, _next(ended))
        return ended.code
    own = _own(space, run_id, worktree=worktree)
    if own.space.project.root != space.project.root:
        _note(f"Loom: works in the run's worktree, {own.space.project.root}", as_json=as_json)
    run = own.space.store.read(run_id)
    for line in ask_trust(space, run, as_json=as_json, may_break=True):
        output.note(line)
    allow = (*allow, *_of_its_workflow(own.space, run, assistant))
    show = _shown(own.space, assistant, as_json=as_json)
    sharing = _sharing(own.space, run_id) if share else None
    driver = _driver(own, run_id, words or host, limits, allow=allow, show=show, leash=held, sharing=sharing)
    return _to_its_end(driver, own.space, run, show)


def _to_its_end(driver: Driver, space: Workspace, run: Run, show: screen.Shown) -> int:
    """Drive a run until it needs somebody, and show that; gives the exit code."""
    with command_line.ended_by_signals(driver.asked.interrupt, driver.asked.end), closing(show):
        try:
            ended = driver.drive()
        except Exception as error:
            show.failed(_as_it_stands(space, run), output.told(error, f"loomctl show {run.handle}"))
            raise
    show.ended(ended, _next(ended))
    return ended.code


def _of_its_workflow(space: Workspace, run: Run, assistant: str | None) -> tuple[str, ...]:
    """Give what the run's workflow lets its assistant do, as far as that is trusted; says where it changes nothing."""
    asked_for = command_steps.trusted_rules(space, run)
    if asked_for and (said := headless.passes_on_nothing(assistant)):
        output.note(said)
    return asked_for


def _shown(space: Workspace, assistant: str | None, *, as_json: bool) -> screen.Shown:
    """Make what shows a drive. assistant: None for a command."""
    told = screen.Told(assistant or BY_HAND, space.project.root) if as_json else screen.Lines()
    return screen.Shown(told, Notice(space.settings.notify))


def _as_it_stands(space: Workspace, run: Run) -> Run:
    """Read a run again, as far as it can be read."""
    try:
        return space.store.read(run.run_id)
    except (OSError, LoomError):
        return run


def _driver(
    own: _Own,
    run_id: str,
    what: str | list[str],
    limits: Limits,
    *,
    allow: tuple[str, ...],
    show: Callable[[Seen], None],
    leash: Leash | None,
    sharing: Sharing | None,
) -> Driver:
    """Make the driver of a run. what: the assistant's name, or the words of a command."""
    around = table.for_another(os.environ)
    if isinstance(what, str):
        dialect = headless.of(what)
        return drive.Driver(
            own.space, run_id, what, dialect, limits, word=own.word, allow=allow, environ=around, show=show,
            leash=leash, sharing=sharing,
        )  # fmt: skip
    from loomctl.drive import by_hand  # seldom, and it loads all that takes a run up

    return by_hand.ByHand(
        own.space, run_id, what, limits, word=own.word, environ=around, show=show, leash=leash, sharing=sharing
    )


class _Own(NamedTuple):
    """A driver's own workspace, and the word by which what it starts is known (D74)."""

    space: Workspace
    word: str


def _own(space: Workspace, run_id: str, *, worktree: bool) -> _Own:
    """Give the driver's own workspace: the run's worktree where it has one, or is to have one, else the caller's.

    Raises HELD_BY_ANOTHER before anything is made, or asked.
    """
    leases.give_up(space, run_id)  # whoever calls the driver lets it drive
    word = process.new_word(space.store.folder)
    caller = Caller(f"drive-{secrets.token_hex(6)}", drive.HOST, os.getpid(), space.caller.cwd, Conversation())
    own = workspace(space.project, space.settings, caller, word)
    leases.refuse_held(own, run_id)
    place = worktrees.make(space, run_id) if worktree else worktrees.of_run(space, run_id)
    there = (worktrees.project_in(space, place) if place else None) or space.project
    if there.root != space.project.root:
        own = workspace(there, space.settings, caller._replace(cwd=there.root), word)
    return _Own(own, word)


def _send_end(space: Workspace, run_id: str) -> None:
    from loomctl.handoff import share

    share.send_end(space, run_id)


def _sharing(own: Workspace, run_id: str) -> Sharing:
    from loomctl.drive.sharing import Sharing  # it loads all of git's

    return Sharing(own, run_id, None)


def _brought(space: Workspace, named: str) -> Sequence[str]:
    """Have a run here as its remote has it; gives notes. named: by its whole id where it is not here."""
    from loomctl.handoff import share

    known = [one for one in space.store.run_ids() if named in (one, space.store.handle(one))]
    return share.bring(space, known[0] if known else named).notes if known or ids.is_fit(named) else ()


def _note(line: str, *, as_json: bool) -> None:
    if not as_json:
        output.note(line)


def _refuse_to_begin(space: Workspace, host: str | None, words: Sequence[str], *, worktree: bool) -> None:
    """Refuse to begin a run that could not be driven: by a program that is not there, where no worktree can be made.

    host: the assistant, None for a command of these words. Raises NO_ASSISTANT and NO_DRIVER, and as making a worktree.
    """
    if host is not None:
        headless.refuse_absent(host)
    elif ("/" not in words[0] or os.path.isabs(words[0])) and shutil.which(words[0]) is None:  # else it is the run's
        what = f"the command could not be started: there is no {one_line(words[0], 120)}"
        why, hint = "behind -- stands a command as a shell would find it", "loomctl drive --help"
        raise LoomError("NO_ASSISTANT", what, why=why, hint=hint, exit_code=EXIT_FINDINGS)
    if worktree:
        worktrees.refuse_without_commit(space)


def _meant(
    space: Workspace,
    work: tuple[str, ...],
    workflow: str | None,
    key: str | None,
    may_begin: Callable[[], None],
    *,
    take_over: bool = False,
) -> str:
    """Give the run that is meant; words that name none, a workflow or a key begin one, if the key has none open.

    may_begin: raises where none is to be begun.
    """
    words = " ".join(work).strip()
    if not workflow and key is None and " " not in words:
        run_id = find.to_read(space, words or None).run_id
        assert run_id is not None  # to_read raises instead
        if drive.over(space, run_id) is not None:
            return run_id
        if take_over:
            leases.take_from_elsewhere(space, run_id)
        if space.caller.host == TERMINAL and not run_notes.is_known(run_id, space.store.folder):
            from loomctl.flow import resume  # seldom, as is a start

            resume.resume(space, run_id)  # it came by a pull, and who calls the driver takes it up
        find.must_be_known(space, run_id)
        return run_id
    from loomctl.flow import start

    may_begin()
    begun = start.start(space, words, workflow=workflow, key=key)
    return begun.run.run_id


def _next(ended: Ended) -> str:
    handle = ended.run.handle
    if ended.rules:
        return f"loomctl drive {handle} " + " ".join(f"--allow {quoted(one)}" for one in ended.rules)
    return {
        "completed": f"loomctl report {handle}",
        "approval": f"loomctl approve {handle}",
        "trust": f"loomctl trust {handle}",
        "question": f"loomctl waits {handle}",
        "stuck": f"loomctl waits {handle}",
        "held": f"loomctl show {handle}",
        "failed": f"loomctl show {handle}",
        "cancelled": f"loomctl show {handle}",
    }.get(ended.kind, f"loomctl drive {handle}")
