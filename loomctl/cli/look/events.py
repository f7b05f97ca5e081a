"""`loomctl events`: what happened in a run, and what happens while somebody looks on."""

from __future__ import annotations

import json
import select
import sys
import time
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import run_argument
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask, masked, masked_line
from loomctl.runs import log_verdict
from loomctl.runs.store import event_log
from loomctl.views import event_lines
from loomctl.views.watch import Printed, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.event_log import Line

LAST = 50
PROGRESS = "command.output"  # the name of what stands in no log: lines that a command printed
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AT_ONCE = 500  # entries
_INTERVAL = 0.25  # seconds between two looks
_LONGEST = 240  # UTF-16 units of a line for people


class Since(NamedTuple):
    """Where to begin: behind an entry's number, or at a time as it stands in the log; empty: with the last ones."""

    seq: int | None = None
    ts: str = ""

    def is_older(self, entry: dict[str, Any]) -> bool:
        """Tell whether an entry stands before that place."""
        if self.seq is not None:
            older: bool = entry["seq"] <= self.seq
            return older
        return str(entry.get("ts") or "") < self.ts


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as events come, until the run is over or Ctrl-C.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Those behind the entry of this number, from this time on (UTC), or of the last 90s, 15m, 2h, 3d.",
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"So many, the newest.  [default: {LAST}]")
@click.option("--event", "names", multiple=True, metavar="NAME", help="Only these; stage.* for all that begin so.")
@click.option("--json", "as_json", is_flag=True, help="Print the entries as they are stored, one JSON object a line.")
def events(
    *, run: str | None, follow: bool, since: str | None, last: int | None, names: tuple[str, ...], as_json: bool
) -> int:
    """Show what happened in a run, oldest first: number, time (UTC), event, step, and what it says.

    Without --since the last 50. With -f each event is told as it comes, and what a command step prints meanwhile (with
    --json as `command.output`, which has no number, for it stands in no log). Following ends with the run, that is
    when it is completed or cancelled; Ctrl-C is a good end, too. A line of the log that is no entry is named, on
    standard error.

    \b
    Examples:
      loomctl events
      loomctl events shop-258 --since 2h --event "stage.*"
      loomctl events -f
      loomctl events --since 120 --json
    """
    begin = _since(since)
    space = caller.space()
    run_id = arguments.run_id(space, run)
    teller = _Teller(space, run_id, names, as_json=as_json)
    folder = space.store.run_dir(run_id)
    if not follow:
        teller.tell(_before(folder, begin, last, teller.wanted, teller.mentions))
        teller.nothing_told()
        return EXIT_OK
    try:
        watch = Watch(space, run_id)
        teller.tell(line for line in _before(folder, begin, last, teller.wanted, teller.mentions) if line.at < watch.at)
        _follow(watch, teller)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _before(
    folder: str,
    begin: Since | None,
    last: int | None,
    wanted: Callable[[dict[str, Any]], bool],
    mentions: Sequence[bytes],
) -> Iterable[Line]:
    if begin is None:
        return event_log.tail(folder, last or LAST, wanted, mentions)
    if last is None:
        lines = event_log.since(folder, begin.is_older)
        return (line for line in lines if line.entry is None or wanted(line.entry))
    return event_log.tail(folder, last, lambda entry: wanted(entry) and not begin.is_older(entry))


def _follow(watch: Watch, teller: _Teller) -> None:
    replaced = 0
    while True:
        over = watch.over
        teller.tell(watch.news())
        if watch.replaced > replaced:
            replaced = watch.replaced
            output.note(f"{teller.run_id}: another events.jsonl stands in the place of the one before")
        if over or not _wait():
            return


def _wait() -> bool:
    """Wait for the next look; gives False where whoever reads standard output has gone away."""
    try:
        descriptor = sys.stdout.fileno()
        poller = select.poll()
        poller.register(descriptor, 0)  # it tells of an error and of nothing else
        found = poller.poll(_INTERVAL * 1000)
    except (OSError, ValueError, AttributeError):
        found = [(0, 0)]
    if any(what & (select.POLLERR | select.POLLHUP) for _, what in found):
        return False
    if found:  # a stream that cannot be asked
        time.sleep(_INTERVAL)
    return True


class _Teller:
    """Prints what it is given."""

    def __init__(self, space: Workspace, run_id: str, names: Sequence[str], *, as_json: bool) -> None:
        self._space, self.run_id, self._names, self._as_json = space, run_id, names, as_json
        self._told = False

    def wanted(self, entry: dict[str, Any]) -> bool:
        """Tell whether an event of this name was asked for."""
        return self._is_wanted(entry["event"])

    @property
    def mentions(self) -> list[bytes]:
        """What a line holds that is wanted; nothing where that cannot be said."""
        names = [name.removesuffix("*") for name in self._names]
        return [name.encode() for name in names] if all(name.isascii() for name in names) else []

    def _is_wanted(self, name: str) -> bool:
        return not self._names or any(
            name.startswith(one[:-1]) if one.endswith("*") else name == one for one in self._names
        )

    def tell(self, found: Iterable[Line | Printed]) -> None:
        """Print events and progress; say beside it what is no entry."""
        source, torn = iter(found), None
        while some := list(islice(source, _AT_ONCE)):
            held: list[dict[str, Any]] = []
            for one in some:
                if isinstance(one, Printed):
                    self._print(held)
                    if self._is_wanted(PROGRESS):
                        self._progress(one)
                elif one.entry is None:
                    self._print(held)
                    torn = _is_only_torn(self._space, self.run_id) if torn is None else torn
                    output.note(f"{self.run_id}: {_no_entry(one, self.run_id, torn=torn)}")
                elif self._is_wanted(one.entry["event"]):
                    held.append(one.entry)
            self._print(held)
            sys.stdout.flush()

    def _print(self, entries: list[dict[str, Any]]) -> None:
        """Print entries, and forget them."""
        if entries:
            self._told = True
            clean = _without_secrets(entries)
            if self._as_json:
                click.echo("\n".join(output.line(entry) for entry in clean))
            else:
                output.text("\n".join(_for_people(entry) for entry in clean))
            entries.clear()

    def nothing_told(self) -> None:
        """Say that there was nothing, to a person."""
        if not self._told and not self._as_json:
            output.text(f"{self.run_id}: no such events" if self._names else f"{self.run_id}: no events")

    def _progress(self, printed: Printed) -> None:
        if self._as_json:
            for line in printed.lines:
                base = {"ts": clock.now(), "run_id": self.run_id, "event": PROGRESS, "step_id": printed.step_id}
                told = {"stage": printed.stage, "line": mask(line)[0]}
                click.echo(output.line({**base, "properties": told}))
            return
        if printed.left_out:
            output.text(f"    | … {printed.left_out:,} bytes, which command.log has")
        for line in printed.lines:
            output.text(f"    | {masked_line(line, _LONGEST)}")


def _without_secrets(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give entries with their secrets masked (D21): looked for in all at once, for Loom's own logs have none."""
    if mask(json.dumps(entries, ensure_ascii=False))[1] == 0:
        return list(entries)
    return [masked(entry) for entry in entries]


def _is_only_torn(space: Workspace, run_id: str) -> bool:
    """Tell whether what is no entry in a log is what kills tore off, by the verdict that `loomctl verify` gives."""
    try:
        found = log_verdict.verify(space.store, run_id)
    except (OSError, LoomError):
        return False
    odd = {fault.code for fault in found.faults} & {event_log.NO_ENTRY, event_log.LOG_CUT_OFF}
    return not odd and found.total == len(found.faults)


def _no_entry(line: Line, run_id: str, *, torn: bool) -> str:
    if not line.ended:
        return f"the last line of events.jsonl ({line.bytes:,} bytes) has no end: it is being written, or was torn off"
    why = "a kill tore it off" if torn else f"loomctl verify {run_id} tells more"
    return f"a line of events.jsonl at byte {line.at:,} ({line.bytes:,} bytes) is no entry: {why}"


def _for_people(entry: dict[str, Any]) -> str:
    head = f"{entry['seq']:>6}  {one_line(str(entry.get('ts') or ''), 20):<20}  {one_line(entry['event'], 40):<22}"
    properties = entry.get("properties")
    named = isinstance(properties, dict) and isinstance(properties.get("stage"), str)  # which has the step's id in it
    step = "" if named else one_line(str(entry.get("step_id") or ""), 60)
    rest = " ".join(part for part in (step, event_lines.said(entry)) if part)
    return f"{head}  {one_line(rest, _LONGEST - len(head))}".rstrip()


def _since(given: str | None) -> Since | None:
    """Read a place: a number, a span of time up to now, or a time. Raises USAGE."""
    if given is None:
        return None
    text = given.strip()
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Since(seq=int(text))
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) < 10:
        return Since(ts=clock.stamp(max(0.0, time.time() - int(number) * _UNITS[unit])))
    try:
        # Other spellings mean a time to some versions of Python alone.
        dated = text if text[4:5] + text[7:8] == "--" else ""
        at = datetime.fromisoformat(dated[:-1] + "+00:00" if dated.endswith(("Z", "z")) else dated)
    except ValueError:
        raise LoomError(
            "USAGE",
            f"{text!r:.80} is no number of an event, no time and no span",
            why="there are 120, 2026-01-31, 2026-01-31T08:00:00Z (UTC unless it says otherwise), 90s, 15m, 2h, 3d",
            hint="loomctl events --help",
            exit_code=EXIT_USAGE,
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    at = at.astimezone(timezone.utc)
    if at.microsecond:
        at = at.replace(microsecond=0) + timedelta(seconds=1)
    return Since(ts=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
