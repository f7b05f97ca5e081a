"""Receipts that the log tells and the state does not hold: of a session whose run was taken over meanwhile.

From then on it writes events alone, so what became of the items stands in `survival.checked` and `survival.restored`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.priming.survival import pending, receipts
from loomctl.runs.store import event_log, events
from loomctl.workflows.model.survival import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loomctl.priming.survival.receipts import Compacted, Receipt
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

_CHECKED, _RESTORED = "survival.checked", "survival.restored"


def of_records(
    space: Workspace, run: Run, records: Iterable[Mapping[str, Any]], *, largest: int | None = None
) -> list[Compacted]:
    """Give every compaction of a run that its sessions' records and its log tell, oldest first, with what comes back.

    largest: for a glance, bytes of a log that is looked through, where something must survive; None: of any.
    """
    found = sorted(receipts.compactions(records), key=lambda one: one.at)
    declares = KEY in run.plan or KEY in run.state
    if largest is None or (declares and _size(run.folder) <= largest):
        found = completed(run.folder, found)
    return sorted(pending.marked(space, run.run_id, found), key=lambda one: one.at)


def _size(run_dir: str) -> int:
    try:
        return os.stat(os.path.join(run_dir, events.FILE)).st_size
    except OSError:
        return 0


def completed(run_dir: str, found: Sequence[Compacted]) -> list[Compacted]:
    """Give compactions with the receipts that the log tells, where the state has none that is proven.

    found: oldest first. A log that cannot be read tells nothing.
    """
    every = list(found)
    open_ones = {at for at, one in enumerate(every) if one.receipt is None or not one.receipt.proven}
    for entry in _told(run_dir):
        at = _of(every, entry)
        if at in open_ones:
            every[at] = every[at]._replace(receipt=_with(every[at].receipt, entry))
    return every


def _told(run_dir: str) -> Iterable[Mapping[str, Any]]:
    try:
        lines = event_log.tail(run_dir, sys.maxsize, _is_receipt, (_CHECKED.encode(), _RESTORED.encode()))
    except (OSError, LoomError):
        return []
    return [line.entry for line in lines if line.entry is not None]


def _is_receipt(entry: Mapping[str, Any]) -> bool:
    return entry.get("event") in (_CHECKED, _RESTORED)


def _of(every: Sequence[Compacted], entry: Mapping[str, Any]) -> int:
    """Give the place of the compaction that an event tells of; -1 where there is none.

    It says which by its moment and its number, if its session's record numbers it. An older Loom's says neither: then
    it is the last that was before the event.
    """
    raw = entry.get("properties")
    properties = raw if isinstance(raw, dict) else {}
    own = [place for place, one in enumerate(every) if one.session_id == entry.get("session_id")]
    which = properties.get("compaction")
    if isinstance(which, dict) and which.get("at"):
        number = which.get("number", 0)
        same = [place for place in own if every[place].at == which["at"]]
        places = [place for place in same if every[place].number == number] or ([] if number else same)
        return places[-1] if places else -1
    when = clock.seconds_of(str(entry.get("ts") or ""))
    places = [place for place in own if clock.seconds_of(every[place].at) <= when]
    return places[-1] if places else -1


def _with(before: Receipt | None, entry: Mapping[str, Any]) -> Receipt | None:
    raw = entry.get("properties")
    properties = raw if isinstance(raw, dict) else {}
    if entry["event"] == _CHECKED:
        return receipts.read(properties) or before
    listed = properties.get("items")
    names = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return receipts.with_restored(before, names)
