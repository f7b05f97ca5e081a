"""What a driven run costs: booked in its state as a turn ends, and estimated while one goes on (D75)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.drive import costs, rules, turn_usage
from loomctl.kit.quick_json import as_object
from loomctl.runs.model import driving
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.drive.signs import Over
    from loomctl.drive.watch import Watch
    from loomctl.runs.model.state import State


class Sum(NamedTuple):
    """What a run has cost so far, in USD, and this drive's tokens. estimated: the part of the turn that goes on is."""

    cost: float
    tokens: int = 0
    estimated: bool = False


class Account:
    """Of one drive. local: the store's folder of this machine; tells_cost: whether the assistant does."""

    def __init__(self, local: str, run_id: str, session_id: str | None, *, tells_cost: bool) -> None:
        self._local, self._run_id, self._session_id, self._tells_cost = local, run_id, session_id, tells_cost
        self._turn = self._turns = 0  # of this drive, and how many were booked as it began
        self._conversation = ""
        self._tokens = self._before = 0  # of this drive's turns, and of the conversation, before this one

    def open(self, state: State) -> tuple[State, list[Event]]:
        """Book the turn of a driver that was killed before it could, by what it had written down."""
        known = as_object(state.get(driving.KEY))
        prices = turn_usage.prices(self._local) if self._tells_cost else {}
        if prices:
            state = {**state, driving.KEY: {**known, "prices": {**as_object(known.get("prices")), **prices}}}
        left = turn_usage.read(self._local, self._run_id)
        if not left or left.get("turns") != costs.turns(known):
            return state, []
        weights = {model: costs.number(weight) for model, weight in as_object(left.get("weights")).items()}
        told = {"turn": left.get("turn"), "class": rules.INFRA, "why": "its driver was killed", "tokens": None}
        told |= {"conversation": left.get("conversation") or None}
        state, ended = self._booked(state, str(left.get("conversation")), None, weights, told)
        return state, [ended]

    def begin(self, state: State, turn: int, conversation: str, *, goes_on: bool) -> None:
        """Begin a turn of this drive, in a conversation that may have no id yet."""
        self._turn, self._turns = turn, costs.turns(as_object(state.get(driving.KEY)))
        self._conversation = conversation
        self._before = self._before if goes_on else 0

    def note(self, watch: Watch) -> None:
        """Write down what the turn has used so far, for who drives next if this driver is killed."""
        conversation = watch.session_id or self._conversation
        used = {"turn": self._turn, "turns": self._turns, "conversation": conversation, "weights": watch.weights}
        turn_usage.note(self._local, self._run_id, used)

    def book(self, state: State, watch: Watch, told: Mapping[str, Any]) -> tuple[State, Event]:
        """Add a turn to the run's costs, and tell that it ended. told: what else is known of it."""
        conversation = watch.session_id or self._conversation
        return self._booked(state, conversation, watch.over, watch.weights, {**told, "tokens": self._used(watch)})

    def close(self, watch: Watch) -> None:
        """Forget what was written down of a turn, for it is booked."""
        self._tokens += self._used(watch)
        if watch.over is not None and watch.over.sums:
            self._before = max(self._before, watch.tokens)
        if watch.over is not None and watch.over.prices:
            turn_usage.note_prices(self._local, watch.over.prices)
        turn_usage.forget(self._local, self._run_id)

    def so_far(self, state: State, watch: Watch | None = None) -> Sum:
        """Give what the run has cost. watch: of a turn, which may be booked or go on."""
        known = as_object(state.get(driving.KEY))
        booked = costs.so_far(known)
        if watch is None or costs.turns(known) != self._turns:
            return Sum(booked, self._tokens)
        cost = self._cost(known, watch.session_id or self._conversation, watch.over, watch.weights)
        return Sum(booked + (cost.usd or 0.0), self._tokens + self._used(watch), cost.estimated)

    def _cost(
        self, known: Mapping[str, Any], conversation: str, over: Over | None, weights: Mapping[str, float]
    ) -> costs.Cost:
        return costs.of_turn(known, conversation, over, weights) if self._tells_cost else costs.Cost(None)

    def _booked(
        self,
        state: State,
        conversation: str,
        over: Over | None,
        weights: Mapping[str, float],
        told: Mapping[str, Any],
    ) -> tuple[State, Event]:
        known = as_object(state.get(driving.KEY))
        cost = self._cost(known, conversation, over, weights)
        ended = {**told, "cost": None if cost.usd is None else round(cost.usd, 6)}
        now, made_up = costs.booked(known, conversation, over, cost, weights)
        ended |= {"estimated": True} if cost.estimated else {}
        ended |= {"made_up": round(made_up, 6)} if made_up else {}
        return {**state, driving.KEY: now}, Event("turn.ended", ended, self._session_id)

    def _used(self, watch: Watch) -> int:
        """Give the tokens of a turn, of which a host may tell the conversation's sum."""
        sums = watch.over is not None and watch.over.sums
        return max(0, watch.tokens - self._before) if sums else watch.tokens
