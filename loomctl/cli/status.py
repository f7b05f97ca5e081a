"""`loomctl status` and `loomctl statusline`: where a run stands, on one screen, as a document, and in one line."""

from __future__ import annotations

import json
import os
import shlex
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import command_line, output
from loomctl.cli.command_line import json_option, run_argument
from loomctl.hosts import table
from loomctl.kit import clock, trouble
from loomctl.kit.errors import EXIT_OK, EXIT_SETUP, LoomError
from loomctl.kit.package import __version__
from loomctl.kit.text import fences
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import prove
from loomctl.runs import find, hook_health, leases, log_verdict, project, stages
from loomctl.runs.hook_health import Silent
from loomctl.runs.machine import drivers, launcher_files
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import driving, sessions, visits
from loomctl.runs.model.standing import pauses_after, saved_from, saved_from_line
from loomctl.runs.store import event_log, events
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.tool_log import Tally
from loomctl.views import explain, overview

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loomctl.runs.hook_health import Health
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_LABELS, _NARROWEST, _WIDEST = 10, 24, 100  # columns: of what stands before each line, and of a screen
_EVENTS, _CHOICES = 3, 12
_LARGEST_LEDGER = 16 << 20  # bytes of a log that is gone through for the verdict on it, and for receipts
_LARGEST_LOG = 64 << 20  # bytes of tool steps whose sums are worth the time
_MARKS = {"done": "✓", "open": "▸", "skipped": "-", "pending": "·"}
_WORDS = {"done": "done", "skipped": "skipped", "pending": "to come"}
_WHO = {"user": "you", "assistant": "the assistant", "loom": "Loom", "nobody": "nobody"}
_GREEN, _YELLOW, _RED = "green", "yellow", "red"
_COLOURS = {"completed": _GREEN, "in_progress": _GREEN, "failed": _RED, "cancelled": _RED}
_COMBINED = """\
{title} takes one status line. To keep your own, let a script print both:

    #!/bin/sh
    given=$(cat)
    printf '%s' "$given" | YOUR-COMMAND
    printf '%s' "$given" | {command}

Loom's line is empty in a session without a run. To remove it, delete the key."""


@click.command()
@run_argument
@click.option(
    "--watch",
    is_flag=False,
    flag_value="",
    metavar="[SECONDS]",
    help="Show it again whenever the run changes, until Ctrl-C. Loom looks every SECONDS (2).",
)
@json_option
def status(run: str | None, watch: str | None, as_json: bool) -> int:
    """Show where a run stands and which command is next.

    It shows the phases and the open step, who works on it, and what this conversation has. It also shows what the last
    compaction kept, the last events, and whether the hooks work. `loomctl runs` lists all runs. `loomctl show` lists
    every step.

    \b
    Examples:
      loomctl status
      loomctl status shop-258 --json
      loomctl status --watch
    """
    space = command_line.space()
    if watch is not None:
        from loomctl.cli import status_watch

        run, seconds = status_watch.meant(run, watch, as_json=as_json)
        return status_watch.follow(space, command_line.run_id(space, run), seconds, _looked)
    now = time.time()
    told = _document(space, space.store.read(command_line.shown_run_id(space, run), to_show=True), now)
    if as_json:
        output.document(told)
        return EXIT_OK
    for line, colour in _screen(told, now):
        output.text(line, style=colour)
    return EXIT_OK


def _looked(space: Workspace, run_id: str, now: float) -> list[tuple[str, str]]:
    return _screen(_document(space, space.store.read(run_id, to_show=True), now), now)


def _screen(told: Mapping[str, Any], now: float) -> list[tuple[str, str]]:
    wide = max(_NARROWEST, min(_WIDEST, output.columns()))
    return list(_lines(_rows(told, now, wide - _LABELS), wide))


# ---- What there is to tell.


def _document(space: Workspace, run: Run, now: float) -> dict[str, Any]:
    state = run.state
    living = space.local.live_sessions(run.run_id, conversing=True)
    asks_itself = space.caller.host != TERMINAL and find.is_bound(space, run.run_id)
    session_id = space.caller.session_id if asks_itself else (living[-1] if living else None)
    session_id = session_id or state["sessions"].get("current_session_id")
    health = hook_health.look(
        space.local, space.store.local, command_line.of_the_host(), now=now, session_id=session_id
    )
    driver = leases.document(space, run.run_id, state)
    mine = driver is not None and driver["here"]
    held = driver is not None and not mine
    where = str(driver["hostname"] or "") if driver is not None else ""
    waits = overview.waits(space, run, is_driven=asks_itself or mine or bool(living), held=held, where=where)
    phases = stages.progress(run)
    tally = _tally(run)
    return {
        "run_id": run.run_id,
        "handle": run.handle,
        "run_dir": run.folder,
        "status": state["status"],
        "workflow_id": state["workflow_id"],
        "work_id": state.get("work_id"),
        "goal": state.get("goal"),
        "saved_from": saved_from(state),
        "phases": phases,
        "steps": {"done": sum(one["done"] for one in phases), "total": sum(one["steps"] for one in phases)},
        "step": overview.open_step(run),
        "pauses_after": pauses_after(state) or None,
        "waits": {"for": waits.who, "why": waits.why},
        "next": waits.command or None,
        "choices": [*waits.choices],
        "take_over": waits.take_over or None,
        "sessions": {"count": sessions.count(state), "summary": sessions.summary(state), "alive": living},
        "driver": driver,
        "driving": driving.told(state),
        "compactions": _compactions(space, run),
        "context": overview.given(space, run, session_id if isinstance(session_id, str) else None),
        "saved": {"tokens_before": tally.before, "tokens_after": tally.after, "saved_percent": tally.percent},
        "events": _events(run),
        "ledger": _ledger(space, run),
        "hooks": {
            **_hooks(health),
            "set_aside": len(launcher_files.spooled(space.store.local, launcher_files.UNFINISHED)),
        },
        "versions": {
            "loomctl": __version__,
            "hooks": max(health.beats.values(), key=lambda beat: beat.at).version if health.beats else None,
            "run": sessions.last_writer(state) or None,
            "skew": [one._asdict() for one in hook_health.skews(health.beats, state)],
        },
    }


def _tally(run: Run) -> Tally:
    try:
        return tool_log.tally(run.folder, Tally(), most=_LARGEST_LOG)
    except (OSError, LoomError):
        return Tally()


def _ledger(space: Workspace, run: Run) -> dict[str, Any] | None:
    """Give the verdict on the run's log; None for one that is too long for a glance, or cannot be read."""
    try:
        if os.stat(os.path.join(run.folder, events.FILE)).st_size > _LARGEST_LEDGER:
            return None
        found = log_verdict.verify(space.store, run.run_id)
    except (OSError, LoomError):
        return None
    return overview.verdict(found)


def _compactions(space: Workspace, run: Run) -> dict[str, Any]:
    """Give how often conversations of the run were compacted, and the last of them with its receipt, if it has one.

    pending: of what it lost the names that are still put back.
    """
    found = prove.of_records(space, run, sessions.history(run.state), largest=_LARGEST_LEDGER)
    if not found:
        return {"count": 0, "last": None}
    last = found[-1]
    receipt = {"receipt": last.receipt.to_dict()} if last.receipt is not None else {}
    coming = {"pending": [*last.pending]} if last.pending else {}
    return {"count": len(found), "last": {"at": last.at, "trigger": last.trigger, **receipt, **coming}}


def _events(run: Run) -> list[dict[str, Any]]:
    try:
        lines = event_log.tail(run.folder, _EVENTS)
    except (OSError, LoomError) as error:
        return [{"ts": None, "event": None, "said": f"Loom cannot read the log: {trouble.said(error)}"}]
    return [
        {"ts": line.entry.get("ts"), "event": line.entry.get("event"), "said": explain.line_of(line.entry)}
        for line in lines
        if line.entry is not None
    ]


def _hooks(health: Health) -> dict[str, Any]:
    newest = max(health.beats, key=lambda event: health.beats[event].at, default=None)
    return {
        "fired": len(health.beats),
        "last": newest and {"event": newest, "at": clock.stamp(health.beats[newest].at)},
        "silent": [
            {"event": one.event or "all", "how": one.how, "since": clock.stamp(one.since) if one.since else None}
            for one in health.silent
        ],
        "expected": bool(health.driving),
    }


# ---- The screen.


class _Row(NamedTuple):
    """What stands behind a label, masked already. most: lines that it may take; 0: one piece, to be pasted."""

    label: str
    text: str
    most: int = 1
    colour: str = ""


def _lines(rows: Iterable[_Row], wide: int) -> Iterator[tuple[str, str]]:
    """Wrap rows to a width; what is to be pasted has a line of its own where it is too wide for one with its label."""
    for row in rows:
        text = one_line(row.text, 2000)
        if row.most:
            parts = fences.wrapped(text, wide - _LABELS, row.most)
        elif fences.width(text) <= wide - _LABELS:
            parts = [text]
        else:
            yield row.label, ""
            yield text, ""
            continue
        for number, part in enumerate(parts):
            yield f"{row.label if number == 0 else '':<{_LABELS}}{part}", row.colour


def _rows(told: Mapping[str, Any], now: float, room: int) -> Iterator[_Row]:
    yield _Row("run", told["handle"], 0)
    standing = one_line(told["status"].replace("_", " "), 80)
    standing += ", pauses after this step" if told["pauses_after"] and told["status"] != "paused" else ""
    yield _Row("status", standing, colour=_COLOURS.get(told["status"], _YELLOW))
    work = f"work item {masked_line(str(told['work_id']), 80)}, by " if told["work_id"] else ""
    yield _Row("workflow", work + masked_line(str(told["workflow_id"]), 80))
    if told["saved_from"] is not None:
        yield _Row("copy of", saved_from_line(told["saved_from"], told), 3)
    if told["goal"]:
        yield _Row("goal", masked_line(str(told["goal"]), 400), 2)
    yield from _course(told, now, room)
    waits = told["waits"]
    yield _Row("waits", f"for {_WHO[waits['for']]}: {waits['why']}", 3, _YELLOW if waits["for"] == "user" else "")
    ways = [told["next"]] if told["next"] else overview.fitted_choices(told["choices"][:_CHOICES], room)
    for number, command in enumerate(ways):
        yield _Row("next" if number == 0 else "       or", command, 0)
    if told["take_over"]:
        yield _Row("take over", told["take_over"], 0)
    yield _sessions(told, now)
    yield from (_Row(*row) for row in _drive(told))
    if told["compactions"]["last"] is not None:
        yield _compacted(told["compactions"], now)
    yield from _context(told)
    yield from _verdict(told)
    yield from _health(told, now)
    for number, event in enumerate(told["events"]):
        at = clock.ago(one_line(str(event["ts"] or ""), 20), now)
        said = f"{at} {event['event'] or ''} {masked_line(event['said'], 300)}"
        yield _Row("events" if number == 0 else "", said)


def _course(told: Mapping[str, Any], now: float, room: int) -> Iterator[_Row]:
    phases, step = told["phases"], told["step"]
    if phases:
        done = f"({told['steps']['done']:,} of {counted(told['steps']['total'], 'step')})"
        every = f"{_marked(phases)} {done}"
        fits = len(fences.wrapped(every, room, 100)) <= 2
        yield _Row("phases", every if fits else f"{_counts(phases)} {done}", 3)
    if step is None:
        return
    ago = clock.ago(str(step["since"]), now)
    lasts = f"for {ago.removesuffix(' ago')}" if ago.endswith(" ago") else f"begun {ago}"
    how = "waits for its result" if step["status"] == "closing" else lasts
    yield _Row("step", f"{masked_line(str(step['id']), 120)}@{step['visit']} {how}", 2)
    if step["task"]:
        yield _Row("task", masked_line(visits.task_line(step["task"]).removeprefix("task "), 200), 2)
    if step["branches"]:
        yield _Row("branches", "; ".join(map(_branch, step["branches"])), 2)


def _marked(phases: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(f"{_MARKS[one['status']]} {masked_line(one['id'], 40)}" for one in phases)


def _counts(phases: Sequence[Mapping[str, Any]]) -> str:
    """Name the first phase that is open, and count the others."""
    is_open = [one for one in phases if one["status"] == "open"]
    counts = {status: sum(one["status"] == status for one in phases) for status in _WORDS}
    parts = [_marked(is_open[:1])] if is_open else []
    parts += [f"{_MARKS[status]} {count:,} {_WORDS[status]}" for status, count in counts.items() if count]
    return " ".join([*parts, *([f"{_MARKS['open']} {len(is_open) - 1:,} more open"] if is_open[1:] else [])])


def _branch(one: Mapping[str, Any]) -> str:
    at = f" at {masked_line(str(one['step']), 60)}" if one["step"] and one["status"] != "ended" else ""
    at += f", {masked_line(visits.task_line(one['task']), 80)}" if one["task"] else ""
    return f"{masked_line(one['id'], 40)} {one_line(one['status'].replace('_', ' '), 40)}{at}"


def _sessions(told: Mapping[str, Any], now: float) -> _Row:
    driver, alive = told["driver"], told["sessions"]["alive"]
    by = f"; {len(alive)} of them at work here" if alive else ""
    if driver is not None:
        where = f" on {masked_line(str(driver['hostname']), 40)}" if driver["hostname"] else ""
        since = str(driver["since"])
        began = f", who came {clock.ago(since, now)}" if clock.seconds_of(since) else ""
        who = "loomctl drive" if driver["host"] == drivers.HOST else masked_line(driver["session_id"], 40)
        by = f"; driven by {who}{where}{began}"
    return _Row("sessions", (told["sessions"]["summary"] if told["sessions"]["count"] else "none yet") + by, 2)


def _drive(told: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    return driving.rows(told["driving"], told["handle"], goes_on=(told["driver"] or {}).get("host") == drivers.HOST)


def _compacted(held: Mapping[str, Any], now: float) -> _Row:
    last, receipt = held["last"], held["last"].get("receipt")
    became = ""
    if isinstance(receipt, dict) and receipt.get("proven") is not True:
        became = ": unproven, there is no summary"
    elif isinstance(receipt, dict):
        lists = {**receipt, "pending": last.get("pending")}
        names = ("kept", "lost", "restored", "pending")
        became = ": " + ", ".join(f"{name} {len(lists[name])}" for name in names if isinstance(lists.get(name), list))
    times = "once" if held["count"] == 1 else f"{held['count']:,} times"
    at, trigger = clock.ago(str(last["at"]), now), masked_line(last["trigger"] or "?", 20)
    return _Row("compacted", f"{times}, the last {at} ({trigger}){became}", 2)


def _context(told: Mapping[str, Any]) -> Iterator[_Row]:
    has, lacks, saved = told["context"]["given"], told["context"]["not_given"], told["saved"]
    if has or lacks:
        given = f"given: {_names(has)}" if has else "nothing given yet"
        yield _Row("context", f"{given}; not given: {_names(lacks)}" if lacks else given, 2)
    if saved["saved_percent"] is not None:
        said = f"{saved['saved_percent']:g} % of {counted(saved['tokens_before'], 'token')} of tool output"
        yield _Row("saved", said)


def _names(names: Sequence[str]) -> str:
    first = ", ".join(masked_line(name, 40) for name in names[:8])
    return f"{first} and {len(names) - 8} more" if len(names) > 8 else first


def _verdict(told: Mapping[str, Any]) -> Iterator[_Row]:
    ledger = told["ledger"]
    if ledger is not None and ledger["fault"] is not None:
        said = f"! line {ledger['fault']['line']:,} has changed; for more:"
        yield _Row("log", said, colour=_RED)
        yield _Row("", f"loomctl prove --log {told['handle']}", 0)
    elif ledger is not None:
        behind = f"; {ledger['unproven']:,} after the checkpoint, unproven" if ledger["unproven"] else ""
        yield _Row("log", f"undamaged, {counted(ledger['entries'], 'event')}{behind}")


def _health(told: Mapping[str, Any], now: float) -> Iterator[_Row]:
    hooks = told["hooks"]
    for one in hooks["silent"][:2]:
        event = "" if one["event"] == "all" else one["event"]
        silent = Silent(event, one["how"], clock.seconds_of(str(one["since"])))
        yield _Row("hooks", f"! {hook_health.said(silent, now)}: loomctl doctor", 2, _RED)
    if not hooks["silent"] and hooks["last"]:
        at = clock.ago(str(hooks["last"]["at"]), now)
        yield _Row("hooks", f"all working; the last was {hooks['last']['event']}, {at}")
    elif not hooks["silent"] and hooks["expected"]:
        yield _Row("hooks", "none has run yet", colour=_YELLOW)
    if hooks["set_aside"]:
        said = f"! a killed hook left {counted(hooks['set_aside'], 'tool call')} unrecorded: loomctl steps"
        yield _Row("hooks", said, 2, _YELLOW)
    for skew in told["versions"]["skew"]:
        what = "the hooks are" if skew["part"] == "hooks" else "the run was last worked on by"
        said = f"! {what} {masked_line(skew['version'], 40)}, this loomctl is {__version__}: loomctl doctor"
        yield _Row("versions", said, 2, _YELLOW)


# ---- The line.


@click.command()
@click.option("--snippet", is_flag=True, help="Print the setting for the assistant's settings.json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def statusline(snippet: bool, as_json: bool) -> int:
    """Print where a run stands in a line of at most 80 columns.

    An assistant calls it as its status line, with the session on standard input. It prints the line of that session's
    run, or nothing. In a terminal it shows the current run. COLUMNS makes it shorter. If hooks do not work, the line
    begins with an alarm; `loomctl doctor` says more.

    \b
    Examples:
      loomctl statusline
      loomctl statusline --snippet
    """
    if snippet:
        return _snippet(as_json=as_json)
    space = command_line.space()
    space = space._replace(caller=space.caller._replace(conversation=command_line.of_the_host()))
    run_id = find.to_read(space).run_id
    assert run_id is not None  # to_read raises instead
    run = space.store.read(run_id, to_show=True)
    session_id = space.caller.session_id if find.is_bound(space, run_id) else None
    told = overview.line_of(space, run, session_id, Tally(), now=time.time())
    line = overview.fit(told.forms(), os.environ.get("COLUMNS", ""))
    output.answer(
        {"run_id": run_id, "handle": run.handle, "line": line, "alarm": told.alarm or None}, [line], as_json=as_json
    )
    return EXIT_OK


def _snippet(*, as_json: bool) -> int:
    """Make the script that the settings name, and print the key for them; the settings themselves are the user's."""
    launcher = os.path.join(project.plugin_root(), "bin", "loomctl")
    if not os.access(launcher, os.X_OK):
        what = "this loomctl has no launcher for a status line to call"
        raise LoomError("NO_BUNDLE", what, where=launcher, hint="command -v loomctl", exit_code=EXIT_SETUP)
    from loomctl.install import status_shim

    place = status_shim.write(launcher)
    if not place:
        what = "Loom has no folder for the status line's script"
        why = "neither HOME nor LOOM_STATE_HOME names a folder of yours"
        hint = 'export LOOM_STATE_HOME="$HOME/.loom-state"'
        raise LoomError("NO_HOME", what, why=why, hint=hint, exit_code=EXIT_SETUP)
    command = shlex.quote(place)
    settings = {"statusLine": {"type": "command", "command": command}}
    if as_json:
        output.document({"script": place, "settings": settings})
        return EXIT_OK
    told = json.dumps(settings, indent=2, ensure_ascii=False)
    beside = _COMBINED.replace("{command}", command).replace("{title}", table.CLAUDE.title)
    output.unmasked(f"For {table.SETTINGS}:\n\n{told}\n\n{beside}")
    return EXIT_OK
