"""What turns cost, from what hosts tell and what killed turns used (D75)."""

from __future__ import annotations

from typing import Any

import pytest

from loomctl.drive import costs
from loomctl.drive.signs import Over


def over(cost: float | None = None, spent: float | None = None, **prices: float) -> Over:
    return Over(is_error=False, reason="done", cost=cost, spent=spent, prices=prices)


def book(*turns: tuple[str, Over | None, dict[str, float]]) -> tuple[dict[str, Any], list[costs.Cost]]:
    known: dict[str, Any] = {}
    told = []
    for conversation, end, weights in turns:
        cost = costs.of_turn(known, conversation, end, weights)
        known, _ = costs.booked(known, conversation, end, cost, weights)
        told.append(cost)
    return known, told


def test_a_conversation_that_goes_on_tells_its_sum_and_what_was_booked_is_taken_off() -> None:
    known, told = book(("a", over(0.1), {}), ("a", over(0.25), {}), ("b", over(0.5), {}), ("a", over(0.3), {}))
    assert [one.usd for one in told] == pytest.approx([0.1, 0.15, 0.5, 0.05])
    assert known["cost"] == pytest.approx(0.8)
    assert costs.turns(known) == 4


def test_what_the_process_alone_spent_counts_before_the_sum() -> None:
    """A sum lacks what a killed process spent: the difference would be too small by what was estimated for it."""
    known, told = book(("a", over(0.1, 0.1, m=1e-6), {}), ("a", None, {"m": 50_000.0}), ("a", over(0.3, 0.2), {}))
    assert [(one.usd, one.estimated) for one in told] == [(0.1, False), (pytest.approx(0.05), True), (0.2, False)]
    assert known["cost"] == pytest.approx(0.35)


def test_a_killed_turn_is_estimated_by_the_price_of_its_model_or_the_dearest_or_unknown() -> None:
    assert book(("a", None, {"m": 10.0}))[1] == [costs.Cost(None)]
    assert book(("a", None, {}), ("a", over(), {}))[1] == [costs.Cost(None)] * 2
    prices = over(0.0, 0.0, m=1.0, n=3.0)
    assert book(("a", prices, {}), ("b", None, {"m": 2.0}))[1][-1] == costs.Cost(2.0, estimated=True)
    assert book(("a", prices, {}), ("b", None, {"other": 2.0}))[1][-1] == costs.Cost(6.0, estimated=True)


def test_what_was_killed_before_a_price_was_known_is_booked_with_the_first_one() -> None:
    known, told = book(("a", None, {"m": 2.0}), ("b", None, {"m": 3.0, "n": 1.0}))
    assert [one.usd for one in told] == [None, None]
    assert known["unpriced"] == {"m": 5.0, "n": 1.0}
    known, made_up = costs.booked(known, "c", over(0.5, 0.5, m=0.1), costs.Cost(0.5), {})
    assert made_up == pytest.approx(0.6)
    assert known["cost"] == pytest.approx(1.1)
    assert "unpriced" not in known


@pytest.mark.parametrize("known", [{"cost": "x", "conversations": 3, "prices": {"m": -1}, "turns": None}, {}])
def test_what_cannot_be_read_counts_as_nothing(known: dict[str, Any]) -> None:
    assert costs.so_far(known) == 0
    assert costs.booked(known, "a", over(1.0), costs.Cost(1.0), {})[0]["cost"] == 1.0


def test_a_cost_beyond_all_measure_is_no_cost_of_nothing() -> None:
    known, _ = book(("a", over(9e14), {}), ("b", over(9e14), {}))
    assert costs.so_far(known) > 1e11
