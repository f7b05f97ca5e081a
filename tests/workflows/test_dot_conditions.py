"""Conditions of workflows in DOT mean what their users expect, and are evaluated as all others are (D12, D61)."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.expressions import conditions
from loomctl.expressions.conditions import Question
from loomctl.expressions.engine import answer_here, condition_error, scope_text
from loomctl.expressions.javascript import NeedsEngine
from loomctl.workflows.dot_conditions import LONGEST, as_written, both, compile_condition, neither, readable
from tests.helpers.tables import each

SCOPE: dict[str, Any] = {
    "outcome": "succeeded",
    "preferred_label": "fix",
    "context": {
        "tests_passed": True, "said_true": "true", "failed_once": False, "said_false": "false", "score": 81,
        "said_score": "81", "half": 0.5, "minus": -3, "zero": 0, "said_zero": "0", "empty": "", "blank": "  ",
        "nothing": None, "text": "an error occurred", "version": "v12.3", "path": "src/auth.py",
        "auth.module_path": "src/auth.py", "my-key": "x", "list": ["a", "b", 3], "no_list": [],
        "object": {"a": 1}, "zip": "0815", "quote": 'say "hi"', "_run_id": "r-1",
    },
}  # fmt: skip


def asked(source: str, scope: dict[str, Any] | None = None) -> bool:
    """Compile a condition and evaluate it as a run does: by the standard library, else by the engine."""
    compiled = compile_condition(source)
    assert not compiled.errors, compiled.errors
    scope = SCOPE if scope is None else scope
    code = conditions.compile_condition(compiled.javascript)
    if code is not None:
        try:
            return conditions.evaluate(code, scope)
        except NeedsEngine:
            pass
    found = answer_here(Question("condition", compiled.javascript), scope_text(scope))
    assert found.status == "ok", found.message
    return bool(found.value)


TRUE = [
    "outcome=succeeded", "outcome=success", "outcome=SUCCESS", "outcome = succeeded", "outcome==succeeded",
    "outcome===succeeded", "outcome!==failed", 'outcome="succeeded"', "outcome!=failed", "outcome != fail",
    "outcome!=partial_success", "!outcome=failed", "! outcome=failed", "!!outcome=succeeded", "outcome",
    "preferred_label=fix", "preferred_label=Fix", "preferred_label", "context.tests_passed=true",
    "tests_passed=true", 'tests_passed="true"', "tests_passed", "said_true=true", "said_true",
    "failed_once=false", "said_false=false", "!failed_once", "!said_false", "score=81", "said_score=81",
    'score="81"', "score=81.0", "score!=80", "score!=081", "score > 80", "score>80.5", "score >= 81",
    "score <= 81", "score < 81.5", "score<1e3", "said_score > 80", "minus < 0", "minus = -3", "minus > -4",
    "half=0.5", "half<.75", "zero=0", "!zero", "!said_zero", "zero < 1", "!empty", "blank", 'empty=""',
    "empty=''", 'missing=""', 'nothing=""', "missing=null", "nothing=null", "missing!=x", "!missing",
    "!nothing", "!missing > 0", "!missing < 5", "!nothing < 5", "!empty < 5", "!blank < 5", "!tests_passed > 0",
    "!failed_once < 5", "!text > 0", "!text < 5", "list", "!no_list", "object", "text contains error",
    'text contains "an error"', "!text contains Error", "list contains a", "list contains 3",
    "!list contains c", "!list contains a,b", "!missing contains x", "!nothing contains null",
    "score contains 8", r"version matches ^v\d+", r"version matches ^v\d+\.\d$", r'version matches "^v\d+"',
    "version matches ^(v|w)1", "(version matches ^(v|w)1)", "version matches (?i)^V1",
    'text matches "error occurred$"', "path matches src/[a-z/]+", "!version matches ^w", "!missing matches .*",
    "score matches ^8", "auth.module_path=src/auth.py", "context.auth.module_path=src/auth.py", "!auth.nothing",
    "my-key=x", "zip=0815", "zip!=815", r'quote="say \"hi\""', "quote='say \"hi\"'", "_run_id=r-1",
    "outcome=succeeded && context.tests_passed=true", "outcome=succeeded&&tests_passed=true",
    "outcome=failed || score>80", "outcome=failed||score>80", "outcome=failed && zero || score>80",
    "score>80 || outcome=failed && zero", "!(outcome=failed || zero)", "!(outcome=succeeded && zero)",
    "(outcome=succeeded)&&(score>80||zero)", "!outcome=failed && !zero && score", "outcome=succeeded\n&& score",
    "js: context.score >= 80 && outcome === 'succeeded'",
]  # fmt: skip


@each("source", TRUE)
def test_it_is_true(source: str) -> None:
    """And its negation is false."""
    assert asked(source)
    if not source.startswith("js:"):
        assert not asked(f"!({source})")
        assert asked(f"!(!({source}))")


WRONG = [
    ("", "expected a key"), ("   ", "expected a key"), ("js:", "there is no JavaScript after js:"),
    (" js: \n", "there is no JavaScript after js:"), ("=1", "expected a key"), ("a=", "missing value"),
    ("a= && b", "missing value"), ("a &&", "expected a key"),
    ("a & b", "unexpected '& b' in column 3"), ("a | b", "unexpected '| b'"),
    ("a and b", "unexpected 'and b'"), ("a = b c", "several words"), ("(a", "missing )"),
    ("a)", "unexpected ')'"), ("a > b", "needs a number"), ("a > 0x10", "needs a number"),
    ('a > ""', "needs a number"), ("a contains", "unexpected 'contains'"),
    ("score=>80", "unexpected '=>80'"), ("score=<80", "unexpected '=<80'"),
    ("score = =81", "unexpected '==81'"), ("score!=!ready", "unexpected '!=!ready'"),
    ("score<>80", "unexpected '<>80'"), ("a AND b", "unexpected 'AND b' in column 3"),
    ("not a", "unexpected 'a' in column 5"), ("a in (b, c)", "unexpected 'in (b, c)'"),
    ("é=1", "expected a key"), ('context["a"]=1', "unexpected"), ("preferred_label=[F] Fix", "several words"),
    ('a="b', "the quoted value in column 3 has no end"), ("toString=1", "is not a valid context key"),
    ("context.__proto__", "is not a valid context key"), ("context.", "is not a valid context key"),
    ("1=1", "expected a key"), ("a matches x\\", "single backslash"), ("(" * 200 + "a" + ")" * 200, "nested"),
    ("!" * 5000 + "a", "at most"), ("!" * 200 + "a", "nested"), ("a" * (LONGEST + 1), "at most"),
    (" && ".join(["a>1"] * 500), "too long"),
]  # fmt: skip


@each(("source", "said"), WRONG)
def test_what_is_no_condition_is_refused_with_its_place(source: str, said: str) -> None:
    compiled = compile_condition(source)
    assert not compiled.javascript
    assert said in compiled.errors[0]


def test_an_outcome_that_no_step_has_is_warned_of() -> None:
    compiled = compile_condition("outcome=suceeded")
    assert "did you mean succeeded" in compiled.warnings[0]
    assert not asked("outcome=suceeded")


NEARLY = [
    ("OUTCOME=succeeded", "OUTCOME means a context key here; did you mean outcome?"),
    ("Outcome", "did you mean outcome?"),
    ("preferred_next_label=fix", "did you mean preferred_label?"),
    ("Preferred_Label contains fix", "did you mean preferred_label?"),
    ("true", "leave the condition out if the transition is always open"),
    ("!false", "leave the condition out if the transition is always open"),
]


@each(("source", "said"), NEARLY)
def test_a_key_that_is_nearly_a_name_is_warned_of(source: str, said: str) -> None:
    """It stays a key of the context, which a step may set; a run that waits for it to be true is told before."""
    compiled = compile_condition(source)
    assert compiled.javascript
    assert [said in one for one in compiled.warnings] == [True]


FALSE = [
    # what looks as if it might be true
    "outcome=PARTIAL_SUCCESS",
    "outcome=SKIPPED",
    "outcome=FAILURE",
    "outcome contains fail",
    "tests_passed=True",
    "tests_passed=TRUE",
    "tests_passed=yes",
    "tests_passed=1",
    "failed_once=0",
    "zero=false",
    "missing=false",
    "missing=undefined",
    "missing=0",
    "nothing=0",
    'score=" 81 "',
    "score=8_1",
    "score=+81",
    "said_score=81.0",
    "said_score=081",
    "text contains 'AN ERROR'",
    "version matches ^V12",
    "version matches /v12/",
    "context.a.b=1",
    "a..b=1",
    "context",
    "state.goal=x",
    "preferred_label='[F] Fix'",
    "list=a",
    "object=1",
]


@each("source", FALSE)
def test_it_is_false(source: str) -> None:
    """A word of another case, a number that is written otherwise, a key that nobody set: no guess is made."""
    assert not asked(source)
    assert asked(f"!({source})")


def test_what_people_write_needs_no_engine() -> None:
    for source in TRUE:
        if not re.search(r"contains|matches", source):
            assert conditions.compile_condition(compile_condition(source).javascript) is not None, source


@each("pattern", ["(", "[", "a{2,1}", "*", "(?<"])
def test_a_pattern_that_is_none_is_found_by_the_engine_before_a_run(pattern: str) -> None:
    """It is a literal of JavaScript, so that a check of the syntax meets it."""
    assert condition_error(compile_condition(f'a matches "{pattern}"').javascript)


TEXTS = st.sampled_from(
    [
        "", "a", "error", "true", "false", "0", "1", "81", "81.0", "-3", "x y", 'q"q', "b\\s", "a]b", "/",
        "null", "é😀", "\n",
    ]
)  # fmt: skip
VALUES = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, 81, -3, 0.5, 80.25, 10**6]), TEXTS, st.lists(TEXTS, max_size=2)
)
KEYS = ("a", "context.b", "c.d", "context.e-f", "missing")
CLAUSES = st.one_of(
    st.tuples(st.just("truth"), st.sampled_from(KEYS)),
    st.tuples(st.sampled_from(["=", "!=", "contains"]), st.sampled_from(KEYS), TEXTS),
    st.tuples(
        st.sampled_from([">", "<", ">=", "<="]), st.sampled_from(KEYS), st.sampled_from(["0", "80.5", "-3", "81"])
    ),
    st.tuples(st.just("outcome"), st.sampled_from(["succeeded", "failed", "fail", "partial_success"])),
)
TREES = st.recursive(
    CLAUSES,
    lambda inner: st.one_of(
        st.tuples(st.just("!"), inner),
        st.tuples(st.just("&&"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("||"), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)
SCOPES = st.builds(
    lambda outcome, values: {"outcome": outcome, "preferred_label": None, "context": values},
    st.sampled_from(["succeeded", "failed", "partially_succeeded", "skipped"]),
    st.dictionaries(st.sampled_from(["a", "b", "c.d", "e-f"]), VALUES),
)


def written(tree: Any) -> str:
    kind = tree[0]
    if kind == "truth":
        return str(tree[1])
    if kind == "outcome":
        return f"outcome={tree[1]}"
    if kind == "!":
        return f"!({written(tree[1])})"
    if kind in ("&&", "||"):
        return f" {kind} ".join(f"({written(one)})" if one[0] in ("&&", "||") else written(one) for one in tree[1])
    value = tree[2] if kind in ("<", ">", "<=", ">=") else '"' + tree[2].replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{tree[1]} {kind} {value}"


def meant(tree: Any, scope: dict[str, Any]) -> bool:
    kind = tree[0]
    if kind == "!":
        return not meant(tree[1], scope)
    if kind in ("&&", "||"):
        return (all if kind == "&&" else any)(meant(one, scope) for one in tree[1])
    if kind == "outcome":
        name = {"fail": "failed", "partial_success": "partially_succeeded"}.get(tree[1], tree[1])
        return bool(scope["outcome"] == name)
    held = scope["context"].get(tree[1].removeprefix("context."))
    if kind == "truth":
        return as_text(held) not in ([""] if isinstance(held, list) else ["", "false", "0"])
    wanted = tree[2]
    if kind == "contains":
        if isinstance(held, list):
            return wanted in held
        return held is not None and wanted in as_text(held)
    if kind in ("=", "!="):
        return bool(equal(held, wanted) == (kind == "="))
    number, bound = as_number(held), float(wanted)
    return {"<": number < bound, ">": number > bound, "<=": number <= bound, ">=": number >= bound}[kind]


def equal(held: Any, wanted: str) -> bool:
    """Compare a value of the context with a word of a condition."""
    if isinstance(held, list):
        return False
    if isinstance(held, (int, float)) and not isinstance(held, bool):
        return as_number(wanted) == held
    return as_text(held) == wanted


def as_text(value: Any) -> str:
    """Give a value as people write it; a list as its entries."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def as_number(value: Any) -> float:
    """Give the number that a value is, or is written as; a list is what its entries are."""
    text = as_text(value)
    if isinstance(value, bool) or not re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?", text):
        return math.nan
    return float(text)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(TREES, SCOPES)
def test_it_answers_as_the_plain_reading_does(tree: Any, scope: dict[str, Any]) -> None:
    source = written(tree)
    assert asked(source, scope) == meant(tree, scope), (source, scope)
    javascript = compile_condition(source).javascript
    by_engine = answer_here(Question("condition", javascript), scope_text(scope))
    assert (by_engine.status, by_engine.value) == ("ok", meant(tree, scope)), (source, scope)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(TREES)
def test_a_condition_is_written_as_it_was(tree: Any) -> None:
    javascript = compile_condition(written(tree)).javascript
    assert compile_condition(as_written(javascript)).javascript == javascript


SHOWN = [
    ("outcome=success && context.tests_passed=true", "outcome=succeeded && context.tests_passed=true"),
    ("score >= 80", "context.score >= 80"), ("ready", "context.ready"), ("!auth.ready", "!context.auth.ready"),
    ("a!=b", "context.a!=b"), ('a=""', 'context.a=""'), ("preferred_label=Fix", "preferred_label=Fix"),
    ("log contains error", 'context.log contains "error"'), ("v matches ^v2", 'context.v matches "^v2"'),
]  # fmt: skip


@each(("source", "shown"), SHOWN)
def test_a_condition_is_shown_in_short(source: str, shown: str) -> None:
    """As its writer would write it; JavaScript of one's own stays as it is."""
    javascript = compile_condition(source).javascript
    assert readable(javascript) == as_written(javascript) == shown
    assert as_written("state.artifacts.spec_path != null") == "js: state.artifacts.spec_path != null"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab.=!<>&|() \"'\\/[]tcontaismhe0x\n", max_size=60))
def test_any_text_is_compiled_or_refused(source: str) -> None:
    compiled = compile_condition(source)
    assert bool(compiled.javascript) != bool(compiled.errors)
    if compiled.javascript and "matches" not in source:
        assert condition_error(compiled.javascript) is None


def test_conditions_are_joined() -> None:
    """Both, and none of several."""
    assert both("a || b", "c") == "(a || b) && (c)"
    assert both("", "a") == both("a", "") == "a"
    assert neither(["a", "b || c"]) == "!(a) && !(b || c)"
