"""What a person sees of `loomctl drive`: a block that is drawn anew, a line for each event, or JSON objects (D73)."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from loomctl.cli import output
from loomctl.drive.account import Sum
from loomctl.drive.asked import NOW, STEP
from loomctl.drive.seen import Ended
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_BUG
from loomctl.kit.text import fences
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import leases
from loomctl.runs.model import visits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.cli.unattended.notice import Notice
    from loomctl.drive.seen import Seen
    from loomctl.drive.watch import Watch
    from loomctl.kit.errors import LoomError
    from loomctl.runs.store.store import Run

_PAUSE = 0.5  # seconds between two drawings
_NARROWEST, _WIDEST, _LABEL = 20, 100, 9  # columns
_MOST_NAMED = 5
_ASKED = {
    NOW: "Ends now.",
    STEP: "Ends after this step. Ctrl-C ends it now.",
}
_KEYS = "Ctrl-C ends it after this step, twice now."


class Shown:
    """A drive on its screen, with a call for its user where they are needed."""

    def __init__(self, screen: Told | Lines, notice: Notice) -> None:
        self._screen, self._notice = screen, notice

    def __call__(self, seen: Seen) -> None:
        """Show a look at the run."""
        self._screen(seen)
        self._notice(seen)

    def ended(self, ended: Ended, command: str) -> None:
        """Say how the drive ended. command: the next one."""
        self._screen.ended(ended, command)
        self._notice.ended(ended, command)

    def failed(self, run: Run, error: LoomError) -> None:
        """Tell of an error that ended it, and that whoever called the driver says."""
        self._screen.failed(run, error)
        if error.code != leases.HELD_BY_ANOTHER:
            self._notice.failed(run.handle, error)

    def close(self) -> None:
        """Leave the screen as it is to stay."""
        self._screen.close()


class Told:
    """Tells of a drive in a JSON object a line."""

    def __init__(self, host: str, root: str) -> None:
        self._host, self._root, self._last = host, root, ("", 0, "")
        self._began, self._works = False, True
        self._spent, self._spent_at = Sum(0.0), 0.0

    def __call__(self, seen: Seen) -> None:
        """Tell what has just happened, if anything has."""
        for event, more in self._news(seen):
            self._tell({"event": event, **more})

    def _news(self, seen: Seen) -> Iterator[tuple[str, dict[str, Any]]]:
        stand = seen.stand
        if not self._began:
            self._began = True
            limits = {key: value for key, value in seen.limits._asdict().items() if value is not None}
            known = {"run_id": seen.run.run_id, "handle": seen.run.handle, "host": self._host, "root": self._root}
            yield "drive.started", {**known, "limits": limits}
        if seen.what:
            yield seen.what, {"turn": seen.turn, **seen.told}
        place = (stand.step, stand.visit, stand.task)
        if place != self._last and stand.visit:
            self._last = place
            task = visits.short_task(visits.open_visit(seen.run.state))
            opened: dict[str, Any] = {"turn": seen.turn, "step": stand.step, "visit": stand.visit, "task": task}
            yield "step", {**opened, "cost": seen.spent.cost}
        yield from self._costs(seen)

    def _costs(self, seen: Seen) -> Iterator[tuple[str, dict[str, Any]]]:
        """Tell what the run has cost where that is another sum, a turn's last one at once."""
        now, spent = time.monotonic(), seen.spent
        if spent == self._spent or (now - self._spent_at < _PAUSE * 0.9 and seen.what != "turn.ended"):
            return
        self._spent, self._spent_at = spent, now
        estimated = {"estimated": True} if spent.estimated else {}
        yield "cost", {"turn": seen.turn, "cost": round(spent.cost, 6), "tokens": spent.tokens, **estimated}

    def ended(self, ended: Ended, command: str) -> None:
        """Tell how the drive ended."""
        run = ended.run
        told = {"event": "drive.ended", "run_id": run.run_id, "handle": run.handle, "status": run.state["status"]}
        self._tell({**told, **brief(ended, command)})

    def failed(self, run: Run, error: LoomError) -> None:
        """Tell that an error ended the drive, where it had begun."""
        if self._began:
            kind = "bug" if error.exit_code == EXIT_BUG else "error"
            self.ended(Ended(error.exit_code, kind, error.what, run), error.hint)

    def close(self) -> None:
        """Do nothing: each line stands for itself."""

    def _tell(self, told: dict[str, Any]) -> None:
        try:
            if self._works:
                output.event(told)
        except OSError:  # nobody reads on; the run goes on
            self._works = False


def brief(ended: Ended, command: str) -> dict[str, Any]:
    """Give how a drive ended, and what is next: `code`, `kind`, `why`, `until` of a time, `unsent`, `command`."""
    more: dict[str, Any] = {"until": ended.until} if ended.until else {}
    more |= {"notes": [*ended.notes]} if ended.notes else {}
    more |= {"unsent": ended.unsent} if ended.unsent else {}
    return {"code": ended.code, "kind": ended.kind, "why": ended.why, **more, "command": command or None}


class Lines:
    """Tells of a drive on standard error: a line for each turn, step, wait and refusal.

    Where that is a terminal a block below them says what goes on just now.
    """

    def __init__(self) -> None:
        self._last: tuple[str, int, str] = ("", 0, "")
        self._denied, self._asked, self._turn, self._works = 0, "", 0, True
        self._block = Block() if may_draw() else None

    def __call__(self, seen: Seen) -> None:
        """Print what is new, and draw the block where it is due."""
        try:
            if self._works:
                news = list(self._news(seen))
                if news and self._block is not None:
                    self._block.clear()
                for line in news:
                    output.note(line)
                if self._block is not None:
                    self._block.show(seen, is_due=bool(news))
        except OSError:  # the terminal is gone; whoever closed it has sent a signal
            self._works = False

    def _news(self, seen: Seen) -> Iterator[str]:
        stand = seen.stand
        if seen.what == "turn.started":
            yield f"turn {seen.turn} begins, {'in the same' if seen.told.get('goes_on') else 'in a new'} conversation"
            self._denied = 0
        place = (stand.step, stand.visit, stand.task)
        if place != self._last and stand.visit:
            self._last = place
            yield f"step {_step(seen)}"
        denied = list(seen.watch.denied.values())[self._denied :] if seen.watch is not None else []
        for one in denied:
            yield f"refused: {masked_line(one.what, 120)}"
        self._denied += len(denied)
        if seen.what == "turn.ended":
            yield _turn_ended(seen)
        if seen.what == "waiting":
            yield f"waits until {_when(seen.told)}{_because(seen.told)}"
        if seen.asked != self._asked:
            self._asked = seen.asked
            yield _ASKED[seen.asked]

    def ended(self, ended: Ended, command: str) -> None:
        """Say how the drive ended, on standard output."""
        try:
            for note in ended.notes:
                output.note(note)
            output.prose(f"Loom: {ended.run.handle}: {ended.why}" + (f"\n  {command}" if command else ""))
        except OSError:
            pass

    def failed(self, run: Run, error: LoomError) -> None:  # noqa: ARG002 - whoever called the driver says it
        """Leave the screen to the error's words."""
        self.close()

    def close(self) -> None:
        """Take the block away: what stands above it stays."""
        try:
            if self._block is not None:
                self._block.clear()
        except OSError:
            pass


def _step(seen: Seen) -> str:
    entry = visits.open_visit(seen.run.state)
    task = visits.task_of(entry)
    again = f", time {seen.stand.visit}" if seen.stand.visit > 1 and not task else ""
    told = f", {visits.task_line(task)}" if task else ""
    return masked_line(f"{seen.stand.step}{again}{told}", 160)


def _turn_ended(seen: Seen) -> str:
    told = seen.told
    cost = told.get("cost")
    parts = [_span(float(told.get("seconds") or 0)), counted(int(told.get("calls") or 0), "call")]
    parts += [f"{cost:.2f} USD"] if isinstance(cost, float) else []
    parts += [f"{told['killed']} killed"] if told.get("killed") else []
    why = masked_line(str(told.get("why") or ""), 300)
    return f"turn {seen.turn} ended after {', '.join(parts)}{f': {why}' if why else ''}"


def _when(told: Mapping[str, Any]) -> str:
    day, at = clock.day_and_time(str(told.get("until")))
    return at if day == time.strftime("%Y-%m-%d") else f"{day} {at}"


def _because(told: Mapping[str, Any]) -> str:
    why = masked_line(str(told.get("why") or ""), 300)
    return f": {why}" if why else ""


def _span(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min" if minutes else f"{int(seconds)} s"


# ---- The block.


def may_draw() -> bool:
    """Tell whether standard error is a person's terminal on which something may be drawn anew."""
    return output.is_a_screen(sys.stderr)


class Block:
    """A few lines at the end of standard error, each time over the ones before."""

    def __init__(self) -> None:
        self._drawn: list[str] = []
        self._at = 0.0
        self._wait: Mapping[str, Any] = {}

    def show(self, seen: Seen, *, is_due: bool) -> None:
        """Draw it if that was not done just now, and not while something else is in front of the terminal."""
        self._wait = seen.told if seen.what == "waiting" else {} if seen.what else self._wait
        now = time.monotonic()
        if not is_due and now - self._at < _PAUSE * 0.9:
            return
        self._at = now
        wide = _columns()
        lines = [fences.cut(line, wide - 1) for line in self._lines(seen, now)]
        if _is_in_front():
            self._put(lines[: _rows() - 1])  # what is above the screen cannot be drawn over

    def clear(self) -> None:
        """Take it off the screen."""
        self._put([])

    def _put(self, lines: list[str]) -> None:
        wide = _columns()
        rows = sum(max(1, -(-fences.width(line) // wide)) for line in self._drawn)  # a narrower screen broke them
        up = f"\033[{rows}A" if rows else ""
        if self._drawn or lines:
            # Line by line: tmux keeps what is cleared at once, as history.
            shown = "".join(f"{output.shown(line)}\033[K\n" for line in lines)
            blank = "\033[K\n" * max(0, rows - len(lines))
            back = f"\033[{blank.count(chr(10))}A" if blank else ""
            sys.stderr.write(f"\r{up}{shown}{blank}{back}")
            sys.stderr.flush()
        self._drawn = lines

    def _lines(self, seen: Seen, now: float) -> Iterator[str]:
        limits, watch = seen.limits, seen.watch
        for label, text in self._rows(seen, watch, now):
            yield f"  {label:<{_LABEL}}{one_line(text, _WIDEST)}"
        of = f" of {_span(limits.time)}" if limits.time is not None else ""
        yield f"  {'time':<{_LABEL}}{_span(seen.seconds)}{of}"
        yield _ASKED.get(seen.asked, _KEYS)

    def _rows(self, seen: Seen, watch: Watch | None, now: float) -> Iterator[tuple[str, str]]:
        limits = seen.limits
        yield "run", seen.run.handle
        if seen.stand.step:
            yield "step", _step(seen)
        if self._wait:
            yield "waits", f"until {_when(self._wait)}{_because(self._wait)}"
        of = f" of {limits.turns}" if limits.turns is not None else ""
        if watch is not None:
            spent = f"{counted(watch.calls, 'call')}, {counted(watch.tokens, 'token')}"
            yield "turn", f"{seen.turn}{of}, for {_span(now - watch.began)}; {spent}"
            if watch.last_call:
                yield "last", f"{_span(now - watch.called)} ago: {masked_line(watch.last_call, 120)}"
            yield "silence", f"{_span(now - watch.last)} of {_span(limits.silence)}"
            if watch.denied:
                what = [word for one in watch.denied.values() for word in one.rules or (one.what,)]
                yield "refused", masked_line(", ".join(dict.fromkeys(what[-_MOST_NAMED:])), 120)
        most = f" of {limits.cost:.2f}" if limits.cost is not None else ""
        about = "about " if seen.spent.estimated else ""
        yield "cost", f"{about}{seen.spent.cost:.2f}{most} USD"


def _columns() -> int:
    try:
        wide = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        wide = 0
    return max(_NARROWEST, wide or output.columns())


def _rows() -> int:
    try:
        high = os.get_terminal_size(sys.stderr.fileno()).lines
    except (OSError, ValueError):
        high = 0
    return max(2, high or 25)


def _is_in_front() -> bool:
    """Tell whether this process may draw: in the background the terminal is another's."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True
