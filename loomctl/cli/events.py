"""`loomctl events`: what happened in a run, and what happens while somebody looks on."""

from __future__ import annotations

import os
import select
import sys
import time
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import command_line, output
from loomctl.cli.command_line import run_argument
from loomctl.kit import clock, files
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text import fences
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.runs import command_runs, log_verdict, stages
from loomctl.runs.model import visits
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import event_log, log_chain
from loomctl.runs.store.event_log import Follower
from loomctl.views import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.event_log import Line

LAST = 50
PROGRESS = "command.output"  # the name of what stands in no log: lines that a command printed
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AT_ONCE = 500  # entries
_INTERVAL = 0.25  # seconds between two looks
_LONGEST = 240  # UTF-16 units of a line for people
_NAME, _WIDE = 22, 80  # columns of an event's name, on a screen of so many
_MOST = 64 * 1024  # bytes of a command's output that are told at once
_BEFORE = 10  # lines of it that are told of a command that runs already


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
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events until the run ends or Ctrl-C.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only those after this event number, since this time (UTC), or of the last 90s, 15m, 2h, 3d.",
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"Only the newest N.  [default: {LAST}]")
@click.option(
    "--event", "names", multiple=True, metavar="NAME", help="Only these events, e.g. run.completed or `stage.*`."
)
@click.option("--json", "as_json", is_flag=True, help="Print the stored entries, one JSON object a line.")
def events(
    *, run: str | None, follow: bool, since: str | None, last: int | None, names: tuple[str, ...], as_json: bool
) -> int:
    """Show what happened in a run, oldest first.

    Each line has a number, the time, the event, the step and details. A day that is not today has a line of its own.
    Without --since it shows the last 50.

    With -f it prints new events as they come, and what a running command prints. With --json that output is the event
    `command.output`; it has no number because the log does not hold it. Following ends when the run is completed or
    cancelled.

    \b
    Examples:
      loomctl events
      loomctl events shop-258 --since 2h --event "stage.*"
      loomctl events -f
      loomctl events --since 120 --json
    """
    begin = _since(since)
    space = command_line.space()
    run_id = command_line.run_id(space, run)
    teller = _Teller(space, run_id, names, as_json=as_json)
    folder = space.store.run_dir(run_id)
    if not follow:
        teller.tell(_before(folder, begin, last, teller))
        teller.say_if_nothing()
        return EXIT_OK
    try:
        watch = Watch(space, run_id)  # before the log is read, so that nothing between is missed
        teller.tell(line for line in _before(folder, begin, last, teller) if line.at < watch.log.at)
        _follow(watch, teller)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _before(folder: str, begin: Since | None, last: int | None, teller: _Teller) -> Iterable[Line]:
    if begin is None:
        return event_log.tail(folder, last or LAST, teller.wanted, teller.mentions)
    if last is not None:
        return event_log.tail(folder, last, lambda entry: teller.wanted(entry) and not begin.is_older(entry))
    return event_log.since(folder, begin.is_older)


def _follow(watch: Watch, teller: _Teller) -> None:
    replaced = 0
    while True:
        over = watch.over
        teller.tell(watch.news())
        if watch.log.replaced > replaced:
            replaced = watch.log.replaced
            output.note(f"{teller.handle}: somebody replaced events.jsonl")
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
    def __init__(self, space: Workspace, run_id: str, names: Sequence[str], *, as_json: bool) -> None:
        self._space, self.run_id, self._names, self._as_json = space, run_id, names, as_json
        self._told = False
        self._day = time.strftime("%Y-%m-%d")
        self.handle = space.store.handle(run_id)

    def wanted(self, entry: dict[str, Any]) -> bool:
        """Tell whether an event of this name was asked for."""
        return self._is_wanted(entry["event"])

    def _is_wanted(self, name: str) -> bool:
        return not self._names or any(
            name.startswith(one[:-1]) if one.endswith("*") else name == one for one in self._names
        )

    @property
    def mentions(self) -> list[bytes]:
        """What a line holds that is wanted; nothing where that cannot be said."""
        names = [name.removesuffix("*") for name in self._names]
        return [name.encode() for name in names] if all(name.isascii() for name in names) else []

    def tell(self, found: Iterable[Line | CommandOutput]) -> None:
        """Print events and progress; say beside it what is no entry."""
        source, torn = iter(found), None
        while some := list(islice(source, _AT_ONCE)):
            held: list[dict[str, Any]] = []
            for one in some:
                if isinstance(one, CommandOutput):
                    self._print(held)
                    if self._is_wanted(PROGRESS):
                        self._progress(one)
                elif one.entry is None:
                    self._print(held)
                    torn = _is_only_torn(self._space, self.run_id) if torn is None else torn
                    output.note(f"{self.handle}: {_no_entry(one, self.handle, torn=torn)}")
                elif self._is_wanted(one.entry["event"]):
                    held.append(one.entry)
            self._print(held)
            sys.stdout.flush()

    def _print(self, entries: list[dict[str, Any]]) -> None:
        if entries:
            self._told = True
            clean = explain.without_secrets(entries)
            if self._as_json:
                click.echo("\n".join(output.line(entry) for entry in clean))
            else:
                output.text("\n".join(line for entry in clean for line in self._for_people(entry)))
            entries.clear()

    def _for_people(self, entry: dict[str, Any]) -> list[str]:
        """Give an entry's line, and before it the day where that is another than of the one before, or today."""
        day, at = clock.day_and_time(one_line(str(entry.get("ts") or ""), 20))
        new_day = [day] if day and day != self._day else []
        self._day = day or self._day
        wide = output.columns()
        head = f"{entry['seq']:>5}  {at:<8}  {one_line(entry['event'], 40):<{_NAME if wide >= _WIDE else 0}}"
        properties = entry.get("properties")
        named = isinstance(properties, dict) and isinstance(properties.get("stage"), str)  # it has the step's id in it
        step = "" if named else one_line(str(entry.get("step_id") or ""), 60)
        rest = " ".join(part for part in (step, explain.line_of(entry)) if part)
        return [*new_day, fences.cut(f"{head}  {one_line(rest, _LONGEST)}".rstrip(), wide)]

    def say_if_nothing(self) -> None:
        """Say that there was nothing, to a person."""
        if not self._told and not self._as_json:
            output.text(f"{self.handle}: no such events" if self._names else f"{self.handle}: no events")

    def _progress(self, printed: CommandOutput) -> None:
        if self._as_json:
            for line in printed.lines:
                base = {"ts": clock.now(), "run_id": self.run_id, "event": PROGRESS, "step_id": printed.step_id}
                told = {"stage": printed.stage, "line": mask(line)[0]}
                click.echo(output.line({**base, "properties": told}))
            return
        if printed.left_out:
            output.text(f"    | … {printed.left_out:,} bytes left out; command.log has them")
        for line in printed.lines:
            output.text(fences.cut(f"    | {masked_line(line, _LONGEST)}", output.columns()))


def _is_only_torn(space: Workspace, run_id: str) -> bool:
    """Tell whether what is no entry in a log is what kills tore off, by the verdict of `loomctl prove --log`."""
    try:
        found = log_verdict.verify(space.store, run_id)
    except (OSError, LoomError):
        return False
    odd = {fault.code for fault in found.faults} & {log_chain.NO_ENTRY, log_chain.LOG_CUT_OFF}
    return not odd and found.total == len(found.faults)


def _no_entry(line: Line, handle: str, *, torn: bool) -> str:
    if not line.ended:
        return f"the last line of events.jsonl ({line.bytes:,} bytes) is incomplete: a process is writing it, or died"
    why = "a killed process left it incomplete" if torn else f"for more: loomctl prove --log {handle}"
    return f"events.jsonl is damaged at byte {line.at:,} ({line.bytes:,} bytes): {why}"


def _since(given: str | None) -> Since | None:
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
        why = "examples: 120, 2026-01-31, 2026-01-31T08:00:00Z (UTC unless it says otherwise), 90s, 15m, 2h, 3d"
        what = f"{text!r:.80} is neither an event's number nor a time"
        raise LoomError("USAGE", what, why=why, hint="loomctl events --help", exit_code=EXIT_USAGE) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    at = at.astimezone(timezone.utc)
    if at.microsecond:
        at = at.replace(microsecond=0) + timedelta(seconds=1)
    return Since(ts=at.strftime("%Y-%m-%dT%H:%M:%SZ"))


# ---- A run that is watched.


class CommandOutput(NamedTuple):
    """Lines that a command step printed. left_out: bytes before them that are not told, for there were too many."""

    stage: str
    step_id: str
    lines: Sequence[str]
    left_out: int = 0


class Watch:
    """One run that is watched, from the end of its log as it is now.

    over: whether the run is completed or cancelled, so that nothing more will come. A state that cannot be read just
    now says nothing. Raises NO_SUCH_RUN once the run is gone.
    """

    def __init__(self, space: Workspace, run_id: str) -> None:
        self._space, self._run_id = space, run_id
        self._folder = space.store.run_dir(run_id)
        self.log = Follower(self._folder)
        self._stamp: tuple[int, int, int] | None = None
        self._command: _CommandLog | None = None
        self.over = False
        self._look(is_first=True)

    def news(self) -> list[Line | CommandOutput]:
        """Give what came since the last time. Raises OSError, UNSAFE_LINK and NO_SUCH_RUN."""
        before = self._command
        found: list[Line | CommandOutput] = [*before.news()] if before is not None else []
        self._look()  # before the log, so that of a run that is over by now all is told
        if self._command is not None and self._command is not before:
            found += self._command.news()
        found += self.log.news()
        return found

    def _look(self, *, is_first: bool = False) -> None:
        """Read the state, if it was written meanwhile: whether the run is over, which stage is open."""
        home = self._space.store.home(self._run_id)
        try:
            status = os.stat(home.state)
        except OSError:
            return
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            state = self._space.store.read_home(home)
        except LoomError:
            return
        self._stamp = stamp
        self.over = state["status"] in TERMINAL
        entry = visits.open_visit(state)
        stage = entry.get("stage") if entry is not None else None
        if entry is not None and isinstance(stage, str) and (self._command is None or self._command.stage != stage):
            self._command = _CommandLog(self._folder, entry, from_its_end=is_first)


class _CommandLog:
    """The `command.log` of one stage, which may never come."""

    def __init__(self, run_dir: str, entry: dict[str, Any], *, from_its_end: bool) -> None:
        self.stage: str = entry["stage"]
        self._step_id = str(entry["step_id"])
        self._run_dir = run_dir
        self._at = 0
        self._rest = b""
        path = os.path.join(stages.folder(run_dir, self.stage), command_runs.LOG)
        self._last = _BEFORE if from_its_end and os.path.exists(path) else 0

    def news(self) -> list[CommandOutput]:
        """Give the lines that came, whole ones."""
        try:
            data, left_out = self._read()
        except (OSError, LoomError):  # there is none, or none that may be read
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._last:
            lines, self._last = lines[-self._last :], 0
        if len(self._rest) > _MOST:  # a line without end
            lines, self._rest = [*lines, self._rest], b""
        # What a carriage return wrote over is not told: it is a progress bar.
        told = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in lines]
        return [CommandOutput(self.stage, self._step_id, told, left_out)] if told or left_out else []

    def _read(self) -> tuple[bytes, int]:
        path = os.path.join(stages.folder(self._run_dir, self.stage), command_runs.LOG)
        files.refuse_links(self._run_dir, path)
        descriptor = files.open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            if size < self._at:  # it was begun anew
                self._at, self._rest = 0, b""
            left_out = max(0, size - self._at - _MOST)
            data = os.pread(descriptor, min(_MOST, size - self._at), self._at + left_out)
        finally:
            os.close(descriptor)
        self._at += left_out + len(data)
        if left_out:
            skipped = data.find(b"\n") + 1
            data, left_out = data[skipped:], left_out + skipped + len(self._rest)
            self._rest = b""
        return data, 0 if self._last else left_out
