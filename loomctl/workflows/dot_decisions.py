"""Decisions of a workflow in DOT folded into the ways of the steps that lead to them: no step is made of one (D61)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.expressions.conditions import MAX_SOURCE
from loomctl.workflows.dot_conditions import both, neither
from loomctl.workflows.dot_text import NotDotError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from loomctl.workflows.dot_text import Report
    from loomctl.workflows.dot_ways import Way

MOST_WAYS = 100  # of one step, once its decisions are folded in
MOST_TEXT = 4 << 20  # characters of all conditions together: folding writes them again for each way
_BETWEEN = "put a step between the decisions"


def fold(
    ways: Mapping[str, Sequence[Way]], passed: Collection[str], decisions: Collection[str], report: Report
) -> dict[str, list[Way]]:
    """Give each step's ways with every decision's in the place of the way to it.

    ways: by the node that they begin at. passed: the nodes that no step is made of; decisions: those of them that
    route. A step that fails goes on to a decision too: its unconditional ways hold for failure as well.
    """
    done: dict[str, list[Way]] = {}
    written = 0
    for name in _innermost_first(ways, passed):
        own = [way for way in ways.get(name, ()) if way.to not in passed or way.to in done]
        for way in ways.get(name, ()):
            if way.to in passed and way.to not in done:
                message = "decisions lead to each other in a circle, without a step between them"
                report.fail("DECISION_LOOP", way.at, message, "put a step into the circle")
        try:
            done[name] = _through(own, done, passed, decisions)
        except NotDotError as refused:
            report.fail(refused.code, refused.at, str(refused), refused.hint)
            done[name] = []
        written += sum(len(way.condition) for way in done[name])
        if written > MOST_TEXT:
            message = f"the conditions, with those of decisions, have more than {MOST_TEXT:,} characters"
            report.fail("TOO_LARGE", 0, message, "put steps between the decisions")
            break
    return {name: _twinned(found) for name, found in done.items() if name not in passed}


def _innermost_first(ways: Mapping[str, Sequence[Way]], passed: Collection[str]) -> list[str]:
    """Order the nodes so that a decision comes before whatever leads to it; one in a circle may come too early."""
    order: list[str] = []
    seen: set[str] = set()
    for first in [*passed, *(name for name in ways if name not in passed)]:
        waiting = [(first, False)]
        while waiting:
            name, children_done = waiting.pop()
            if children_done:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                waiting.append((name, True))
                waiting += [(way.to, False) for way in ways.get(name, ()) if way.to in passed]
    return order


def _through(
    own: Sequence[Way], done: Mapping[str, Sequence[Way]], passed: Collection[str], decisions: Collection[str]
) -> list[Way]:
    if not any(way.to in passed for way in own):
        return list(own)
    if len(own) > MOST_WAYS:
        raise _too_many(own[0].at)
    free = [way for way in own if not way.condition]
    found: list[Way] = []
    for way, guard in _exclusive(own):
        if way.to not in passed:
            found.append(way._replace(condition=guard) if way.condition else way)
            continue
        onward = done[way.to]
        alone = len(onward) == 1 and not onward[0].condition
        if not alone:
            _check_clear(way, free, onward)
        conditions = [one.condition for one in onward if one.condition]
        for one in onward:
            condition = one.condition if one.condition or not way.condition else neither(conditions)
            guarded = both(guard, condition) if way.condition or one.condition else ""
            found.append(
                one._replace(
                    label=one.label or (way.label if alone else None),
                    condition=guarded,
                    weight=way.weight if alone and way.weight is not None else one.weight,
                    fidelity=one.fidelity or way.fidelity,
                    on_failure=one.on_failure or way.on_failure,
                    decided=one.decided or (way.to in decisions and (not alone or len(free) == 1)),
                )
            )
            if len(guarded) > MAX_SOURCE:
                message = f"decisions make a condition of more than {MAX_SOURCE:,} characters"
                raise NotDotError(way.at, message, _BETWEEN, "TOO_LARGE")
        if len(found) > MOST_WAYS:
            raise _too_many(way.at)
    return found


def _too_many(place: int) -> NotDotError:
    return NotDotError(place, f"decisions make more than {MOST_WAYS} ways from here", _BETWEEN, "TOO_MANY_WAYS")


def _exclusive(own: Sequence[Way]) -> list[tuple[Way, str]]:
    """Give each way with a condition that holds only where no way before it is open: no weight decides any more."""
    found: dict[int, str] = {}
    before: list[str] = []
    for index, way in sorted(enumerate(own), key=lambda one: (-(one[1].weight or 0), one[1].to)):
        if way.condition:
            found[index] = both(way.condition, neither(before)) if before else way.condition
            before.append(way.condition)
    return [(way, found.get(index, neither(before))) for index, way in enumerate(own)]


def _check_clear(way: Way, free: Sequence[Way], onward: Sequence[Way]) -> None:
    """Refuse a decision whose ways would be taken for those of the step: a label or weight chooses between them."""
    others = [one for one in free if one is not way and not one.on_failure]
    if (not way.condition and not way.on_failure and others) or (
        way.condition and sum(not one.condition for one in onward) > 1
    ):
        message = "one step cannot choose by label or weight between a way to a decision and other ways"
        hint = "put a step before the decision, or write its conditions on the ways of the step itself"
        raise NotDotError(way.at, message, hint, "AMBIGUOUS_DECISION")


def _twinned(ways: Sequence[Way]) -> list[Way]:
    """Add to each unconditional way of a decision the same way for failure."""
    twins = [
        way._replace(label=None, on_failure=True)
        for way in ways
        if way.decided and not way.condition and not way.on_failure
    ]
    return [*ways, *twins]
