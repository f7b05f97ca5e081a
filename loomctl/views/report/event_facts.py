"""What a report takes from a run's log: its newest events, primings, what was taken back, what people decided."""

from __future__ import annotations

import json
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from loomctl.kit import clock
from loomctl.kit.text.secrets import mask, masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from loomctl.runs.store.event_log import Line

MOST = 20_000  # events that a report holds
_LARGEST = 6_000_000  # bytes of their lines, together
_GAP = 1800  # seconds: moments that are nearer to each other need not all be known
_TURNS = ("run.rewound", "run.forked", "stage.undone", "phase.set_back", "state.restored", "lease.taken_over")
_PRIMED, _PUT_BACK = "context.primed", "survival.restored"
_OF_A_TOKEN = 4  # characters of an event that does not tell its tokens
_AT_ONCE = 500  # entries in which secrets are looked for together
_DECIDED = {"approval.granted": "granted", "approval.rejected": "rejected", "approval.chosen": "chosen"}

_EVIDENCE = "evidence.checked"
_NOTED = {_PRIMED, _PUT_BACK, _EVIDENCE, *_TURNS, *_DECIDED}


class Told:
    """What a log tells, gathered in one pass. say: puts an entry into words."""

    def __init__(self, say: Callable[[Mapping[str, Any]], str]) -> None:
        self._say = say
        self._newest: deque[tuple[int, dict[str, Any]]] = deque()
        self._held = 0
        self._moments: set[int] = set()
        self.total = self.broken = 0
        self.primings: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.decisions: list[dict[str, Any]] = []
        self.evidence: dict[str, Any] = {}  # by stage: the items of the last check

    def read(self, lines: Iterable[Line]) -> None:
        """Go through a log's lines, oldest first."""
        for line in lines:
            if line.entry is None:
                self.broken += 1
                continue
            self.total += 1
            self._keep(line.bytes, line.entry)
            self._moments.add(clock.seconds_of(_text(line.entry.get("ts"))))
            if line.entry["event"] in _NOTED:
                self._note(masked(line.entry))

    def _keep(self, size: int, entry: dict[str, Any]) -> None:
        self._newest.append((size, entry))
        self._held += size
        while len(self._newest) > MOST or (self._held > _LARGEST and len(self._newest) > 1):
            self._held -= self._newest.popleft()[0]

    def _note(self, entry: Mapping[str, Any]) -> None:
        name, at, raw = str(entry["event"]), _text(entry.get("ts")), entry.get("properties")
        properties = raw if isinstance(raw, dict) else {}
        if name in (_PRIMED, _PUT_BACK):
            self.primings.append(_priming(at, entry, properties))
        elif name == _EVIDENCE:
            self.evidence[str(properties.get("stage"))] = properties.get("items")
        elif name in _TURNS:
            self.turns.append({"at": at, "kind": name, "said": self._say(entry)})
        else:
            told = {key: _text(properties.get(key)) for key in ("id", "by", "label", "note")}
            self.decisions.append({"at": at, "what": _DECIDED[name], **told})

    def rows(self) -> list[dict[str, Any]]:
        """Give the newest events, oldest first, their secrets masked before anything of them is put into words."""
        held = iter([entry for _, entry in self._newest])
        shown: list[dict[str, Any]] = []
        while some := list(islice(held, _AT_ONCE)):
            clean = mask(json.dumps(some, ensure_ascii=False))[1] == 0  # as Loom's own logs are
            shown += some if clean else [masked(entry) for entry in some]
        return [
            {
                "seq": entry["seq"],
                "at": _text(entry.get("ts")),
                "event": entry["event"],
                "step_id": _text(entry.get("step_id")),
                "session_id": _text(entry.get("session_id")),
                "said": self._say(entry),
                "properties": entry.get("properties") if isinstance(entry.get("properties"), dict) else {},
            }
            for entry in shown
        ]

    def moments(self) -> list[int]:
        """Give times, in seconds since the epoch, at which something was, as far as stretches without need them."""
        held = sorted(moment for moment in self._moments if moment)
        inner = [
            moment
            for before, moment, after in zip(held, held[1:], held[2:], strict=False)
            if moment - before > _GAP or after - moment > _GAP
        ]
        return [*held[:1], *inner, *held[1:][-1:]]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _priming(at: str, entry: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    raw = properties.get("budget")
    budget = raw if isinstance(raw, dict) else {}
    fresh, listed = properties.get("fresh"), properties.get("items")
    items = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    put_back = entry["event"] == _PUT_BACK
    size = properties.get("tokens")
    known = type(size) is int and size >= 0
    guess = properties.get("characters") or (budget.get("used") if not put_back else sum(map(len, items)))
    guessed = -(-guess // _OF_A_TOKEN) if type(guess) is int and guess > 0 else 0
    return {
        "at": at,
        "session_id": _text(entry.get("session_id")),
        "event": _PUT_BACK if put_back else str(properties.get("event") or ""),
        "tokens": size if known else guessed,
        "guessed": not known and guessed > 0,
        "restored": items if put_back else [],
        **{key: max(0, budget[key]) if type(budget.get(key)) is int else 0 for key in ("used", "limit")},
        **{key: _texts(properties.get(key)) for key in ("loaded", "not_loaded")},
        "fresh": [one for one in fresh if isinstance(one, str)] if isinstance(fresh, list) else [],
        "tool_history": isinstance(properties.get("tool_history"), dict),
    }


def _texts(held: object) -> dict[str, str]:
    return {name: str(value) for name, value in held.items()} if isinstance(held, dict) else {}
