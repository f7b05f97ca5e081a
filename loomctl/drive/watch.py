"""What is watched while an assistant works: silence, time, cost, the same call again and again (D75). Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from loomctl.drive import signs

if TYPE_CHECKING:
    from collections.abc import Sequence

TELL, END = "tell", "end"
_MOST_DENIED = 50
# Calls in turn that are the same again, with the same results: how many, and after how many rounds the assistant is
# told, which it reads with the next result, and ended.
_LOOPS = ((1, 3, 5), (2, 3, 4), (3, 3, 4))


class Limits(NamedTuple):
    """In seconds, USD and turns; None: none.

    turn: of one process; silence: without any sign; lingers: of a process after its last word; wait: for a time,
    without a process.
    """

    time: float | None = None
    cost: float | None = None
    turns: int | None = None
    silence: float = 20 * 60
    turn: float = 60 * 60
    lingers: float = 3.0
    wait: float | None = None


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
        self._told = set[str]()

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
            before = self.over.spent if self.over is not None else None
            if before is not None and sign.spent is not None:  # each result of a process tells what came since the last
                sign = sign._replace(spent=before + sign.spent)
            self.over, self.over_at = sign, now
            for one in sign.denied:
                self._refused(one)

    def _refused(self, sign: signs.Denied) -> None:
        call = self._open.get(sign.id)
        if call is not None:
            sign = sign._replace(what=call.what, rules=call.rules)
        if sign.id not in self.denied and len(self.denied) < _MOST_DENIED:
            self.denied[sign.id] = sign

    def heard(self, now: float) -> None:
        """Note a sign of life that says nothing."""
        self.last = max(self.last, now)

    def loop(self) -> str:
        """Say what is to be done of calls that go round and round: TELL, once for the same calls, then END."""
        done = list(self._done)
        for period, tell_at, end_at in _LOOPS:
            last = done[-period:]
            if done[-period * end_at :] == last * end_at:
                return END
            if done[-period * tell_at :] == last * tell_at and self._told != set(last):
                self._told = set(last)
                return TELL
        return ""

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
