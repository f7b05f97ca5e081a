"""What a run has cost while a turn goes on, and what a driver leaves to others of it (D75)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loomctl.drive import turn_usage
from loomctl.drive.account import Account, Sum
from loomctl.drive.signs import Over, Used
from loomctl.drive.watch import Watch

PRICE = 1e-5


@pytest.fixture
def local(tmp_path: Path) -> str:
    (tmp_path / ".loom" / "local" / "drivers").mkdir(parents=True)
    return str(tmp_path / ".loom" / "local")


def account(local: str, run_id: str = "shop-1", *, tells_cost: bool = True) -> tuple[Account, dict[str, Any]]:
    made = Account(local, run_id, "drive-1", tells_cost=tells_cost)
    return made, made.open({})[0]


def answer(watch: Watch, tokens: int, model: str = "m", name: str = "a") -> None:
    watch.saw(Used(name, model, {"input": tokens}, float(tokens)), 0.0)


def over(watch: Watch, cost: float, tokens: int, *, sums: bool = False) -> None:
    prices = {"m": PRICE}
    watch.saw(Over(is_error=False, reason="done", cost=cost, prices=prices, tokens=tokens, sums=sums), 0.0)


def so_far(made: Account, state: dict[str, Any], watch: Watch | None = None) -> Sum:
    found = made.so_far(state, watch)
    return found._replace(cost=round(found.cost, 9))


def booked(made: Account, state: dict[str, Any], watch: Watch) -> dict[str, Any]:
    state, _ = made.book(state, watch, {"turn": 1})
    made.close(watch)
    return state


def test_a_turn_that_goes_on_is_estimated_and_one_that_told_its_cost_is_not(local: str) -> None:
    made, state = account(local)
    made.begin(state, 1, "c", goes_on=False)
    watch = Watch(0.0)
    answer(watch, 1000)
    assert so_far(made, state, watch) == Sum(0.0, 1000)  # no price is known yet
    over(watch, 0.01, 1000)
    assert so_far(made, state, watch) == Sum(0.01, 1000)
    state = booked(made, state, watch)
    assert so_far(made, state, watch) == Sum(0.01, 1000)  # it counts once
    made.begin(state, 2, "c", goes_on=True)
    watch = Watch(0.0)
    assert so_far(made, state, watch) == Sum(0.01, 1000)
    answer(watch, 500)
    assert so_far(made, state, watch) == Sum(0.015, 1500, estimated=True)
    answer(watch, 500, "another", "b")  # at the dearest
    assert so_far(made, state, watch) == Sum(0.02, 2000, estimated=True)
    over(watch, 0.04, 1000)  # of the conversation
    assert so_far(made, state, watch) == Sum(0.04, 2000)
    assert so_far(made, booked(made, state, watch)) == Sum(0.04, 2000)


def test_a_price_that_any_run_here_has_shown_is_known_in_the_first_turn_of_another(local: str) -> None:
    made, state = account(local)
    made.begin(state, 1, "c", goes_on=False)
    watch = Watch(0.0)
    over(watch, 0.01, 1000)
    booked(made, state, watch)
    made, state = account(local, "shop-2")
    made.begin(state, 1, "d", goes_on=False)
    watch = Watch(0.0)
    answer(watch, 2000)
    assert so_far(made, state, watch) == Sum(0.02, 2000, estimated=True)
    made.note(watch)
    killed, ended = Account(local, "shop-2", "drive-2", tells_cost=True).open(state)
    assert killed["driving"]["cost"] == pytest.approx(0.02)
    assert (ended[0].properties["cost"], ended[0].properties["estimated"]) == (pytest.approx(0.02), True)


def test_a_host_that_tells_no_cost_is_not_priced_as_another_is(local: str) -> None:
    turn_usage.note_prices(local, {"m": PRICE})
    made, state = account(local, tells_cost=False)
    made.begin(state, 1, "", goes_on=False)
    watch = Watch(0.0)
    answer(watch, 100)
    assert (state, so_far(made, state, watch)) == ({}, Sum(0.0, 100))


def test_tokens_of_a_conversation_that_goes_on_count_once(local: str) -> None:
    made, state = account(local, tells_cost=False)
    for turn, tokens in enumerate((100, 250), 1):
        made.begin(state, turn, "c", goes_on=turn > 1)
        watch = Watch(0.0)
        over(watch, 0.0, tokens, sums=True)
        assert made.so_far(state, watch).tokens == tokens
        state = booked(made, state, watch)
    assert made.so_far(state).tokens == 250


def test_prices_are_kept_of_the_last_models_alone_and_what_cannot_be_read_is_none(local: str) -> None:
    for number in range(25):
        turn_usage.note_prices(local, {f"m{number}": 1.0})
    turn_usage.note_prices(local, {"m10": 2.0})
    assert list(turn_usage.prices(local)) == [f"m{number}" for number in (*range(5, 10), *range(11, 25), 10)]
    Path(local, "drivers", "prices").write_text("[1, 2]")
    assert turn_usage.prices(local) == {}
