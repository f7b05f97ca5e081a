"""When the branches of a parallel step come together, and what its outcome is then: a table for each join (D43)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.runs.model import visits
from loomctl.runs.model.visits import ANY, FIRST_SUCCESS, WAIT_ALL, Joined, joined
from tests.helpers.tables import each

S, F, P, K, X = "succeeded", "failed", "partially_succeeded", "skipped", None


@each(
    ("join", "outcomes", "expected"),
    [
        (WAIT_ALL, [X, X], None), (WAIT_ALL, [S, X], None), (WAIT_ALL, [F, X], None),
        (WAIT_ALL, [S, S], Joined(S, (0, 1))), (WAIT_ALL, [S, F], Joined(P, (0, 1))),
        (WAIT_ALL, [F, F], Joined(F, (0, 1))), (WAIT_ALL, [P, P], Joined(P, (0, 1))),
        (WAIT_ALL, [S, P], Joined(P, (0, 1))), (WAIT_ALL, [F, P], Joined(P, (0, 1))),
        (WAIT_ALL, [K, K], Joined(K, (0, 1))), (WAIT_ALL, [S, K], Joined(S, (0, 1))),
        (WAIT_ALL, [F, K], Joined(P, (0, 1))), (WAIT_ALL, [S], Joined(S, (0,))),
        (WAIT_ALL, [F], Joined(F, (0,))), (WAIT_ALL, [S, F, K, P], Joined(P, (0, 1, 2, 3))),
        (FIRST_SUCCESS, [X, X], None), (FIRST_SUCCESS, [F, X], None), (FIRST_SUCCESS, [P, X], None),
        (FIRST_SUCCESS, [K, X], None), (FIRST_SUCCESS, [X, S], Joined(S, (1,))),
        (FIRST_SUCCESS, [F, S, X], Joined(S, (1,))), (FIRST_SUCCESS, [S, S], Joined(S, (0,))),
        (FIRST_SUCCESS, [F, F], Joined(F, (0, 1))), (FIRST_SUCCESS, [F, P], Joined(P, (0, 1))),
        (ANY, [X, X], None), (ANY, [X, F], Joined(F, (1,))), (ANY, [S, X], Joined(S, (0,))),
        (ANY, [X, K, X], Joined(K, (1,))), (ANY, [P, F], Joined(P, (0,))),
    ],
)  # fmt: skip
def test_joins(join: str, outcomes: list[str | None], expected: Joined | None) -> None:
    """What each join comes to, and whose contexts it takes over."""
    assert joined(join, outcomes) == expected


@given(st.sampled_from(visits.JOINS), st.lists(st.sampled_from([S, F, P, K]), min_size=1, max_size=6))
def test_a_join_never_waits_for_nobody(join: str, outcomes: list[str]) -> None:
    found = joined(join, outcomes)
    assert found is not None
    assert found.outcome != S or S in outcomes
    assert found.outcome != F or F in outcomes
    assert set(found.merged) <= set(range(len(outcomes)))


AT, TASK = {"current_step": "build/make"}, {"number": 2, "of": 3, "text": "Greet"}


@each(
    ("state", "said"),
    [
        ({"status": "completed"}, ""), ({"status": "in_progress", **AT}, "build/make"),
        ({"status": "awaiting_feedback", **AT, "pending_approvals": [{"id": "a"}]}, "build/make waits for you"),
        ({"status": "awaiting_feedback", "pending_approvals": [{"id": "a"}]}, "waits for you"),
        ({"status": "awaiting_feedback", **AT}, "build/make"),
        ({"status": "paused", **AT, "pending_approvals": [{"id": "a"}]}, "build/make"),
        ({"status": "in_progress", **AT, "pending_approvals": [{"id": "a", "branch": "one"}]}, "build/make"),
        ({"status": "in_progress", **AT, "steps": [{"status": "in_progress", "task": TASK}]}, "task 2 of 3"),
    ],
)  # fmt: skip
def test_where_a_run_stands_in_a_few_words(state: dict[str, Any], said: str) -> None:
    assert visits.place_line({"steps": [], **state}) == said
