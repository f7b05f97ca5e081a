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
_MESSAGES = "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created DESC, id DESC"
# A text of Loom's is smaller than a million characters, a diff of whole files need not be.
_PARTS = (
    "SELECT time_created, CASE WHEN length(data) < 1000000 THEN data END FROM part WHERE message_id = ? ORDER BY id"
)
# What is written now belongs to the newest messages.
_STATE = (
    "SELECT count(*), max(message_id), max(time_updated) FROM part WHERE message_id IN"
    " (SELECT id FROM message WHERE session_id = ? ORDER BY time_created DESC, id DESC LIMIT 3)"
)
_FURTHEST = 64 * 1024 * 1024  # characters from the end; what stands before is not looked at


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

    _state: object = None

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
        """Give what it holds from its end back; places say nothing here, and nothing is known of what holds bytes.

        What a finished summary stands for lies before the message that asked for it, or before the turns kept.
        """
        starts: dict[str, str] = {}
        for line in self._messages():
            if line["over"]:
                starts[line["tail"] or line["id"]] = line["at"]
            for entry in reversed(list(self.entries_of(line))):
                yield 0, entry
            if line["id"] in starts:
                yield 0, Passage(BOUNDARY, starts[line["id"]])

    def _given(self) -> Iterator[str]:
        for _, entry in self._back():
            if entry.kind == BOUNDARY:
                break
            if entry.kind in (GIVEN, PROMPT):
                yield entry.text

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Give the session's messages from the last one back, of one moment; none where that cannot be read."""
        from loomctl.kit import clock  # where there is something to read

        try:
            base, session_id = _opened(self._path)
        except Exception:  # noqa: BLE001 - the host's, and of any shape: what cannot be read holds nothing
            return
        summarised: set[str] = set()
        left = _FURTHEST
        try:
            self._state = base.execute(_STATE, (session_id,)).fetchone()
            for message_id, at, data in base.execute(_MESSAGES, (session_id,)):
                info = quick_json.as_object(_read(data))
                if info.get("summary") is True and info.get("finish") and not info.get("error"):
                    summarised.add(text_of(info, "parentID"))
                rows = base.execute(_PARTS, (message_id,)).fetchall()
                parts = [(clock.exact_stamp(at * 1_000_000), quick_json.as_object(_read(one))) for at, one in rows]
                asks = [part for _, part in parts if text_of(part, "type") == "compaction"]
                told = {"id": message_id, "at": clock.exact_stamp(at * 1_000_000), "info": info, "parts": parts}
                over = bool(asks) and message_id in summarised
                yield {**told, "over": over, "tail": text_of(asks[0], "tail_start_id") if asks else ""}
                left -= sum(len(one or "") for _, one in rows)
                if left < 0:
                    break
        except Exception:  # noqa: BLE001, S110 - as above
            pass
        finally:
            base.close()

    def _grows(self, until: float) -> bool:
        while self._path and time.monotonic() < until:
            time.sleep(_LOOKS_EVERY)
            try:
                base, session_id = _opened(self._path)
                state = base.execute(_STATE, (session_id,)).fetchone()
                base.close()
            except Exception:  # noqa: BLE001 - as above
                return False
            if state != self._state:
                return True
        return False


def _database() -> str:
    """Give where the host keeps its database; empty if that cannot be known."""
    from loomctl.kit import machine

    data, home = os.environ.get("XDG_DATA_HOME", ""), machine.home()
    base = data if os.path.isabs(data) else os.path.join(home, ".local", "share") if home else ""
    return os.path.join(base, "opencode", os.environ.get("OPENCODE_DB") or "opencode.db") if base else ""


def _opened(path: str | None) -> tuple[Any, str]:
    """Open the database of a session, as it is at one moment; give it and the session's id."""
    import sqlite3  # most hooks ask nothing of it
    from urllib.parse import quote

    place, session_id = os.path.split(path or "")
    base = sqlite3.connect(f"file:{quote(place)}?mode=ro", uri=True, timeout=1, isolation_level=None)
    base.execute("BEGIN")
    return base, session_id


def _read(data: object) -> object:
    try:
        return quick_json.loads(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return None
