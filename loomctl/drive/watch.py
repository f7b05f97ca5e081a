"""What is watched while an assistant works: silence, time, cost, the same call again and again (D75). Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from loomctl.drive import signs

if TYPE_CHECKING:
    from collections.abc import Sequence

SAME = 5  # times that a call with the same result is borne
_MOST_DENIED = 50
_PERIODS = ((2, 4), (3, 4))  # so many calls in turn, so many times


class Limits(NamedTuple):
    """In seconds, USD and turns; None: none.

    turn: of one process; silence: without any sign; lingers: of a process after its last word.
    """

    time: float | None = None
    cost: float | None = None
    turns: int | None = None
    silence: float = 20 * 60
    turn: float = 60 * 60
    lingers: float = 3.0


class Watch:
    """One turn as it is seen. now: seconds of a clock that does not jump."""

    def __init__(self, now: float) -> None:
        self.began = self.last = now
        self.over_at: float | None = None
        self.over: signs.Over | None = None
        self.session_id = ""
        self.said = ""
        self.calls = 0
        self.last_call, self.called = "", now
        self.denied: dict[str, signs.Denied] = {}
        self.retry: signs.Retry | None = None
        self.sizes: dict[str, signs.Used] = {}
        self._open: dict[str, signs.Call] = {}
        self._done: deque[str] = deque(maxlen=12)
        self._told = ""

    @property
    def tokens(self) -> int:
        """Tokens of the turn so far."""
        told = self.over.tokens if self.over is not None else 0
        return max(told, sum(sum(one.sizes.values()) for one in self.sizes.values()))

    @property
    def weights(self) -> dict[str, float]:
        """What its answers weigh so far, by model."""
        found: dict[str, float] = {}
        for one in self.sizes.values():
            found[one.model] = found.get(one.model, 0.0) + one.weight + one.more
        return found

    def saw(self, sign: signs.Sign, now: float) -> None:
        """Take up a sign."""
        self.last = now
        if isinstance(sign, signs.Call):
            self.calls += 1
            self.last_call, self.called = sign.what, now
            if len(self._open) < 1000:
                self._open[sign.id] = sign
        elif isinstance(sign, signs.Result):
            call = self._open.pop(sign.id, None)
            if call is not None:
                self._done.append(f"{call.key}\0{sign.key}")
        elif isinstance(sign, signs.Denied):
            self._refused(sign)
        elif isinstance(sign, signs.Retry):
            self.retry = sign
            self.last = now + sign.after  # it said how long it will say nothing
        elif isinstance(sign, signs.Used):
            self.retry = None
            self.sizes[sign.id] = _merged(self.sizes.get(sign.id), sign)
        elif isinstance(sign, signs.Said):
            self.said = sign.text
        elif isinstance(sign, signs.Began):
            self.session_id = sign.session_id
        else:
            self.over, self.over_at = sign, now
            for one in sign.denied:
                self._refused(one)

    def _refused(self, sign: signs.Denied) -> None:
        call = self._open.get(sign.id)
        if call is not None:
            sign = sign._replace(what=call.what, rule=call.rule)
        if sign.id not in self.denied and len(self.denied) < _MOST_DENIED:
            self.denied[sign.id] = sign

    def heard(self, now: float) -> None:
        """Note a sign of life that says nothing."""
        self.last = max(self.last, now)

    def loop(self) -> str:
        """Name the call, or the calls, that go round and round; empty where none does."""
        done = list(self._done)
        if len(done) >= SAME and len(set(done[-SAME:])) == 1:
            return done[-1]
        for period, times in _PERIODS:
            last = done[-period * times :]
            if len(last) == period * times and last == last[:period] * times:
                return "\0".join(sorted(set(last)))
        return ""

    def is_new_loop(self) -> bool | None:
        """Tell of a loop whether it is told of for the first time; None where there is none."""
        found = self.loop()
        if not found:
            return None
        is_new, self._told = found != self._told, found
        return is_new

    def due(self, limits: Limits, now: float) -> tuple[str, float]:
        """Give what the turn is to be ended for, empty for nothing yet, and in how many seconds to look again."""
        times: Sequence[tuple[str, float]] = [
            ("silence", self.last + limits.silence),
            ("turn", self.began + limits.turn),
        ]
        if self.over_at is not None:
            times = [("lingers", self.over_at + limits.lingers)]
        why, at = min(times, key=lambda one: one[1])
        return (why if now >= at else ""), max(0.0, at - now)


def _merged(known: signs.Used | None, sign: signs.Used) -> signs.Used:
    """Put together what was told of one answer in parts."""
    if known is None:
        return sign
    sizes = {name: max(size, known.sizes.get(name, 0)) for name, size in sign.sizes.items()}
    return sign._replace(sizes=sizes, weight=max(sign.weight, known.weight), more=sign.more + known.more)
