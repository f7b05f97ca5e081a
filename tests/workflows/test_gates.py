"""What a person is asked and decides, over a state and a plan, as the engine and a branch of it see them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.workflows import gates, routing
from tests.helpers.tables import each

Json = dict[str, Any]
AT = "2026-01-01T00:00:00Z"
STAGE = "003-build.gate@1"


def plan(*ways: Json, **more: Any) -> Json:
    """Make a plan of one human step with these ways."""
    step = {"key": "build/gate", "id": "gate", "kind": "human", "prompt": "Good?", "transitions": list(ways), **more}
    return {"phases": [{"id": "build", "steps": [step]}]}


def view(**more: Any) -> Json:
    """Make what there is of a state while the step's visit is open, and no more than a branch has."""
    visit = {"step_id": "build/gate", "phase": "build", "visit": 1, "rank": 3, "stage": STAGE, "status": "in_progress"}
    return {"run_id": "r", "status": "in_progress", "steps": [visit], "pending_approvals": [], "context": {}, **more}


@each(
    ("ways", "offered"),
    [
        ([], []),
        ([{"to": "end"}], []),
        ([{"to": "end", "label": "[A] Approve"}, {"to": "x", "label": "[F] Fix"}], ["[A] Approve", "[F] Fix"]),
        ([{"to": "end", "label": "Yes"}, {"to": "end", "label": " yes "}], ["Yes"]),
        ([{"to": "end", "label": "Yes", "condition": "context.a"}, {"to": "x", "label": "No"}], ["No"]),
        ([{"to": "end", "label": "Ship"}, {"to": "x", "label": "Mend", "on_failure": True}], ["Ship", "Mend"]),
        ([{"to": "end", "label": ""}], []),
    ],
)
def test_the_choices_are_the_labels_without_a_condition(ways: list[Json], offered: list[str]) -> None:
    """As the workflow writes them, in its order, each once."""
    assert gates.choices({"transitions": ways}) == offered


def test_asking_is_idempotent_and_a_decision_lets_the_run_go_on_and_is_on_record() -> None:
    """With the rank of its own visit, so that an undo of that takes it back; a view needs no list of approvals."""
    state, of = view(), plan({"to": "end", "label": "Yes"})
    before = copy.deepcopy(state)
    waiting = gates.ask(state, of, at=AT)
    assert (state, waiting["status"]) == (before, "awaiting_feedback")
    assert gates.ask(waiting, of, at=AT) is waiting
    for status in ("paused", "failed", "completed", "cancelled", "awaiting_feedback"):
        still = view(status=status)
        assert gates.ask(still, of, at=AT) is still
    other = view(steps=[])
    assert gates.ask(other, of, at=AT) is other
    of = plan({"to": "end", "label": "Yes"})
    waiting = gates.ask(view(), of, at=AT)
    found = gates.decision(waiting, of, gates.CHOOSE, "yes")
    assert found is not None
    decided = gates.record(waiting, found, gates.CHOOSE, at=AT, by="Ada", note="")
    assert (decided["status"], decided["pending_approvals"]) == ("in_progress", [])
    assert decided["approvals"] == [
        {"id": f"human:{STAGE}", "granted_at": AT, "after_rank": 3, "by": "Ada", "label": "Yes"}
    ]


LABELS = st.lists(
    st.text(st.sampled_from("abF[]-) "), min_size=1, max_size=7).filter(str.strip), min_size=1, max_size=4
)


@given(labels=LABELS)
def test_a_choice_that_is_taken_leads_where_it_says(labels: list[str]) -> None:
    ways: list[Json] = [{"to": f"build/{number}", "label": label} for number, label in enumerate(labels)]
    of = plan(*ways)
    for label in gates.choices(of["phases"][0]["steps"][0]):
        found = gates.decision(gates.ask(view(), of, at=AT), of, gates.CHOOSE, label)
        assert found is not None
        assert found.label is not None
        taken = routing.choose(
            {"transitions": ways}, outcome="succeeded", label=found.label, suggested=(), truths=[None] * len(ways)
        )
        assert taken is not None
        assert (taken.label, found.label.strip()) == (found.label, label.strip())
