"""What is lost where one state takes another's place is named, thing by thing."""

from __future__ import annotations

import copy
from typing import Any

from loomctl.runs.model.state import new_state
from loomctl.runs.store.recovery import losses
from tests.helpers.runs import AT, PLAN, RUN_ID
from tests.helpers.tables import each

BASE = new_state(PLAN, run_id=RUN_ID, work_id=None, goal="g", at=AT)


def visit(key: str, number: int, status: str) -> dict[str, Any]:
    """Give a visit of a step."""
    return {"step_id": key, "visit": number, "status": status}


def with_sessions(*records: dict[str, Any]) -> dict[str, Any]:
    """Give a state with session records."""
    return {**BASE, "sessions": {"session_history": list(records)}}


@each(
    ("before", "after", "steps"),
    [
        ([], [], []),
        ([visit("a/b", 1, "succeeded")], [visit("a/b", 1, "succeeded")], []),
        ([visit("a/b", 1, "succeeded")], [visit("a/b", 1, "in_progress")], [("a/b", 1, "succeeded", "in_progress")]),
        (
            [visit("a/b", 1, "failed"), visit("a/b", 2, "in_progress")],
            [visit("a/b", 1, "failed")],
            [("a/b", 2, "in_progress", None)],
        ),
        ([], [visit("a/b", 1, "closing")], [("a/b", 1, None, "closing")]),
    ],
)
def test_visits_are_told_apart(before: list[Any], after: list[Any], steps: list[tuple[Any, ...]]) -> None:
    """A visit that is gone, one that is there again, and one that stands otherwise."""
    found = losses({**BASE, "steps": before}, {**BASE, "steps": after})
    assert [tuple(one.values()) for one in found.steps] == steps
    assert found.any == bool(steps)


def test_sessions_are_told_apart() -> None:
    """A session that is gone, and one that would be open again."""
    ended = {"session_id": "a", "ended_at": AT, "end_reason": "logout"}
    found = losses(with_sessions(ended, {"session_id": "b"}), with_sessions({"session_id": "a", "ended_at": None}))
    assert found.sessions == [
        {"session_id": "a", "was": "logout", "now": "open"},
        {"session_id": "b", "was": "open", "now": None},
    ]


def test_other_keys_are_named_and_bookkeeping_is_not() -> None:
    """Any other key whose value differs, known or not; revision, time, head and context do not count."""
    after = copy.deepcopy(BASE)
    after |= {"goal": "h", "x-own": 1, "revision": 7, "updated_at": "later", "ledger_head": {"seq": 9, "sha256": "x"}}
    after["context_metadata"] = {"reload_count": 5}
    assert losses(BASE, after).keys == ["goal", "x-own"]
    assert not losses(BASE, {**BASE, "revision": 9}).any
