"""What takes the made environment: JavaScript, JSONPath and JSON Schema, asked of a child that may be killed (D12).

Always a child, even where the libraries could be imported here: the engine's time limit does not reach into its
built-in functions, and one `'x'.repeat(4e6).indexOf(…)` would hold the whole process for many minutes.
"""

from __future__ import annotations

import json
import os
import sys
import time

from loomctl.expressions import conditions, state_paths
from loomctl.expressions.conditions import (
    READY,
    ROOTS,
    Answer,
    Question,
    compile_condition,
    one_line,
    processor_seconds,
)
from loomctl.expressions.state_paths import MISSING, compile_path
from loomctl.kit import package
from loomctl.kit.errors import EXIT_SETUP, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TOTAL_SECONDS = 2.0
SCHEMA_TOTAL_SECONDS = 5.0  # for a value held against a schema, the start of a child included
_NO_TIME = "it ran out of time: all expressions together may take {:g} s"


def answer(
    questions: list[Question], scope: Mapping[str, Any], *, environment_python: str | None, seconds: float | None = None
) -> list[Answer]:
    """Answer every question, in order, in about `seconds` (TOTAL_SECONDS) at most; never raises for what they hold.

    scope: JSON values under some of ROOTS. environment_python: the made environment's interpreter, or None for this
    one if it has the libraries. Questions that were not reached because others ran away are "needs_environment".
    """
    if not questions:
        return []
    seconds = TOTAL_SECONDS if seconds is None else seconds
    command = child_command(environment_python, "jsonschema" if questions[0].kind == "schema" else "quickjs")
    if command is None:
        return [Answer("needs_environment", None, "Loom has no environment to evaluate it in")] * len(questions)
    try:
        text = scope_text(scope)
    except (TypeError, ValueError, RecursionError) as problem:
        return [Answer("threw", None, f"Loom cannot give the state to the engine: {one_line(problem)}")] * len(
            questions
        )
    answers: list[Answer] = []
    deadline = time.monotonic() + seconds
    while len(answers) < len(questions):
        left = questions[len(answers) :]
        got, failure, its_own = _ask(command, left, text, deadline - time.monotonic(), of=seconds)
        answers += got
        if len(answers) < len(questions) and its_own:
            answers.append(Answer("threw", None, failure))  # and the rest are asked of a new child
        else:
            answers += [Answer("needs_environment", None, failure)] * (len(questions) - len(answers))
    return answers


def syntax_error(source: str, kind: str = "condition") -> str | None:
    """Say what is wrong with a condition or path without running it, or give None if nothing is.

    A condition must be one expression, which `1); x(` is not. Raises LoomError NEEDS_ENVIRONMENT where the library
    is missing that would know.
    """
    if (compile_condition(source) if kind == "condition" else compile_path(source)) is not None:
        return None

    try:
        return condition_error(source) if kind == "condition" else path_error(source)
    except ImportError as missing:
        why = f"{one_line(missing)}; bin/loomctl sets up the environment for that"
        what = f"Loom cannot check the {kind} {one_line(source)!r} here"
        raise LoomError("NEEDS_ENVIRONMENT", what, why=why, hint="loomctl doctor", exit_code=EXIT_SETUP) from None


def child_command(environment_python: str | None, library: str = "quickjs") -> list[str] | None:
    """Give the command that answers questions on stdin, or None if no interpreter with the library is known."""
    python = environment_python or (sys.executable if _has(library) else None)
    return [python, "-I", package.MAIN, "expressions"] if python else None


def _has(library: str) -> bool:
    from importlib.util import find_spec

    return find_spec(library) is not None


def scope_text(scope: Mapping[str, Any]) -> str:
    """Write the scope as the one line of ASCII that the child reads; ValueError for what JSON does not have."""
    known = {root: scope[root] for root in ROOTS if root in scope}
    try:
        return json.dumps(known, allow_nan=False)
    except ValueError:
        return json.dumps(_without_infinity(known), allow_nan=False)


def _without_infinity(value: Any) -> Any:
    """Replace what Python reads from `1e999` and cannot write as JSON by a number that is infinite to JavaScript."""
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinity(item) for item in value]
    infinite = isinstance(value, float) and value in (float("inf"), float("-inf"))
    return (10**309 if value > 0 else -(10**309)) if infinite else value


def _ask(
    command: list[str], questions: list[Question], text: str, seconds: float, *, of: float
) -> tuple[list[Answer], str, bool]:
    """Ask one child: the answers that came, why there are no more, and whether the next question is at fault for it."""
    import subprocess

    if seconds <= 0:
        return [], _NO_TIME.format(of), False
    request = f"{json.dumps(questions)}\n{text}".encode("ascii")
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except (OSError, ValueError) as problem:
        return [], f"the environment's Python does not start: {one_line(problem)}", False
    with child:
        try:
            output, errors = child.communicate(request, timeout=seconds)
            failure, its_own = "", True
        except subprocess.TimeoutExpired:  # a runaway would have met its own limit: the machine is busy
            _kill(child.pid)
            output, errors = child.communicate()
            failure, its_own = _NO_TIME.format(of), False
        except BaseException:
            _kill(child.pid)
            raise
    first, *lines = output.split(b"\n")[:-1] or [b""]  # what follows the last line end is torn
    if its_own:
        stuck = questions[min(len(lines), len(questions) - 1)]
        failure = _why(child.returncode, errors, processor_seconds(stuck.kind))
    if first != READY:
        return [], failure, False
    return [_from_line(line) for line in lines], failure, its_own


def _kill(group: int) -> None:
    import signal

    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # it has ended; the second is how macOS says so
        pass


def _why(code: int, errors: bytes, seconds: float) -> str:
    import signal

    if code in (-signal.SIGPROF, -signal.SIGXCPU, -signal.SIGKILL):
        return f"it took more than {seconds:g} s"
    said = errors.decode("utf-8", "replace").strip().splitlines()
    return f"the environment's Python ended with {code}" + (f": {one_line(said[-1])}" if said else "")


def _from_line(line: bytes) -> Answer:
    status, values, message = json.loads(line)
    return Answer(status, values[0] if values else MISSING if status == "ok" else None, message)


def held_against(value: Any, schema: Any, *, environment_python: str | None) -> Answer:
    """Ask a child what a schema says against a value; its value is a list of [JSON Pointer, message].

    Always a child, which may be killed: a pattern in a schema can run for ever.
    """
    asked = Question("schema", json.dumps({"schema": schema, "value": value}))
    return answer([asked], {}, environment_python=environment_python, seconds=SCHEMA_TOTAL_SECONDS)[0]


SCRIPT_SECONDS = 0.25  # processor time of one condition, as the engine counts it
MEMORY_BYTES = 16 * 1024 * 1024  # beside the state itself
STACK_BYTES = 256 * 1024
PROCESS_BYTES = 1024 * 1024 * 1024
PROCESS_SECONDS = 4
STATE_BYTES_A_SECOND = 4_000_000  # a slow machine reads this much of a state; the time for it is no expression's fault

_RUN = """(function () {
  const {stringify} = JSON, text = String;
  return function (condition, scope) {
    try { return condition(scope) ? true : false } catch (thrown) { return stringify(text(thrown)) }
  };
})()"""
_IN_WORDS = {
    "InternalError: interrupted": f"it took more than {SCRIPT_SECONDS:g} s",
    "InternalError: out of memory": f"it needs more than {MEMORY_BYTES >> 20} MiB of memory",
    "RangeError: Maximum call stack size exceeded": "it is nested too deeply",
}


def child_main() -> int:
    """Be the child: answer the questions on stdin: their JSON is the first line, the scope's JSON the second.

    Writes "ready", then for each question as it is answered a line of JSON: [status, [value] or [], message].
    """
    import signal

    _limit_process()
    questions = [Question(*question) for question in json.loads(sys.stdin.buffer.readline())]
    scope_text = sys.stdin.buffer.read().decode("ascii")
    for_reading = min(PROCESS_SECONDS / 2, len(scope_text) / STATE_BYTES_A_SECOND)
    sys.stdout.write(f"{READY.decode()}\n")
    for question in questions:
        sys.stdout.flush()
        signal.setitimer(signal.ITIMER_PROF, processor_seconds(question.kind) + for_reading)
        status, value, message = answer_here(question, scope_text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        values = [value] if status == "ok" and value is not state_paths.MISSING else []
        sys.stdout.write(json.dumps([status, values, message]) + "\n")
    sys.stdout.flush()
    return 0


def answer_here(question: Question, scope_text: str) -> Answer:
    """Answer one question in this process, with no guard against what never ends: for the child, and for tests."""
    try:
        if question.kind == "path":
            return _path(question.source, scope_text)
        if question.kind == "schema":
            return _schema(question.source)
        return _condition(question.source, scope_text)
    except ImportError as missing:
        return Answer("needs_environment", None, one_line(missing))
    except Exception as problem:  # noqa: BLE001 - whatever a library makes of a strange expression is the answer
        return Answer("threw", None, _in_words(one_line(problem) or type(problem).__name__))


def condition_error(source: str) -> str | None:
    """Say why this is not one JavaScript expression, or give None if it is; nothing of it is run."""
    return _syntax_error(_context(), source)


def path_error(source: str) -> str | None:
    """Say why this is not a JSONPath, or give None if it is."""
    try:
        _parsed(source)
    except ImportError:
        raise
    except Exception as problem:  # noqa: BLE001 - the library raises several kinds, and bare Exception
        return one_line(problem)
    return None


def _limit_process() -> None:
    """Make sure that this process ends even when nobody is left to kill it, and leaves the machine its memory."""
    import resource
    import signal

    for number in (signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    limits = ((resource.RLIMIT_CPU, PROCESS_SECONDS), (resource.RLIMIT_AS, PROCESS_BYTES), (resource.RLIMIT_CORE, 0))
    for limit, most in limits:
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):  # the system has no such limit, or a lower one stands already
            pass


def _condition(source: str, scope_text: str) -> Answer:
    context = _context()
    wrong = _syntax_error(context, source)
    if wrong is not None:
        return Answer("threw", None, wrong)
    context.set_memory_limit(PROCESS_BYTES)  # a large state is no fault of the expression
    scope = context.parse_json(scope_text)
    context.set_memory_limit(context.memory()["malloc_size"] + MEMORY_BYTES)
    names = ", ".join(root for root in conditions.ROOTS if root in json.loads(scope_text))
    run = context.eval(_RUN)
    result = run(_eval(context, f"'use strict'; (function ({{{names}}}) {{ return ({source}\n) }})"), scope)
    if isinstance(result, bool):
        return Answer("ok", result, "")
    return Answer("threw", None, _in_words(one_line(json.loads(result))) or "it threw something without a text")


def _context() -> Any:
    """Make a fresh engine with its limits; it has no input or output at all."""
    import quickjs

    context = quickjs.Context()
    context.set_max_stack_size(STACK_BYTES)
    context.set_time_limit(SCRIPT_SECONDS)
    context.set_memory_limit(MEMORY_BYTES)
    return context


def _eval(context: Any, program: str) -> Any:
    """Evaluate a program, given as a JavaScript literal: the wrapper takes no NUL and no half of a character."""
    return context.eval(f"(0, eval)({json.dumps(program)})")


def _syntax_error(context: Any, source: str) -> str | None:
    if not source.strip():
        return "it is empty"
    if len(source) > conditions.MAX_SOURCE:
        return f"it is longer than {conditions.MAX_SOURCE} characters"
    # The program throws before anything of the source could run. What closes one kind of bracket too early does not
    # fit the other, so that only a whole expression fits both.
    for opening, closing in ("()", "[]"):
        inside = f"(function ({{{', '.join(conditions.ROOTS)}}}) {{ return {opening}{source}\n{closing} }})"
        program = json.dumps(f"'use strict'; throw 0; {inside}")
        said = context.eval(f"try {{ (0, eval)({program}) }} catch (thrown) {{ thrown === 0 ? '' : `${{thrown}}` }}")
        if said:
            return _in_words(one_line(said))
    return None


def _in_words(said: str) -> str:
    return _IN_WORDS.get(said, said)


def _parsed(source: str) -> Any:
    from jsonpath_ng.ext.parser import parse

    if len(source) > state_paths.MAX_SOURCE:
        raise ValueError(f"it is longer than {state_paths.MAX_SOURCE} characters")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # syntax that its next version drops is still syntax
        return parse(source)


def _schema(source: str) -> Answer:
    from loomctl.expressions import output_schemas

    asked = json.loads(source)
    return Answer("ok", output_schemas.said_against(asked["value"], asked["schema"]), "")


def _path(source: str, scope_text: str) -> Answer:
    scope = json.loads(scope_text)
    if "state" not in scope:
        return Answer("threw", None, "there is no state to read")
    found = _parsed(source).find(scope["state"])
    return Answer("ok", found[0].value if found else state_paths.MISSING, "")
