"""What the conditions of transitions see: `state outcome context preferred_label` (D12, D45)."""

from __future__ import annotations

from loomctl.model.conditions import ConditionThrew, NeedsEngine, evaluate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


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
    transitions: Sequence[Mapping[str, Any]] = step.get("transitions") or ()
    if all(one.get("condition") is None for one in transitions):
        return [None] * len(transitions), ()
    from loomctl.model import run_context  # which stands on `run_life`, and that on this module

    seen = scope(state, ended, run_context.scope(state, {}))
    truths: list[bool | None] = []
    warnings: list[str] = []
    for transition in transitions:
        source, code = transition.get("condition"), transition.get("condition_code")
        if source is None:
            truths.append(None)
            continue
        try:
            truths.append(evaluate(code, seen) if code is not None else False)
            if code is None:
                warnings.append(f"{source}: it takes an engine")
        except (NeedsEngine, ConditionThrew) as refused:
            truths.append(False)
            warnings.append(f"{source}: {refused}")
    return truths, warnings
