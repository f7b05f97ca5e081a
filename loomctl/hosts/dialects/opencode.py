"""OpenCode: what the bundle's plugin sends and takes (`hooks/opencode.js`), and conversations in its database (1.18).

The plugin sends the protocol's events. A turn's key is the id of the message with which its user began it. What a
compaction keeps is the message that asks for the summary, the summary, and the latest turns from `tail_start_id` on.
"""

from __future__ import annotations

import os
import time

from loomctl.hosts.dialects.written import (
    BOUNDARY,
    BROKEN_OFF,
    CALL,
    GIVEN,
    PROMPT,
    SAID,
    Passage,
    Written,
    text_of,
)
from loomctl.kit import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from loomctl.hosts.asking import Answer

_LOOKS_EVERY = 0.02
_OURS = "loom"  # a part's metadata: who of Loom's wrote it, or the command that did
_MESSAGES = "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id"
# A text of Loom's is smaller than a million characters, a diff of whole files need not be.
_PARTS = (
    "SELECT message_id, time_created, CASE WHEN length(data) < 1000000 THEN data END"
    " FROM part WHERE session_id = ? ORDER BY id"
)
_STATE = "SELECT count(*), max(time_updated) FROM part WHERE session_id = ?"


def read(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event in the protocol's shape: with the place of its conversation."""
    path = Transcript(None).kept_at(text_of(event, "session_id"))
    return {**event, "transcript_path": path} if path else event


def write(answer: Answer) -> str:
    """Give an answer as the plugin takes it; empty where nothing is said."""
    told = {"text": answer.text, "line": answer.line, "goes_on": answer.goes_on, "output": answer.output}
    said = {key: value for key, value in told.items() if value not in ("", None)}
    return quick_json.plain(said) if said else ""


class Transcript(Written):
    """A session in the database, named as if that were its folder: `…/opencode.db/ses_ID`."""

    _entries: list[Passage] | None = None

    def kept_at(self, session_id: str) -> str | None:
        """Give the place of a session, where there is a database."""
        found = _database()
        return os.path.join(found, session_id) if session_id and os.path.isfile(found) else None

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:
        """Give what a message tells. line: `{id, at, info, parts: [(time, part)], over, tail}`."""
        info, assistant = line["info"], text_of(line["info"], "role") == "assistant"
        if text_of(info, "error", "name") == "MessageAbortedError":
            yield Passage(BROKEN_OFF, line["at"])
        for at, part in line["parts"]:
            text, ours = text_of(part, "text"), text_of(part, "metadata", _OURS)
            if text_of(part, "type") == "tool":
                yield Passage(CALL, at)
                yield Passage(GIVEN, at, text_of(part, "state", "output"))
            elif text and assistant:
                yield Passage(GIVEN if info.get("summary") is True else SAID, at, text)
            elif text and (part.get("synthetic") is True or (ours and ":" not in ours)):
                yield Passage(GIVEN, at, text)
            elif text:
                yield Passage(PROMPT, at, f"{ours}\n{text}" if ours else text, line["id"])

    def _back(self, holding: bytes = b"", start: int = 0, end: int | None = None) -> Iterator[tuple[int, Passage]]:  # noqa: ARG002
        """Give what it holds; its places count passages, and whatever holds bytes is not known before it is read."""
        every = self._all()
        last = len(every) if end is None else end
        return ((place, every[place]) for place in range(last - 1, start - 1, -1))

    def _all(self) -> list[Passage]:
        if self._entries is None:
            self._entries, self._state = [], 0
            try:
                lines, self._state = _lines(self._path)
            except Exception:  # noqa: BLE001 - the host's, and of any shape: what cannot be read holds nothing
                return self._entries
            # What a finished summary stands for lies before the message that asked for it, or before the turns kept.
            starts = {line["tail"] or line["id"]: line["at"] for line in lines if line["over"]}
            for line in lines:
                if line["id"] in starts:
                    self._entries.append(Passage(BOUNDARY, starts[line["id"]]))
                self._entries += self.entries_of(line)
        return self._entries

    def _grows(self, until: float) -> bool:
        self._all()
        while self._path and time.monotonic() < until:
            time.sleep(_LOOKS_EVERY)
            try:
                state = _asked(self._path, _STATE)[0]
            except Exception:  # noqa: BLE001 - as above
                return False
            if hash(state) != self._state:
                self._entries = None
                return True
        return False


def _database() -> str:
    """Give where the host keeps its database; empty if that cannot be known."""
    from loomctl.kit import machine

    data, home = os.environ.get("XDG_DATA_HOME", ""), machine.home()
    base = data if os.path.isabs(data) else os.path.join(home, ".local", "share") if home else ""
    return os.path.join(base, "opencode", os.environ.get("OPENCODE_DB") or "opencode.db") if base else ""


def _asked(path: str, *questions: str) -> list[Any]:
    """Answer questions about a session, from one moment of the database; of the last the first row alone."""
    import sqlite3  # most hooks ask nothing of it
    from urllib.parse import quote

    place, session_id = os.path.split(path)
    opened = sqlite3.connect(f"file:{quote(place)}?mode=ro", uri=True, timeout=1, isolation_level=None)
    try:
        opened.execute("BEGIN")
        *rows, last = (opened.execute(question, (session_id,)).fetchall() for question in questions)
        return [*rows, last[0]]
    finally:
        opened.close()


def _lines(path: str | None) -> tuple[list[dict[str, Any]], int]:
    from loomctl.kit import clock  # where there is something to read

    if not path:
        return [], 0
    messages, parts, state = _asked(path, _MESSAGES, _PARTS, _STATE)
    held: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for message_id, at, data in parts:
        held.setdefault(message_id, []).append((clock.exact_stamp(at * 1_000_000), quick_json.as_object(_read(data))))
    found = [
        {"id": one, "at": clock.exact_stamp(at * 1_000_000), "info": quick_json.as_object(_read(data))}
        for one, at, data in messages
    ]
    summarised = {
        text_of(line["info"], "parentID")
        for line in found
        if line["info"].get("summary") is True and line["info"].get("finish") and not line["info"].get("error")
    }
    for line in found:
        own = held.get(line["id"], [])
        asks = [part for _, part in own if text_of(part, "type") == "compaction"]
        tail = text_of(asks[0], "tail_start_id") if asks else ""
        line |= {"parts": own, "over": bool(asks) and line["id"] in summarised, "tail": tail}
    return found, hash(state)


def _read(data: object) -> object:
    try:
        return quick_json.loads(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return None
