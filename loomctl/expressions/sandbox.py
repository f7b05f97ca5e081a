"""The child's side of expressions/engine: JavaScript in quickjs, JSONPath, JSON Schema, under limits (D12)."""

from __future__ import annotations

import json
import sys
import warnings

from loomctl.expressions import conditions, state_paths
from loomctl.expressions.questions import READY, Answer, Question, one_line, processor_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


def serve() -> int:
    """Answer the questions on stdin: their JSON is the first line, the scope's JSON the second.

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
