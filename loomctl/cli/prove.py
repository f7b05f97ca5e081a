"""`loomctl prove`: what survived the compactions of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import asking, printing
from loomctl.cli.options import json_option, run_argument
from loomctl.engine import proving
from loomctl.model import survival
from loomctl.model.counts import counted
from loomctl.model.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.model.fences import one_line

if TYPE_CHECKING:
    from loomctl.engine.proving import Proof
    from loomctl.model.receipts import Compacted, Receipt

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
    """Say what survived each compaction of RUN: kept, lost, put back or still pending; unproven without a summary.

    ITEM is a text, the id of a critical artifact, or a path into the run's state that begins with `$.`, which is
    looked for by the value it has when the compaction comes. What the workflow declares stands under must_survive.
    Exit code 1: something was lost and not put back. What is pending, for its session's next tool result or prompt
    brings it back, is no finding as long as that session lives.

    \b
    Examples:
      loomctl prove
      loomctl prove shop-258 --json
      loomctl prove --add "The deadline is 3 May" --add '$.context.budget'
    """
    space = asking.space()
    doubtful = proving.declare(space, run, added, dropped) if added or dropped else []
    for one in doubtful:
        hint = f"\n  hint: {one_line(one.hint, 400)}" if one.hint else ""
        printing.note(f"loomctl: {one.code}: {one_line(one.message, 400)}{hint}")
    found = proving.proof(space, asking.run_to_show(space, run))
    if as_json:
        printing.document(found.to_dict())
    else:
        printing.text("\n".join(_lines(found)))
    return EXIT_FINDINGS if found.lost else EXIT_OK


def _lines(found: Proof) -> list[str]:
    if not found.items and not any(one.receipt for one in found.compactions):
        said = "declares nothing that must survive: must_survive in its workflow, or loomctl prove --add"
        return [f"run {found.run_id} {said}"]
    items = counted(len(found.items), "item")
    lines = [f"run {found.run_id}: {items} must survive, {counted(len(found.compactions), 'compaction')}"]
    lines += [f"  {_KINDS[item.kind]}: {one_line(item.name, _SHOWN)}" for item in found.items]
    if not found.compactions:
        return lines
    for one in found.compactions:
        lines += _of_one(one)
    return [*lines, proving.CLAIM]


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
    """Say what became of an item with what its receipt notes of it."""
    note = receipt.notes.get(name)
    return f"{what}, {one_line(note, _NOTE)}" if note else otherwise or what
