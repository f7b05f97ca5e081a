"""Reducing tool calls to tool steps, with their originals put away: for hooks, commands, other agents (D47)."""

from __future__ import annotations

import json

from loomctl.kit import digests
from loomctl.kit.errors import LoomError, quoted
from loomctl.reduction import content_kinds, history
from loomctl.reduction.calls import rebuilt, reduce_call
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_rules import LIST, SHELL, rule_for
from loomctl.reduction.tool_steps import ToolStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.reduction.tool_rules import Rule
    from loomctl.runs.tools.offload import DataOffloader

INLINE_MOST = 2048  # bytes of what stands in the record itself


class StepReducer:
    """Applies the rules to one call after another.

    offloader: where large texts go; rules: a user's own, which come before Loom's.
    """

    def __init__(self, offloader: DataOffloader, rules: Sequence[Rule] = ()) -> None:
        self.offloader, self._rules = offloader, rules
        self._count = 0

    def reduce(
        self,
        tool_name: str,
        args: Any,
        result: Any,
        *,
        step_id: str = "",
        error: str = "",
        more: dict[str, Any] | None = None,
    ) -> ToolStep:
        """Reduce a call. Raises nothing, whatever the arguments and the result are.

        step_id: the host's id of the call, else the steps are counted: `step_001`. error: what the host said of a call
        that failed. more: what else the record shall say. What cannot be stored stays in the record, and no file is
        named.
        """
        self._count += 1
        step_id = step_id or f"step_{self._count:03d}"
        reduction = reduce_call(tool_name, args, result, error=error, users=self._rules)
        ref, rest = None, reduction.rest
        if reduction.text is not None:
            try:
                ref = self.offloader.offload(
                    reduction.text, step_id, _extension(tool_name, reduction.kind, self._rules)
                )
            except OSError:
                rest = {**rest, "result": result}
                rest.pop("text_at", None)
        rest, rest_ref = self._put_away(rest, step_id)
        step = ToolStep(
            step_id,
            tool_name,
            reduction.minimal_args,
            reduction.observation,
            ref,
            reduction.success,
            rest,
            rest_ref,
            reduction.size,
            digests.of_text(reduction.text) if reduction.text is not None else "",
            reduction.tokens_before,
            more=more or {},
        )
        return step._replace(tokens_after=estimate(history.full(step)))

    def _put_away(self, rest: dict[str, Any], step_id: str) -> tuple[dict[str, Any], str | None]:
        """Give what stands in the record itself, and where the rest of it stands."""
        try:
            rendered = _json(rest)
        except (ValueError, RecursionError) as error:  # a library's caller can give what no JSON holds
            return {"lost": type(error).__name__}, None
        if len(rendered) <= INLINE_MOST and _is_strict(rest):
            return rest, None
        try:
            return {}, self.offloader.offload(rendered, f"{step_id}.rest", "json")
        except OSError:
            return (rest if _is_strict(rest) else {"lost": "ValueError"}), None

    def original(self, step: ToolStep) -> tuple[Any, Any]:
        """Give a call's arguments and result as they were. Raises LoomError: what `read` does, and REF_DAMAGED."""
        try:
            rest = json.loads(self.offloader.read(step.rest_ref)) if step.rest_ref else step.rest
            text = self.offloader.read(step.outcome_ref).decode("utf-8", "surrogatepass") if step.outcome_ref else None
            return rebuilt(step.minimal_args, rest, text)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            where = f"{self.offloader.workspace}/{step.rest_ref or step.outcome_ref or ''}"
            hint = f"ls -l {quoted(where)}"
            what = "what was put away of the step is damaged"
            raise LoomError("REF_DAMAGED", what, where=where, why=str(error), hint=hint) from None


def _extension(tool_name: str, kind: str, rules: Sequence[Rule]) -> str:
    action = rule_for(tool_name, rules).action
    if kind == content_kinds.TEXT and action == SHELL:
        return "log"
    return "txt" if action == LIST and kind == content_kinds.TEXT else content_kinds.EXTENSIONS[kind]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)


def _is_strict(value: object) -> bool:
    """Tell whether every reader of JSON takes it: without the words for numbers that JSON does not have."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return False
    return True
