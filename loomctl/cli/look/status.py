"""`loomctl status`: where a run stands, on one screen for people; as a document for scripts."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import json_option, run_argument
from loomctl.kit import clock, trouble
from loomctl.kit.errors import EXIT_OK, LoomError
from loomctl.kit.text import columns
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.kit.version import __version__
from loomctl.priming.survival import log_receipts
from loomctl.runs import find, hook_health, leases, log_verdict, run_progress
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import saved_copies, sessions
from loomctl.runs.store import event_log, events
from loomctl.runs.tools import savings, spool
from loomctl.runs.tools.savings import Tally
from loomctl.views import event_lines, overview

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.hook_health import Health
    from loomctl.runs.store.store import Run

_LABELS = 10  # columns of what stands before each line
_NARROWEST, _WIDEST = 24, 100
_EVENTS = 3
_LARGEST_LEDGER = 16 << 20  # bytes of a log that is gone through for the verdict on it, and for receipts
_LARGEST_LOG = 64 << 20  # bytes of tool steps whose sums are worth the time
_MARKS = {"done": "✓", "open": "▸", "skipped": "-", "pending": "·"}
_GREEN, _YELLOW, _RED = "green", "yellow", "red"
_COLOURS = {"completed": _GREEN, "in_progress": _GREEN, "failed": _RED, "cancelled": _RED}


@click.command()
@run_argument
@json_option
def status(run: str | None, as_json: bool) -> int:
    """Tell on one screen where a run stands, what it waits for, and the one command that leads on.

    Its phases and open step, who works on it, what this conversation was given, what the last compaction kept, the last
    events, and whether hooks fire. `loomctl runs` lists all runs; `loomctl show` tells each step of one in full.

    \b
    Examples:
      loomctl status
      loomctl status shop-258 --json
    """
    space = caller.space()
    run_id = arguments.run_id(space, run)
    now = time.time()
    found = space.store.read(run_id, to_show=True)
    told = _document(space, found, now)
    if as_json:
        output.document(told)
        return EXIT_OK
    wide = _width()
    for line, colour in _lines(found, told, now, wide):
        output.text(line, style=colour)
    return EXIT_OK


# ---- What there is to tell.


def _document(space: Workspace, run: Run, now: float) -> dict[str, Any]:
    state = run.state
    living = space.local.live_sessions(run.run_id, conversing=True)
    asks_itself = space.caller.host != TERMINAL and find.is_bound(space, run.run_id)
    session_id = space.caller.session_id if asks_itself else (living[-1] if living else None)
    session_id = session_id or state["sessions"].get("current_session_id")
    health = hook_health.look(space.local, space.store.local, caller.of_the_host(), now=now, session_id=session_id)
    driver = leases.document(space, run.run_id, state)
    mine = driver is not None and driver["here"]
    held = driver is not None and not mine
    where = str(driver["hostname"] or "") if driver is not None else ""
    waits = overview.waits(run, is_driven=asks_itself or mine or bool(living), held=held, where=where)
    phases = run_progress.progress(run)
    tally = _tally(run)
    return {
        "run_id": run.run_id,
        "run_dir": run.folder,
        "status": state["status"],
        "workflow_id": state["workflow_id"],
        "work_id": state.get("work_id"),
        "goal": state.get("goal"),
        "saved_from": saved_copies.origin(state),
        "phases": phases,
        "steps": {"done": sum(one["done"] for one in phases), "total": sum(one["steps"] for one in phases)},
        "step": overview.open_step(run),
        "waits": {"for": waits.who, "why": waits.why},
        "next": waits.command or None,
        "sessions": {"count": sessions.count(state), "summary": sessions.summary(state), "alive": living},
        "driver": driver,
        "compactions": _compactions(space, run),
        "context": overview.given(space, run, session_id if isinstance(session_id, str) else None),
        "saved": {"tokens_before": tally.before, "tokens_after": tally.after, "saved_percent": tally.percent},
        "events": _events(run),
        "ledger": _ledger(space, run),
        "hooks": {**_hooks(health), "set_aside": len(spool.waiting(space.store.local, spool.UNFINISHED))},
        "versions": {
            "loomctl": __version__,
            "hooks": max(health.beats.values(), key=lambda beat: beat.at).version if health.beats else None,
            "run": sessions.last_writer(state) or None,
            "skew": [one._asdict() for one in hook_health.skews(health.beats, state)],
        },
    }


def _tally(run: Run) -> Tally:
    try:
        return savings.of(run.folder, Tally(), most=_LARGEST_LOG)
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
    fault = found.fault
    told = {"line": fault.line, "what": fault.what} if fault is not None else None
    return {"ok": found.ok, "entries": found.entries, "unproven": found.unproven, "fault": told}


def _compactions(space: Workspace, run: Run) -> dict[str, Any]:
    """Give how often conversations of the run were compacted, and the last of them with its receipt, if it has one.

    pending: of what it lost the names that are still put back.
    """
    found = log_receipts.of_records(space, run, sessions.history(run.state), largest=_LARGEST_LEDGER)
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
        return [{"ts": None, "event": None, "said": f"the log cannot be read: {trouble.said(error)}"}]
    return [
        {"ts": line.entry.get("ts"), "event": line.entry.get("event"), "said": event_lines.said(line.entry)}
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


def _width() -> int:
    """Give the columns to write in: what COLUMNS says, else the terminal, else 80."""
    said = os.environ.get("COLUMNS", "")
    wide = int(said[:6]) if said.isascii() and said[:6].isdigit() else 0
    if wide <= 0 and sys.stdout.isatty():
        try:
            wide = os.get_terminal_size(sys.stdout.fileno()).columns
        except OSError:
            wide = 0
    return max(_NARROWEST, min(_WIDEST, wide if wide > 0 else 80))


def _lines(run: Run, told: Mapping[str, Any], now: float, wide: int) -> list[tuple[str, str]]:
    """Give the screen's lines with their colours, each at most `wide` columns but for a command, which stays whole."""
    shown = Screen(wide)
    standing = told["status"].replace("_", " ")
    shown.whole("run", told["run_id"])
    shown.put("status", one_line(standing, 80), colour=_COLOURS.get(told["status"], _YELLOW))
    work = f"work item {masked_line(str(told['work_id']), 80)}, " if told["work_id"] else ""
    shown.put("workflow", f"{work}{'by ' if work else ''}{masked_line(str(told['workflow_id']), 80)}")
    if told["saved_from"] is not None:
        shown.put("copy of", saved_copies.said(told["saved_from"]), most=3)
    if told["goal"]:
        shown.put("goal", masked_line(str(told["goal"]), 400), most=2)
    _put_course(shown, told, now)
    colour = _YELLOW if told["waits"]["for"] == "user" else ""
    shown.put("waits", _waits(told["waits"]), most=3, colour=colour)
    if told["next"]:
        shown.whole("next", told["next"])
    _put_sessions(shown, told, now)
    _put_context(shown, told)
    _put_ledger(shown, told["run_id"], told["ledger"])
    _put_health(shown, told, now)
    for number, event in enumerate(told["events"]):
        said = f"{str(event['ts'] or '')[11:19]} {event['event'] or ''} {masked_line(event['said'], 300)}"
        shown.put("events" if number == 0 else "", said)
    return shown.lines


class Screen:
    """Lines with a label before each, wrapped to a width; what is put there is masked already. room: of a line."""

    def __init__(self, wide: int) -> None:
        self._wide = wide
        self.room = wide - _LABELS
        self.lines: list[tuple[str, str]] = []

    def put(self, label: str, text: str, *, most: int = 1, colour: str = "") -> None:
        """Put a text behind its label, in at most so many lines."""
        text = one_line(text, 2000)
        parts = columns.wrapped(text, self._wide - _LABELS, most)
        for number, part in enumerate(parts):
            self.lines.append((f"{label if number == 0 else '':<{_LABELS}}{part}", colour))

    def whole(self, label: str, text: str) -> None:
        """Put what is to be pasted: in one piece, on a line of its own where it is too wide for one with its label."""
        text = one_line(text, 2000)
        if columns.width(text) <= self._wide - _LABELS:
            self.lines.append((f"{label:<{_LABELS}}{text}", ""))
        else:
            self.lines += [(label, ""), (text, "")]


def _put_course(shown: Screen, told: Mapping[str, Any], now: float) -> None:
    """Put the phases with their marks, and the open step with its branches."""
    done = f"({told['steps']['done']:,} of {counted(told['steps']['total'], 'step')})"
    if told["phases"]:
        every = f"{_course(told['phases'])} {done}"
        fits = len(columns.wrapped(every, shown.room, 100)) <= 2
        shown.put("phases", every if fits else f"{_short_course(told['phases'])} {done}", most=3)
    step = told["step"]
    if step is None:
        return
    how = "is closing" if step["status"] == "closing" else _since(hook_health.ago(_elapsed(step["since"], now)))
    shown.put("step", f"{masked_line(str(step['id']), 120)}@{step['visit']} {how}", most=2)
    if step["branches"]:
        parts = [f"{masked_line(one['id'], 40)} {_branch(one)}" for one in step["branches"]]
        shown.put("branches", "; ".join(parts), most=2)


def _since(ago: str) -> str:
    """Say of what lasts for how long it has: of `3 minutes ago`, `for 3 minutes`."""
    return f"for {ago.removesuffix(' ago')}" if ago.endswith(" ago") else f"begun {ago}"


def _course(phases: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(f"{_MARKS[one['status']]} {masked_line(one['id'], 40)}" for one in phases)


def _short_course(phases: Sequence[Mapping[str, Any]]) -> str:
    """Name the phases that are open, and count the others."""
    is_open = [one for one in phases if one["status"] == "open"]
    parts = [_course(is_open[:1])] if is_open else []
    for status, word in (("done", "done"), ("skipped", "skipped"), ("pending", "to come")):
        count = sum(one["status"] == status for one in phases)
        parts += [f"{_MARKS[status]} {count:,} {word}"] if count else []
    more = len(is_open) - 1
    return " ".join([*parts, *([f"{_MARKS['open']} {more:,} more open"] if more > 0 else [])])


def _branch(one: Mapping[str, Any]) -> str:
    at = f" at {masked_line(str(one['step']), 60)}" if one["step"] and one["status"] != "ended" else ""
    return one_line(one["status"].replace("_", " "), 40) + at


def _waits(waits: Mapping[str, Any]) -> str:
    """Say for whom a run waits, and why."""
    if waits["for"] == "nobody":
        return f"for nobody: {waits['why']}"
    who = {"user": "its user", "assistant": "the assistant", "loom": "Loom"}[waits["for"]]
    return f"for {who}: {waits['why']}"


def _put_sessions(shown: Screen, told: Mapping[str, Any], now: float) -> None:
    driver, alive = told["driver"], told["sessions"]["alive"]
    by = ""
    if driver is not None:
        where = f" on {masked_line(str(driver['hostname']), 40)}" if driver["hostname"] else ""
        since = hook_health.seconds(driver["since"])
        began = f", who came {hook_health.ago(now - since)}" if since else ""
        by = f"; driven by {masked_line(driver['session_id'], 40)}{where}{began}"
    elif alive:
        by = f"; {len(alive)} of them at work here"
    shown.put("sessions", (told["sessions"]["summary"] if told["sessions"]["count"] else "none yet") + by, most=2)
    last = told["compactions"]["last"]
    if last is not None:
        times = "once" if told["compactions"]["count"] == 1 else f"{told['compactions']['count']:,} times"
        at = hook_health.ago(_elapsed(last.get("at"), now))
        shown.put("compacted", f"{times}, the last {at} ({_word(last.get('trigger'))}){_survived(last)}", most=2)


def _survived(last: Mapping[str, Any]) -> str:
    """Say what survived a compaction, where somebody looked."""
    receipt = last.get("receipt")
    if not isinstance(receipt, dict):
        return ""
    if receipt.get("proven") is not True:
        return ": unproven, for no summary came"
    parts = [
        f"{word} {len(names)}" for word in ("kept", "lost", "restored") if isinstance(names := receipt.get(word), list)
    ]
    parts += [f"pending {len(last['pending'])}"] if "pending" in last else []
    return f": {', '.join(parts)}" if parts else ""


def _put_context(shown: Screen, told: Mapping[str, Any]) -> None:
    context, saved = told["context"], told["saved"]
    has, lacks = context["given"], context["not_given"]
    if has or lacks:
        parts = [f"given: {_names(has)}"] if has else ["nothing given yet"]
        parts += [f"not given: {_names(lacks)}"] if lacks else []
        shown.put("context", "; ".join(parts), most=2)
    if saved["saved_percent"] is not None:
        shown.put("saved", f"{saved['saved_percent']:g} % of {counted(saved['tokens_before'], 'token')} of tool output")


def _names(names: Sequence[str]) -> str:
    first = ", ".join(masked_line(name, 40) for name in names[:8])
    return f"{first} and {len(names) - 8} more" if len(names) > 8 else first


def _put_ledger(shown: Screen, run_id: str, ledger: Mapping[str, Any] | None) -> None:
    """Put the verdict on the log."""
    if ledger is None:
        return
    if ledger["fault"] is not None:
        said = f"! line {ledger['fault']['line']:,} is not the one that was written; more of it:"
        shown.put("ledger", said, colour=_RED)
        shown.whole("", f"loomctl verify {run_id}")
        return
    behind = f"; {ledger['unproven']:,} behind the checkpoint, unproven" if ledger["unproven"] else ""
    shown.put("ledger", f"whole, {counted(ledger['entries'], 'event')}{behind}")


def _put_health(shown: Screen, told: Mapping[str, Any], now: float) -> None:
    """Put what is the matter with hooks and versions, or that nothing is."""
    hooks = told["hooks"]
    for one in hooks["silent"][:2]:
        from loomctl.runs.model.silence import Silent

        event = "" if one["event"] == "all" else one["event"]
        silent = Silent(event, one["how"], hook_health.seconds(one["since"]))
        shown.put("hooks", f"! {hook_health.said(silent, now)}: loomctl doctor", most=2, colour=_RED)
    if not hooks["silent"] and hooks["last"]:
        at = hook_health.ago(now - hook_health.seconds(hooks["last"]["at"]))
        shown.put("hooks", f"none is silent; the last was {hooks['last']['event']}, {at}")
    elif not hooks["silent"] and hooks["expected"]:
        shown.put("hooks", "none has fired yet", colour=_YELLOW)
    if hooks["set_aside"]:
        said = f"! {counted(hooks['set_aside'], 'tool call')} set aside, for a hook was killed: loomctl steps"
        shown.put("hooks", said, most=2, colour=_YELLOW)
    for skew in told["versions"]["skew"]:
        what = "the hooks are" if skew["part"] == "hooks" else "the run was last worked on by"
        said = f"! {what} {masked_line(skew['version'], 40)}, this loomctl is {__version__}: loomctl doctor"
        shown.put("versions", said, most=2, colour=_YELLOW)


def _word(value: object) -> str:
    return masked_line(str(value or "?"), 20)


def _elapsed(stamp: object, now: float) -> float:
    """Give the seconds since a stamp; 0 for what is none."""
    at = hook_health.seconds(stamp)
    return now - at if at else 0.0
