"""Compactions that a run's log alone tells of, for their session did not drive the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.disk import clock, events
from loomctl.disk.events import Event
from loomctl.engine import told_receipts
from loomctl.model.receipts import Compacted, Receipt

if TYPE_CHECKING:
    from pathlib import Path

RUN, SESSION = "loom-work-2026-11-23T00-00-00Z-abc123", "5f0c9a52-0000-4000-8000-000000000001"


def checked(at: str, *, proven: bool = True) -> Event:
    """What a session beside a driver writes when a compaction of that moment was looked at."""
    receipt = Receipt(proven, ["kept"], ["lost"] if proven else [], [], []).to_dict()
    return Event("survival.checked", {**receipt, "trigger": "auto", "at": at}, SESSION)


def test_two_compactions_of_one_second_are_two(tmp_path: Path) -> None:
    """Each has its own event; what was put back belongs to the last of them."""
    at = clock.now()
    back = Event("survival.restored", {"items": ["lost"], "at": "UserPromptSubmit"}, SESSION)
    events.append(str(tmp_path), RUN, [checked(at), checked(at), back], durable=False)
    found = told_receipts.completed(str(tmp_path), [])
    assert [(one.at, one.receipt and list(one.receipt.restored)) for one in found] == [(at, []), (at, ["lost"])]


def test_what_the_log_tells_of_an_unproven_compaction_is_told_of_that_one(tmp_path: Path) -> None:
    """One that the state holds, and one that was looked at once without a summary, are not doubled."""
    at = clock.now()
    events.append(str(tmp_path), RUN, [checked(at, proven=False), checked(at)], durable=False)
    for known in ([], [Compacted(SESSION, at, "auto", None)]):
        (one,) = told_receipts.completed(str(tmp_path), known)
        assert one.receipt is not None
        assert one.receipt.proven
