"""`loomctl fleet`: many runs, one machine or many."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import QUEUE, json_option
from loomctl.cli.verbs import Group
from loomctl.flow.open_project import workspace
from loomctl.hosts import headless, table
from loomctl.kit import git, machine
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_OK, EXIT_SETUP, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from loomctl.fleet.model import Row
    from loomctl.fleet.port import Queue
    from loomctl.runs.project import Workspace


EACH = 3  # of an assistant at once: more of them meet their account's limits, and wait


class Fleet(NamedTuple):
    """What a command of the fleet works with.

    space: of nobody's session, so that no terminal takes what it adds; travels: its runs do so over a git remote.
    """

    space: Workspace
    queue: Queue
    repository: str
    travels: bool = False


def opened(queue: str | None, *, note: bool = True, patience: float = 10.0) -> Fleet:
    """Open the fleet of the current directory's project. Raises QUEUE_GONE.

    patience: seconds after which a queue that machines share, and that does not answer, counts as gone.
    """
    from loomctl.fleet import here, mend, runs

    space = command_line.space(make=True)
    own = workspace(space.project, space.settings, space.caller._replace(session_id=None))
    if queue:
        from loomctl.handoff import share

        shared, address = postgres(), share.address(own)
        # Without a remote its runs are this machine's alone, wherever another has a project at the same path.
        repository = runs.repository_of(own, address or f"{machine.hostname()}:{os.path.realpath(own.store.folder)}")
        many = shared.Shared(shared.Server(queue, patience), repository)
        if not address and note:
            output.note("Loom: the project has no git remote, so its runs are this machine's alone")
        return Fleet(own, many, repository, bool(address))
    repository = runs.repository_of(own)
    found = here.Here(own, repository)
    if found.is_new and (number := mend.rebuild(own, found, repository)) and note:
        output.note(f"Loom: made the fleet's queue from {counted(number, 'run')}")
    return Fleet(own, found, repository)


def postgres() -> ModuleType:
    """Give the module of the queue that machines share. Raises NO_EXTRA where what it stands on is not installed."""
    try:
        from loomctl.fleet import postgres
    except ImportError as error:
        what, why = "this Loom lacks what a queue of several machines needs", "psycopg is not installed beside it"
        hint = f"python3 -m pip --python {quoted(sys.executable)} install 'psycopg[binary]>=3.2'"
        raise LoomError("NO_EXTRA", what, why=why, hint=hint, exit_code=EXIT_SETUP) from error
    return postgres


def queue_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names a queue of many machines."""
    words = {"metavar": "URL", "envvar": QUEUE, "help": "The queue that machines share: postgresql://…"}
    return click.option("--queue", **words)(command)  # type: ignore[arg-type]


class _Fleet(Group):
    """Without a verb it is `status`, whose options it takes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_status = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["status", *args] if is_status else args)


@click.group("fleet", cls=_Fleet)
def fleet_command() -> None:
    """Let assistants work on many runs.

    Put work into the fleet, and start a worker. Alone, this is `loomctl fleet status`.

    \b
    Examples:
      loomctl fleet add "add dark mode" --priority 2
      loomctl fleet work -j 4 --max-cost 100
      loomctl fleet
    """


@fleet_command.command()
@click.argument("work", nargs=-1)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(),
    help="Read work from a file, a JSON object a line ('-': stdin).",
)
@click.option("--workflow", "-w", metavar="ID|PATH", help="Of each run.")
@click.option("--priority", type=click.IntRange(1, 9), default=5, show_default=True, help="1 comes first.")
@click.option("--key", metavar="KEY", help="Find the open run of this key instead of beginning another.")
@click.option("--after", metavar="RUN", multiple=True, help="Begin it when this run is completed.")
@click.option("--host", metavar="HOST", default=table.CLAUDE.name, show_default=True, help="The assistant that works.")
@queue_option
@json_option
def add(
    work: tuple[str, ...],
    source: str | None,
    workflow: str | None,
    priority: int,
    key: str | None,
    after: tuple[str, ...],
    host: str,
    queue: str | None,
    as_json: bool,
) -> int:
    """Put work into the fleet: each WORK begins a run.

    A line of --from has `work`, and may have `workflow`, `priority`, `key` and `after`, which names runs, or keys of
    lines above. With keys the same file can be added again: what is open is not begun twice.

    \b
    Examples:
      loomctl fleet add "add dark mode" "drop Python 3.9"
      loomctl fleet add "release it" --after add-dark-mode-k3f9
      loomctl fleet add --from issues.jsonl --workflow core
    """
    from loomctl.fleet import add as adding
    from loomctl.fleet.add import Order

    if bool(work) == bool(source) or (key and len(work) != 1):
        raise click.UsageError("give WORK, or --from FILE" if not key else "a key is one run's: give one WORK")
    usual = Order("", workflow, priority, key, after)
    if source:
        text = command_line.read_text(source, hint="loomctl fleet add --help", largest=adding.LONGEST_LIST)
        orders = adding.listed(text, command_line.source_name(source), usual)
    else:
        orders = [adding.checked(usual._replace(work=one), "WORK") for one in work]
    headless.of(host)
    fleet = opened(queue)
    person.must_decide(fleet.space, "fleet add", *work)
    told = []
    for one in adding.add(fleet.space, fleet.queue, fleet.repository, orders, host=host, travels=fleet.travels):
        told.append({**one.row.to_dict(), "created": one.created})
        if not as_json:
            output.text(f"{one.row.handle}  {'' if one.created else 'open already: '}{one.row.goal}")
    lines = [] if _is_worked_on(fleet) else ["To let assistants work on it: loomctl fleet work -j 4"]
    output.answer({"runs": told}, lines, as_json=as_json)
    return EXIT_OK


def _is_worked_on(fleet: Fleet) -> bool:
    """Tell whether a worker lives."""
    now, seconds = fleet.queue.clock(), limit()
    return any(now - one.signed <= seconds for one in fleet.queue.workers())


class _PerHost(click.ParamType[tuple[str, int]]):
    """A number, or an assistant's own, behind its name and `=`."""

    name = "[HOST=]N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, number = str(value).rpartition("=")
        fits = number.isascii() and number.isdigit() and 0 < int(number) < 10_000
        if not fits or (host and host not in table.HOSTS):
            said = f"{one_line(str(value), 60)!r} is neither a number nor an assistant's, such as {table.CODEX.name}=1"
            self.fail(said, param, ctx)
        return host, int(number)


@fleet_command.command()
@click.option("-j", "slots", type=click.IntRange(1, 64), default=1, show_default=True, help="So many runs at once.")
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="End at this cost of all.")
@click.option(
    "--per-host",
    type=_PerHost(),
    multiple=True,
    default=[("", EACH)],
    show_default=str(EACH),
    help="So many of one assistant at once, in the whole queue: they share an account.",
)
@click.option("--most", type=click.IntRange(min=1), metavar="N", help="So many at once in the whole queue.")
@click.option("--most-here", type=click.IntRange(min=1), metavar="N", help="So many at once of this repository.")
@click.option("--allow", metavar="RULE", multiple=True, help="Let each assistant do this too.")
@click.option("--until-idle", is_flag=True, help="End where nothing goes on without a person.")
@queue_option
def work(
    slots: int,
    max_cost: float | None,
    per_host: tuple[tuple[str, int], ...],
    most: int | None,
    most_here: int | None,
    allow: tuple[str, ...],
    until_idle: bool,
    queue: str | None,
) -> int:
    """Work on the fleet's runs: start assistants, watch them, and end them.

    It goes on with what you approve and add meanwhile. Each run has a git worktree of its own. Ctrl-C ends it after
    each run's step, a second one now.

    Exit codes: 0 you ended it or it is idle, 10 the cost is reached, 130 after a second Ctrl-C.

    \b
    Examples:
      loomctl fleet work -j 3
      loomctl fleet work -j 8 --per-host 8 --max-cost 100
    """
    from loomctl.fleet.model import Limits
    from loomctl.fleet.work import Orders, Supervisor

    seconds = limit()
    fleet = opened(queue, patience=min(10.0, seconds / 6))
    person.must_decide(fleet.space, "fleet work")
    hosts = dict(per_host)
    here, each = headless.that_are_here(), hosts.pop("", EACH)
    if not here:
        output.note("Loom: no assistant that Loom drives is on PATH, so nothing begins here")
    limits = Limits(most, most_here, hosts, each, max_cost, here)
    more = ["--share", "--take-over"] if fleet.travels else []
    if git.head(fleet.space.project.root).commit:
        more.append("--worktree")
    elif slots > 1:
        output.note("Loom: the project has no commit to make worktrees from, so all runs work in the same folder")
    rules = [word for one in allow for word in ("--allow", one)]
    own = dict.fromkeys(headless.that_take_rules(), rules)
    known = {QUEUE: queue} if queue else {}
    orders = Orders(slots, limits, seconds, more, own, until_idle, fleet.travels, known, headless.that_tell_costs())
    environ = {name: value for name, value in table.for_another(os.environ).items() if name != QUEUE}
    worker = Supervisor(fleet.space, fleet.queue, orders, environ=environ, tell=output.note)
    with command_line.ended_by_signals(worker.interrupt, worker.end):
        return worker.work()


@fleet_command.command(hidden=True)
@queue_option
def look(queue: str | None) -> int:
    """Look once at the remote for what waits."""
    from loomctl.fleet import mend

    fleet = opened(queue)
    mend.look_there(fleet.space, fleet.queue)
    return EXIT_OK


def limit() -> float:
    """Give after how many seconds without a sign a worker counts as dead. Raises BAD_LIMIT."""
    from loomctl.fleet.model import LIMIT

    said = os.environ.get("LOOM_FLEET_LIMIT", "")
    try:
        seconds = float(said or LIMIT)
    except ValueError:
        seconds = 0.0
    if not 2 <= seconds <= 3600:
        what, why = "LOOM_FLEET_LIMIT is no length of time", "it is 2 to 3600 seconds, the same for all workers"
        raise LoomError("BAD_LIMIT", what, where=said[:9], why=why, hint="unset LOOM_FLEET_LIMIT", exit_code=EXIT_USAGE)
    return seconds


def _each(verb: str, names: Sequence[str], queue: str | None, done: Callable[[Fleet, Row], str], as_json: bool) -> int:
    """Do something with each run that is named, or with a workflow that is paused."""
    fleet = opened(queue)
    person.must_decide(fleet.space, f"fleet {verb}", *names)
    told: list[dict[str, Any]] = []
    codes: list[int] = []
    for name in names:
        try:
            one = _workflow_goes_on(fleet, name) if verb == "resume" else None
            if one is None:
                row = _meant(fleet, name)
                one = {"run_id": row.run_id, "handle": row.handle, "done": done(fleet, row)}
        except LoomError as error:
            if len(names) == 1:
                raise
            codes.append(error.exit_code)  # whatever becomes of another
            told.append({"name": name, "error": error.to_dict()})
            if not as_json:
                output.note(f"{one_line(name, 60)}: {error}")
            continue
        told.append(one)
        if not as_json:
            output.text(f"{one.get('handle') or 'the workflow ' + name}: {one['done']}")
    if as_json:
        output.document({"runs": told})
    return max(codes, default=EXIT_OK)


def _workflow_goes_on(fleet: Fleet, name: str) -> dict[str, Any] | None:
    """Let a workflow go on, if it is one."""
    if fleet.queue.pause(name, ""):
        return {"workflow": name, "done": "goes on"}
    is_one = any(one.lane.workflow == name for one in fleet.queue.standings()) and not fleet.queue.find(name)
    return {"workflow": name, "done": "is not paused"} if is_one else None


def _meant(fleet: Fleet, name: str) -> Row:
    found = fleet.queue.find(name)
    if len(found) == 1:
        return found[0]
    what = (
        f"{counted(len(found), 'run')} of the fleet begin with {name[:60]!a}" if found else "no such run in the fleet"
    )
    why = ", ".join(one.handle for one in found[:5])
    raise LoomError("NO_SUCH_RUN", what, where=name[:60], why=why, hint="loomctl fleet", exit_code=EXIT_NO_RUN)


def _steering(function: Callable[..., int]) -> click.Command:
    """Make a command of the fleet that takes runs."""
    named = click.argument("runs", metavar="RUN...", nargs=-1, required=True)
    return fleet_command.command()(named(queue_option(json_option(function))))


@_steering
def cancel(runs: tuple[str, ...], queue: str | None, as_json: bool) -> int:
    """Cancel runs; the worker that drives one ends it now.

    \b
    Examples:
      loomctl fleet cancel add-dark-mode-k3f9
      loomctl fleet cancel add-dark-mode-k3f9 drop-python-x7d2
    """
    return _stop("cancel", runs, queue, as_json)


@_steering
def pause(runs: tuple[str, ...], queue: str | None, as_json: bool) -> int:
    """Let runs rest; the worker that drives one ends it after its step.

    \b
    Examples:
      loomctl fleet pause add-dark-mode-k3f9
      loomctl fleet pause add-dark-mode-k3f9 drop-python-x7d2
    """
    return _stop("pause", runs, queue, as_json)


def _stop(verb: str, names: Sequence[str], queue: str | None, as_json: bool) -> int:
    from loomctl.fleet import steer

    def done(fleet: Fleet, row: Row) -> str:
        said = {"cancel": "cancelled", "pause": "paused"}[verb]
        return said if steer.stop(fleet.space, fleet.queue, row, verb, travels=fleet.travels) else "its worker was told"

    return _each(verb, names, queue, done, as_json)


def _go(verb: str, names: Sequence[str], queue: str | None, as_json: bool) -> int:
    from loomctl.fleet import steer
    from loomctl.fleet.model import DRIVEN

    def done(fleet: Fleet, row: Row) -> str:
        state = steer.let_go(fleet.space, fleet.queue, row, travels=fleet.travels).state
        return "a worker drives it" if state == DRIVEN else state

    return _each(verb, names, queue, done, as_json)


@_steering
def resume(runs: tuple[str, ...], queue: str | None, as_json: bool) -> int:
    """Let paused runs go on, or a workflow of which three in a row failed alike.

    \b
    Examples:
      loomctl fleet resume add-dark-mode-k3f9
      loomctl fleet resume core
    """
    return _go("resume", runs, queue, as_json)


@_steering
def retry(runs: tuple[str, ...], queue: str | None, as_json: bool) -> int:
    """Let failed runs try again.

    \b
    Examples:
      loomctl fleet retry add-dark-mode-k3f9
      loomctl fleet retry add-dark-mode-k3f9 drop-python-x7d2
    """
    return _go("retry", runs, queue, as_json)
