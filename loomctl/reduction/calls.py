"""Reducing a tool call: what was done, what came of it, and what the work may need of it later (D47-D49).

Pure: `reduce_call` says which text is to be put away; who calls it does so.
"""

from __future__ import annotations

import json

from loomctl.expressions import state_paths
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked
from loomctl.reduction import observations
from loomctl.reduction.first_lines import Call
from loomctl.reduction.kinds import kind_of
from loomctl.reduction.live import with_text
from loomctl.reduction.tool_outputs import Output, as_text, read_output
from loomctl.reduction.tool_steps import LIST, SHELL, WRITE, result_of, rule_for, usual_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import Rule

_SHORT = 120  # characters of an argument that is kept where the rule names none
_SMALL = 160  # characters of JSON
_MOST_ARGS = 40  # that are kept where the rule names none


class Reduction(NamedTuple):
    """What becomes of a call.

    text: what is to be offloaded, of this kind (`kind_of`), or None where all of it stands in `rest`; rest: as in
    `ToolStep`; size: the text's bytes; tokens_before: an estimate.
    """

    minimal_args: dict[str, Any]
    observation: str
    success: bool
    text: str | None
    kind: str
    rest: dict[str, Any]
    size: int
    tokens_before: int


def reduce_call(
    tool_name: str, args: object, result: object, *, error: str = "", users: Sequence[Rule] = ()
) -> Reduction:
    """Reduce one call. Raises nothing, whatever arguments and result are.

    error: what the host said of a call that failed; users: rules that come before Loom's own.
    """
    rule = rule_for(tool_name, users)
    given = usual_args(rule, args)
    if error and result is None:
        result = error
    output = read_output(rule, given, result, failed=bool(error))
    kind = kind_of(output.text)
    size = observations.measured(output.text, output.errors)
    asked = observations.measured(as_text(given), "") if given else 0
    kept = kept_args(rule, given)
    text = output.text if _is_large(rule, output) else None
    return Reduction(
        kept,
        observations.observation(Call(tool_name, rule, given, output, kind, size)),
        output.success,
        text,
        kind,
        _rest(rule, args, kept, result, output, is_offloaded=text is not None),
        output.size,
        size + asked,
    )


def rebuilt(minimal_args: Mapping[str, Any], rest: Mapping[str, Any], text: str | None) -> tuple[object, object]:
    """Give a call's arguments and result as they were. text: what stands behind the step's `outcome_ref`.

    Raises ValueError, LookupError or TypeError where what is given was damaged.
    """
    if rest.get("text_is") == "event":
        event = json.loads(text or "")
        return event.get("tool_input"), event.get("error") if result_of(event) is None else result_of(event)
    own = rest.get("no_args", ())
    kept = {key: value for key, value in minimal_args.items() if not key.startswith("$") and key not in own}
    args: object = rest["args_are"] if "args_are" in rest else {**kept, **rest.get("args", {})}
    if text is None:
        return args, rest.get("result")
    if rest.get("text_is") == "JSON":
        return args, json.loads(text)
    at = rest.get("text_at")
    return args, text if at is None else with_text(rest.get("result"), tuple(at), text)


def kept_args(rule: Rule, args: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments that tell what was done: short, and without the secrets that stand in them."""
    if rule.action == SHELL and isinstance(args.get("args"), list):  # the document's form: a program and its arguments
        import shlex  # no assistant's own calls have this form

        words = shlex.join(str(word) for word in args["args"] if word is not None)
        return {"command": observations.shortened(f"{args.get('command') or ''} {words}".strip())}
    named = rule.keep or [key for key, value in args.items() if _is_short(value)][:_MOST_ARGS]
    found: dict[str, Any] = {}
    for name in named:
        steps = state_paths.compile_path(name) if name.startswith("$") else [name]
        value = state_paths.MISSING if steps is None else state_paths.read(steps, args)
        if isinstance(value, str):
            found[name] = observations.shortened(value)
        elif value is not state_paths.MISSING and value is not None and _is_small(value):
            found[name] = value
    return {key: value for key, value in masked(found).items() if isinstance(value, str) or _is_small(value)}


def _is_short(value: object) -> bool:
    return len(value) <= _SHORT if isinstance(value, str) else _is_small(value)


def _is_small(value: object) -> bool:
    try:
        return len(json.dumps(value, ensure_ascii=False, allow_nan=False)) <= _SMALL
    except (ValueError, TypeError, RecursionError):  # a number that JSON does not have, no JSON at all, no end of it
        return False


def _is_large(rule: Rule, output: Output) -> bool:
    return (output.facts["items"] if rule.action == LIST else output.size) > rule.threshold


def _rest(
    rule: Rule, args: object, kept: dict[str, Any], result: object, output: Output, *, is_offloaded: bool
) -> dict[str, Any]:
    """Give what neither the kept arguments nor the offloaded text holds."""
    rest: dict[str, Any] = {}
    if not isinstance(args, dict):
        rest["args_are"] = args
    else:
        dropped = {k: v for k, v in args.items() if k.startswith("$") or k not in kept or kept[k] != v}
        if rule.action == WRITE and output.success:
            for name in ("content", "file_text"):  # it is on disk (context-reduction.md)
                dropped.pop(name, None)
        made = [key for key in kept if key not in args and not key.startswith("$")]
        rest.update({**({"args": dropped} if dropped else {}), **({"no_args": made} if made else {})})
    if not is_offloaded:
        rest["result"] = result
    elif output.at is not None:
        rest["result"], rest["text_at"] = with_text(result, output.at, ""), list(output.at)
    elif not isinstance(result, str):
        rest["text_is"] = "JSON"
    return rest
