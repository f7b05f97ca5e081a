"""`loomctl verify`: whether a run's log is the one that was written, and what of it is not proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import asking, printing
from loomctl.cli.options import json_option, run_argument
from loomctl.engine import verifying
from loomctl.model.counts import counted
from loomctl.model.errors import EXIT_FINDINGS, EXIT_INVALID, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.model.fences import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.engine.caller import Workspace
    from loomctl.engine.verifying import Verdict

_SHOWN = 5  # faults behind the first one that are listed


@click.command()
@run_argument
@click.option("--all", "every", is_flag=True, help="Verify every run of this project.")
@json_option
def verify(run: str | None, every: bool, as_json: bool) -> int:
    """Replay a run's log: name the first entry that does not fit, and what lies beyond the last checkpoint.

    Each entry names the hash of the line before it, and the state that of the last one: a byte that changed before
    that checkpoint, or a line that was dropped, added or moved, is found. A line that a kill tore off is none of that.
    It does not show a forger who writes log and state anew. Exit code 1 if something does not fit, 5 if a run cannot
    be read.

    \b
    Examples:
      loomctl verify
      loomctl verify shop-258 --json
      loomctl verify --all
    """
    if every and run:
        raise LoomError("USAGE", "RUN and --all say two things", hint="loomctl verify --all", exit_code=EXIT_USAGE)
    space = asking.space()
    if not every:
        run_id = asking.run_to_show(space, run)
        return _told([verifying.verify(space.store, run_id)], [], as_json=as_json)
    found, unread = _every(space)
    return _told(found, unread, as_json=as_json, every=True)


def _every(space: Workspace) -> tuple[list[Verdict], list[tuple[str, LoomError]]]:
    found: list[Verdict] = []
    unread: list[tuple[str, LoomError]] = []
    for run_id in space.store.run_ids():
        try:
            found.append(verifying.verify(space.store, run_id))
        except LoomError as error:
            unread.append((run_id, error))
    return found, unread


def _told(
    found: Sequence[Verdict], unread: Sequence[tuple[str, LoomError]], *, as_json: bool, every: bool = False
) -> int:
    if as_json and not every:
        printing.document(found[0].to_dict())
    elif as_json:
        refused = [{"run_id": run_id, "error": error.to_dict()} for run_id, error in unread]
        ok = not refused and all(verdict.ok for verdict in found)
        printing.document({"ok": ok, "runs": [verdict.to_dict() for verdict in found], "unreadable": refused})
    else:
        lines = [line for verdict in found for line in _lines(verdict)]
        lines += [f"✗ {run_id}: {error.code}: {one_line(error.what, 200)}" for run_id, error in unread]
        printing.text("\n".join(lines) or "No runs here yet.")
    if unread:
        return EXIT_INVALID
    return EXIT_OK if all(verdict.ok for verdict in found) else EXIT_FINDINGS


def _lines(verdict: Verdict) -> list[str]:
    if verdict.fault is None:
        lines = [f"✓ {verdict.run_id}: {_proven(verdict)}"]
    else:
        lines = [f"✗ {verdict.run_id}: {verdict.fault.what}", f"  where: {verdict.path}"]
        lines.append(f"  first: line {verdict.fault.line}, byte {verdict.fault.at:,} ({verdict.fault.code})")
        lines += [f"  why: {verdict.fault.why}"] if verdict.fault.why else []
        for fault in verdict.faults[1 : 1 + _SHOWN]:
            lines.append(f"  then: line {fault.line}, byte {fault.at:,} ({fault.code}): {fault.what}")
        more = verdict.total - 1 - _SHOWN
        lines += [f"  and {counted(more, 'place')} more"] if more > 0 else []
    if verdict.unproven and verdict.beyond is not None:
        said = f"unproven: {counted(verdict.unproven, 'event')} behind the last checkpoint"
        lines.append(f"  {said}, from line {verdict.beyond.line}")
    if verdict.torn_at is not None and verdict.fault is None:
        said = f"torn: {counted(verdict.torn, 'byte')} at the end are no entry, from line {verdict.torn_at.line}"
        lines.append(f"  {said}; a kill leaves such, and the next write closes it")
    if verdict.told_torn:
        lines.append(f"  torn before: {counted(verdict.told_torn, 'line')}, as the entry behind each tells")
    return lines


def _proven(verdict: Verdict) -> str:
    if verdict.checkpoint is None:
        return f"{counted(verdict.entries, 'event')} fit each other; the state remembers none of them"
    return f"{counted(verdict.entries - verdict.unproven, 'event')} proven, up to the last checkpoint"
