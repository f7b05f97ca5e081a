"""Reading Claude Code's transcript: which of Loom's slips stand live in it, and what the assistant said (D15, D27).

The file is the host's; every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

import json
import os

from loomctl.engine.caller import Conversation
from loomctl.model.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

LARGEST = 512 * 1024 * 1024
_BOUNDARY = b'"compact_boundary"'


class Transcript(Conversation):
    """One session's transcript file; a path of None, or a file that is not there, holds nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        """Tell which slip ids stand in the live part: after the last compaction (or kept by it), on the live branch."""
        entries = live_entries(self._lines(after_boundary=True))
        found: set[str] = set()
        for entry in entries:
            texts = [text for text in texts_of(entry) if "Loom slip " in text]
            found.update(slip for slip in slips for text in texts if f"Loom slip {slip}" in text)
            if len(found) == len(slips):
                break
        return frozenset(found)

    def said_since(self, at: str) -> str | None:
        """Give the assistant's text blocks since a time, joined; None if there is no transcript or it said nothing."""
        said: list[str] = []
        for entry in self._lines(after_boundary=False):
            if (
                entry.get("type") != "assistant"
                or entry.get("isSidechain")
                or str(entry.get("timestamp", "")) < at[:19]
            ):
                continue
            said.extend(text for text in _blocks(entry, "text") if text.strip())
        return "\n\n".join(said) or None

    def last_message(self, ending: str) -> str:
        """Give the whole last message of the assistant, whose last text block is `ending`; else `ending` itself.

        The host hands a Stop hook the last block only; blocks of one message stand on lines of their own.
        """
        blocks: list[str] = []
        message_id = None
        for entry in self._lines(after_boundary=True):
            if entry.get("type") != "assistant" or entry.get("isSidechain"):
                continue
            message = entry.get("message")
            current = message.get("id") if isinstance(message, dict) else None
            if current != message_id:
                blocks, message_id = [], current
            blocks.extend(_blocks(entry, "text"))
        return "\n\n".join(blocks) if blocks and blocks[-1].strip() == ending.strip() else ending

    def boundary(self) -> str | None:
        """Name the last compaction by its entry's uuid; None if there was none."""
        for entry in self._lines(after_boundary=True):
            if _is_boundary(entry):
                return str(entry.get("uuid") or "boundary")
        return None

    def _lines(self, *, after_boundary: bool) -> Iterator[dict[str, Any]]:
        """Give the file's entries; from the last compaction's line on (that line and what it kept first) if wanted."""
        if not self._path:
            return
        try:
            if os.stat(self._path).st_size > LARGEST:
                return
            with open(self._path, "rb") as source:
                data = source.read()
        except OSError:
            return
        start = _last_boundary(data) if after_boundary else 0
        if start:
            boundary = _parsed(data[start : data.find(b"\n", start) if data.find(b"\n", start) > 0 else len(data)])
            kept = _kept_by(boundary)
            if kept:
                for line in data[:start].split(b"\n"):
                    entry = _parsed(line) if b'"uuid"' in line else None
                    if entry is not None and entry.get("uuid") in kept:
                        yield entry
        for line in data[start:].split(b"\n"):
            entry = _parsed(line)
            if entry is not None:
                yield entry


def find(session_id: str) -> str | None:
    """Find a session's transcript where the host keeps them: `projects/*/{session_id}.jsonl` of its configuration."""
    base = os.path.join(os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"), "projects")
    try:
        folders = os.listdir(base)
    except OSError:
        return None
    paths = [os.path.join(base, folder, checked_id(session_id, what="session id") + ".jsonl") for folder in folders]
    present = [path for path in paths if os.path.isfile(path)]
    return max(present, key=os.path.getmtime) if present else None


def live_entries(entries: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what stands on a branch that was left by a rewind.

    Each entry names its parent. A prompt that is not an ancestor of the last entry was left, and all that hangs from
    it; parallel tool results hang beside the line and stay.
    """
    known = list(entries)
    by_id = {entry["uuid"]: entry for entry in known if isinstance(entry.get("uuid"), str)}
    line: set[str] = set()
    at = next((entry for entry in reversed(known) if _in_the_tree(entry)), None)
    while at is not None and at["uuid"] not in line:
        line.add(at["uuid"])
        at = by_id.get(at.get("parentUuid") or "")
    left: set[str] = set()
    live: list[dict[str, Any]] = []
    for entry in known:
        uuid = entry.get("uuid")
        if isinstance(uuid, str) and uuid not in line and (_is_prompt(entry) or entry.get("parentUuid") in left):
            left.add(uuid)
        else:
            live.append(entry)
    return live


def texts_of(entry: dict[str, Any]) -> list[str]:
    """Give the texts of an entry that reached the model: hook output, command output, tool results, messages."""
    attachment = entry.get("attachment")
    if entry.get("type") == "attachment" and isinstance(attachment, dict):
        if attachment.get("type") not in ("hook_additional_context", "hook_success"):
            return []
        content = attachment.get("content")
        return [part for part in (content if isinstance(content, list) else [content]) if isinstance(part, str)]
    if entry.get("type") not in ("user", "assistant") or entry.get("isSidechain"):
        return []
    return _blocks(entry, "text") + _blocks(entry, "tool_result")


def _blocks(entry: dict[str, Any], kind: str) -> list[str]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [content] if kind == "text" else []
    found: list[str] = []
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict) or block.get("type") != kind:
            continue
        value = block.get("text") if kind == "text" else block.get("content")
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                found.append(text)
    return found


def _is_prompt(entry: dict[str, Any]) -> bool:
    """Tell a person's prompt from tool results and the host's own additions, which carry the `user` type too."""
    return (
        entry.get("type") == "user"
        and not entry.get("isMeta")
        and not entry.get("isSidechain")
        and not entry.get("isCompactSummary")
        and "toolUseResult" not in entry
        and not _blocks(entry, "tool_result")
    )


def _in_the_tree(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("uuid"), str) and not entry.get("isSidechain") and "parentUuid" in entry


def _last_boundary(data: bytes) -> int:
    """Find the start of the last line that is a compaction's entry; 0 if there is none."""
    at = len(data)
    while True:
        at = data.rfind(_BOUNDARY, 0, at)
        if at < 0:
            return 0
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        if _is_boundary(_parsed(data[start : end if end >= 0 else len(data)]) or {}):
            return start


def _is_boundary(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"


def _kept_by(boundary: dict[str, Any] | None) -> set[str]:
    metadata = (boundary or {}).get("compactMetadata")
    kept = metadata.get("preservedMessages") if isinstance(metadata, dict) else None
    uuids = kept.get("allUuids") or kept.get("uuids") if isinstance(kept, dict) else None
    return {uuid for uuid in uuids if isinstance(uuid, str)} if isinstance(uuids, list) else set()


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
