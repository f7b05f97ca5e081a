"""Compiled conditions answer as a JavaScript engine does, or not at all (D12)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loomctl.expressions.conditions import MAX_DEPTH, MAX_SOURCE, Question, compile_condition, evaluate
from loomctl.expressions.engine import answer_here, scope_text
from loomctl.expressions.javascript import OBJECT_PROTOTYPE, ConditionThrew, NeedsEngine
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

STATE: dict[str, Any] = {
    "n": 5, "zero": 0, "minus_zero": -0.0, "half": 0.5, "big": 9007199254740993, "huge": 10**400,
    "text": "done", "empty": "", "five": "5", "padded": " 5\n", "hex": "0x10", "smile": "a😀b",
    "half_smile": "\ud83d", "nothing": None, "yes": True, "no": False, "list": [1, [2], {"id": "x"}, None],
    "none": [], "object": {"a b": 1, "0": "zero", "length": "long", "😀": 7},
    "phases": {"build": {"status": "completed"}},
}  # fmt: skip


def engine(source: str, scope: dict[str, Any]) -> object:
    """Ask the real engine: True, False, or what it threw."""
    given_answer = answer_here(Question("condition", source), scope_text(scope))
    return given_answer.value if given_answer.status == "ok" else given_answer.message


def stdlib(code: list[Any], scope: dict[str, Any]) -> object:
    """Ask Loom's evaluation in the same terms; None: it refuses."""
    try:
        return evaluate(code, scope)
    except ConditionThrew as thrown:
        return str(thrown)
    except NeedsEngine:
        return None


@each(
    ("source", "expected"),
    [
        ("state.n == 5", True), ("state.n === '5'", False), ("state.n == '5'", True),
        ("state.five == 5.0", True), ("state.padded == 5", True), ("state.five < '10'", False),
        ("state.five < 10", True), ("state.n > -1 && state.zero <= 0", True), ("state.half == .5", True),
        ("state.half == 5e-1", True), ("5. == state.n", True), ("state.minus_zero === 0", True),
        ("-0 === 0", True), ("!-0", True), ("state.big == 9007199254740992", None),
        ("state.big > 900719925474099", True), ("state.huge > 1e99", True), ("state.huge === state.huge", True),
        ("state.text > 'daz'", True), ("state.text == 0", False), ("state.empty == 0", True),
        ("state.empty == false", True), ("!state.empty", True), ("'0' == false", True), ("!'0'", False),
        ("null == undefined", True), ("null === undefined", False), ("null == 0", False), ("null >= 0", True),
        ("undefined >= 0", False), ("undefined == 0", False), ("state.absent == null", True),
        ("state.absent === null", False), ("state.nothing === null", True), ("true == 1", True),
        ("true == '1'", True), ("true === 1", False), ("state.yes > state.no", True), ("state.none", True),
        ("!!state.object", True), ("state.list == state.none", False), ("state.list === null", False),
        ("state.list != undefined", True), ("state.list.length === 4", True), ("state.list[1][0] == 2", True),
        ("state.list[2].id == 'x'", True), ("state.list['0'] == 1", True),
        ("state.list[9] === undefined", True), ("state.list[4294967294] === undefined", True),
        ("state.object['a b'] == 1", True), ("state.object[0] == 'zero'", True),
        ("state.object.length == 'long'", True), ("state.object['😀'] == 7", True),
        ("state.object['\\ud83d\\ude00'] == 7", True), ("state.smile.length == 4", True),
        ("state.smile[3] == 'b'", True), ("state.smile[1] === state.half_smile", True),
        ("state.smile[4] === undefined", True), ("state.half_smile > 'z'", True), ("'\\uffff' > '😀'", True),
        ("'\\x41\\n' == 'A\\n'", True), ("state.phases.build.status == 'completed'", True),
        ("state . phases\n[ 'build' ] . status === \"completed\"", True),
        ("(state.nothing || state.phases).build.status == 'completed'", True),
        ("(state.nothing && state.phases).build", "TypeError: cannot read property 'build' of null"),
        ("state.absent.deeper", "TypeError: cannot read property 'deeper' of undefined"),
        ("state.absent[0]", "TypeError: cannot read property '0' of undefined"),
        ("state.absent && state.absent.deeper", False), ("state.n || state.absent.deeper", True),
        ("state.absent.deeper || true", "TypeError: cannot read property 'deeper' of undefined"),
        ("outcome.status == 'failed'", "ReferenceError: outcome is not defined"),
        ("false && outcome.status", False), ("1 < 2 < 3", True), ("3 > 2 > 1", False), ("1 == 1 == 1", True),
        ("!state.n == false", True), ("!(state.n == 5)", False), ("1 || 0 && 0", True),
        ("(1 || 0) && 0", False), ("state.n == 5 == (state.text != 'x')", True), ("undefined", False),
        ("state", True), ("state.default === undefined", True),
    ],
)  # fmt: skip
def test_a_simple_condition_answers_as_the_engine_does(source: str, expected: object) -> None:
    """Each awkward case has one answer, the engine's and Loom's own (None: it is not simple)."""
    code = compile_condition(source)
    if expected is None:
        assert code is None
        return
    assert code is not None
    assert (json.loads(json.dumps(code)), stdlib(code, {"state": STATE})) == (code, expected)
    assert engine(source, {"state": STATE}) == expected


@each(
    "source",
    [
        "state.object == 'x'", "state.list == 1", "state.list < 2", "state.list == state.list",
        "state.hex == 16", "'Infinity' == 1", "'1_0' == 10", "'\\u00a05' == 5", "'12345678901234567890' == 1",
        "state.text.trim", "state.list.map", "state.list['01']", "state.n.x", "state.yes.x",
        "state.list[-1] == 1",
    ],
)  # fmt: skip
def test_what_only_the_engine_knows_is_left_to_it(source: str) -> None:
    code = compile_condition(source)
    if code is not None:
        with pytest.raises(NeedsEngine):
            evaluate(code, {"state": STATE})


@each(
    "source",
    [
        "", " ", "()", "(1", "1)", "(state.a))", "1); while(1){}", "state.a = 1", "state.a == = 1",
        "state.a <<1", "state.a >> 1", "state.a &&= 1", "state.a & 1", "state.a | 1", "state.a ?? 1",
        "state?.a", "state.a ? 1 : 2", "state.a + 1", "state.a - 1", "-state.a", "- -1", "+1", "a", "State",
        "this", "states.a", "globalThis", "NaN == NaN", "Infinity", "typeof state", "void 0",
        "state.a in state", "new Date", "state.a()", "state[state.a]", "state[1 + 1]", "state[true]",
        "state[1.5]", "state[1e3]", "state[-1]", "state[0, 1]", "state[4294967295]", "state[]", "state.",
        "state.1", "state..a", "state.#a", "state.é", "state.\\u0061", "st\\u0061te", "state.__proto__",
        "state.constructor", "state['toString']", "5.length", "'abc'.length", "true.x", "017", "08", "0x10",
        "0b1", "1_000", "1n", "1e", "1e+", "1e999", "1..x", "1.2.3", "3in state", "1234567890123456", "'a",
        "'a\nb'", "'a\\\nb'", "'\\0'", "'\\1'", "'\\u{61}'", "'\\ud83d'", "'\\x4'", "'\\u00_1'", "'\\",
        "'\ud83d'", "`a`", "/a/", "1 // comment", "1 /* comment */", "1 <!-- comment", "1\n--> comment",
        "state\u00a0.a", "state\u2028.a", "state\x00", "\ufeffstate", "1 2", "state state", "1, 2", "1;", "!",
        "== 1", "1 ==", "1 && ", "{}", "[]", "[1][0]", "...state", "() => 1",
    ],
)  # fmt: skip
def test_everything_else_is_not_simple(source: str) -> None:
    """Whatever is outside the few words of D12, JavaScript or not, is left to the engine."""
    assert compile_condition(source) is None


NAMES = st.sampled_from(["a", "b", "length", "status", "0", "1", "ключ", "😀"])
ODD_TEXTS = [
    "", " ", "0", "1", "-1", "+1", "1.5", ".5", "5.", "1e3", "1e-3", " 7\t", "0x1f", "Infinity", "-0", "a", "B",
]  # fmt: skip
ODD_TEXTS += [
    "2024-01-01", "1_0", "é", "\u00a01", "\ufeff", "😀", "a😀", "\uffff", "\ud83d", "\ude00", "1 2", "--1", ".",
]  # fmt: skip
ODD_TEXTS += ["1\x00", "\x00", "0.1", "12345678901234567890", "1e400", "\u180e1", "\x1c1", "\x851"]
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(max_size=4)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 0.0, -0.0, 0.5, 2**53, 2**53 + 1, 2**63, 10**400, -(10**400), 1e308, 5e-324, 1.5, 3]),
    st.integers(),
    st.floats(allow_nan=False),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
SCOPES = st.fixed_dictionaries(
    {"state": st.dictionaries(NAMES, VALUES, max_size=5)},
    optional={"context": VALUES, "outcome": VALUES, "preferred_label": st.none() | TEXTS, "task": VALUES},
)


def literal(text: str) -> str:
    return json.dumps(text)


MEMBERS = st.one_of(
    st.sampled_from([".a", ".b", ".length", ".status", "[0]", "[1]", "[ 2 ]"]),
    NAMES.map(lambda name: f"[{literal(name)}]"),
)
PATHS = st.tuples(
    st.sampled_from(["state"] * 6 + ["context", "outcome", "preferred_label", "task"]), st.lists(MEMBERS, max_size=3)
).map(lambda parts: parts[0] + "".join(parts[1]))
LITERALS = st.one_of(
    st.sampled_from(["true", "false", "null", "undefined", "0", "1", "-1", "-0", "1.5", "1e3", ".5", "7."]),
    TEXTS.map(literal),
    st.integers(-100, 100).map(str),
)
OPERATORS = st.sampled_from(["==", "===", "!=", "!==", "<", "<=", ">", ">=", "&&", "||"])
SPACES = st.sampled_from(["", " ", "\n", " \t"])
EXPRESSIONS = st.recursive(
    st.one_of(PATHS, LITERALS),
    lambda inner: st.one_of(
        st.tuples(inner, SPACES, OPERATORS, SPACES, inner).map("".join),
        st.tuples(st.sampled_from(["!", "!!", "! "]), inner).map("".join),
        st.tuples(st.just("("), SPACES, inner, st.just(")")).map("".join),
        st.tuples(st.just("("), inner, st.just(")"), MEMBERS).map("".join),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=800)
@given(EXPRESSIONS, SCOPES)
@example("state.a==state.b", {"state": {"a": 2**53 + 1, "b": 2.0**53}})
@example("state.a<state.b", {"state": {"a": "\uffff", "b": "😀"}})
def test_compiled_conditions_equal_the_engine(source: str, scope: dict[str, Any]) -> None:
    code = compile_condition(source)
    if code is None:
        return
    ours = stdlib(json.loads(json.dumps(code)), scope)
    if ours is not None:
        assert ours == engine(source, scope)


WORDS = [
    "state", "context", "a", "true", "null", "undefined", "in", "this", "length", "let", "1", "0", "07", "2.",
    ".5", "1e3",
]  # fmt: skip
WORDS += [
    "'a'", '"b"', "'", "`", "/", "//", "/*", "*/", "<!--", "-->", "\\u0061", "\n", " ", "\u2028", "=", "=>",
    "!", "-", "+",
]  # fmt: skip
WORDS += [
    "==", "===", "!=", "!==", "<", ">", "<=", ">=", "&&", "||", "??", "?.", "?", ":", ",", ";", ".", "(", ")",
    "[", "]", "{", "}",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.lists(st.sampled_from(WORDS), max_size=9).map("".join), SCOPES)
def test_whatever_compiles_is_javascript_with_the_same_answer(source: str, scope: dict[str, Any]) -> None:
    code = compile_condition(source)
    if code is None:
        return
    ours = stdlib(code, scope)
    if ours is not None:
        assert ours == engine(source, scope)


@settings(max_examples=400)
@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda data: data.decode("latin-1")))
def test_compiling_never_raises(source: str) -> None:
    """Any text at all is compiled or refused."""
    compile_condition(source)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["get", "of", "value", "!", "==", "&&", "state", "undefined"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(JSON_VALUES, max_size=4))
def test_a_damaged_plan_is_refused_not_a_crash(code: list[Any]) -> None:
    stdlib(code, {"state": STATE})


@each("make", ["({})", "!{}", "({}).a", "({}) == 1"])
def test_nesting_is_bounded_without_a_recursion_error(make: str) -> None:
    before, after = make.split("{}")

    def nested(levels: int) -> str:
        return before * levels + "null" + after * levels

    code = compile_condition(nested(MAX_DEPTH - 10))
    assert code is not None
    assert stdlib(code, {"state": {}}) is not None
    assert compile_condition(nested(MAX_DEPTH + 1)) is None
    for levels in (1_000, 3_000):
        assert compile_condition(nested(levels)) is None


@each(
    "source",
    [
        "(" * 10_000 + "1" + ")" * 10_000, "!" * 10_000 + "1", "state" + ".a" * 5_000,
        " && ".join(["1"] * 3_000), "'" * 16_000,
    ],
)  # fmt: skip
def test_hostile_sizes_take_no_time(source: str) -> None:
    with bounded_work():
        code = compile_condition(source)
    if code is not None:
        stdlib(code, {"state": {}})


def test_a_source_beyond_the_limit_is_not_simple_and_what_is_not_json_is_left_to_the_engine() -> None:
    """A set or a date in the scope is not silently taken for something else."""
    assert compile_condition("1||" * (MAX_SOURCE // 3) + "1") is not None
    assert compile_condition("1||" * 350_000 + "1") is None
    code = compile_condition("state.a == 1")
    assert code is not None
    with pytest.raises(NeedsEngine):
        evaluate(code, {"state": {"a": {1}}})


def test_the_inherited_names_are_all_that_the_engine_has() -> None:
    import quickjs

    names = json.loads(quickjs.Context().eval("JSON.stringify(Object.getOwnPropertyNames(Object.prototype))"))
    assert set(names) <= OBJECT_PROTOTYPE
