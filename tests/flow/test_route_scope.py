"""What the conditions of transitions see of a run (D12, D45)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.expressions.conditions import compile_condition
from loomctl.flow.route import nested, scope, simple_truths
from tests.helpers.tables import each

NESTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain", {"a": 1}, {"a": 1}),
    ("dotted", {"a.b": 1}, {"a.b": 1, "a": {"b": 1}}),
    ("two below one", {"a.b": 1, "a.c": 2}, {"a.b": 1, "a.c": 2, "a": {"b": 1, "c": 2}}),
    ("deep", {"a.b.c": 1}, {"a.b.c": 1, "a": {"b": {"c": 1}}}),
    ("the shorter one holds", {"a.b": 1, "a.b.c": 2}, {"a.b": 1, "a.b.c": 2, "a": {"b": 1}}),
    ("a key of its own holds", {"a": {"x": 1}, "a.b": 2}, {"a": {"x": 1}, "a.b": 2}),
    ("and if it is nothing", {"a": None, "a.b": 2}, {"a": None, "a.b": 2}),
    ("empty parts stay flat", {".a": 1, "a.": 2, "a..b": 3}, {".a": 1, "a.": 2, "a..b": 3}),
    ("nothing", {}, {}),
]


@pytest.mark.parametrize(("flat", "wanted"), [pytest.param(flat, wanted, id=name) for name, flat, wanted in NESTED])
def test_dotted_keys_are_members_too(flat: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert nested(flat) == wanted


keys = st.text(alphabet="ab.", max_size=5)


@given(st.dictionaries(keys, st.one_of(st.integers(), st.dictionaries(st.sampled_from("ab"), st.integers()))))
def test_no_key_is_changed_by_another(flat: dict[str, Any]) -> None:
    """Whatever the keys are: each flat one reads as before, and the context itself is not touched."""
    before = {key: dict(value) if isinstance(value, dict) else value for key, value in flat.items()}
    found = nested(flat)
    assert {key: found[key] for key in flat} == before
    assert flat == before


STATE: dict[str, Any] = {
    "context": {
        "tests.passed": True,
        "n": 3,
        "text": "söder 😀",
        "ключ": 1,
        "said_false": "false",
        "empty": "",
        "zero": 0,
        "list": ["a", "b"],
    },
    "goal": "x",
    "run_id": "shop-run-1",
    "status": "in_progress",
    "steps": [],
}
ENDED = {"status": "partially_succeeded", "preferred_next_label": "Fix"}
CONDITIONS: list[tuple[str, bool, bool]] = [
    # condition, what it comes to, whether it is warned of
    ("context.tests.passed", True, False),
    ("context['tests.passed'] === true", True, False),
    ("context.n >= 3 && outcome == 'partially_succeeded'", True, False),
    ("outcome != 'failed'", True, False),
    ("preferred_label == 'Fix'", True, False),
    ("state.goal == 'x'", True, False),
    ("context.missing == null", True, False),
    ("context._run_id == 'shop-run-1' && context._retry_count == 0", True, False),
    ("context.missing", False, False),
    ("context.tests.missing", False, False),
    ("context.tests.missing.more", False, True),
    ("context['tests.passed'].more == null", False, True),
    ("Context.n == 3", False, True),
    ("outcome == 'SUCCESS'", False, False),
    ("outcome == 'Partially_Succeeded'", False, False),
    ("outcome === partially_succeeded", False, True),
    ("outcome = 'succeeded'", False, True),
    ("context.n == '3'", True, False),
    ("context.n === '3'", False, False),
    ("context.n > '2.5'", True, False),
    ("context.n > 'x'", False, False),
    ("context.text == 'söder 😀'", True, False),
    ("context['ключ'] == 1", True, False),
    ("context.said_false", True, False),
    ("context.said_false == false", False, False),
    ("context.empty", False, False),
    ("context.zero == ''", True, False),
    ("context.list", True, False),
    ("context.list == 'a,b'", False, True),
    ("context.list[0] == 'a'", True, False),
    ("context.list[9] == null", True, False),
    ("!context.missing && !context.empty", True, False),
    ("preferred_label == 'fix'", False, False),
    ("  context.n\n>=\t3  ", True, False),
    ("context.missing.more", False, True),
    ("context.n.toFixed(0) == '3'", False, True),
    ("/x/.test(state.goal)", False, True),
]


@each(("condition", "wanted", "warned"), CONDITIONS)
def test_what_a_simple_condition_comes_to(condition: str, *, wanted: bool, warned: bool) -> None:
    step = {
        "transitions": [
            {"to": "end"},
            {"to": "end", "condition": condition, "condition_code": compile_condition(condition)},
        ]
    }
    truths, warnings = simple_truths(STATE, step, ENDED)
    assert truths == [None, wanted]
    assert [condition in one for one in warnings] == [True] * warned


def test_a_label_that_was_not_said_is_null() -> None:
    seen = scope(STATE, {"status": "failed"}, STATE["context"])
    assert (seen["preferred_label"], seen["task"]) == (None, None)
    assert set(seen) == {"state", "outcome", "context", "preferred_label", "task"}


def test_what_takes_an_engine_is_false_and_the_rest_is_known() -> None:
    """Truths stand in the order of the transitions; what threw and what takes an engine is warned of."""
    listed = ["context.n == 3", None, "/x/.test(state.goal)", "context.missing.more", "context.n == 4"]
    codes = [None if source is None else compile_condition(source) for source in listed]
    transitions = [
        {"to": "end", "condition": source, "condition_code": code} for source, code in zip(listed, codes, strict=True)
    ]
    truths, warnings = simple_truths(STATE, {"transitions": transitions}, ENDED)
    assert truths == [True, None, False, False, False]
    named = ["context.missing.more", "/x/.test(state.goal)"]
    assert [warning.partition(" counts as false: ")[0] for warning in warnings] == named
