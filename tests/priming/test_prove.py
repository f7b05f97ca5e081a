"""Receipts that a run's log alone tells, for the run was taken from their session meanwhile."""

from __future__ import annotations

from pathlib import Path

from loomctl.priming import prove
from loomctl.priming.receipts import Compacted, Receipt
from loomctl.runs.store import events
from loomctl.runs.store.events import Event

RUN, SESSION = "loom-work-2026-11-23T00-00-00Z-abc123", "5f0c9a52-0000-4000-8000-000000000001"
AT = "2026-11-23T10:00:00Z"


def compacted(*, number: int = 1) -> Compacted:
    """A compaction as the state holds it, which nobody looked at."""
    return Compacted(SESSION, AT, "auto", Receipt(False, ["kept"], [], [], []), number=number)


def checked(number: int = 1, *, proven: bool = True) -> Event:
    """What a session writes when a compaction was looked at."""
    receipt = Receipt(proven, ["kept"], ["lost"] if proven else [], [], []).to_dict()
    return Event("survival.checked", {**receipt, "trigger": "auto", "compaction": which(number)}, SESSION)


def which(number: int) -> dict[str, object]:
    return {"at": AT, "number": number}


def test_two_compactions_of_one_second_are_two(tmp_path: Path) -> None:
    told = {"items": ["lost"], "at": "UserPromptSubmit", "compaction": which(2)}
    happened = [checked(1), checked(2), Event("survival.restored", told, SESSION)]
    events.append(str(tmp_path), RUN, happened, durable=False)
    found = prove.completed(str(tmp_path), [compacted(number=1), compacted(number=2)])
    assert [one.receipt and list(one.receipt.restored) for one in found] == [[], ["lost"]]


def test_what_the_log_tells_of_an_unproven_compaction_is_told_of_that_one(tmp_path: Path) -> None:
    events.append(str(tmp_path), RUN, [checked(proven=False), checked(), checked(7)], durable=False)
    (one,) = prove.completed(str(tmp_path), [compacted()])
    assert one.receipt is not None
    assert one.receipt.proven
    assert prove.completed(str(tmp_path), []) == []
