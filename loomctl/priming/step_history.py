"""The history of a run's tool steps as a priming shows it: compacted, within its share, in a fence (D19, D50)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import fenced, visible
from loomctl.kit.text.units import utf16_units
from loomctl.priming import slip
from loomctl.reduction import history
from loomctl.reduction.tokens import at_most
from loomctl.runs.tools import tool_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.priming.slip import Budget
    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.workflows.model.triggers import Event

TOKENS = 500
_LOOKED_AT = 200  # steps at the log's end
_HEAD = "What tools did in this run so far (`loomctl steps` has all, whole):"


class Told(NamedTuple):
    """The text of a history, and what a state says of it: `{steps, full, short, counted, budget, tokens}`.

    steps: of the main line, the newest 200 at most; tokens: at most so many, of the budget.
    """

    text: str = ""
    counts: Mapping[str, int] | None = None


def told(
    run_dir: str,
    event: Event,
    budget: Budget,
    *,
    before: str,
    waiting: int = 0,
    unlogged: Sequence[ToolStep] = (),
) -> Told:
    """Give the history for a priming; empty where there is none, or where the conversation has it already.

    A change of phase happens within a conversation, which has seen its steps; the goal stands above. before: the other
    history that is told; both come out of one share, of which it leaves half. waiting: calls that a hook had no time
    for and that are not in the log yet; unlogged: steps behind those and the log's. Subagents' steps are not of the
    main line (D48).
    """
    if "session_start" not in event.facts and not event.is_manual:
        return Told()
    every = [*tool_log.tail(run_dir, _LOOKED_AT), *unlogged][-_LOOKED_AT:]
    steps = [step for step in every if not step.more.get("agent_id")]
    if all(history.is_looms(step) for step in steps):  # of them the text around this one tells
        return Told()
    count = every[-1].more.get("number")
    index = "loomctl steps" + (f" ({count:,} in all)" if type(count) is int and count > len(every) else "")
    share = budget.history - 2
    share -= min(budget.measure(before), share // 2)
    units = slip.MOST_HISTORY - min(utf16_units(before), slip.MOST_HISTORY // 2)
    number = f"{counted(waiting, 'call')} {'is' if waiting == 1 else 'are'} not among these yet"
    later = f"\n({number}, most of them before the newest: loomctl steps has all)" if waiting else ""
    for tokens in (TOKENS, 400, 300, 200, 120, 60):
        made = history.compacted(steps, tokens, index=index)
        text = f"{_HEAD}\n{fenced(visible(made.text))}{later}" if made.text else ""
        if text and budget.measure(text) <= share and utf16_units(text) <= units:
            counts = {"steps": len(steps), "full": made.full, "short": made.short, "counted": made.counted}
            return Told(text, {**counts, "budget": tokens, "tokens": at_most(made.text)})
    return Told()
