"""What a compaction must not lose: asked for before it, looked for after it, and noted in a receipt.

Missing is what stands neither in the host's summary nor in what the priming after the compaction gave. Presence of a
text is what is claimed, no more.
"""

from __future__ import annotations

from loomctl.kit.lock import HOOK_PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.units import utf16_units
from loomctl.priming.due import LOAD
from loomctl.priming.survival import receipts, survivors
from loomctl.priming.survival.receipts import Receipt
from loomctl.runs import leases
from loomctl.runs.machine import owed
from loomctl.runs.store.events import Event
from loomctl.workflows.model import survival
from loomctl.workflows.model.survival import ARTIFACT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.priming.primed import Slip
    from loomctl.priming.survival.survivors import Survivor
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

_LONGEST_ASKED, _MOST_ASKED = 300, 20


class Judged(NamedTuple):
    """A compaction that was looked at. receipt: what became of the items; owed: whether something is put back later."""

    receipt: Receipt
    owed: bool


def begun(space: Workspace, run: Run, made: Slip) -> State:
    """Note at the start after a compaction what its priming gave: a receipt that no summary has proven yet.

    run: with the state in which the compaction is recorded already. Without items the state stays as it is. A text
    that is larger than the priming is not read, for it cannot stand in it.
    """
    session_id = space.caller.session_id
    items = survival.items(run.plan, run.state)
    if not items or session_id is None:
        return run.state
    gave = [
        entry for entry in made.entries if (entry.decision == LOAD and entry.form == "full") or entry.reason == "memory"
    ]
    whole = {entry.id: survivors.OF.get(entry.of, "") for entry in gave if not survival.is_secret(entry.given)}
    others = [item for item in items if item.kind != ARTIFACT]
    present = _standing_in(survivors.found(space, run, others, limit=8 * len(made.text)), made.text)
    kept = [item.name for item in items if (item.value in whole if item.kind == ARTIFACT else item.name in present)]
    notes = {item.name: whole[item.value] for item in items if item.kind == ARTIFACT and whole.get(item.value)}
    return receipts.noted(run.state, session_id, Receipt(False, kept, [], [], [], notes))


def _standing_in(found: Mapping[str, Survivor], text: str) -> list[str]:
    """Give the names of what stands in a text. Of texts that are alike but for their secrets nobody can tell which."""
    told = survival.looked_through(text)
    texts = {name: one.text for name, one in found.items() if one.text is not None}
    shown = [survival.flat(one) for one in texts.values() if survival.holds_masks(one)]
    alike = {one for one in shown if shown.count(one) > 1}
    unclear = {name for name, one in texts.items() if alike and survival.flat(one) in alike}
    return [name for name, one in texts.items() if name not in unclear and survival.stands_in(one, told)]


def judge(space: Workspace, run_id: str, summary: str | None) -> Judged | None:
    """Look into the host's summary for what the priming did not give; None where there is nothing to judge.

    summary: None or blank where the host gave none: nothing is proven then, and nothing put back. What is lost is
    noted as owed before it is recorded, so that a kill in between forgets nothing.
    """
    session_id = space.caller.session_id
    run = space.store.read(run_id)
    compaction = receipts.last(run.state, session_id) if session_id else None
    if session_id is None or compaction is None or compaction.receipt is None or compaction.receipt.proven:
        return None
    receipt, never = compaction.receipt, list[str]()
    if summary is not None and summary.strip():
        receipt, never = _found(space, run, receipt, summary)
    if receipt.lost:
        which = {"run_id": run_id, "at": compaction.at, "number": compaction.number}
        told_later = {"left": receipt.lost, "parts": [], "never": never}
        owed.note(space.store.local, session_id, {**which, **receipt.to_dict(), **told_later})
    about = {"trigger": compaction.trigger, "compaction": compaction.which}
    told = Event("survival.checked", {**receipt.to_dict(), **about}, session_id)

    def change(state: State) -> tuple[State, list[Event]]:
        now = receipts.last(state, session_id)
        if now is None or now.which != compaction.which or now.receipt is None or now.receipt.proven:
            return state, []
        return receipts.noted(state, session_id, receipt), [told]

    leases.watching(space).store.update(run_id, change, durable=False, patience=HOOK_PATIENCE)
    return Judged(receipt, bool(receipt.lost))


def _found(space: Workspace, run: Run, begun_with: Receipt, summary: str) -> tuple[Receipt, list[str]]:
    """Give the receipt, and the names of what is lost and cannot be put back, for it cannot be read."""
    items = survival.items(run.plan, run.state)
    found = survivors.found(space, run, [item for item in items if item.name not in begun_with.kept])
    present = {*begun_with.kept, *_standing_in(found, summary)}
    missing = {item.name: found[item.name] for item in items if item.name not in present}
    receipt = Receipt(
        True,
        [item.name for item in items if item.name in present],
        [name for name, one in missing.items() if not one.absent],
        [],
        [name for name, one in missing.items() if one.absent],
        {**begun_with.notes, **{name: one.note for name, one in found.items() if one.note}},
    )
    return receipt, [name for name in receipt.lost if missing[name].text is None]


def for_the_summary(space: Workspace, run: Run, coming: Slip) -> list[str]:
    """Give the lines that name a summariser the texts to keep word for word, those that the priming will not give.

    Each is one line, its secrets masked; what is longer than a summary could be asked to keep comes back by itself.
    """
    items = [item for item in survival.items(run.plan, run.state) if item.kind != ARTIFACT]
    found = survivors.found(space, run, items, limit=8 * _LONGEST_ASKED)
    given = _standing_in(found, coming.text)
    lines: list[str] = []
    for name, one in found.items():
        line = one_line(one.text or "", _LONGEST_ASKED + 1)
        if line and name not in given and utf16_units(line) <= _LONGEST_ASKED and len(lines) < _MOST_ASKED:
            lines.append(f"- {line}")
    return ["Keep these texts in the summary word for word:", *lines] if lines else []
