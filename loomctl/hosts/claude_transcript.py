"""Reading Claude Code's transcript: which of Loom's slips stand live in it, and what the assistant said (D15, D27).

The file is the host's; every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

import json
import os

from loomctl.disk import files
from loomctl.engine.caller import Conversation
from loomctl.model.errors import LoomError
from loomctl.model.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

LARGEST = 512 * 1024 * 1024
_HOSTS_OWN = "<synthetic>"
NOTICE = "<task-notification>"  # how the prompt begins by which the host tells of a subagent's end
_COMMANDS = "/loom:"
_LONGEST_CHAIN = 50  # of notices that led to notices
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_OF_THE_HOST = "<synthetic>"  # the model of a message that the host wrote itself, such as an error of its API
_BOUNDARY = b'"compact_boundary"'
_MARK = "Loom slip "  # as model.slip has it; not imported, for most hooks need nothing else of that


class Transcript(Conversation):
    """One session's transcript file; a path of None, or a file that is not there, holds nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._data: bytes | None = None

    def another(self, path: str | None) -> Transcript:
        """Give another session's transcript."""
        return Transcript(path)

    def called(self) -> Mapping[str, float]:
        """Give when hooks were last called, by event, as far as the end of the transcript shows it."""
        from loomctl.hosts import claude_calls  # no hook asks

        return claude_calls.called(self._path)

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        """Tell which slip ids stand in the live part: after the last compaction (or kept by it), on the live branch.

        A slip's id counts where it is a line of its own in something that was given to the assistant.
        """
        wanted = [slip for slip in slips if f"{_MARK}{slip}".encode("utf-8", "replace") in self._read()]
        if not wanted:
            return frozenset()
        lines: set[str] = set()
        for entry in self._live():
            for text in texts_of(entry):
                if _MARK in text:
                    lines.update(text.split("\n"))
        return frozenset(slip for slip in wanted if f"{_MARK}{slip}" in lines)

    def said_since(self, at: str) -> str | None:
        """Give the assistant's text blocks since a time, joined; None if there is no transcript or it said nothing.

        What was said on a branch that was left by a rewind does not count.
        """
        data, since = self._read(), _moment(at)
        found: list[dict[str, Any]] = []
        whole = True
        for entry in _entries_back(data):
            whole = not (_is_said(entry) and _text(entry, "timestamp") < since)
            if not whole:
                break
            found.append(entry)
        found.reverse()
        boundary = max((place for place, entry in enumerate(found) if _is_boundary(entry)), default=0)
        said = [
            text
            for entry in (*found[:boundary], *live_entries(found[boundary:], whole=whole or boundary > 0))
            if _is_said(entry) and _text(entry, "timestamp") >= since
            for text in _blocks(entry, "text")
            if text.strip()
        ]
        return "\n\n".join(said) or None

    def last_message(self, ending: str) -> str:
        """Give the whole last message of the assistant, whose last text block is `ending`; else `ending` itself.

        The host hands a Stop hook the last block only; blocks of one message stand on lines of their own.
        """
        data = self._read()
        blocks: list[str] = []
        ids: set[object] = set()
        for entry in _entries_back(data, _last_boundary(data), holding=b'"assistant"'):
            if not _is_said(entry):
                continue
            message = entry.get("message")
            ids.add(_text(message, "id") if isinstance(message, dict) else "")
            if len(ids) > 1:
                break
            blocks[:0] = _blocks(entry, "text")
        return "\n\n".join(blocks) if blocks and blocks[-1].strip() == ending.strip() else ending

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:
        """Give the models and tokens of the assistant's messages since a time, each counted once (D41).

        beside: other transcripts, of which one may be a fork and hold the same messages.
        """
        used: dict[str, dict[str, Any]] = {}
        for one in (*beside, self):
            if isinstance(one, Transcript):
                used.update(one._used_since(at))  # noqa: SLF001 - of its own kind
        return _summed(list(used.values()))

    def _used_since(self, at: str) -> dict[str, dict[str, Any]]:
        """Give the assistant's messages since a time by their ids, the first one first."""
        used: dict[str, dict[str, Any]] = {}
        for entry in _entries_back(self._read()):
            if "message" not in entry or not _is_said(entry):
                continue
            if _text(entry, "timestamp") < _moment(at):
                break
            message = entry["message"]
            if not isinstance(message, dict) or _text(message, "model") == _OF_THE_HOST:
                continue
            if isinstance(message.get("usage"), dict):
                used.setdefault(_text(message, "id") or _text(entry, "uuid"), message)
        return dict(reversed(used.items()))

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:
        """Tell whether a turn began with a Loom command, or with the notice that a subagent of a driven turn ended.

        driven: the prompt ids of turns that are known to be driven; unwritten: the turn's prompt, which the host may
        write down later than it calls hooks.
        """
        for _ in range(_LONGEST_CHAIN):
            if prompt_id in driven:
                return True
            start, words = self._prompt(prompt_id)
            if unwritten and not words:
                start, words = len(self._read()), unwritten.lstrip()
            unwritten = ""
            if not words.startswith(NOTICE):
                return words.startswith("<command-") and f"<command-name>{_COMMANDS}" in words
            called = _between(words, "<tool-use-id>", "</tool-use-id>")
            prompt_id = self._prompt_before(self._call(called) if called else start)
        return False

    def _prompt(self, prompt_id: str) -> tuple[int, str]:
        """Find the prompt of a turn: where its line begins, and its words; (0, "") where it is not there."""
        data, mark = self._read(), prompt_id.encode("utf-8", "replace")
        at = data.find(mark) if mark else -1
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            entry = _line_at(data, start)
            if _text(entry, "promptId") == prompt_id and _is_prompt(entry):
                return start, "\n".join(_blocks(entry, "text")).lstrip()
            end = data.find(b"\n", at)
            at = data.find(mark, end) if end >= 0 else -1
        return 0, ""

    def _call(self, called: str) -> int:
        """Find where the line of a tool call begins; 0 where it is not there."""
        data, mark = self._read(), called.encode("utf-8", "replace")
        at = data.find(mark)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            entry = _line_at(data, start)
            if _is_said(entry) and called in _calls(entry):
                return start
            end = data.find(b"\n", at)
            at = data.find(mark, end) if end >= 0 else -1
        return 0

    def _prompt_before(self, end: int) -> str:
        """Give the id of the last prompt before a place; "" where there is none."""
        for entry in _entries_back(self._read()[:end]):
            if _text(entry, "promptId") and _is_prompt(entry):
                return _text(entry, "promptId")
        return ""

    def boundary(self) -> str | None:
        """Name the last compaction by its entry's uuid; None if there was none."""
        data = self._read()
        start = _last_boundary(data)
        return _text(_line_at(data, start), "uuid") or "boundary" if start >= 0 else None

    def _live(self) -> list[dict[str, Any]]:
        """Give what the assistant has before it: the entries since the last compaction, and those that it kept."""
        data = self._read()
        start = _last_boundary(data)
        if start < 0:
            return live_entries(_entries(data))
        kept = _kept_by(_line_at(data, start))
        before = _entries(data[:start]) if kept else ()
        return [entry for entry in before if _text(entry, "uuid") in kept] + live_entries(_entries(data[start:]))

    def _read(self) -> bytes:
        if self._data is None:
            try:
                self._data = files.read_bytes(self._path, limit=LARGEST) if self._path else b""
            except (OSError, ValueError, LoomError):
                self._data = b""
        return self._data


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


def live_entries(entries: Iterable[dict[str, Any]], *, whole: bool = True) -> list[dict[str, Any]]:
    """Leave out what stands on a branch that was left by a rewind.

    Each entry names its parent. A prompt that is not an ancestor of the last entry was left, and all that hangs from
    it; parallel tool results hang beside the line and stay. whole: the entries begin where the conversation does; else
    what hangs from none of them, and is no ancestor, was left too.
    """
    known = list(entries)
    by_id = {_text(entry, "uuid"): entry for entry in known}
    line = {""}
    at = next((entry for entry in reversed(known) if _in_the_tree(entry)), None)
    while at is not None and _text(at, "uuid") not in line:
        line.add(_text(at, "uuid"))
        at = by_id.get(_text(at, "parentUuid"))
    left = set() if whole else {_text(entry, "parentUuid") for entry in known} - by_id.keys() - {""}
    live: list[dict[str, Any]] = []
    for entry in known:
        uuid = _text(entry, "uuid")
        if uuid not in line and (_is_prompt(entry) or _text(entry, "parentUuid") in left):
            left.add(uuid)
        else:
            live.append(entry)
    return live


def texts_of(entry: dict[str, Any]) -> list[str]:
    """Give the texts of an entry that were given to the model: hook output, commands, tool results, prompts."""
    attachment = entry.get("attachment")
    if entry.get("type") == "attachment" and isinstance(attachment, dict):
        if attachment.get("type") not in ("hook_additional_context", "hook_success"):
            return []
        content = attachment.get("content")
        return [part for part in (content if isinstance(content, list) else [content]) if isinstance(part, str)]
    if entry.get("type") != "user" or entry.get("isSidechain"):
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


def _summed(messages: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if not messages:
        return None
    models = dict.fromkeys(_text(message, "model") for message in messages)
    total: dict[str, Any] = {"models": [model for model in models if model], "messages": len(messages)}
    for name in _TOKENS:
        counts = (message["usage"].get(name) for message in messages)
        total[name] = sum(count for count in counts if type(count) is int and count > 0)
    return total


def _moment(at: str) -> str:
    """Give a time in the form that is held against the host's, which has milliseconds and a Z."""
    return at[:23].removesuffix("Z")


def _calls(entry: dict[str, Any]) -> list[str]:
    """Give the ids of the tool calls in an entry of the assistant's."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    return [str(block.get("id")) for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]


def _between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0].strip() if end in text else ""


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


def _is_said(entry: dict[str, Any]) -> bool:
    """Tell whether an entry is the conversation's own: no subagent's, and not the host's in the assistant's name.

    The host writes such ones where a turn was broken off ("No response requested."), as of the model `<synthetic>`.
    """
    if entry.get("type") != "assistant" or entry.get("isSidechain"):
        return False
    message = entry.get("message")
    return not (isinstance(message, dict) and message.get("model") == _HOSTS_OWN)


def _in_the_tree(entry: dict[str, Any]) -> bool:
    return bool(_text(entry, "uuid")) and not entry.get("isSidechain") and "parentUuid" in entry


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _last_boundary(data: bytes) -> int:
    """Find the start of the last line that is a compaction's entry; -1 if there is none."""
    at = len(data)
    while True:
        at = data.rfind(_BOUNDARY, 0, at)
        if at < 0:
            return -1
        start = data.rfind(b"\n", 0, at) + 1
        if _is_boundary(_line_at(data, start)):
            return start
        at = start


def _line_at(data: bytes, start: int) -> dict[str, Any]:
    end = data.find(b"\n", start)
    return _parsed(data[start : end if end >= 0 else len(data)]) or {}


def _entries(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        entry = _parsed(line)
        if entry is not None:
            yield entry


def _entries_back(data: bytes, start: int = 0, *, holding: bytes = b"") -> Iterator[dict[str, Any]]:
    """Give the entries from the last one back to a place, each parsed only when it is come to.

    holding: only those whose line has these bytes in it.
    """
    end = len(data)
    while end > max(0, start):
        begins = data.rfind(b"\n", 0, end - 1) + 1
        if data.find(holding, begins, end) >= 0:
            entry = _parsed(data[begins:end])
            if entry is not None:
                yield entry
        end = begins


def _is_boundary(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"


def _kept_by(boundary: dict[str, Any]) -> set[str]:
    metadata = boundary.get("compactMetadata")
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
