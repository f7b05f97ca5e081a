"""A text without its quotes is found in a condition, and what has a meaning is never taken for one (D12)."""

from __future__ import annotations

from typing import Any

import quickjs
from hypothesis import example, given
from hypothesis import strategies as st

from loomctl.expressions import conditions, engine
from loomctl.workflows.graph_checks import bare_word
from tests.helpers.tables import each

SCOPE: dict[str, Any] = {
    "state": {"status": "in_progress", "steps": [{"visit": 1}]},
    "outcome": "succeeded",
    "context": {"a": {"b": ["x"]}, "fix": "fix", "n": 3},
    "preferred_label": "fix",
}

BARE = [
    ("outcome == succeeded", "succeeded"), ("outcome==succeeded", "succeeded"),
    ("succeeded == outcome", "succeeded"), ("outcome === SUCCESS", "SUCCESS"), ("outcome != done", "done"),
    ("context.n > 2 && outcome !== failed", "failed"), ("preferred_label == Fix", "Fix"),
    ("fix == context.fix", "fix"), ("context['a'].b[0] == x", "x"), ("context?.fix == fix", "fix"),
    ("(outcome == succeeded)", "succeeded"), ("state.status == in_progress", "in_progress"),
    ("!(skipped)", "skipped"), ("context.é == ü", "ü"),
]  # fmt: skip


@each(("source", "word"), BARE)
def test_a_text_without_its_quotes_is_found(source: str, word: str) -> None:
    assert bare_word(source) == word
    (answer,) = engine.answer([conditions.Question("condition", source)], SCOPE, environment_python=None)
    assert (answer.status, word in answer.message) == ("threw", True)


MEANT = [
    "outcome == 'succeeded'", 'outcome == "it is succeeded" || context.failed',
    "outcome == 'it\\'s == succeeded'", "context.succeeded == context.failed", "context . failed == null",
    "context?.skipped === undefined", "context.n === NaN || context.n == Infinity",
    "context.n == 1e5 || context.n == 0x1f || context.n == 5n", "context.n == Number('3')",
    "context.a.constructor == Object", "context.n == -Math.abs(3)",
    "state.steps.some(failed => failed == outcome)",
    "state.steps.some(function (failed) { return failed == outcome })", "typeof succeeded == 'undefined'",
    "({succeeded: outcome}).succeeded == outcome", "`${outcome}` == outcome", "context.n / 2 == outcome / 3",
    "/succeeded/.test(outcome)", "outcome == void 0", "outcome == ('fix' in context)",
    "preferred_label == state.status",
]  # fmt: skip


@each("source", MEANT)
def test_what_has_a_meaning_is_no_bare_word(source: str) -> None:
    assert bare_word(source) is None
    (answer,) = engine.answer([conditions.Question("condition", source)], SCOPE, environment_python=None)
    assert (answer.status, answer.message) == ("ok", "")


def test_every_name_that_the_engine_knows_is_known() -> None:
    names = quickjs.Context().eval("Object.getOwnPropertyNames(globalThis).join(' ')").split()
    assert len(names) > 40
    assert [name for name in names if bare_word(f"context.n == {name}") is not None] == []


PIECES = ["outcome", "context", ".", "fix", "succeeded", "'succeeded'"]
SIGNS = ["==", "===", "&&", "(", ")", "[", "]", "'", '"', "/"]


@given(st.lists(st.sampled_from(PIECES + SIGNS), max_size=20).map(" ".join) | st.text(max_size=60))
@example("] == fix")
@example("== fix")
@example("fix ==")
def test_any_text_is_read_to_its_end(source: str) -> None:
    word = bare_word(source)
    assert word is None or word in source
