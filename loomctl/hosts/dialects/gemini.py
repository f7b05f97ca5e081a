"""Gemini CLI: events with names of its own, and its chat files (hosts as of 0.61).

No event tells of a start or of a compaction: a session's first prompt is its start, and a compaction is a line in its
file that sets the messages anew, with a `<state_snapshot>` at the top. Its events name no turn; the file does.
"""

from __future__ import annotations

import os

from loomctl.hosts.dialects.written import (
    BOUNDARY,
    CALL,
    GIVEN,
    PROMPT,
    SAID,
    Passage,
    Written,
    is_of_loom,
    text_of,
    texts_of,
)
from loomctl.kit import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from loomctl.hosts.asking import Answer

_NAMES = {
    "SessionStart": "BeforeAgent",
    "UserPromptSubmit": "BeforeAgent",
    "PreToolUse": "BeforeTool",
    "PostToolUse": "AfterTool",
    "Stop": "AfterAgent",
}
_BEGUN_ANEW, _BEFORE = "messages set anew", "said or called before"
_SNAPSHOT = "<state_snapshot>"
_AT_THE_TOP = 3  # messages of which one is the summary
_CONTEXT, _CONTEXT_ENDS = "<hook_context>", "</hook_context>"
_OWN = "Loom: "  # the reason of a block, which comes as a prompt


def read(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event in the protocol's shape."""
    made = dict(event)
    if word == "stop":
        made["last_assistant_message"] = text_of(event, "prompt_response")
    return made


def write(answer: Answer) -> str:
    """Give an answer as the host takes it; empty where nothing is said."""
    told: dict[str, Any] = {}
    if answer.goes_on:
        told |= {"decision": "block", "reason": answer.goes_on}
    line = answer.line
    if answer.decision == "ask":  # to allow is left to its policy
        told |= {"decision": "ask", "reason": answer.why}
        line = line or f"Loom: {answer.why}"
    if answer.text:
        name = _NAMES.get(answer.event, answer.event)
        told["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": answer.text}
    if line:
        told["systemMessage"] = line
    return quick_json.plain(told) if told else ""


class Transcript(Written):
    """A session's chat: `~/.gemini/tmp/PROJECT/chats/session-TIME-ID8.jsonl`."""

    compacts = b'"messages"'
    ends = (BOUNDARY, _BEGUN_ANEW)

    def kept_at(self, session_id: str) -> str | None:
        """Find where the host keeps a session's chat, the newest where it was resumed."""
        from loomctl.kit import machine  # most hooks are told the path

        home = machine.home()
        base = os.path.join(home, ".gemini", "tmp") if home else ""
        found = [
            os.path.join(folder, name)
            for project in _listed(base)
            for folder in [os.path.join(base, project, "chats")]
            for name in _listed(folder)
            if name.endswith(f"-{session_id[:8]}.jsonl")
        ]
        return max(found, key=os.path.basename) if found and session_id else None

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:
        """Give what a line tells: a message, or all of them anew, after a compaction too."""
        messages = line["$set"].get("messages") if isinstance(line.get("$set"), dict) else None
        if isinstance(messages, list):
            known = [one for one in messages[:_AT_THE_TOP] if isinstance(one, dict)]
            told = ((texts_of(one.get("content")), text_of(one, "timestamp")) for one in known)
            summary, at = next((one for one in told if one[0].startswith(_SNAPSHOT)), ("", ""))
            yield Passage(BOUNDARY if summary else _BEGUN_ANEW, at or "unknown", summary)
            for message in messages:
                for one in _of_message(message) if isinstance(message, dict) else ():
                    yield one._replace(kind=_BEFORE) if one.kind in (SAID, CALL) else one  # under another time
        else:
            yield from _of_message(line)

    def last_turn(self) -> tuple[str, str]:
        """Give the key of the turn that ends, which its blocks go on, and the assistant's last message."""
        last = self._newest((SAID, PROMPT))[1]
        return self._began().turn, last.text if last.kind == SAID else ""

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:
        """Tell whether the turn began with a command of Loom's: its prompt is what `loomctl` printed then."""
        if prompt_id in driven:
            return True
        return is_of_loom(unwritten or self._began().text)

    def _began(self) -> Passage:
        for _, entry in self._back():
            if entry.kind == PROMPT and (not entry.text.startswith(_OWN) or is_of_loom(entry.text)):
                return entry
        return Passage("", "")


def _of_message(message: dict[str, Any]) -> Iterator[Passage]:
    at, kind, turn = text_of(message, "timestamp"), text_of(message, "type"), text_of(message, "id")
    content = message.get("content")
    if kind == "gemini":
        said = texts_of(content)
        if said:
            yield Passage(SAID, at, said)
        for call in message["toolCalls"] if isinstance(message.get("toolCalls"), list) else ():
            yield Passage(CALL, text_of(call, "timestamp") or at)
    elif kind == "user":
        for place, part in enumerate(content if isinstance(content, list) else [{"text": content}]):
            result = part.get("functionResponse") if isinstance(part, dict) else None
            given = text_of(result, "response", "output") or text_of(result, "response", "error")
            told = given or text_of(part, "text")
            if told:
                is_prompt = not given and not place and not told.startswith((_CONTEXT, _SNAPSHOT, "<session_context>"))
                yield Passage(PROMPT if is_prompt else GIVEN, at, told.replace(_CONTEXT_ENDS, "\n"), turn)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder)) if folder else []
    except OSError:
        return []
