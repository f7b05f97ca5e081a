"""Expressions that take the made environment are answered by a child that nothing can make run on (D12)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.expressions import engine
from loomctl.expressions.conditions import MAX_SOURCE, Answer, Question
from loomctl.expressions.engine import answer, child_command, scope_text, syntax_error
from loomctl.expressions.state_paths import MISSING
from loomctl.kit.errors import EXIT_SETUP
from tests.helpers.errors import refusal
from tests.helpers.tables import each
from tests.helpers.waiting import until

STATE: dict[str, Any] = {
    "steps": [{"id": "one", "status": "failed"}, {"id": "two", "status": "succeeded"}],
    "artifacts": {"spec_path": "specs/x.md", "none": None},
    "n": 5,
}
LIMIT = engine.TOTAL_SECONDS
SLACK = 10.0  # a child process starts in it, on whatever machine


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time, but where the time limit itself is tested."""
    monkeypatch.setattr(engine, "TOTAL_SECONDS", 20.0)


def ask(*sources: str, kind: str = "condition", scope: dict[str, Any] | None = None) -> list[Answer]:
    questions = [Question(kind, source) for source in sources]
    return answer(questions, {"state": STATE} if scope is None else scope, environment_python=sys.executable)


@each(
    ("source", "expected"),
    [
        ("state.n + 1 === 6", True), ("state?.a?.b ?? true", True),
        ("state.steps.some(step => step.status === 'failed')", True),
        ("state.artifacts.spec_path.includes('.md') // a spec", True),
        ("/^specs\\//.test(state.artifacts.spec_path)", True), ("`${state.n}` == '5'", True),
        ("typeof outcome === 'undefined'", True), ("state.n ? 0 : 1", False), ("[]", True), ("0, 1", True),
        ("'\ud83d'.length === 1", True), ("'\x00'.length === 1", True), ("this === undefined", True),
        ("state.absent.x", "TypeError: cannot read property 'x' of undefined"),
        ("nobody.x", "ReferenceError: nobody is not defined"),
        ("stray = 1", "ReferenceError: stray is not defined"),
        ("null.x // \u2028", "TypeError: cannot read property 'x' of null"),
        ("(() => { throw new Error('a\\nb\\u0000\\ud83d') })()", "Error: a"),
        ("(() => { throw null })()", "null"), ("(() => { throw '' })()", "it threw something"),
        ("(() => { throw { toString() { throw 1 } } })()", ""),
        ("(() => { throw Symbol('x') })()", "Symbol(x)"),
    ],
)  # fmt: skip
def test_a_condition_means_what_javascript_means(source: str, expected: bool | str) -> None:
    (given,) = ask(source)
    if isinstance(expected, bool):
        assert given == Answer("ok", expected, "")
    else:
        assert given.status == "threw"
        assert given.message.startswith(expected)
        assert given.message
        assert given.message.isprintable()


@each(
    ("source", "expected"),
    [
        ("$.steps[?(@.status=='failed')].id", "one"), ("$..id", "one"), ("$.steps[*].id", "one"),
        ("steps[1:].id", "two"), ("steps.`len`", 2), ("artifacts.none", None), ("$.nowhere..id", MISSING),
        ("$", STATE),
    ],
)  # fmt: skip
def test_a_path_gives_the_first_match(source: str, expected: object) -> None:
    assert ask(source, kind="path") == [Answer("ok", expected, "")]


@each("source", ["", "$.a[", "$.a[?(", "`parent`", "`nothing`", "a.where", "a" * 5_000, "(" * 4_000, "$.a\x00"])
def test_a_bad_path_is_an_answer_not_a_crash(source: str) -> None:
    (given,) = ask(source, kind="path")
    assert given.status == "threw"
    assert given.message
    assert "\n" not in given.message


RUNAWAYS = [
    "(() => { for (;;); })()", "(() => { for (;;) try { for (;;); } catch (e) {} })()",
    "(() => { throw { toString() { for (;;); } } })()",
    "(() => { Error.prototype.toString = () => { for (;;); }; for (;;); })()",
    "(() => { Error.prepareStackTrace = () => { for (;;); }; null.x })()",
    "'x'.repeat(4e6).indexOf('x'.repeat(2e6) + 'y')", "new Array(1e9).join('x')",
    "Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)", "/(a*)*b/.test('a'.repeat(40))",
    "(() => { const kept = []; for (;;) kept.push('x'.repeat(1000)); })()", "'x'.repeat(1e9)",
    "new ArrayBuffer(1e9)", "new Array(1e8).fill(0)", "(function again() { return again() })()",
    "JSON.parse('['.repeat(1e6))", "(() => { Object.prototype.toString = String = JSON = null; for (;;); })()",
]  # fmt: skip


@pytest.mark.slow(quick=3)
@pytest.mark.parametrize("source", RUNAWAYS)
def test_what_loops_or_allocates_without_end_ends_soon(source: str) -> None:
    begun = time.monotonic()
    first, second = ask(source, "state.n + 0 === 5")
    assert time.monotonic() - begun < LIMIT + SLACK
    assert first.status == "threw"
    assert first.message
    assert second == Answer("ok", True, "")


@pytest.mark.slow
def test_many_runaways_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TOTAL_SECONDS", LIMIT)
    begun = time.monotonic()
    answers = ask(*["new Array(1e9).join('x')"] * 12)
    assert time.monotonic() - begun < LIMIT + SLACK
    assert (len(answers), answers[-1].status) == (12, "needs_environment")
    assert "out of time" in answers[-1].message
    assert {given.status for given in answers} <= {"threw", "needs_environment"}


@pytest.mark.slow
def test_a_path_that_never_ends_is_ended() -> None:
    """JSONPath may take for ever too: here a pattern that backtracks."""
    begun = time.monotonic()
    (given,) = ask("$.words[?(@.text =~ '(a*)*b$')]", kind="path", scope={"state": {"words": [{"text": "a" * 40}]}})
    assert time.monotonic() - begun < LIMIT + SLACK
    assert given.status == "threw"


@each(
    "source",
    [
        "1); while(1){}", "1); while(1){}; (1", "1); x(", "1)}); while(1){}; (function(){ return (1",
        "1]}); while(1){}; (function(){ return [1", "1)}); while(1){}; //", "1 }", "}", "1;", "1; 2",
        "return 1", "throw 1", "while(1){}", "if (state) 1", "let a = 1", "a b", "1 +", "/* open", "`open",
        "/open", "'open", "'a\nb'", "//", "", " \n", "...state", "1,", "yield 1", "await 1",
        "import x from 'y'", "017", "state.a === 'x' and true", "\x00", "\ud83d", "state.n \\",
    ],
)  # fmt: skip
def test_what_is_not_one_expression_is_a_syntax_error(source: str) -> None:
    begun = time.monotonic()
    said = syntax_error(source)
    assert said
    assert time.monotonic() - begun < SLACK
    assert ask(source) == [Answer("threw", None, said)]


@each(
    "source",
    [
        "state.n == 1", "state?.n", "1 // comment", "/* comment */ 1", "1\n\n", "\n1\u2028+ 1",
        "`${'}'}` + ')'", "/[)\\]]/.test(')')", "(() => { while (1) {} })()", "function () { return 1 }", "{}",
        "{ a: 1 }.a", "1, 2", "a = b", "state.é", "'\ud83d'",
    ],
)  # fmt: skip
def test_one_expression_is_no_syntax_error(source: str) -> None:
    assert syntax_error(source) is None


@each(
    ("source", "said"),
    [
        ("(" * 10_000 + "1" + ")" * 10_000, "longer than"),
        ("(" * 5_000 + "1" + ")" * 5_000, "nested too deeply"),
        ("[" * 8_000 + "]" * 8_000, "nested too deeply"), ("!" * 16_000 + "1", "nested too deeply"),
        ("a=>" * 5_000 + "1", "nested too deeply"), ("`${" * 3_000 + "1" + "}`" * 3_000, "nested too deeply"),
        ("1+" * 500_000 + "1", "longer than"), ("x" * 1_000_000, "longer than"),
        ("/" + r"\p{L}" * 3_000 + "/iv", "memory"),
    ],
)  # fmt: skip
def test_hostile_sizes_are_refused_at_once(source: str, said: str) -> None:
    """Depth and length have limits with clear words, for the check and for the answer."""
    begun = time.monotonic()
    message = syntax_error(source)
    assert message is not None
    assert said in message
    assert time.monotonic() - begun < SLACK
    (given,) = ask(source)
    assert given.status == "threw"
    assert said in given.message


def test_a_long_source_within_the_limit_is_fine_and_a_deep_state_is_read_or_said() -> None:
    source = "0+" * (MAX_SOURCE // 2 - 1) + "1"
    assert syntax_error(source) is None
    assert ask(source) == [Answer("ok", True, "")]
    (given,) = ask("Array.isArray(state)", scope={"state": nested(900)})
    assert given.status == "ok" or "deep" in given.message


def test_a_path_has_its_own_syntax() -> None:
    assert syntax_error("$.a[0]['b']", "path") is None
    assert syntax_error("$.steps[?(@.a == 1)]", "path") is None
    assert syntax_error("a | b", "path") is None
    assert syntax_error("$.a[", "path")
    assert syntax_error("a" * 5_000, "path")


@each(
    ("state", "source", "expected"),
    [
        ({"a": 1e999, "b": -1e999}, "state.a === Infinity && state.b === -Infinity", True),
        ({"a": 10**400}, "state.a === Infinity", True),
        ({"a": "\ud83d\x00\u2028</script>"}, "state.a.length + 0 === 12", True),
        ({"__proto__": {"x": 1}}, "state.x ?? true", True),
        ({"constructor": 1, "toString": 2}, "state.constructor + state.toString === 3", True),
        ({"big": ["x" * 100] * 100_000}, "state.big.length + 1 === 100001", True),
        ({"big": [{"k": index} for index in range(100_000)]}, "state.big.some(item => item.k === 99999)", True),
        ([1, 2], "state.length + 1 === 3", True),
        (None, "`${state}` === 'null'", True),
    ],
)
def test_odd_and_huge_states_reach_the_engine_whole(state: Any, source: str, expected: bool) -> None:
    """What JSON can hold arrives as JavaScript would read it, and a large state does not count as the expression's."""
    assert ask(source, scope={"state": state}) == [Answer("ok", expected, "")]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@each("state", [{"a": {1}}, {"a": float("nan")}, {"a": nested(100_000)}, {(1, 2): 3}])
def test_a_state_that_is_not_json_is_an_answer(state: Any) -> None:
    """What cannot be written as JSON is said, for each question, and raises nothing."""
    answers = ask("state.n + 1", "state.n + 2", scope={"state": state})
    assert [given.status for given in answers] == ["threw", "threw"]
    assert answers[0].message


def test_questions_keep_their_order_and_only_the_names_that_are_given_are_defined() -> None:
    """A transition's names exist in a transition alone, and nothing else of the scope is handed over."""
    questions = [
        Question("path", "$..id"),
        Question("condition", "1 + 1"),
        Question("path", "$..none"),
        Question("condition", "x"),
    ]
    answers = answer(questions, {"state": STATE}, environment_python=sys.executable)
    assert [given.status for given in answers] == ["ok", "ok", "ok", "threw"]
    assert [given.value for given in answers] == ["one", True, None, None]
    assert answer([], {}, environment_python=None) == []
    scope = {"state": {}, "outcome": {"status": "failed"}, "context": {"n": 1}, "preferred_label": "Fix", "secret": 1}
    source = "outcome.status + context.n + preferred_label + typeof secret === 'failed1Fixundefined'"
    assert ask(source, scope=scope) == [Answer("ok", True, "")]
    assert ask("typeof context === 'undefined'") == [Answer("ok", True, "")]
    assert json.loads(scope_text(scope)).keys() == {"state", "outcome", "context", "preferred_label"}


@pytest.mark.parametrize(
    "source", ["state.steps.pop(), JSON.parse = null, true", "globalThis.left = 1, delete state.n, true"]
)
def test_one_expression_leaves_nothing_for_the_next(source: str) -> None:
    assert (
        ask(source, "typeof left === 'undefined' && JSON.parse && state.n + state.steps.length === 7")
        == [Answer("ok", True, "")] * 2
    )


@each("name", ["std", "os", "require", "process", "fetch", "console", "print", "scriptArgs", "Deno", "load"])
@pytest.mark.shows("Others run in an engine without input or output")
def test_the_sandbox_has_no_way_out(name: str) -> None:
    assert ask(f"typeof {name} === 'undefined'") == [Answer("ok", True, "")]


@each(
    "python",
    [
        "/nowhere/python", "/", "", "has\x00nul", "SCRIPT:#!/bin/sh\nexit 3",
        "SCRIPT:#!/bin/sh\necho not ready", "SCRIPT:broken",
    ],
)  # fmt: skip
def test_without_a_working_interpreter_the_environment_is_needed(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_has", lambda _: False)
    if python.startswith("SCRIPT:"):
        script = tmp_path / "python"
        script.write_text(python.removeprefix("SCRIPT:"))
        script.chmod(0o755)
        python = str(script)
    answers = answer([Question("condition", "1 + 1")] * 2, {"state": {}}, environment_python=python)
    assert [given.status for given in answers] == ["needs_environment"] * 2
    assert answers[0].message


@pytest.mark.slow
def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TOTAL_SECONDS", LIMIT)
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\nsleep 60 & echo $! > "$0.pid"; wait\n')
    script.chmod(0o755)
    begun = time.monotonic()
    answers = answer([Question("condition", "1 + 1")], {"state": {}}, environment_python=str(script))
    assert time.monotonic() - begun < LIMIT + SLACK
    assert answers[0].status == "needs_environment"
    sleeper = int((tmp_path / "python.pid").read_text())
    until(lambda: not alive(sleeper), "a killed process to be gone")


def alive(process: int) -> bool:
    """Say whether the process runs; one that has ended and waits to be collected does not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_an_interpreter_without_the_libraries_needs_the_environment() -> None:
    command = child_command(sys.executable)
    assert command is not None
    command[1:2] = ["-I", "-S"]
    request = json.dumps([["condition", "1 + 1"], ["path", "$..a"]]) + "\n" + scope_text({"state": {}})
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True, timeout=20)
    ready, *lines = done.stdout.splitlines()
    assert ready == "ready"
    assert [json.loads(line)[0] for line in lines] == ["needs_environment"] * 2
    assert "quickjs" in lines[0]
    assert "jsonpath_ng" in lines[1]


def test_without_the_libraries_a_check_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is not skipped in silence: it is an error with a way forward."""
    monkeypatch.setitem(sys.modules, "quickjs", None)
    raised = refusal(syntax_error, "state?.a")
    assert (raised.code, raised.exit_code) == ("NEEDS_ENVIRONMENT", EXIT_SETUP)
    assert syntax_error("state.a") is None


def test_without_an_environment_this_interpreter_serves_if_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer([Question("condition", "1 + 1")], {"state": {}}, environment_python=None) == [Answer("ok", True, "")]
    monkeypatch.setattr(engine, "_has", lambda _: False)
    (given,) = answer([Question("condition", "1 + 1")], {"state": {}}, environment_python=None)
    assert given.status == "needs_environment"


def test_importing_is_cheap() -> None:
    """A hook that imports this loads only what every hook may load, and starts no thread."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = (
        f"import sys; sys.path.insert(0, {top!r}); from loomctl.expressions import engine; "
        "from loomctl.expressions.conditions import compile_condition, evaluate; "
        "from loomctl.expressions import state_paths; "
        "evaluate(compile_condition('state.a == 1'), {'state': {}}); print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    heavy = {"dataclasses", "pathlib", "hashlib", "tempfile", "logging", "datetime", "subprocess", "inspect", "shutil"}
    heavy |= {
        "threading", "signal", "urllib", "glob", "fnmatch", "importlib.util", "quickjs", "jsonpath_ng",
        "warnings_",
    }  # fmt: skip
    heavy |= {"resource", "warnings"}  # what the child alone needs
    assert not heavy & set(done.stdout.split())


def test_the_child_says_what_it_was_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [["condition", "state.a === '\\u2028'"], ["path", "$.a"], ["path", "$.b"]]
    request = json.dumps(questions) + "\n" + scope_text({"state": {"a": "\u2028"}})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(request.encode())))
    monkeypatch.setattr(engine, "_limit_process", lambda: None)
    assert engine.child_main() == 0
    ready, *lines = capsys.readouterr().out.splitlines()
    assert ready == "ready"
    assert [json.loads(line) for line in lines] == [["ok", [True], ""], ["ok", ["\u2028"], ""], ["ok", [], ""]]
