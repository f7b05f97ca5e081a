"""What a run waits for, as one pure function reads it off a state that anybody may have written."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.runs.model import standing
from loomctl.runs.model.state import handle
from tests.helpers.tables import each

Json = dict[str, Any]
AT, THEN, NOW = "2026-11-26T10:00:00Z", "2026-11-26T12:00:00Z", "2026-11-26T11:00:00Z"
RUN: Json = {"run_id": "shop-258-run-1", "work_id": "258", "status": "in_progress", "current_step": "build/make"}
STATE: Json = {**RUN, "steps": [], "pending_approvals": []}
SHOP = handle(STATE)
GATE: Json = {"id": "phase:ship", "reason": "the phase ship begins", "requested_at": AT}
HUMAN: Json = {
    "id": "human:003-build.gate@1",
    "step_id": "build/gate",
    "reason": "Is it good?",
    "choices": ["[A] Approve", "[F] Fix"],
    "requested_at": AT,
}
MAKE = [{"step": "build/test", "run": "make test"}]
RETRIED: Json = {"step_id": "build/make", "status": "failed", "completed_at": AT}
RETRIED["next"] = {"step_id": "build/make", "reason": "retry", "not_before": THEN}


@each(
    "changes, untrusted, waits",
    [
        ({}, [], []),
        ({"status": "awaiting_feedback", "pending_approvals": [GATE]}, [],
         [("approval", "build/make", AT, "", "the phase ship begins", (), f"loomctl approve {SHOP}")]),
        ({"status": "awaiting_feedback", "pending_approvals": [{**GATE, "id": "step:ship/send"}]}, [],
         [("approval", "ship/send", AT, "", "the phase ship begins", (), f"loomctl approve {SHOP}")]),
        ({"status": "awaiting_feedback", "pending_approvals": [HUMAN]}, [],
         [("approval", "build/gate", AT, "", "Is it good?", ("[A] Approve", "[F] Fix"),
           f"loomctl choose LABEL {SHOP}")]),
        ({"status": "awaiting_feedback", "pending_approvals": [{**HUMAN, "choices": ["Go on"]}]}, [],
         [("approval", "build/gate", AT, "", "Is it good?", ("Go on",), f"loomctl choose 'Go on' {SHOP}")]),
        # A branch asks, and its run goes on.
        ({"pending_approvals": [{**HUMAN, "choices": None, "branch": "web"}]}, [],
         [("approval", "build/gate", AT, "", "Is it good?", (), f"loomctl approve --branch web {SHOP}")]),
        ({"status": "awaiting_feedback", "feedback": {"message": "Which colour?", "at": AT}}, [],
         [("question", "build/make", AT, "", "Which colour?", (), f"loomctl resume {SHOP}")]),
        ({"status": "awaiting_feedback", "feedback": {"kind": "trust", "message": "trust in its commands: make",
                                                      "at": AT}}, MAKE,
         [("trust", "build/make", AT, "", "trust in its commands: make", (), f"loomctl trust {SHOP}")]),
        ({}, MAKE,
         [("trust", "build/make", "", "", "trust in its commands: build/test (make test)", (),
           f"loomctl trust {SHOP}")]),
        ({"steps": [{"step_id": "build/make", "status": "in_progress", "started_at": AT}]}, MAKE,
         [("trust", "build/make", AT, "", "trust in its commands: build/test (make test)", (),
           f"loomctl trust {SHOP}")]),
        ({"waits_for": {"kind": "limit", "what": "cost 5.02 of 5.00 USD", "until": None, "at": AT}}, [],
         [("limit", "build/make", AT, "", "cost 5.02 of 5.00 USD", (), f"loomctl drive {SHOP}")]),
        ({"waits_for": {"kind": "time", "what": "the plan's limit", "until": THEN, "at": AT}}, [],
         [("time", "build/make", AT, THEN, "the plan's limit", (), f"loomctl drive {SHOP}")]),
        ({"steps": [RETRIED]}, [],
         [("time", "build/make", AT, THEN, "build/make is tried again", (), f"loomctl next {SHOP}")]),
        # The two together: what a person decides stands first.
        ({"status": "awaiting_feedback", "pending_approvals": [GATE],
          "waits_for": {"kind": "limit", "what": "60 turns", "until": None, "at": AT}}, [],
         [("approval", "build/make", AT, "", "the phase ship begins", (), f"loomctl approve {SHOP}"),
          ("limit", "build/make", AT, "", "60 turns", (), f"loomctl drive {SHOP}")]),
    ],
)  # fmt: skip
def test_what_a_run_waits_for_is_told_with_the_command_that_answers_it(
    changes: Json, untrusted: list[dict[str, str]], waits: list[tuple[object, ...]]
) -> None:
    found = standing.waiting({**STATE, **changes}, now=NOW, untrusted=untrusted)
    told = [(one.kind, one.step, one.since, one.until, one.question, one.choices, one.command) for one in found]
    assert told == waits


@each("status", ["paused", "failed", "completed", "cancelled", "pending"])
def test_a_run_that_stands_still_asks_for_nothing(status: str) -> None:
    """It is resumed first (D4); what it would ask for then is still on its list."""
    state = {**STATE, "status": status, "pending_approvals": [HUMAN], "feedback": {"message": "Well?", "at": AT}}
    assert standing.waiting(state, now=NOW, untrusted=MAKE) == ()
    assert [one.id for one in standing.asked(state)] == ["human:003-build.gate@1"]


def test_a_retry_that_is_due_or_led_elsewhere_is_not_waited_for() -> None:
    state = {**STATE, "steps": [RETRIED]}
    assert standing.waiting(state, now=THEN) == ()
    assert standing.waiting({**state, "current_step": "build/polish"}, now=NOW) == ()
    open_now = {"step_id": "build/make", "status": "in_progress"}
    assert len(standing.waiting({**state, "steps": [RETRIED, open_now]}, now=NOW)) == 1
    assert standing.waiting({**state, "steps": [RETRIED, {**open_now, "status": "succeeded"}]}, now=NOW) == ()


def test_each_choice_has_a_command_of_its_own() -> None:
    (found,) = standing.asked({**STATE, "pending_approvals": [{**HUMAN, "choices": ["-x", "it's"], "branch": "web"}]})
    assert found.ways(SHOP) == (
        f"loomctl choose --branch web -- '-x' {SHOP}",
        f"loomctl choose --branch web 'it'\\''s' {SHOP}",
    )


def test_a_limit_is_noted_and_taken_away() -> None:
    state = standing.limited(STATE, standing.LIMIT, "cost 5.02 of 5.00 USD", at=AT)
    note = {"kind": "limit", "what": "cost 5.02 of 5.00 USD", "until": None, "at": AT}
    assert state == {**STATE, "waits_for": note}
    assert standing.unlimited(state) == STATE
    assert standing.unlimited(STATE) is STATE


TOKEN = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z04"
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=300),
    st.sampled_from([TOKEN, "x\x1b[2J\n" + "y" * 5000, "limit", "time", "trust", AT, "2026-99-99T99:99:99Z"]),
)
VALUES = st.recursive(
    HOSTILE,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner)),
    max_leaves=8,
)
KEYS = ("id", "reason", "requested_at", "choices", "branch", "step_id", "message", "at", "kind", "what", "until")
NOTES = st.one_of(VALUES, st.dictionaries(st.sampled_from(KEYS), VALUES))


@settings(max_examples=300, deadline=None)
@given(
    status=st.sampled_from(["in_progress", "awaiting_feedback", "paused"]),
    asked=st.one_of(st.lists(NOTES, max_size=3), VALUES),
    feedback=NOTES,
    waits_for=NOTES,
    way=st.one_of(VALUES, st.fixed_dictionaries({"step_id": st.just("build/make"), "not_before": VALUES})),
)
def test_whatever_stands_there_is_shown_and_never_obeyed(
    status: str, asked: object, feedback: object, waits_for: object, way: object
) -> None:
    steps = [{"step_id": "build/make", "status": "failed", "next": way, "completed_at": feedback}]
    notes = {"pending_approvals": asked, "feedback": feedback, "waits_for": waits_for}
    for one in standing.waiting({**STATE, **notes, "status": status, "steps": steps}, now=NOW):
        assert one.kind in standing.KINDS
        texts = (one.question, one.step, one.since, one.until, one.branch, one.id, one.command, *one.choices)
        assert all(TOKEN not in text and min(text, default=" ") >= " " and len(text) <= 1200 for text in texts)
        assert one.command.startswith("loomctl ")
        assert one.command.endswith(f" {SHOP}")
