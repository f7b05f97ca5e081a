"""A conversation that a host writes down line by line, read as one kind of entries whatever the host.

The file is the host's: every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

import os
import time

from loomctl.hosts.claude.transcript import marks_in
from loomctl.kit import files, quick_json
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.project import Conversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from loomctl.runs.project import Sent

LARGEST = 512 * 1024 * 1024
PROMPT, SAID, GIVEN, CALL, BOUNDARY, BROKEN_OFF = "prompt", "said", "given", "call", "boundary", "broken off"
_PATIENCE = 1.0  # seconds for what the host may write later than it calls a hook
_LOOKS_EVERY = 0.02
_COMMANDS = "loom:"
_BODY = "Loom: this conversation works on the run "  # as cli/run.py begins the body of a command


class Passage(NamedTuple):
    """What was said, given or done. at: UTC, as `2026-11-26T06:54:02.200Z`; turn: the host's key of it, or empty."""

    kind: str
    at: str
    text: str = ""
    turn: str = ""


class Written(Conversation):
    """A session's file; a path of None, or a file that is not there, holds nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._entries: list[Passage] | None = None

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:  # noqa: ARG002 - each host's class says more
        """Give what a line of the file tells."""
        return iter(())

    def another(self, path: str | None, host: str = "") -> Conversation:
        """Give another session's conversation, of whatever host."""
        return self.of_host(host, path) if host and self.of_host else type(self)(path)

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        """Tell which slips stand behind the last compaction in what was given to the assistant."""
        return marks_in(entry.text for entry in self._live() if entry.kind in (GIVEN, PROMPT)).intersection(slips)

    def sent(self, wanted: Collection[str], older: Collection[str], *, patience: float = 0) -> Sent | None:
        """Tell which slips stand before the assistant; of whole files a host's own words tell nothing."""
        from loomctl.runs.project import Sent  # most hooks ask for less

        until = time.monotonic() + patience
        while not self.holds(wanted).issuperset(wanted) and self._grows(until):
            pass
        return Sent(self.holds([*wanted, *older]), {}, {}) if self._all() else None

    def said_since(self, at: str) -> str | None:
        """Give what the assistant said since a time, joined."""
        said = [entry.text for entry in self._all() if entry.kind == SAID and entry.at >= at[:23].removesuffix("Z")]
        return "\n\n".join(text for text in said if text.strip()) or None

    def boundary(self) -> str | None:
        """Name the last compaction by its time."""
        return next((entry.at for entry in reversed(self._all()) if entry.kind == BOUNDARY), None)

    def summary(self) -> str | None:
        """Give the summary that the last compaction left."""
        return next((entry.text for entry in reversed(self._all()) if entry.kind == BOUNDARY), None) or None

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
        said = [one.text for one in self._all() if one.kind == PROMPT and one.turn == prompt_id] or [unwritten]
        return any(is_of_loom(text) for text in said)

    def _ends_with(self, ending: str) -> bool:
        last = next((entry for entry in reversed(self._all()) if entry.kind in (SAID, PROMPT)), None)
        return last is not None and last.kind == SAID and last.text.strip().endswith(ending.strip())

    def _last(self, kind: str) -> float:
        from loomctl.kit import clock  # no hook asks

        at = next((entry.at for entry in reversed(self._all()) if entry.kind == kind), "")
        return clock.exact_seconds_of(at) if at else 0

    def _live(self) -> Sequence[Passage]:
        every = self._all()
        start = max((place for place, entry in enumerate(every) if entry.kind == BOUNDARY), default=-1)
        return every[start + 1 :]

    def _all(self) -> list[Passage]:
        if self._entries is None:
            try:
                data = files.read_bytes(self._path, limit=LARGEST) if self._path else b""
            except (OSError, ValueError, LoomError):
                data = b""
            self._size = len(data)
            self._entries = [entry for line in _parsed(data) for entry in self.entries_of(line)]
        return self._entries

    def _grows(self, until: float) -> bool:
        """Wait until the host has written more, no longer than to a time of the clock; tells whether it has."""
        self._all()
        while self._path and time.monotonic() < until:
            time.sleep(_LOOKS_EVERY)
            try:
                size = os.stat(self._path).st_size
            except (OSError, ValueError):
                size = 0
            if size != self._size:
                self._entries = None
                return True
        return False


def is_of_loom(prompt: str) -> bool:
    """Tell a prompt that is one of Loom's skills or commands, or what a command's body printed."""
    return prompt.startswith(_BODY) or prompt.lstrip().lstrip("/$").startswith(_COMMANDS)


def _parsed(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            value = quick_json.loads(line.decode("utf-8", "surrogatepass")) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


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
