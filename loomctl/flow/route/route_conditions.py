"""What the conditions of a step's transitions come to: simple ones here, others in the sandbox's child (D12, D45).

On the hook path the standard library alone is imported; the child is the made environment's.
"""

from __future__ import annotations

from loomctl.flow.route import route_scope
from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.context import context_values
from loomctl.runs.model import run_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from loomctl.flow.route.route_scope import Evaluated
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.workflows.model.ways import Judge

    # Gives the context of a state as values, as far as conditions name its keys, and what is to be warned of.
    Reader: TypeAlias = Callable[[Mapping[str, Any], Sequence[str]], tuple[dict[str, Any], list[str]]]


def judge(space: Workspace, run: Run) -> Judge:
    """Make what says of a run's transitions what their conditions come to, for `run_life.end_visit`."""

    def read(state: Mapping[str, Any], sources: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        return _context(space, run, state, sources)

    return judge_with(read, space.caller.environment_python)


def judge_with(read: Reader, python: str | None) -> Judge:
    """Make the same of what reads the context. python: the made environment's, None: this one if it has the engine."""

    def asked(
        state: Mapping[str, Any], step: Mapping[str, Any], ended: Mapping[str, Any]
    ) -> tuple[Sequence[bool | None], Sequence[str]]:
        return _truths(read, python, state, step, ended)

    return asked


def _truths(
    read: Reader, python: str | None, state: Mapping[str, Any], step: Mapping[str, Any], ended: Mapping[str, Any]
) -> tuple[Sequence[bool | None], Sequence[str]]:
    """Say what each condition comes to, None where a transition has none.

    One that throws, or cannot be evaluated here, is false, and a warning names it.
    """
    said = route_scope.conditions_of(step)
    if not said:
        return [None] * len(step.get("transitions") or ()), ()
    context, warnings = read(state, said)
    seen = route_scope.scope(state, ended, context)
    found = route_scope.evaluated(step, seen)
    warnings += found.warnings
    if found.left:
        warnings += _asked_of_the_engine(python, found, seen)
    return found.truths, warnings


def _asked_of_the_engine(python: str | None, found: Evaluated, seen: Mapping[str, Any]) -> list[str]:
    """Ask a child for what is not simple, and put it among the truths; gives what is to be warned of."""
    from loomctl.expressions import engine
    from loomctl.expressions.questions import Question

    questions = [Question("condition", source) for _, source in found.left]
    warnings = []
    answers = engine.answer(questions, seen, environment_python=python)
    for (index, source), answer in zip(found.left, answers, strict=True):
        found.truths[index] = answer.status == "ok" and bool(answer.value)
        if answer.status != "ok":
            warnings.append(route_scope.warned(source, answer.message))
    return warnings


def _context(
    space: Workspace, run: Run, state: Mapping[str, Any], sources: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Give the context, with what references stand for where a condition names their key; others stay references."""
    context, warnings = run_context.scope(state), []
    for key, value in context.items():
        named = any(all(part in source for part in key.split(".")) for source in sources)
        if not named:
            continue
        try:
            context[key] = context_values.value_of(space, run, value)
        except (LoomError, OSError) as error:
            what = error.what if isinstance(error, LoomError) else str(error)
            warnings.append(f"context {masked_line(key, 80)} cannot be read: {masked_line(what, 200)}")
    return context, warnings
