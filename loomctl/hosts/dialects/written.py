"""A conversation that a host writes down line by line, read as one kind of entries whatever the host.

The file is the host's: every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

import time

from loomctl.hosts.protocol.transcript import MARK, Recorded, marks_in
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from loomctl.runs.project import Sent

PROMPT, SAID, GIVEN, CALL, BOUNDARY, BROKEN_OFF = "prompt", "said", "given", "call", "boundary", "broken off"
_PATIENCE = 1.0  # seconds for what the host may write later than it calls a hook
_COMMANDS = "loom:"
_BODY = "Loom: this conversation works on the run "  # as cli/run.py begins the body of a command


class Passage(NamedTuple):
    """What was said, given or done. at: UTC, as `2026-11-26T06:54:02.200Z`; turn: the host's key of it, or empty."""

    kind: str
    at: str
    text: str = ""
    turn: str = ""


class Written(Recorded):
    """A session's file; a path of None, or a file that is not there, holds nothing.

    compacts: bytes that stand in the line of each compaction; ends: the kinds behind which it is live.
    """

    compacts = b""
    ends: tuple[str, ...] = (BOUNDARY,)

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:  # noqa: ARG002 - each host's class says more
        """Give what a line of the file tells."""
        return iter(())

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        """Tell which slips stand behind the last compaction in what was given to the assistant."""
        return marks_in(self._given()).intersection(slips) if slips else frozenset()

    def sent(self, wanted: Collection[str], older: Collection[str], *, patience: float = 0) -> Sent | None:
        """Tell which slips stand before the assistant; of whole files a host's own words tell nothing."""
        from loomctl.runs.project import Sent  # most hooks ask for less

        until = time.monotonic() + patience
        while not self.holds(wanted).issuperset(wanted) and self._grows(until):
            pass
        known = next(self._back(), None) is not None
        return Sent(self.holds([*wanted, *older]), {}, {}) if known else None

    def said_since(self, at: str) -> str | None:
        """Give what the assistant said since a time, joined: once, though the host may write it again."""
        said: list[tuple[str, str]] = []
        since = at[:23].removesuffix("Z")
        for _, entry in self._back():
            if entry.kind == SAID and entry.at >= since:
                said.append((entry.at, entry.text))
            elif entry.kind == SAID and entry.at:
                break
        return "\n\n".join(text for _, text in dict.fromkeys(reversed(said)) if text.strip()) or None

    def boundary(self) -> str | None:
        """Name the last compaction by its time."""
        place, last = self._newest((BOUNDARY,), self.compacts)
        return last.at if place >= 0 else None

    def summary(self) -> str | None:
        """Give the summary that the last compaction left."""
        return self._newest((BOUNDARY,), self.compacts)[1].text or None

    def called_at(self) -> float:
        """Give when its assistant last called a tool."""
        return self._last(CALL)

    def interrupted_at(self) -> float:
        """Give when its user last broke a turn off."""
        return self._last(BROKEN_OFF)

    def await_turn(self, prompt_id: str, ending: str) -> None:  # noqa: ARG002 - a host that has no keys has the words
        """Wait a little until the assistant's last words are written down."""
        until = time.monotonic() + _PATIENCE
        while ending.strip() and self._path and not self._ends_with(ending) and self._grows(until):
            pass

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:
        """Tell whether a turn began with one of Loom's skills or commands, as its prompt shows."""
        if prompt_id in driven:
            return True
        said: list[str] = []
        for _, entry in self._back():
            if entry.kind == PROMPT and entry.turn == prompt_id:
                said.append(entry.text)
            elif entry.kind == PROMPT and entry.turn and said:
                break
        return any(is_of_loom(text) for text in said or [unwritten])

    def _ends_with(self, ending: str) -> bool:
        last = self._newest((SAID, PROMPT))[1]
        return last.kind == SAID and last.text.strip().endswith(ending.strip())

    def _last(self, kind: str) -> float:
        from loomctl.kit import clock  # no hook asks

        at = self._newest((kind,))[1].at
        return clock.exact_seconds_of(at) if at else 0

    def _newest(self, kinds: tuple[str, ...], holding: bytes = b"", start: int = 0) -> tuple[int, Passage]:
        found = ((place, entry) for place, entry in self._back(holding, start) if entry.kind in kinds)
        return next(found, (-1, Passage("", "")))

    def _given(self) -> Iterator[str]:
        """Give the texts behind the last compaction that have slips."""
        live = self._back(MARK.encode(), self._live_from())
        return (entry.text for _, entry in live if entry.kind in (GIVEN, PROMPT))

    def _live_from(self) -> int:
        return max(0, self._newest(self.ends, self.compacts)[0])

    def _back(self, holding: bytes = b"", start: int = 0, end: int | None = None) -> Iterator[tuple[int, Passage]]:
        """Give what it holds from its end, or what stands before a place, back to another; each with its own.

        holding: only what stands in lines that have these bytes.
        """
        for place, line in self._read().back(start, end, holding):
            for entry in reversed(list(self.entries_of(line))):
                yield place, entry


def is_of_loom(prompt: str) -> bool:
    """Tell a prompt that is one of Loom's skills or commands, or what a command's body printed."""
    return prompt.startswith(_BODY) or prompt.lstrip().lstrip("/$").startswith(_COMMANDS)


def text_of(held: object, *keys: str) -> str:
    """Give a text in nested objects, by its keys; empty where there is none."""
    for key in keys:
        held = held.get(key) if isinstance(held, dict) else None
    return held if isinstance(held, str) else ""


def texts_of(content: object) -> str:
    """Give the texts of a message's parts, joined."""
    parts = content if isinstance(content, list) else [content]
    words = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n\n".join(text for text in words if isinstance(text, str))
