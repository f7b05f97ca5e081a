"""`loomctl waits`: what waits for whom, over all runs of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import command_line, output
from loomctl.cli.command_line import json_option, run_argument
from loomctl.flow import tell as telling
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_OK, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs import find
from loomctl.runs.model import standing
from loomctl.runs.model.state import ACTIVE, handle
from loomctl.runs.store import run_index
from loomctl.views import overview

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.runs.model.standing import Wait
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_STOPPED = ("paused", "failed")
_CHOICES = 12
_INDENT = "    "


class _Asked(NamedTuple):
    run_id: str
    handle: str
    wait: Wait

    def to_dict(self) -> dict[str, Any]:
        told = self.wait._asdict()
        nothing = {key: told[key] or None for key in ("step", "since", "until")}
        known = {"kind": self.wait.kind, **nothing, "question": self.wait.question}
        more = {"choices": [*self.wait.choices], "command": self.wait.command, "branch": self.wait.branch or None}
        return {"run_id": self.run_id, "handle": self.handle, **known, **more}


class _Seen(NamedTuple):
    """waits: the oldest first; stopped: `{run_id, handle, status, command}`; unreadable: `{run_id, handle, error}`."""

    waits: list[_Asked]
    stopped: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]


@click.command()
@run_argument
@json_option
def waits(run: str | None, as_json: bool) -> int:
    """List what the runs wait for and which command answers it.

    A run waits for your decision, your trust in its commands, your answer, for a time, or at a limit. The oldest stands
    first; with RUN, that run alone is listed.
    A paused or failed run waits for nothing but `loomctl resume`; Loom only counts those, and --json lists them.

    \b
    Examples:
      loomctl waits
      loomctl waits shop-258
      loomctl waits --json
    """
    space = command_line.space(make=run is None)
    seen = _seen(space, [find.run_to_read(space, run)] if run is not None else None)
    if as_json:
        told = [one.to_dict() for one in seen.waits]
        output.document({"waits": told, "stopped": seen.stopped, "unreadable": seen.unreadable})
    else:
        output.prose("\n".join(_lines(seen)))
    return EXIT_OK


def _seen(space: Workspace, only: Sequence[str] | None) -> _Seen:
    found = _Seen([], [], [])
    for one in run_index.summaries(space.store):
        if only is not None and one["run_id"] not in only:
            continue
        if one["status"] not in (*ACTIVE, *_STOPPED, None):
            continue
        try:
            _look(space, str(one["run_id"]), found)
        except LoomError as error:
            if only is not None:
                raise
            known = {"run_id": one["run_id"], "handle": space.store.handle(one["run_id"])}
            found.unreadable.append({**known, "error": f"{error.code}: {error.what}"})
    found.waits.sort(key=lambda one: one.wait.since or "~")
    return found


def _look(space: Workspace, run_id: str, found: _Seen) -> None:
    run = space.store.read(run_id, to_show=True)
    every = overview.waiting(space, run)
    found.waits.extend(_Asked(run_id, run.handle, _from_here(space, run, one)) for one in every)
    status = run.state["status"]
    if status in _STOPPED and not every:
        resumed = standing.command("resume", handle(run.state))
        found.stopped.append({"run_id": run_id, "handle": run.handle, "status": status, "command": resumed})


def _from_here(space: Workspace, run: Run, wait: Wait) -> Wait:
    """Give what is answered by resuming with the command that does so from here, also from who drives the run.

    Where a drive has ended, that is a word for the assistant, and driving on once it is said.
    """
    if not wait.command.startswith("loomctl resume"):
        return wait
    if wait.kind == standing.QUESTION and find.is_left_by_a_drive(space, run.state):
        is_said = bool(telling.waiting(space, run.run_id))
        return wait._replace(command=f"loomctl drive {run.handle}" if is_said else f"loomctl tell {run.handle} -")
    return wait._replace(command=find.way_in(space, run.run_id))


def _lines(seen: _Seen) -> Iterator[str]:
    if not seen.waits:
        yield "Nothing waits."
    for one in seen.waits:
        at = f" ({output.when(one.wait.since)})" if one.wait.since else ""
        yield f"{one.handle} waits {_for(one.wait)}{at}"
        ways = overview.fitted_choices(one.wait.ways(one.handle)[:_CHOICES], output.columns() - len(_INDENT))
        yield from (f"{_INDENT}{way}" for way in ways)
    count = len(seen.stopped)
    if count:
        way = seen.stopped[0]["command"] if count == 1 else "loomctl runs"
        yield f"Besides, {counted(count, 'run')} {'is' if count == 1 else 'are'} paused or failed: {way}"
    for broken in seen.unreadable:
        yield f"! {broken['handle']} is unreadable: {one_line(broken['error'], 300)}"


def _for(wait: Wait) -> str:
    told = wait.question
    if wait.branch:
        told = f"{wait.branch}: {told}"
    if wait.kind == standing.TIME:
        until = " ".join(clock.day_and_time(wait.until)) if wait.until else "a time that is not known"
        return f"until {until}" + (f": {told}" if told else "")
    if wait.kind == standing.LIMIT:
        return f"at a limit: {told}" if told else "at a limit"
    if wait.kind == standing.QUESTION:
        return f"for your answer to: {told}" if told else "for your answer"
    return f"for {told}" if wait.kind == standing.TRUST and told.startswith("trust") else f"for you: {told}"
