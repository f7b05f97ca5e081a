"""What turns cost: by the host's word, or by a price that it showed before where a turn gave none (D75). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.quick_json import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.drive.signs import Over

_MOST = 20  # conversations, and models, that are remembered


class Cost(NamedTuple):
    """What one turn cost. usd: None where nobody knows; estimated: from its tokens."""

    usd: float | None
    estimated: bool = False


def of_turn(known: Mapping[str, Any], conversation: str, over: Over | None, weights: Mapping[str, float]) -> Cost:
    """Give what a turn cost. known: what `booked` gave for those before; weights: of its answers, by model."""
    if over is not None and over.spent is not None:
        return Cost(over.spent)
    if over is not None and over.cost is not None:
        return Cost(max(0.0, over.cost - number(as_object(known.get("conversations")).get(conversation))))
    usd = _priced(weights, as_object(known.get("prices")))
    return Cost(usd, estimated=usd is not None)


def _priced(weights: Mapping[str, float], prices: Mapping[str, Any]) -> float | None:
    """Estimate by each model's price, or the dearest; None where there is no price, or nothing to price."""
    if not prices or not weights:
        return None
    dearest = max(number(price) for price in prices.values())
    return sum(number(prices.get(model, dearest)) * number(weight) for model, weight in weights.items())


def booked(
    known: Mapping[str, Any], conversation: str, over: Over | None, cost: Cost, weights: Mapping[str, float]
) -> tuple[dict[str, Any], float]:
    """Add a turn to what is known of a run's costs: `{cost, conversations, prices, turns, unpriced?}`.

    Gives with it what turns before had cost, where the first price is known only now.
    """
    conversations, prices = dict(as_object(known.get("conversations"))), dict(as_object(known.get("prices")))
    unpriced = dict(as_object(known.get("unpriced")))
    if over is not None:
        if over.cost is not None:
            conversations.pop(conversation, None)
            conversations[conversation] = over.cost
        for model, price in over.prices.items():
            prices.pop(model, None)
            prices[model] = price
    made_up = _priced(unpriced, prices) or 0.0
    if cost.usd is None and not prices:
        for model, weight in weights.items():
            unpriced[model] = number(unpriced.get(model)) + weight
    now = {
        **{key: value for key, value in known.items() if key != "unpriced"},
        "cost": round(so_far(known) + (cost.usd or 0.0) + made_up, 6),
        "conversations": _last(conversations),
        "prices": _last(prices),
        "turns": turns(known) + 1,
    }
    return {**now, "unpriced": _last(unpriced)} if unpriced and not prices else now, made_up


def so_far(known: Mapping[str, Any]) -> float:
    """Give what a run's turns have cost, in USD."""
    return number(known.get("cost"))


def turns(known: Mapping[str, Any]) -> int:
    """Give how many turns are booked."""
    found = known.get("turns")
    return found if type(found) is int else 0


def _last(found: dict[str, Any]) -> dict[str, Any]:
    return dict(list(found.items())[-_MOST:])


def number(value: object) -> float:
    """Read a number that may be anything; one beyond all measure is a large one, for it must reach a limit."""
    return float(min(value, 1e12)) if isinstance(value, (int, float)) and value >= 0 else 0.0
