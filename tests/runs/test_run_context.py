"""The built-in keys of a run, true at every change of stage; what a change by hand keeps of what was before (D44)."""

from __future__ import annotations

from typing import Any

from loomctl.runs.model.run_context import Changes, builtin, is_reserved, scope, taken_back, written
from tests.helpers.scenes import BUILT_IN
from tests.helpers.tables import each


def state(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Give a state with visits, the first at minute 0, the next at minute 1."""
    timed = [{"started_at": f"2026-01-01T00:{minute:02}:00Z", **step} for minute, step in enumerate(steps)]
    made = {"run_id": "R", "workflow_id": "review-loop", "status": "in_progress", "created_at": "2026-01-01T00:00:00Z"}
    return {**made, "context": {}, "steps": timed, **more}


def visit(step_id: str, status: str = "succeeded", **more: Any) -> dict[str, Any]:
    return {"step_id": step_id, "status": status, **more}


OPEN = "in_progress"
A, B = visit("p/a"), visit("p/b")
FAILED = visit("p/b", "failed")
RETRIED = visit("p/b", "failed", next={"reason": "retry", "step_id": "p/b"})
LED_NOWHERE = visit("p/b", "failed", stopped=True, next={"reason": "none", "step_id": None})
LED_BACK = visit("p/b", "failed", next={"reason": "on_failure", "step_id": "p/b"})
FAN: dict[str, Any] = {"branches": [{"id": "one", "steps": [visit("p/x.one.s")]}]}

# the visits, more of the state → current, previous, retries, the minute in which the current one began
CASES: list[tuple[str, list[dict[str, Any]], dict[str, Any], tuple[str | None, str | None, int, int | None]]] = [
    ("nothing has begun", [], {"status": "pending"}, (None, None, 0, None)),
    ("the first is open", [visit("p/a", OPEN)], {}, ("p/a", None, 0, 0)),
    ("the first is closing", [visit("p/a", "closing")], {}, ("p/a", None, 0, 0)),
    ("the first has ended", [A], {}, ("p/a", None, 0, 0)),
    ("the second is open", [A, visit("p/b", OPEN)], {}, ("p/b", "p/a", 0, 1)),
    ("paused in it", [A, visit("p/b", OPEN)], {"status": "paused"}, ("p/b", "p/a", 0, 1)),
    ("it waits for an approval", [A], {"status": "awaiting_feedback", "current_step": "p/b"}, ("p/a", None, 0, 0)),
    ("it failed, and the run with it", [A, {**FAILED, "stopped": True}], {"status": "failed"}, ("p/b", "p/a", 0, 1)),
    ("it is tried again", [A, FAILED, visit("p/b", OPEN)], {}, ("p/b", "p/a", 1, 2)),
    ("and again", [A, FAILED, FAILED, visit("p/b", OPEN)], {}, ("p/b", "p/a", 2, 3)),
    ("and was well then", [A, FAILED, FAILED, B], {}, ("p/b", "p/a", 2, 3)),
    ("the visits say that they are tries", [A, RETRIED, visit("p/b", OPEN, attempt=2)], {}, ("p/b", "p/a", 1, 2)),
    ("a visit knows its attempt", [A, visit("p/b", OPEN, attempt=4)], {}, ("p/b", "p/a", 3, 1)),
    ("a transition led back to it", [A, LED_BACK, visit("p/b", OPEN)], {}, ("p/b", "p/b", 0, 2)),
    ("a loop came back to it", [A, B, A, visit("p/b", OPEN)], {}, ("p/b", "p/a", 0, 3)),
    ("it leads to itself", [B, visit("p/b", OPEN)], {}, ("p/b", "p/b", 0, 1)),
    ("resumed after the run failed", [A, {**FAILED, "stopped": True}, visit("p/b", OPEN)], {}, ("p/b", "p/a", 1, 2)),
    ("resumed after no way led on", [A, LED_NOWHERE, visit("p/b", OPEN, attempt=2)], {}, ("p/b", "p/a", 1, 2)),
    ("passed, and come back to", [{**FAILED, "passed": True}, visit("p/b", OPEN)], {}, ("p/b", "p/b", 0, 1)),
    ("reopened", [A, {**B, "reopened": True}, visit("p/b", OPEN)], {}, ("p/b", "p/b", 0, 2)),
    ("the run is completed", [A, B], {"status": "completed", "current_step": None}, (None, "p/b", 0, None)),
    ("the run is cancelled", [A, visit("p/b", OPEN)], {"status": "cancelled"}, (None, "p/b", 0, None)),
    ("branches beside it", [A, visit("p/x", OPEN, **FAN)], {}, ("p/x", "p/a", 0, 1)),
    ("branches behind it", [A, visit("p/x", **FAN), visit("p/b", OPEN)], {}, ("p/b", "p/x", 0, 2)),
    ("within a branch", [visit("p/x.one.s"), visit("p/x.one.t", OPEN)], {}, ("p/x.one.t", "p/x.one.s", 0, 1)),
]


@each(("steps", "more", "expected"), [row[1:] for row in CASES])
def test_built_in_keys_are_true(
    steps: list[dict[str, Any]], more: dict[str, Any], expected: tuple[str | None, str | None, int, int | None]
) -> None:
    found = builtin(state(*steps, **more))
    current, previous, retries, minute = expected
    assert tuple(found) == BUILT_IN
    assert found == {
        "_current_node": current, "_previous_node": previous, "_pipeline_name": "review-loop", "_run_id": "R",
        "_retry_count": retries, "_start_time": "2026-01-01T00:00:00Z",
        "_node_start_time": None if minute is None else f"2026-01-01T00:{minute:02}:00Z",
    }  # fmt: skip


def test_a_state_without_the_time_of_its_beginning_has_that_of_its_first_visit() -> None:
    """As FABER's have; without any visit it has none."""
    assert builtin(state(A, created_at=None))["_start_time"] == "2026-01-01T00:00:00Z"
    assert builtin(state(created_at=None))["_start_time"] is None


def test_the_scope_is_what_is_set_and_the_seven_reserved_built_in_keys_over_it() -> None:
    """The names are those of D44."""
    given = state(visit("p/a", OPEN), context={"auth.ok": True, "_current_node": "lie", "_mine": 1})
    found = scope(given)
    assert found == {"auth.ok": True, "_mine": 1, **builtin(given)}
    assert given["context"]["_current_node"] == "lie"
    assert len(BUILT_IN) == 7
    assert all(is_reserved(name) for name in BUILT_IN)


def test_a_change_by_hand_can_be_taken_back() -> None:
    before = {"a": 1, "b": 2, "c": 3}
    after, held = written(before, Changes({"a": 9, "new": None}, ["b"]))
    assert list(after.items()) == [("c", 3), ("a", 9), ("new", None)]
    assert (held, taken_back(after, held)) == ({"set": {"a": 1, "b": 2}, "gone": ["new"]}, before)
