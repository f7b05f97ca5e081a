"""`Outcome`, `Status` and `ErrorInfo`: their words, their round trips, and how a directive and a visit say them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl import ErrorInfo, Outcome, Status
from loomctl.flow.outcomes import directives
from loomctl.flow.outcomes.directives import RESPONSE, ROUTING, Source
from loomctl.runs.model.visits import OUTCOMES, SPELLINGS
from tests.helpers.errors import refused
from tests.helpers.tables import each

WORDS = [
    (Status.SUCCESS, "SUCCESS", "succeeded"),
    (Status.FAILURE, "FAILURE", "failed"),
    (Status.PARTIAL, "PARTIAL", "partially_succeeded"),
    (Status.SKIPPED, "SKIPPED", "skipped"),
]


@each(("status", "name", "word"), WORDS)
def test_a_status_is_its_word(status: Status, name: str, word: str) -> None:
    """Read by its word and by its name, written as its word, in text, in JSON and in a format (D32)."""
    assert Status.of(word) is Status.of(name) is Status.of(status) is Status(word) is Status[name] is status
    assert (str(status), f"{status}", json.dumps(status), status == word) == (word, word, f'"{word}"', True)


def test_every_word_of_the_files_is_a_status() -> None:
    assert [status.value for status in Status] == list(OUTCOMES)
    assert {status.name: status.value for status in Status} == SPELLINGS


@each("word", ["success", "Succeeded", "", None, 1, True, "in_progress", ["failed"], "fail"])
def test_another_word_is_refused(word: object) -> None:
    with refused("BAD_OUTCOME") as caught:
        Status.of(word)
    assert "partially_succeeded" in caught.value.why


def test_it_is_made_as_the_document_says() -> None:
    """With a status alone, or with updates; what is not given is empty, and nobody can put anything into that."""
    outcome = Outcome(status=Status.SUCCESS, context_updates={"module_path": "src/auth.py", "tests_passing": True})
    assert outcome.to_dict() == {
        "status": "succeeded",
        "context_updates": {"module_path": "src/auth.py", "tests_passing": True},
        "preferred_label": None,
        "suggested_next": [],
        "artifacts": [],
        "error": None,
        "metadata": {},
    }
    with pytest.raises(TypeError):
        Outcome(Status.SKIPPED).context_updates["leak"] = 1  # type: ignore[index]
    assert Outcome(Status.SKIPPED).context_updates == {}


SMALL = st.dictionaries(st.text(min_size=1, max_size=5), st.integers() | st.none() | st.text(max_size=5), max_size=3)
ERRORS = st.builds(ErrorInfo, st.text(max_size=9), st.text(max_size=9), st.booleans(), SMALL)
OUTCOMES_OF_ANY_KIND = st.builds(
    Outcome,
    st.sampled_from(Status),
    SMALL,
    st.none() | st.text(max_size=9),
    st.lists(st.text(max_size=5), max_size=3),
    st.lists(SMALL, max_size=2),
    st.none() | ERRORS,
    SMALL,
)


@given(OUTCOMES_OF_ANY_KIND, SMALL)
def test_it_survives_the_way_through_json_and_so_does_what_is_unknown(outcome: Outcome, more: dict[str, Any]) -> None:
    plain = outcome.to_dict()
    unknown = {f"x-{name}": value for name, value in more.items()}
    if plain["error"] is not None:
        plain["error"] = {**unknown, **plain["error"]}
    told = json.loads(json.dumps({**unknown, **plain}))
    again = Outcome.from_dict(told)
    assert again.to_dict() == told
    assert again == Outcome.from_dict(again.to_dict())
    outcome = outcome._replace(suggested_next=outcome.suggested_next or (), artifacts=outcome.artifacts or ())
    assert again._replace(extra={}, error=again.error and again.error._replace(extra={})) == outcome


BAD = [
    ([], "the outcome: expected an object"),
    ({}, "unknown outcome None"),
    ({"status": "fine"}, "unknown outcome 'fine'"),
    ({"status": "failed", "context_updates": []}, "context_updates: expected an object"),
    ({"status": "failed", "preferred_label": 1}, "preferred_label: expected text"),
    ({"status": "failed", "suggested_next": "a"}, "suggested_next: expected a list"),
    ({"status": "failed", "suggested_next": [1]}, "suggested_next: expected text"),
    ({"status": "failed", "artifacts": ["a.md"]}, "artifacts: expected an object"),
    ({"status": "failed", "error": "no"}, "error: expected an object"),
    ({"status": "failed", "error": {"type": 1}}, "error.type: expected text"),
    ({"status": "failed", "error": {"retryable": "no"}}, "error.retryable: expected true or false"),
    ({"status": "failed", "metadata": 1}, "metadata: expected an object"),
]


@each(("raw", "what"), BAD)
def test_what_is_no_outcome_is_refused_with_its_place(raw: object, what: str) -> None:
    with refused("BAD_OUTCOME") as caught:
        Outcome.from_dict(raw)
    assert what in caught.value.what


def test_null_stands_for_what_is_not_there() -> None:
    names = ("context_updates", "preferred_label", "suggested_next", "artifacts", "error", "metadata")
    assert Outcome.from_dict({"status": "SKIPPED", **dict.fromkeys(names)}) == Outcome(Status.SKIPPED)
    assert ErrorInfo.from_dict({"type": None, "details": None}) == ErrorInfo("FAILURE", "", retryable=True)


def test_a_directive_says_the_same_as_its_outcome() -> None:
    """What is written as a directive is read back from a response, loosely and held to the schema."""
    outcome = Outcome(
        Status.FAILURE, {"coverage": 61}, "fix", ["build/fix", "end"], error=ErrorInfo("FAILURE", "three tests fail")
    )
    directive = outcome.to_directive()
    assert directive == {
        "outcome": "failed",
        "failure_reason": "three tests fail",
        "preferred_next_label": "fix",
        "suggested_next_ids": ["build/fix", "end"],
        "context_updates": {"coverage": 61},
    }
    response = f"I looked at it.\n\n{json.dumps(directive)}"
    for schema in (None, ROUTING):
        assert Outcome.from_reading(directives.read([Source(RESPONSE, response)], schema)) == outcome


@each("status", Status)
def test_each_status_goes_through_a_directive(status: Status) -> None:
    said = json.dumps(Outcome(status).to_directive())
    assert Outcome.from_reading(directives.read([Source(RESPONSE, said)])).status is status
    assert Outcome.from_reading(directives.read([Source(RESPONSE, "all well")])) == Outcome(Status.SUCCESS)


def test_a_visit_says_the_same_as_its_outcome() -> None:
    """With its `status.json`, which has what was set; artifacts are what it registered."""
    error = ErrorInfo("TIMEOUT", "it took 600 s", retryable=True, details={"seconds": 600})
    outcome = Outcome(Status.FAILURE, {"a": 1}, "retry", ["x"], [{"name": "log", "path": "l"}], error, {"tries": 2})
    visit = {**outcome.to_visit(), "artifacts": {"set": {"log": "l"}, "before": {"log": None}}}
    assert (visit["status"], visit["failure_reason"]) == ("failed", "it took 600 s")
    assert Outcome.from_visit(visit, {"context_updates": {"a": 1}}) == outcome


VISITS: list[tuple[dict[str, Any], Outcome]] = [
    ({"status": "succeeded"}, Outcome(Status.SUCCESS)),
    ({"status": "skipped", "note": "not needed"}, Outcome(Status.SKIPPED)),
    ({"status": "failed", "failure_reason": "no"}, Outcome(Status.FAILURE, error=ErrorInfo("FAILURE", "no"))),
    ({"status": "failed", "note": "by hand"}, Outcome(Status.FAILURE, error=ErrorInfo("FAILURE", "by hand"))),
    (
        {"status": "failed", "error": {"message": "x", "retryable": False}},
        Outcome(Status.FAILURE, error=ErrorInfo("FAILURE", "x", retryable=False)),
    ),
    (
        {"status": "succeeded", "suggested_next_ids": "torn", "artifacts": 1, "preferred_next_label": 2},
        Outcome(Status.SUCCESS),
    ),
]


@each(("visit", "outcome"), VISITS)
def test_a_visit_of_any_age_is_read(visit: dict[str, Any], outcome: Outcome) -> None:
    assert Outcome.from_visit(visit) == outcome


def test_a_visit_that_is_open_has_no_outcome_yet() -> None:
    with refused("BAD_OUTCOME"):
        Outcome.from_visit({"status": "in_progress"})
