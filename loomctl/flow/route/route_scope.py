"""What the conditions of transitions see: `state outcome context preferred_label` (D12, D45)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Evaluated(NamedTuple):
    """What the conditions of a step's transitions come to without an engine.

    truths: one for each transition, None without a condition, False as long as it is not known. warnings: of those that
    threw. left: those that take an engine, as (place in the step's list, source).
    """

    truths: list[bool | None]
    warnings: list[str]
    left: list[tuple[int, str]]


def scope(state: Mapping[str, Any], ended: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Give the scope after a visit. ended: the visit, with its status; context: values, not references."""
    label = ended.get("preferred_next_label")
    return {"state": state, "outcome": ended["status"], "context": nested(context), "preferred_label": label}


def nested(context: Mapping[str, Any]) -> dict[str, Any]:
    """Give a flat context whose dotted keys can be reached as members too, where they do not collide.

    `{"tests.passed": true}` is `context["tests.passed"]` and `context.tests.passed`. A key that is there itself is
    never changed: beside `tests`, or `tests.passed`, what is longer stays flat.
    """
    found = dict(context)
    made: dict[str, dict[str, Any]] = {}  # objects that are not the context's own, by the name that they stand under
    for key in sorted(context, key=lambda one: (one.count("."), one)):
        parts = key.split(".")
        if len(parts) > 1 and all(parts) and not any(".".join(parts[:end]) in context for end in range(1, len(parts))):
            _put(found, made, parts, context[key])
    return found


def _put(found: dict[str, Any], made: dict[str, dict[str, Any]], parts: Sequence[str], value: Any) -> None:
    at = found
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        if name not in made:
            made[name] = at[parts[end - 1]] = {}
        at = made[name]
    at[parts[-1]] = value


def simple_truths(
    state: Mapping[str, Any], step: Mapping[str, Any], ended: Mapping[str, Any]
) -> tuple[Sequence[bool | None], Sequence[str]]:
    """Say what the conditions of a step's transitions come to, as far as that is known without an engine.

    None where a transition has no condition; what is not simple, or throws, is false and gives a warning.
    """
    if not conditions_of(step):
        return [None] * len(step.get("transitions") or ()), ()
    from loomctl.runs.model import run_context  # which stands on `run_life`, and that on this module

    found = evaluated(step, scope(state, ended, run_context.scope(state)))
    return found.truths, [*found.warnings, *(warned(source, "it takes an engine") for _, source in found.left)]


def conditions_of(step: Mapping[str, Any]) -> list[str]:
    """Give the sources of the conditions among a step's transitions."""
    return [one["condition"] for one in step.get("transitions") or () if one.get("condition") is not None]


def evaluated(step: Mapping[str, Any], seen: Mapping[str, Any]) -> Evaluated:
    """Evaluate the simple conditions of a step's transitions over a scope, as `scope` gives it."""
    from loomctl.expressions.conditions import ConditionThrew, NeedsEngine, evaluate  # most hooks weigh no way on

    found = Evaluated([], [], [])
    for index, transition in enumerate(step.get("transitions") or ()):
        source, code = transition.get("condition"), transition.get("condition_code")
        found.truths.append(None if source is None else False)
        if source is None:
            continue
        if code is None:
            found.left.append((index, source))
            continue
        try:
            found.truths[index] = evaluate(code, seen)
        except NeedsEngine:
            found.left.append((index, source))
        except ConditionThrew as threw:
            found.warnings.append(warned(source, str(threw)))
    return found


def warned(source: Any, why: str) -> str:
    """Say in one line that a condition is taken as false, and why; secrets in it are masked."""
    from loomctl.kit.text.secrets import masked_line  # most conditions come to something

    return f"{masked_line(str(source), 200)} — {masked_line(why, 200)}; taken as false"
