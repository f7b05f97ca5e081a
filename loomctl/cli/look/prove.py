"""`loomctl prove`: what survived the compactions of a run, and what its conversations had at each start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import json_option, run_argument
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.kit.text.fences import counted, one_line
from loomctl.priming import prove as proving
from loomctl.priming import receipts
from loomctl.workflows import survival

if TYPE_CHECKING:
    from loomctl.priming.prove import Proof
    from loomctl.priming.receipts import Compacted, Receipt, Start

_SHOWN, _NOTE = 100, 200  # UTF-16 units of an item, and of what is noted of it
_KINDS = {survival.TEXT: "text", survival.PATH: "path", survival.ARTIFACT: "artifact"}
_PENDING = "lost, pending: it comes back with the next tool result or prompt"
_ABSENT = "absent, had no text then"


@click.command()
@run_argument
@click.option("--add", "added", metavar="ITEM", multiple=True, help="Let ITEM survive too; may be given again.")
@click.option("--drop", "dropped", metavar="ITEM", multiple=True, help="Take back an ITEM that was added so.")
@json_option
def prove(run: str | None, added: tuple[str, ...], dropped: tuple[str, ...], as_json: bool) -> int:
    """Say what survived each compaction of RUN, and which artifacts its conversations had from each start on.

    Of what must survive: kept, lost, put back or still pending; unproven without a summary. Of artifacts, at a new
    session, resume, clear, compaction, take-up and move: present; restored by the host, or a Read; reachable, for it
    is named with how to read it; stale, for an older content stands there; lost.
    ITEM is a text, the id of a critical artifact, or a path into the run's state that begins with `$.`, which is
    looked for by the value it has when the compaction comes. What the workflow declares stands under must_survive.
    Exit code 1: something was lost and not put back, or is stale. What is pending, for its session's next tool result
    or prompt brings it back, is no finding as long as that session lives.

    \b
    Examples:
      loomctl prove
      loomctl prove shop-258 --json
      loomctl prove --add "The deadline is 3 May" --add '$.context.budget'
    """
    space = caller.space()
    doubtful = proving.declare(space, run, added, dropped) if added or dropped else []
    for one in doubtful:
        hint = f"\n  hint: {one_line(one.hint, 400)}" if one.hint else ""
        output.note(f"loomctl: {one.code}: {one_line(one.message, 400)}{hint}")
    found = proving.proof(space, arguments.run_id(space, run))
    output.answer(found.to_dict(), _lines(found), as_json=as_json)
    return EXIT_FINDINGS if found.lost or found.stale else EXIT_OK


def _lines(found: Proof) -> list[str]:
    if not found.items and not found.starts and not any(one.receipt for one in found.compactions):
        said = (
            "declares nothing that must survive (must_survive in its workflow, or loomctl prove --add), and no start "
            "of a session was looked at yet"
        )
        return [f"run {found.run_id} {said}"]
    items = counted(len(found.items), "item")
    lines = [f"run {found.run_id}: {items} must survive, {counted(len(found.compactions), 'compaction')}"]
    lines += [f"  {_KINDS[item.kind]}: {one_line(item.name, _SHOWN)}" for item in found.items]
    if not found.compactions and not found.starts:
        return lines
    for one in found.compactions:
        lines += _of_one(one)
    if found.starts:
        lines.append(f"artifacts, at {counted(len(found.starts), 'start')}:")
    for start in found.starts:
        lines += _of_start(start)
    return [*lines, proving.CLAIM]


def _of_start(one: Start) -> list[str]:
    head = f"{one_line(one.at, 40)} {receipts.BEGUN[one.event]}, session {one_line(one.session_id, 8)}"
    counts = ", ".join(f"{fate} {len(one.of(fate))}" for fate in receipts.FATES if one.of(fate))
    named = [f"  {fate}: {one_line(', '.join(one.of(fate)), _NOTE)}" for fate in receipts.FATES if one.of(fate)]
    return [f"{head}: {counts or 'nothing was due'}", *named]


def _of_one(one: Compacted) -> list[str]:
    head = f"{one_line(one.at, 40)} {one_line(one.trigger, 40)}, session {one_line(one.session_id, 8)}"
    receipt = one.receipt
    if receipt is None:
        return [f"{head}: nothing was declared, or nobody looked"]
    kept = [f"  {_noted('kept', receipt, name)}: {one_line(name, _SHOWN)}" for name in receipt.kept]
    if not receipt.proven:
        given = [f"  {_noted('given', receipt, name)}: {one_line(name, _SHOWN)}" for name in receipt.kept]
        return [f"{head}: unproven, no summary came; in what Loom gave: {len(receipt.kept)}", *given]
    put_back = f", put back {len(receipt.restored)}" if receipt.lost else ""
    pending = f", pending {len(one.pending)}" if one.pending else ""
    absent = f", absent {len(receipt.absent)}" if receipt.absent else ""
    lines = [f"{head}: kept {len(receipt.kept)}, lost {len(receipt.lost)}{put_back}{pending}{absent}", *kept]
    for name in receipt.lost:
        pending = _PENDING if name in one.pending else _noted("lost", receipt, name)
        how = "lost, put back" if name in receipt.restored else pending
        lines.append(f"  {how}: {one_line(name, _SHOWN)}")
    absences = ((_noted("absent", receipt, name, _ABSENT), name) for name in receipt.absent)
    return lines + [f"  {why}: {one_line(name, _SHOWN)}" for why, name in absences]


def _noted(what: str, receipt: Receipt, name: str, otherwise: str = "") -> str:
    note = receipt.notes.get(name)
    return f"{what}, {one_line(note, _NOTE)}" if note else otherwise or what
